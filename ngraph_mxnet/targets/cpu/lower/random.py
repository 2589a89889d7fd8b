"""Random numbers."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ops.random import threshold
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.params.random import RANDOM_MASK
from ngraph_mxnet.targets.cpu.params.record import GRAIN


@lowers("random_mask")
def random_mask(ctx: Lowering, node: Node) -> None:
    """A byte for each element."""
    out = ctx.new_plain(node.output.type)
    if node.output.type.size:
        params = RANDOM_MASK(count=node.output.type.size, chunk=GRAIN, stream=node.attrs["stream"],
                             threshold=threshold(node.attrs))
        ctx.emit("random_mask", params, state=ctx.contiguous(node.inputs[0]), output=out, exact=True)
    ctx.set_plain(node.output, out)
