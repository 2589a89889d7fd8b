"""Backends for single tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ngraph_mxnet import registry
from ngraph_mxnet.runtime import backend


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Adds a backend, by name and `module:class`, until the test ends."""
    monkeypatch.setattr(registry, "TARGETS", dict(registry.TARGETS))
    monkeypatch.setattr(backend, "_INSTANCES", dict(backend._INSTANCES))
    return backend.register_backend
