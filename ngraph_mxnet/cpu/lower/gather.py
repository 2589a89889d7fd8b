"""Rows by index."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.cpu import abi
from ngraph_mxnet.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import TensorType, i64

_INDICES = {"i64", "i32", "i8", "u8"}


def _check_gather(node: Node) -> str | None:
    found = node.inputs[1].type.element.name
    return None if found in _INDICES else f"gather by {found} has no CPU kernel, only by {', '.join(sorted(_INDICES))}"


@lowers("gather", check=_check_gather)
def gather(ctx: Lowering, node: Node) -> None:
    """Along any axis; indices are converted to i64."""
    data, indices = node.inputs
    view = ctx.contiguous(indices)
    if indices.type.element.name != "i64":
        wide = ctx.new_plain(TensorType(i64, indices.shape))
        ctx.strided(f"convert_{indices.type.element.name}_i64", indices.shape, [(view, view.strides)],
                    (wide, wide.strides))
        view = wide
    out = ctx.new_plain(node.output.type)
    ints = abi.gather_ints(data.shape, node.attrs["axis"], prod(indices.shape))
    ctx.emit(f"gather_{data.type.element.size}", [ctx.contiguous(data), view], out, ints)
    ctx.set_plain(node.output, out)
