"""The plan of the values that are stored in bf16 and in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.types import f32, u8
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa
from ngraph_mxnet.targets.cpu.options import OF_THE_NNP
from ngraph_mxnet.targets.cpu.params.reduction import STORE_BF16
from ngraph_mxnet.targets.cpu.planning.gradients import in_pairs
from ngraph_mxnet.targets.cpu.planning.layout import is_blocked_concat, is_global
from ngraph_mxnet.targets.cpu.planning.view import BLOCK


def precision_notice(wanted: str, isa: Isa, features: Mapping[str, bool], has_recipe: bool = False) -> str | None:
    """Return a notice that the wanted precision is not available, or None if it is."""
    if wanted in OF_THE_NNP:
        return f"NGRAPH_PRECISION={wanted}: only the backend NNP has it. The CPU computes in float32."
    if wanted == "int8" and not has_recipe:
        return ("NGRAPH_PRECISION=int8: there is no recipe of quantisation (NGRAPH_CALIBRATION, docs/quantisation.md). "
                "Everything runs in float32.")
    missing = bf16_missing(isa, features) if wanted == "bf16" else None
    return f"NGRAPH_PRECISION=bf16: {missing}. Everything runs in float32." if missing else None


def bf16_missing(isa: Isa, features: Mapping[str, bool]) -> str | None:
    """Why there is no bf16 here, or None."""
    if not features.get("avx512bf16"):
        return "this CPU lacks AVX512_BF16, without which bf16 is no faster than float32"
    if isa != "avx512":
        return f"the kernels for {isa} have no bf16, only those for avx512 (see NGRAPH_CPU_ISA)"
    return None


def plan_narrow(graph: Graph, *, amx: bool = False) -> frozenset[Value]:
    """The values of `graph` that their producers store in bf16. `amx`: products are in its tiles.

    Results of the graph are float32, and so is what a softmax, a reduction or any other op computes from.
    """
    results, readers = set(graph.results), graph.readers()
    narrow: set[Value] = set()
    for node in reversed(graph.nodes):
        if not _may_store(node):
            continue
        for value in node.outputs:
            found = readers[value]
            if found and value not in results and all(
                    _reads_narrow(reader, at, narrow, amx=amx) for reader, at in found):
                narrow.add(value)
    for node in graph.nodes:  # a maximum of rounded values needs no rounding
        if node.op.name == "max_pool" and node.inputs[0] in narrow:
            narrow.add(node.output)
    return frozenset(narrow)


def _may_store(node: Node) -> bool:
    """True if the node has a kernel that stores float32 results in bf16. No product of bytes has such a kernel."""
    if any(value.type.element is not f32 for value in node.outputs) or node.op.multiplies_bytes:
        return False
    return node.op.kind == "convolution" or node.op.name in STORE_BF16 or is_blocked_concat(node)


def _reads_narrow(node: Node, at: int, narrow: set[Value], *, amx: bool) -> bool:
    """True if `node` takes its operand `at` in bf16. `narrow` has all values behind the node that are stored in
    bf16."""
    if node.op.multiplies_bytes:
        return False
    if node.op.kind == "convolution":
        return node.op.is_data(at)
    if node.op.name == "convolution_weight_gradient":
        return in_pairs(node, tiled=amx)
    if node.op.kind == "pool" or node.op.name == "scale_shift":
        return at == 0
    return is_global(node, "reduce_mean") or (is_blocked_concat(node) and node.output in narrow)


FOUR = 4
"""Channels of an image whose pixels are four bytes."""


class Affine(NamedTuple):
    """A real number is (q - zero point) * scale."""

    scale: float
    zero_point: int

    @property
    def floats(self) -> tuple[float, float]:
        """Return the scale and the zero point as the floats that kernels take."""
        return self.scale, float(self.zero_point)


def affine_of(node: Node) -> Affine | None:
    """Scale and zero point of a `quantize` or `dequantize`; None where they are not known, or not the same for all."""
    scale, zero_point = (operand.node for operand in node.inputs[1:])
    if scale is None or zero_point is None or {scale.op.name, zero_point.op.name} != {"constant"}:
        return None
    if node.inputs[1].type.rank:
        return None
    return Affine(float(scale.attrs["value"]), int(zero_point.attrs["value"]))


def _may_store_bytes(node: Node) -> bool:
    """True if the node has a kernel that stores its result as u8. A mean has one only where its data are blocked."""
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
        if source in activated or (_may_store_bytes(source.node) and source.node not in activations):
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
