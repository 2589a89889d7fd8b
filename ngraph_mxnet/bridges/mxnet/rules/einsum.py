"""Einstein's sums."""

from __future__ import annotations

from ngraph_mxnet.bridges.mxnet.rules.registry import rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions import einsum as composed
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value


@rule("_npi_einsum", ignored=["num_args", "optimize"], operands=(1, 1 << 20))
def einsum(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """From left to right, two operands at a time. Stay with MXNet: an axis named twice in one operand, and `...`."""
    subscripts = attrs.text("subscripts").replace(" ", "")
    if "." in subscripts:
        raise UnsupportedError(f"subscripts={subscripts}: an ellipsis")
    if any(len({*axes}) != len(axes) for axes in subscripts.partition("->")[0].split(",")):
        raise UnsupportedError(f"subscripts={subscripts}: an axis is named twice in one operand")
    return composed.einsum(b, inputs, subscripts)
