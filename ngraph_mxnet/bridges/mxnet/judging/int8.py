"""Which models in int8 stay with MXNet: those that the user leaves to it."""

from __future__ import annotations

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.rules.quantized_values import QUANTIZED
from ngraph_mxnet.bridges.mxnet.rules.registry import find_rule
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolGraph, SymbolNode
from ngraph_mxnet.ir.types import i8, u8


def why_left(symbol: SymbolGraph, node: SymbolNode) -> str | None:
    """Why an operator on quantised data stays with MXNet; None for others, and where int8 is compiled."""
    return "NGRAPH_INT8=0" if _on_quantised_data(symbol, node) and not config.get("NGRAPH_INT8") else None


def _on_quantised_data(symbol: SymbolGraph, node: SymbolNode) -> bool:
    rule = find_rule(node.op)
    if rule is None or rule.types is not QUANTIZED:
        return False
    read = [(symbol.nodes[edge.node].types or (), edge.output) for edge in node.inputs]
    types = [*(node.types or ()), *(types[output] for types, output in read if output < len(types))]
    return any(type_ is not None and type_.element in (i8, u8) for type_ in types)
