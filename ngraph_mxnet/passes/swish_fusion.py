"""Swish fusion: x * sigmoid(x) becomes the op `silu`; x / 2 * (1 + erf(x / sqrt(2))) becomes `gelu`;
x * clamp(x * slope + offset) and the scalars around it become `hard_swish`.

Frameworks write them in two operators and in five and more; each would read and write the whole tensor. Factors move
across the clamp and sums are taken in another order, so results differ within rounding.
"""

from __future__ import annotations

from math import sqrt

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import f32
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter, uniform

_NEAR = 1e-6
"""Of the numbers in a gelu: they are rounded to float32."""


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


def gelu(node: Node, rw: Rewriter) -> Answer:
    """x * (1 + erf(x / sqrt(2))) * 0.5, its factors in any order -> gelu(x)."""
    number, factors, products = _factors(node.output, rw)
    if len(factors) != 2 or abs(number - 0.5) > _NEAR or node.output.type.element != f32:
        return None
    for x, other in (factors, factors[::-1]):
        sum_ = rw.producer(other, "add")
        one, value = _scalar(sum_, rw) if sum_ is not None else (None, other)
        erf = rw.producer(value, "erf")
        if sum_ is None or erf is None or one != 1 or x.type != node.output.type:
            continue
        scale, sources, _ = _factors(erf.inputs[0], rw)
        if len(sources) != 1 or rw.resolve(sources[0]) is not rw.resolve(x) or abs(scale - sqrt(0.5)) > _NEAR:
            continue
        made = [*products[1:], sum_, erf]
        if not all(rw.single(inner.output) for inner in made):
            return f"{next(inner for inner in made if not rw.single(inner.output))} has other readers"
        return rw.make("gelu", x, origin=(*made[::-1], node))
    return None


def _factors(value: Value, rw: Rewriter) -> tuple[float, list[Value], list[Node]]:
    """A product as a number and the other factors, and the products and quotients by numbers that it is made of."""
    node = rw.producer(value, "multiply", "divide")
    number, rest = _scalar(node, rw) if node is not None else (None, value)
    if node is None or (node.op.name == "divide" and (not number or rest is not node.inputs[0])):
        return 1.0, [value], []
    found = 1.0 if number is None else number
    found = 1 / found if node.op.name == "divide" else found
    factors: list[Value] = []
    nodes = [node]
    for operand in node.inputs if number is None else [rest]:
        more, values, inside = _factors(operand, rw) if operand.type == value.type else (1.0, [operand], [])
        found, factors, nodes = found * more, [*factors, *values], [*nodes, *inside]
    return found, factors, nodes


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
    return RewritePass("swish_fusion", {"multiply": [silu, gelu, gate, scaled], "divide": [gelu, scaled],
                                        "add": [shifted]})
