"""Global pooling: an average pool whose one window is all of the data becomes `reduce_mean`.

`reduce_mean` is the canonical form because a flatten after it disappears into `keep_dims` (see `movement`).
"""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.sizes import is_one
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter


def global_average(node: Node, rw: Rewriter) -> Answer:
    """avg_pool with a single window over everything -> reduce_mean with keep_dims.

    With padding only if the padding does not count (`include_pad=false`): otherwise it divides by more.
    """
    (x,), attrs = node.inputs, node.attrs
    sizes = x.shape[2:]
    if any(not is_one(size) for size in node.output.shape[2:]):
        return None
    spans = zip(attrs["kernel"], attrs["pads_begin"], sizes, strict=True)
    if any(kernel - begin < size for kernel, begin, size in spans):
        return None  # the one window leaves elements out
    if attrs["include_pad"] and any(attrs["pads_begin"] + attrs["pads_end"]):
        return "its padding counts in the divisor"
    return rw.make("reduce_mean", x, axes=tuple(range(2, x.type.rank)), keep_dims=True)


def global_pool() -> RewritePass:
    """The pass."""
    return RewritePass("global_pool", {"avg_pool": [global_average]})
