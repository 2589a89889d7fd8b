"""What is told of an op's adjoint."""

from __future__ import annotations

from ngraph_mxnet.autodiff.adjoints import ADJOINTS, NO_DERIVATIVE, why_not
from ngraph_mxnet.autodiff.reverse import differentiate
from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.ir.builder import Builder
from ngraph_mxnet.ir.opdef import OpDef


def described(op: OpDef) -> str:
    """The adjoint as IR for operands f32[2,3], if the op takes these, else its module; or why there is none."""
    if op.name in NO_DERIVATIVE:
        return f"nothing goes back: {NO_DERIVATIVE[op.name]}"
    if op.name not in ADJOINTS:
        return f"none: {why_not(op.name, {})}"
    b = Builder(name=op.name)
    operands = [b.parameter(f"x{number}", (2, 3)) for number in range(op.least)]
    try:
        graph = b.results(*b.node(op.name, operands, {}).outputs)
        return str(differentiate(graph, [operand.name for operand in operands]).graph)
    except NGraphError:
        return f"in {ADJOINTS[op.name].__module__}"
