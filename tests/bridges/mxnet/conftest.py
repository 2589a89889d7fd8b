"""What tests of compiled regions share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def nothing_is_compiled() -> Iterator[None]:
    """The process knows of no compiled region, nor of shapes that came."""
    from ngraph_mxnet import _core
    from ngraph_mxnet.bridges.mxnet import ranges

    _core.clear_compile_cache()
    ranges.forget()
    yield
    _core.clear_compile_cache()
