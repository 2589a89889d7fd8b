"""Which nodes of an optimised graph the CPU's generated kernels fuse."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.types import f32
from ngraph_mxnet.passes.clusters import Clusters
from ngraph_mxnet.targets.cpu.codegen.describe import has_steps
from ngraph_mxnet.targets.cpu.codegen.spec import REDUCTIONS, SCRATCH_BYTES
from ngraph_mxnet.targets.cpu.planning.layout import is_blocked_concat

_MOST_ROW = SCRATCH_BYTES // 4 // 4


def cluster_pass() -> Clusters:
    """The pass that makes `fused` nodes for the generated kernels."""
    return Clusters(_is_elementwise, _is_row_op, _images, _MOST_ROW)


def _is_row_op(node: Node) -> bool:
    return (node.op.name in REDUCTIONS or node.op.kind == "row") and _has_types(node)


def _is_elementwise(node: Node) -> bool:
    if node.op.name == "scale_shift" and node.output.type.rank > 4:
        return False
    return has_steps(node.op) and _has_types(node) and _has_expression(node) and node.output.type.size > 0


def _has_expression(node: Node) -> bool:
    """Comparisons and choices between bool have none."""
    operands = node.inputs[1:] if node.op.name == "select" else node.inputs
    return node.op.kind in ("copy", "logical") or all(value.type.element is f32 for value in operands)


def _has_types(node: Node) -> bool:
    return all(v.type.element.name in ("f32", "bool") for v in (*node.inputs, *node.outputs))


def _images(graph: Graph) -> set[Value]:
    """What is likely to be in the blocked layout, in which rows are not contiguous."""
    found: set[Value] = set()
    for node in graph.nodes:
        if _makes_images(node) or (_is_elementwise(node) and any(v in found for v in node.inputs)):
            found.update(v for v in node.outputs if v.type.rank > 2)
    return found


def _makes_images(node: Node) -> bool:
    images = node.op.kind in ("convolution", "pool", "resampling") or node.op.name in ("scale_shift", "quantize")
    return images or is_blocked_concat(node)
