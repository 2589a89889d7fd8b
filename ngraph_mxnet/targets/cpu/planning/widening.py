"""Nodes of an element type that their op has no kernel for, as nodes of one that it has.

float16 is computed in float32 and rounded once, as the references do; pools of small integers are exact in float32.
Softmax of float64 becomes the elementwise ops and reductions that it is made of.
"""

from __future__ import annotations

from math import prod

from ngraph_mxnet.ir.graph import Graph, Node, Value, make_node
from ngraph_mxnet.ir.sizes import is_zero
from ngraph_mxnet.ir.types import TensorType, f16, f32, f64, i8, i16, u8, u16
from ngraph_mxnet.passes.base import Answer, RewritePass, Rewriter
from ngraph_mxnet.quantisation.byte_fusion import MOST_TERMS
from ngraph_mxnet.targets.cpu.lower import RULES
from ngraph_mxnet.targets.cpu.planning.gradients import GRADIENTS, becomes_others

_EXACT_IN_F32 = frozenset({i8, i16, u8, u16})
_CONCERNED = frozenset({f16, f64}) | _EXACT_IN_F32
_BECOMES = {"batch_norm": "scale_shift"}
"""Ops without a kernel that a pass always turns into another."""
_SUMS = {"integer_convolution": "convolution", "integer_matmul": "matmul"}
"""The ops that become sums of others (`quantisation/byte_fusion.py`). Those sums are of float32 at the worst."""


def unlowered(node: Node) -> str | None:
    """Why the node has no kernel as it stands."""
    if becomes_others(node):
        return None
    if node.op.name in _SUMS:
        operands = [Value(TensorType(f32, value.type.shape), None, 0) for value in node.inputs[:2]]
        if node.op.kind == "convolution" and prod(operands[1].shape[2:]) > MOST_TERMS:
            return f"{node.op.name} of more than {MOST_TERMS} taps has no CPU kernel"
        return unlowered(make_node(_SUMS[node.op.name], operands, node.attrs))
    rule = RULES.get(_BECOMES.get(node.op.name, node.op.name))
    return f"{node.op.name} has no CPU kernel" if rule is None else rule.check(node)


class _Widening(RewritePass):
    """It concerns graphs with such types only."""

    def run(self, graph: Graph) -> bool:
        self.misses = []
        elements = {value.type.element for value in graph.values()}
        return not elements.isdisjoint(_CONCERNED) and super().run(graph)


def widening() -> RewritePass:
    """The pass."""
    return _Widening("widening", dict.fromkeys((*RULES, *_BECOMES, *GRADIENTS), (_widened, _taken_apart)))


def runs_widened(node: Node) -> bool:
    """True if the pass turns the node into something that runs."""
    if _is_double_softmax(node):
        return True
    if not _narrow(node):
        return False
    operands = [Value(_wide(node, value.type), None, 0) for value in node.inputs]
    return unlowered(make_node(node.op.name, operands, node.attrs)) is None


def _narrow(node: Node) -> bool:
    elements = {value.type.element for value in node.inputs}
    return f16 in elements or (node.op.name == "max_pool" and elements <= _EXACT_IN_F32)


def _wide(node: Node, type_: TensorType) -> TensorType:
    narrow = type_.element is f16 or (node.op.name == "max_pool" and type_.element in _EXACT_IN_F32)
    return TensorType(f32, type_.shape) if narrow else type_


def _is_double_softmax(node: Node) -> bool:
    return node.op.name in ("softmax", "log_softmax") and node.inputs[0].type.element is f64


def _widened(node: Node, rw: Rewriter) -> Answer:
    """op(x) -> convert(op(convert(x)))."""
    if not _narrow(node) or unlowered(node) is None:
        return None
    operands = [rw.make("convert", value, element=f32) if _wide(node, value.type) != value.type else value
                for value in node.inputs]
    made = rw.make(node.op.name, *operands, **node.attrs).node
    assert made is not None
    return {old: new if old.type == new.type else rw.make("convert", new, element=old.type.element)
            for old, new in zip(node.outputs, made.outputs, strict=True)}


def _taken_apart(node: Node, rw: Rewriter) -> Answer:
    """softmax(x) -> e / sum(e) with e = exp(x - max(x)), and its logarithm."""
    if not _is_double_softmax(node):
        return None
    axes = (node.attrs["axis"],)
    x = node.inputs[0]
    if is_zero(x.type.size):
        return x  # no elements have no greatest
    shifted = rw.make("subtract", x, rw.make("reduce_max", x, axes=axes, keep_dims=True))
    power = rw.make("exp", shifted)
    total = rw.make("reduce_sum", power, axes=axes, keep_dims=True)
    if node.op.name == "softmax":
        return rw.make("divide", power, total)
    return rw.make("subtract", shifted, rw.make("log", total))
