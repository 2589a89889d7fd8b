"""Which real numbers are stored as u8: those that are read as such, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.types import u8


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


def plan_stores(graph: Graph, gates: Mapping[Node, Node]) -> dict[Value, tuple[Value, Affine]]:
    """For results of quantised products (or of the hard swish that they compute too) the u8 value in whose place
    they are stored, and how: their only reader quantises them."""
    readers, results = graph.readers(), set(graph.results)
    gated = {gate.output for gate in gates.values()}
    stores: dict[Value, tuple[Value, Affine]] = {}
    for node in graph.nodes:
        if node.op.name != "quantize" or node.output.type.element is not u8:
            continue
        source, affine = node.inputs[0], affine_of(node)
        if affine is None or source in results or len(readers[source]) != 1 or source.node is None:
            continue
        if source in gated or (source.node.op.multiplies_bytes and source.node not in gates):
            stores[source] = node.output, affine
    return stores
