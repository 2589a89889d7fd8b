"""What tests of the CPU's kernels share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from bf16_machine import amx

from ngraph_mxnet import _core
from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.opdef import REGISTRY, register_op
from ngraph_mxnet.targets.cpu.lower.context import RULES, Lowering, LoweringRule
from ngraph_mxnet.targets.cpu.machine.isa import available
from ngraph_mxnet.targets.cpu.planning import algorithm


@pytest.fixture(autouse=True)
def _tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test with the parameter `isa` of amx runs where the CPU lacks it, too."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is None or callspec.params.get("isa") != "amx" or "amx" in available(_core.cpu_features()):
        yield
    else:
        with amx(monkeypatch):
            yield


@pytest.fixture
def tiles_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets 3x3 convolutions use Winograd's algorithm with tiles of this size, 0 for none, wherever that is possible:
    the planner would choose it for large ones only."""
    return lambda size: monkeypatch.setattr(algorithm, "choose_tile", lambda *_: size)


@pytest.fixture
def own_op(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[Lowering, Node], None]], None]]:
    """Lets the CPU lower the op `own_op`, whose result has the type of its operand, by this function."""
    register_op("own_op", operands=1)(lambda types, attrs: types[0])
    yield lambda lower: monkeypatch.setitem(RULES, "own_op", LoweringRule(lower, lambda node: None))
    del REGISTRY["own_op"]
