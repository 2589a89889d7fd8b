"""What tests of compiled regions share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest


def _forget() -> None:
    from ngraph_mxnet import _core
    from ngraph_mxnet.bridges.mxnet import regions

    _core.clear_compile_cache()
    regions.forget()


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_of_other_files() -> None:
    """Which files ran before in this process, and on which nets, makes no difference."""
    with suppress(ImportError):  # the library is not built: its tests are skipped
        _forget()


@pytest.fixture
def nothing_is_compiled() -> Iterator[None]:
    """The process knows of no compiled region, nor of shapes that came."""
    from ngraph_mxnet import _core

    _forget()
    yield
    _core.clear_compile_cache()
