"""Which models in int8 stay with MXNet.

On a CPU with VNNI, MXNet computes int8 by MKL-DNN's kernels for it, in a third of the time that the CPU backend's
float32 kernels take for the same model (docs/benchmarks.md). Without VNNI these are as fast or faster, and exact.
"""

from __future__ import annotations

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.rules.quantized_values import QUANTIZED
from ngraph_mxnet.bridges.mxnet.rules.registry import find_rule
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolGraph, SymbolNode
from ngraph_mxnet.ir.types import i8, u8
from ngraph_mxnet.runtime.backend import Backend

FASTER = "MXNet's int8 is faster on this CPU, which has VNNI; NGRAPH_INT8=1 compiles it all the same"


def why_left(symbol: SymbolGraph, node: SymbolNode, backend: Backend) -> str | None:
    """Why an operator on quantised data stays with MXNet; None for others, and where int8 is compiled."""
    if backend.computes_int8 or not _on_quantised_data(symbol, node):
        return None
    wanted = config.get("NGRAPH_INT8")
    if wanted == "0":
        return "NGRAPH_INT8=0"
    return FASTER if wanted == "auto" and has_vnni() else None


def _on_quantised_data(symbol: SymbolGraph, node: SymbolNode) -> bool:
    rule = find_rule(node.op)
    if rule is None or rule.types is not QUANTIZED:
        return False
    read = [(symbol.nodes[edge.node].types or (), edge.output) for edge in node.inputs]
    types = [*(node.types or ()), *(types[output] for types, output in read if output < len(types))]
    return any(type_ is not None and type_.element in (i8, u8) for type_ in types)


def has_vnni() -> bool:
    from ngraph_mxnet import _core

    return bool(_core.cpu_features()["avx512vnni"])
