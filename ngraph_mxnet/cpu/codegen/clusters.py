"""Which nodes of an optimised graph the CPU's generated kernels fuse."""

from __future__ import annotations

from ngraph_mxnet.cpu.codegen.spec import SCRATCH_BYTES
from ngraph_mxnet.cpu.layout import BLOCKED_PRODUCERS, is_blocked_producer
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.types import f32
from ngraph_mxnet.passes.clusters import REDUCTIONS, ROW_OPS, Clusters

ELEMENTWISE = frozenset(
    "abs ceiling clamp elu erf exp expm1 floor gelu hard_swish leaky_relu log log1p negative reciprocal relu round "
    "rsqrt sigmoid sign softplus softsign sqrt square tanh trunc add divide maximum minimum multiply subtract equal "
    "greater greater_equal less less_equal not_equal logical_and logical_or logical_xor logical_not select convert "
    "scale_shift".split()
)
"""All that are computed without a call of libm, which no loop around it survives as vector code."""

BOOLEAN = frozenset({"convert", "logical_and", "logical_not", "logical_or", "logical_xor"})
"""Those that take bool."""

PARAMETERS = {"clamp": ("lower", "upper"), "leaky_relu": ("slope",), "elu": ("alpha",),
              "hard_swish": ("slope", "offset", "scale", "shift")}
"""Attributes that are parameters of an op's expression, in its order."""

_MOST_ROW = SCRATCH_BYTES // 4 // 4


def cluster_pass() -> Clusters:
    """The pass that makes `fused` nodes for the generated kernels."""
    return Clusters(_is_elementwise, lambda node: node.op.name in (*REDUCTIONS, *ROW_OPS) and _has_types(node),
                    _images, _MOST_ROW)


def _is_elementwise(node: Node) -> bool:
    if node.op.name == "scale_shift" and node.output.type.rank > 4:
        return False
    return node.op.name in ELEMENTWISE and _has_types(node) and _has_expression(node) and node.output.type.size > 0


def _has_expression(node: Node) -> bool:
    """Comparisons and choices between bool have none."""
    operands = node.inputs[1:] if node.op.name == "select" else node.inputs
    return node.op.name in BOOLEAN or all(value.type.element is f32 for value in operands)


def _has_types(node: Node) -> bool:
    return all(v.type.element.name in ("f32", "bool") for v in (*node.inputs, *node.outputs))


def _images(graph: Graph) -> set[Value]:
    """What is likely to be in the blocked layout, in which rows are not contiguous."""
    found: set[Value] = set()
    for node in graph.nodes:
        blocked = node.op.name in BLOCKED_PRODUCERS and is_blocked_producer(node)
        if blocked or (_is_elementwise(node) and any(v in found for v in node.inputs)):
            found.update(v for v in node.outputs if v.type.rank > 2)
    return found
