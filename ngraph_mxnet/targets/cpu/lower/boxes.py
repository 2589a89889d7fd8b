"""Non-maximum suppression."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import TensorType, f32, i64
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.lower.elementwise import check_f32
from ngraph_mxnet.targets.cpu.params.boxes import BOX_NMS, NUMBERS


@lowers("box_nms", check=check_f32)
def box_nms(ctx: Lowering, node: Node) -> None:
    """One task for each element of the batch; the memory it works in is of the arena."""
    attrs, (batch, rows, columns) = node.attrs, node.output.shape
    topk = rows if attrs["topk"] < 0 else min(attrs["topk"], rows)
    source, out = ctx.contiguous(node.inputs[0]), ctx.new_plain(node.output.type)
    order = ctx.new_plain(TensorType(i64, (batch, topk)))
    numbers = ctx.new_plain(TensorType(f32, (batch, NUMBERS, topk)))
    params = BOX_NMS(
        n=batch, rows=rows, columns=columns, topk=topk, center=attrs["format"] == "center",
        **{name: attrs[name] for name in ("coordinates", "score", "id", "background", "across_ids", "in_place", "keep",
                                          "overlap", "valid")})
    ctx.emit("box_nms", params, rows=source, output=out, order=order, numbers=numbers,
             bytes=source.type.bytes + out.type.bytes)
    ctx.set_plain(node.output, out)
