"""What tests of compiled regions share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType

import pytest


def _forget() -> None:
    from ngraph_mxnet import _core
    from ngraph_mxnet.plugin import regions

    _core.clear_compile_cache()
    regions.forget()


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_of_other_files() -> None:
    """Which files ran before in this process, and on which nets, makes no difference."""
    with suppress(ImportError):  # the library is not built: its tests are skipped
        _forget()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of any size train compiled, as nets of millions of operations would make tests take minutes."""
    from ngraph_mxnet.plugin.training import parts

    monkeypatch.setattr(parts, "LEAST_WORK", 1)


@pytest.fixture
def short() -> Iterator[list[bool]]:
    """Whether each call so far of a block that has a short way went that way: seen as a profiler sees it."""
    from ngraph_mxnet.plugin.binding.gluon_blocks import QuickCall, QuickTraining

    ways = {kind.call.__code__ for kind in (QuickCall, QuickTraining)}
    seen: list[bool] = []

    def profile(frame: FrameType, event: str, result: object) -> None:
        if event == "return" and frame.f_code in ways:
            seen.append(result is not None)

    sys.setprofile(profile)
    yield seen
    sys.setprofile(None)


@pytest.fixture
def nothing_is_compiled() -> Iterator[None]:
    """The process knows of no compiled region, nor of shapes that came."""
    from ngraph_mxnet import _core

    _forget()
    yield
    _core.clear_compile_cache()
