"""Layout decisions that need the whole graph: halos, and concatenation without copies."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ngraph_mxnet.cpu.view import BLOCK, Halo
from ngraph_mxnet.ir.graph import Graph, Node, Value

CONVOLUTIONS = ("convolution", "convolution_bias", "convolution_bias_add", "convolution_bias_add_scale_shift")
POOLS = ("max_pool", "avg_pool")
BLOCKED_PRODUCERS = frozenset((*CONVOLUTIONS, *POOLS, "scale_shift", "concat"))
"""Ops that always write the blocked layout (concat where it can be blocked)."""


@dataclass(frozen=True)
class LayoutPlan:
    """`halo`: the zero border each blocked value needs. `placement`: value -> (concat output, first block)."""

    halo: dict[Value, Halo]
    placement: dict[Value, tuple[Value, int]]


def plan_layout(graph: Graph, narrow: Collection[Value] = ()) -> LayoutPlan:
    """Decide for every value of `graph` which halo it has and whether it is written in its concat's place.

    Only values stored like the concat's are; `narrow` are those stored in bf16.
    """
    halo: dict[Value, Halo] = {}
    placement: dict[Value, tuple[Value, int]] = {}
    for node in graph.nodes:
        if node.op.name in CONVOLUTIONS:
            data = node.inputs[0]
            halo[data] = halo.get(data, Halo()).cover(convolution_halo(node))
        if is_blocked_concat(node):
            first = 0
            for operand in node.inputs:
                alike = (operand in narrow) == (node.output in narrow)
                produced = operand.node is not None and is_blocked_producer(operand.node)
                if alike and produced and operand not in placement:
                    placement[operand] = (node.output, first)
                first += operand.shape[1] // BLOCK
    for value in placement:  # a child comes before its parent: what any of them needs reaches the root,
        parent = placement[value][0]
        halo[parent] = halo.get(parent, Halo()).cover(halo.get(value, Halo()))
    for value in reversed(placement):  # and the root's halo is everyone's
        halo[value] = halo[placement[value][0]]
    return LayoutPlan(halo, placement)


def convolution_halo(node: Node) -> Halo:
    """The padding of a 1-D or 2-D convolution."""
    begin, end = (0, *node.attrs["pads_begin"])[-2:], (0, *node.attrs["pads_end"])[-2:]
    return Halo(begin[0], end[0], begin[1], end[1])


def is_blocked_producer(node: Node) -> bool:
    return node.op.name in BLOCKED_PRODUCERS and (node.op.name != "concat" or is_blocked_concat(node))


def is_blocked_concat(node: Node) -> bool:
    """A concat of whole channel blocks of images."""
    if node.op.name != "concat" or node.attrs["axis"] != 1 or node.output.type.rank not in (3, 4):
        return False
    return node.output.type.element.name == "f32" and all(v.shape[1] % BLOCK == 0 for v in node.inputs)
