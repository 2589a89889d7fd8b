"""Which nodes of an optimised graph run together as one call of the kernel `chain`, where nothing is generated."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import f32
from ngraph_mxnet.passes.clusters import Clusters
from ngraph_mxnet.targets.cpu.params.chain import CHAIN_STEPS


def chain_pass() -> Clusters:
    """The pass that makes `fused` nodes for the kernel: elementwise ops of float32, and no reductions."""
    return Clusters(_is_step, lambda node: False, lambda graph: (), 0)


def _is_step(node: Node) -> bool:
    values = (*node.inputs, *node.outputs)
    return node.op.name in CHAIN_STEPS and all(v.type.element is f32 for v in values) and node.output.type.size > 0
