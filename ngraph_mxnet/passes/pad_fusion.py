"""Pad fusion: a constant pad of the spatial axes becomes padding of the convolution or pool behind it.

The pad may have other readers: it stays for those.
"""

from __future__ import annotations

import math
from typing import Any

from ngraph_mxnet.errors import TypeRuleError
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter


def pad_into_convolution(node: Node, rw: Rewriter) -> Answer:
    """convolution(pad(x, 0)) -> convolution(x) with the pads added; begin and end may differ.

    Not for another value than 0, the modes edge and reflect, or a pad of the batch or channel axis.
    """
    pad = rw.producer(node.inputs[0], "pad")
    if pad is None:
        return None
    return _not_spatial(pad) or _not_value(pad, 0) or _merged(node, pad, rw)


def pad_into_average(node: Node, rw: Rewriter) -> Answer:
    """avg_pool(pad(x, 0)) -> avg_pool(x) that counts its padding.

    Not when the pool has padding of its own that does not count: of the two kinds of padding one would.
    """
    pad = rw.producer(node.inputs[0], "pad")
    if pad is None:
        return None
    if not node.attrs["include_pad"] and any(node.attrs["pads_begin"] + node.attrs["pads_end"]):
        return "the pool's own padding does not count, the pad's does"
    return _not_spatial(pad) or _not_value(pad, 0) or _merged(node, pad, rw, include_pad=True)


def pad_into_maximum(node: Node, rw: Rewriter) -> Answer:
    """max_pool(pad(x, v)) -> max_pool(x) with the pads added, when v never exceeds an element of x.

    That is so for v = -inf, and for any v up to the lower bound of the clamp that made x (0 after a ReLU).
    """
    pad = rw.producer(node.inputs[0], "pad")
    if pad is None:
        return None
    if not node.output.type.element.is_float:
        return "integers"
    if not pad.attrs["value"] <= _least(pad.inputs[0], rw):
        return f"the padding value {pad.attrs['value']} may be the greatest in a window"
    return _not_spatial(pad) or _merged(node, pad, rw)


def _least(value: Value, rw: Rewriter) -> float:
    """A number that no element is below."""
    node = rw.producer(value)
    clamped = node is not None and "lower" in node.attrs and value.index == 0
    return node.attrs["lower"] if node is not None and clamped else -math.inf


def _not_spatial(pad: Node) -> str | None:
    """Why the pad is none that a window can have."""
    if pad.attrs["mode"] != "constant":
        return f"the pad's mode is {pad.attrs['mode']}"
    if any(pad.attrs["pads_begin"][:2] + pad.attrs["pads_end"][:2]):
        return "the pad is on the batch or channel axis"
    return None


def _not_value(pad: Node, value: float) -> str | None:
    found = pad.attrs["value"]
    return None if found == value else f"the padding value is {found}, not {value}"


def _merged(node: Node, pad: Node, rw: Rewriter, **changed: Any) -> Value | str:
    # Zeros between the data's elements stand between those of the pad too.
    steps = node.attrs.get("data_dilations") or (1,) * (node.output.type.rank - 2)
    pads = {
        side: tuple(a + b * step for a, b, step in zip(node.attrs[side], pad.attrs[side][2:], steps, strict=True))
        for side in ("pads_begin", "pads_end")
    }
    attrs = {**node.attrs, **pads, **changed}
    try:
        return rw.make(node.op.name, pad.inputs[0], *node.inputs[1:], **attrs, origin=(pad, node))
    except TypeRuleError as error:  # a pool's window would lie in the padding altogether
        return str(error)


def pad_fusion() -> RewritePass:
    """The pass."""
    return RewritePass("pad_fusion", {
        "convolution": [pad_into_convolution],
        "convolution_bias": [pad_into_convolution],
        "convolution_bias_add": [pad_into_convolution],
        "avg_pool": [pad_into_average],
        "max_pool": [pad_into_maximum],
    })
