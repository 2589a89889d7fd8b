"""Folding y * scale + shift, per channel, into the contraction or scale_shift that computes y.

The new weights are IR expressions of the old ones. They depend on weights only, so they are
computed in the prepare graph, once for each set of weights; weights that are constants fold away.
"""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.passes.contraction import bias_of, closed, with_bias
from ngraph_mxnet.passes.pattern import Rewriter


def fold_affine(host: Node, scale: Value | None, shift: Value | None, outer: Node,
                rw: Rewriter) -> Value | str:
    """`host` anew, so that it gives host * scale + shift, or why that can't be.

    `scale` and `shift` are vectors over the host's channels; None is 1 and 0.
    `outer` is the node that applied them; its bounds, if it has any, become the host's.

    Not when the host has other readers, has clamped, or when weights, scale or shift are known only at run
    time: then scaling the weights may cost more than scaling the result. Not into convolution_bias_add, whose
    residual would have to be scaled too, except a mere shift.
    """
    reason = closed(host, rw)
    if reason:
        return reason
    for what, value in (("weights", host.inputs[1]), ("scale", scale), ("shift", shift)):
        needed = what != "weights" or (scale is not None and host.op.name != "scale_shift")
        if needed and value is not None and not rw.static(value):
            return f"the {what} of {host if what == 'weights' else outer} may differ with every run"
    if host.op.name == "convolution_bias_add" and scale is not None:
        return f"the residual of {host} would have to be scaled too"
    weights = host.inputs[1] if scale is None else _scaled(host, scale, rw)
    without_bias = host.op.name in ("convolution", "matmul")
    if without_bias and shift is None and "lower" not in outer.attrs:
        return rw.make(host.op.name, host.inputs[0], weights, origin=(host, outer), **host.attrs)
    bias = None if without_bias else host.inputs[2]
    if bias is not None and scale is not None:
        bias = rw.make("multiply", bias, scale, origin=(outer,))
    if shift is not None:
        bias = shift if bias is None else rw.make("add", bias, shift, origin=(outer,))
    return with_bias(host, weights, bias if bias is not None else bias_of(host, rw), rw, origin=(host, outer),
                     lower=outer.attrs.get("lower"), upper=outer.attrs.get("upper"))


def _scaled(host: Node, scale: Value, rw: Rewriter) -> Value:
    """The weights times `scale` along their output channels (of a scale_shift: its scale)."""
    weights = host.inputs[1]
    if host.op.kind == "convolution":
        scale = rw.reshape(scale, (*scale.shape, *(1,) * (weights.type.rank - 1)))
    elif host.op.kind == "product" and host.attrs["transpose_b"]:
        scale = rw.reshape(scale, (*scale.shape, 1))
    return rw.make("multiply", weights, scale, origin=(host,))
