"""Which real numbers are stored as u8: those that are read as such, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.types import u8
from ngraph_mxnet.targets.cpu.planning.layout import is_global
from ngraph_mxnet.targets.cpu.planning.view import BLOCK

FOUR = 4
"""Channels of an image whose pixels are four bytes."""


class Affine(NamedTuple):
    """A real number is (q - zero point) * scale."""

    scale: float
    zero_point: int

    @property
    def floats(self) -> tuple[float, float]:
        """As kernels take them."""
        return self.scale, float(self.zero_point)


def affine_of(node: Node) -> Affine | None:
    """Scale and zero point of a `quantize` or `dequantize`; None where they are not known, or not the same for all."""
    scale, zero_point = (operand.node for operand in node.inputs[1:])
    if scale is None or zero_point is None or {scale.op.name, zero_point.op.name} != {"constant"}:
        return None
    if node.inputs[1].type.rank:
        return None
    return Affine(float(scale.attrs["value"]), int(zero_point.attrs["value"]))


def _may_store(node: Node) -> bool:
    """Whether the node has a kernel that stores its result as u8; a mean only where its data are blocked."""
    if node.op.name == "avg_pool" or is_global(node, "reduce_mean"):
        return True
    if node.op.name == "scale_shift":
        return node.output.type.rank > 2 and node.inputs[0].shape[1] >= BLOCK
    return node.op.multiplies_bytes


def plan_stores(graph: Graph, activations: Mapping[Node, Node]) -> dict[Value, tuple[Value, Affine]]:
    """For results of quantised products (or of the activation that they compute too), of means, and of scale and shift
    the u8 value in whose place they are stored, and how: their only reader quantises them."""
    readers, results = graph.readers(), set(graph.results)
    activated = {reader.output for host, reader in activations.items() if host.op.multiplies_bytes}
    stores: dict[Value, tuple[Value, Affine]] = {}
    for node in graph.nodes:
        if node.op.name != "quantize" or node.output.type.element is not u8:
            continue
        source, affine = node.inputs[0], affine_of(node)
        if affine is None or source in results or len(readers[source]) != 1 or source.node is None:
            continue
        if source in activated or (_may_store(source.node) and source.node not in activations):
            stores[source] = node.output, affine
    return stores


def plan_fours(graph: Graph) -> frozenset[Value]:
    """The u8 images of few channels whose pixels are stored as four bytes: all who read them are quantised convolutions
    that take four columns of the kernel at a time, and want the same border."""
    readers, results = graph.readers(), set(graph.results)

    def takes(node: Node, at: int) -> bool:
        dense = node.op.multiplies_bytes and node.op.kind == "convolution" and at == 0
        return dense and node.attrs["groups"] == 1 and node.attrs["dilations"][-1] == 1

    def alike(value: Value) -> bool:
        padded = [node for node, _ in readers[value] if any((*node.attrs["pads_begin"], *node.attrs["pads_end"]))]
        return len({node.attrs["pad_value"] for node in padded}) <= 1

    def fits(value: Value) -> bool:
        return (value.type.element is u8 and value.type.rank == 4 and value.shape[1] <= FOUR and value not in results
                and bool(readers[value]) and all(takes(node, at) for node, at in readers[value])
                and alike(value))

    return frozenset(node.output for node in graph.nodes
                     if node.op.name == "quantize" and affine_of(node) is not None and fits(node.output))
