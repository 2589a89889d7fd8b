"""Swish fusion: x * sigmoid(x) becomes the op `silu`; x * clamp(x * slope + offset) and the scalars around it become
`hard_swish`.

Frameworks write them in two operators and in five and more; each would read and write the whole tensor. Factors move
across the clamp and sums are taken in another order, so results differ within rounding.
"""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import f32
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter, uniform


def silu(node: Node, rw: Rewriter) -> Answer:
    """x * sigmoid(x) -> silu(x)."""
    for x, other in (node.inputs, node.inputs[::-1]):
        sigmoid = rw.producer(other, "sigmoid")
        if sigmoid is None or rw.resolve(sigmoid.inputs[0]) is not rw.resolve(x):
            continue
        if not rw.single(sigmoid.output):
            return f"{sigmoid} has other readers"
        return rw.make("silu", x, origin=(sigmoid, node))
    return None


def gate(node: Node, rw: Rewriter) -> Answer:
    """x * clamp(x * slope + offset, 0, upper) -> hard_swish(x), the slope or the offset left out or not."""
    for x, other in (node.inputs, node.inputs[::-1]):
        clamp = rw.producer(other, "clamp")
        if clamp is None or node.output.type.element != f32 or x.type != other.type:
            continue
        upper = clamp.attrs["upper"]
        slope, offset, source = _affine(clamp.inputs[0], rw)
        if rw.resolve(source) is not rw.resolve(x):
            continue
        if clamp.attrs["lower"] != 0 or not 0 < upper < float("inf"):
            return "the clamp is not from 0 to a finite bound"
        if not rw.single(clamp.output):
            return f"{clamp} has other readers"
        return rw.make("hard_swish", x, slope=slope / upper, offset=offset / upper, scale=upper,
                       origin=(clamp, node))
    return None


def _affine(value: Value, rw: Rewriter) -> tuple[float, float, Value]:
    """Slope, offset and x of x * slope + offset, as far as it is one."""
    slope, offset = 1.0, 0.0
    outer = rw.producer(value, "add")
    if outer is not None:
        number, rest = _scalar(outer, rw)
        if number is not None:
            offset, value = number, rest
    inner = rw.producer(value, "multiply")
    if inner is not None:
        number, rest = _scalar(inner, rw)
        if number is not None:
            slope, value = number, rest
    return slope, offset, value


def _scalar(node: Node, rw: Rewriter) -> tuple[float | None, Value]:
    """The number and the other operand, if one operand is a number that broadcasts nothing."""
    for value, other in (node.inputs, node.inputs[::-1]):
        number = uniform(rw.resolve(other))
        if number is not None and value.type == node.output.type:
            return float(number), value
    return None, node.inputs[0]


def scaled(node: Node, rw: Rewriter) -> Answer:
    """hard_swish(x) * c and hard_swish(x) / c -> hard_swish(x) with that scale and shift."""
    number, host = _scalar(node, rw)
    inner = rw.producer(host, "hard_swish")
    if number is None or inner is None:
        return None
    if node.op.name == "divide":
        if host is not node.inputs[0] or number == 0:
            return None
        number = 1 / number
    if not rw.single(inner.output):
        return f"{inner} has other readers"
    attrs = inner.attrs
    return rw.make("hard_swish", inner.inputs[0], origin=(inner, node),
                   **{**attrs, "scale": attrs["scale"] * number, "shift": attrs["shift"] * number})


def shifted(node: Node, rw: Rewriter) -> Answer:
    """hard_swish(x) + c -> hard_swish(x) with that shift."""
    number, host = _scalar(node, rw)
    inner = rw.producer(host, "hard_swish")
    if number is None or inner is None:
        return None
    if not rw.single(inner.output):
        return f"{inner} has other readers"
    return rw.make("hard_swish", inner.inputs[0], origin=(inner, node),
                   **{**inner.attrs, "shift": inner.attrs["shift"] + number})


def swish_fusion() -> RewritePass:
    """The pass."""
    return RewritePass("swish_fusion", {"multiply": [silu, gate, scaled], "divide": [scaled], "add": [shifted]})
