"""NGRAPH_PRECISION=bf16: whether this machine does it, and which values are stored in bf16.

Convolutions and matrix products read bf16 data and weights, and add up in float32; everything else computes in
float32 (see docs/design.md). An activation is stored in bf16, at half the memory traffic, where all its readers read it
so; where they don't, it stays float32 and contractions get a rounded copy.
"""

from __future__ import annotations

from collections.abc import Mapping

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.types import f32
from ngraph_mxnet.targets.cpu.machine.isa import Isa
from ngraph_mxnet.targets.cpu.options import OF_THE_NNP
from ngraph_mxnet.targets.cpu.planning.layout import is_blocked_concat, is_global


def precision_notice(wanted: str, isa: Isa, features: Mapping[str, bool], has_recipe: bool = False) -> str | None:
    """What to tell who wants a precision that there is not; None where there is."""
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


def plan_narrow(graph: Graph) -> frozenset[Value]:
    """The values of `graph` that their producers store in bf16.

    Results of the graph are float32, and so is what a softmax, a reduction or any other op computes from.
    """
    results, readers = set(graph.results), graph.readers()
    narrow: set[Value] = set()
    for node in reversed(graph.nodes):
        if not _may_store(node):
            continue
        for value in node.outputs:
            found = readers[value]
            if found and value not in results and all(_reads_narrow(reader, at, narrow) for reader, at in found):
                narrow.add(value)
    for node in graph.nodes:  # a maximum of rounded values needs no rounding
        if node.op.name == "max_pool" and node.inputs[0] in narrow:
            narrow.add(node.output)
    return frozenset(narrow)


def _may_store(node: Node) -> bool:
    """Whether the node has a kernel that stores float32 results in bf16: no product of bytes has."""
    if any(value.type.element is not f32 for value in node.outputs) or node.op.multiplies_bytes:
        return False
    return node.op.kind == "convolution" or node.op.name in ("avg_pool", "scale_shift") or is_blocked_concat(node)


def _reads_narrow(node: Node, at: int, narrow: set[Value]) -> bool:
    """Whether `node` takes its operand `at` in bf16; `narrow` has all values behind the node that are stored so."""
    if node.op.multiplies_bytes:
        return False
    if node.op.kind == "convolution":
        return at in (0, 3)  # data and residual
    if node.op.kind == "pool" or node.op.name == "scale_shift":
        return at == 0
    return is_global(node, "reduce_mean") or (is_blocked_concat(node) and node.output in narrow)
