"""Passes that leave less: algebra, whole numbers, equal and dead nodes, dropout."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.sizes import is_zero
from ngraph_mxnet.passes.base import Answer, RewritePass, Rewriter, uniform


def _neutral(x: Value, node: Node) -> Answer:
    """`x` in the node's place, unless the other operand broadcasts it."""
    return x if x.type == node.output.type else f"the constant broadcasts {x.type} to {node.output.type}"


def add_zero(node: Node, rw: Rewriter) -> Answer:
    """x + 0 and 0 + x -> x."""
    for x, other in (node.inputs, node.inputs[::-1]):
        if uniform(other) == 0:
            return _neutral(x, node)
    return None


def factored_sum(node: Node, rw: Rewriter) -> Answer:
    """x + x * y -> x * (y + 1) where y is smaller than x: a pass over the larger one less. Floats, within rounding."""
    for x, other in (node.inputs, node.inputs[::-1]):
        product = rw.producer(other, "multiply")
        if product is None or x not in product.inputs or x.type != node.output.type:
            continue
        y = product.inputs[1] if product.inputs[0] is x else product.inputs[0]
        if y is x or y.type.size >= x.type.size or not x.type.element.is_float:
            continue
        if not rw.single(product.output):
            return f"{product} has other readers"
        more = rw.make("add", y, rw.constant(np.ones((), x.type.element.numpy)))
        return rw.make("multiply", x, more, origin=(product, node))
    return None


def half_of_tanh(node: Node, rw: Rewriter) -> Answer:
    """(tanh(x) + 1) * 0.5 -> sigmoid(2 x), as in the GELU by tanh. Floats, within rounding."""
    for half, other in (node.inputs, node.inputs[::-1]):
        outer = rw.producer(other, "add") if uniform(half) == 0.5 else None
        if outer is None or other.type != node.output.type or not other.type.element.is_float:
            continue
        for one, value in (outer.inputs, outer.inputs[::-1]):
            tanh = rw.producer(value, "tanh") if uniform(one) == 1 else None
            if tanh is None or value.type != other.type:
                continue
            if not (rw.single(outer.output) and rw.single(tanh.output)):
                return "the sum or the tanh has other readers"
            x, factor = tanh.inputs[0], 2.0
            inner = rw.producer(x, "multiply")
            for number, operand in (inner.inputs, inner.inputs[::-1]) if inner is not None else ():
                scale = uniform(number)
                if scale is not None and operand.type == x.type:
                    x, factor = operand, 2.0 * scale
                    break
            number = rw.constant(np.array(factor, x.type.element.numpy))
            return rw.make("sigmoid", rw.make("multiply", x, number), origin=(tanh, outer, node))
    return None


def subtract_zero(node: Node, rw: Rewriter) -> Answer:
    """x - 0 -> x. 0 - x is left alone: negative gives another sign of zero."""
    return _neutral(node.inputs[0], node) if uniform(node.inputs[1]) == 0 else None


def multiply_one(node: Node, rw: Rewriter) -> Answer:
    """x * 1 and 1 * x -> x."""
    for x, other in (node.inputs, node.inputs[::-1]):
        if uniform(other) == 1:
            return _neutral(x, node)
    return None


def multiply_zero(node: Node, rw: Rewriter) -> Answer:
    """x * 0 and 0 * x -> 0 for integers and booleans."""
    for zero in node.inputs:
        if uniform(zero) == 0:
            if zero.type.element.is_float:
                return "0 times NaN or infinity is NaN"
            return _neutral(zero, node)
    return None


def product_of_nothing(node: Node, rw: Rewriter) -> Answer:
    """A sum over no elements is 0, whatever the shape of the sums. Not where something follows the sums."""
    a, b = node.inputs[:2]
    if node.epilogue or not any(map(is_zero, (*a.shape, *b.shape))):
        return None
    zero = rw.constant(np.zeros((), node.output.type.element.numpy))
    return rw.make("broadcast", zero, shape=node.output.type.shape)


def divide_one(node: Node, rw: Rewriter) -> Answer:
    """x / 1 -> x."""
    return _neutral(node.inputs[0], node) if uniform(node.inputs[1]) == 1 else None


def power_small(node: Node, rw: Rewriter) -> Answer:
    """x ^ 1 -> x and x ^ 2 -> square(x), for a constant exponent."""
    x, exponent = node.inputs
    number = uniform(exponent)
    if number not in (1, 2):
        return None
    neutral = _neutral(x, node)
    if number == 1 or isinstance(neutral, str):
        return neutral
    return rw.make("square", x)


def double_negative(node: Node, rw: Rewriter) -> Answer:
    """negative(negative(x)) -> x."""
    inner = rw.producer(node.inputs[0], "negative")
    return inner.inputs[0] if inner else None


def absolute(node: Node, rw: Rewriter) -> Answer:
    """abs(abs(x)) -> abs(x); abs(negative(x)) -> abs(x), not for unsigned integers (they wrap)."""
    if rw.producer(node.inputs[0], "abs"):
        return node.inputs[0]
    inner = rw.producer(node.inputs[0], "negative")
    if inner is None or node.output.type.element.numpy.kind == "u":
        return None
    return rw.make("abs", inner.inputs[0])


def identity(node: Node, rw: Rewriter) -> Answer:
    """identity(x) -> x."""
    return node.inputs[0]


def relu_is_clamp(node: Node, rw: Rewriter) -> Answer:
    """relu(x) -> clamp(x, 0, inf): one form, so that later passes know one op."""
    return rw.make("clamp", node.inputs[0], lower=0.0, upper=math.inf)


def bound_is_clamp(node: Node, rw: Rewriter) -> Answer:
    """maximum(x, c) -> clamp(x, c, inf); minimum(x, c) -> clamp(x, -inf, c). Floats: NaN stays NaN in both.

    Not for integers (a clamp's bounds are floats, which cannot name every i64), nor per channel.
    """
    for x, other in (node.inputs, node.inputs[::-1]):
        bound = uniform(other)
        if bound is None:
            continue
        if not x.type.element.is_float:
            return "the bounds of a clamp are floats"
        if isinstance(_neutral(x, node), str):
            return _neutral(x, node)
        bounds = {"lower": bound} if node.op.name == "maximum" else {"upper": bound}
        return rw.make("clamp", x, **{"lower": -math.inf, "upper": math.inf, **bounds})
    return None


def clamp_nothing(node: Node, rw: Rewriter) -> Answer:
    """clamp(x, -inf, inf) -> x."""
    return node.inputs[0] if node.attrs["lower"] == -math.inf and node.attrs["upper"] == math.inf else None


def clamp_of_clamp(node: Node, rw: Rewriter) -> Answer:
    """clamp(clamp(x, l1, u1), l2, u2) -> clamp(x, l, u), also when the inner one has other readers.

    Integers round fractional bounds inwards, each pair on its own: those are left alone.
    """
    inner = rw.producer(node.inputs[0], "clamp")
    if inner is None:
        return None
    bounds = [n.attrs[key] for n in (inner, node) for key in ("lower", "upper")]
    if not node.output.type.element.is_float and any(math.isfinite(b) and b != int(b) for b in bounds):
        return "an integer clamp has fractional bounds"
    return rw.make("clamp", inner.inputs[0], **merge_bounds(inner, node), origin=(inner, node))


def merge_bounds(inner: Node, outer: Node) -> dict[str, float]:
    """`lower` and `upper` of the one clamp that does what the clamps of two nodes do.

    A clamp is monotonic, so the outer one acts on the inner one's bounds. Type rules see to the order.
    """
    low, high = outer.attrs["lower"], outer.attrs["upper"]
    return {key: min(max(inner.attrs[key], low), high) for key in ("lower", "upper")}


def convert_nothing(node: Node, rw: Rewriter) -> Answer:
    """convert(x) to its own type -> x; convert(convert(x)) -> convert(x) when the inner one loses nothing."""
    x = node.inputs[0]
    if x.type == node.output.type:
        return x
    inner = rw.producer(x, "convert")
    if inner is None:
        return None
    source = inner.inputs[0]
    if not np.can_cast(source.type.element.numpy, x.type.element.numpy, "safe"):
        return f"{source.type.element} to {x.type.element} loses information"
    if source.type == node.output.type:
        return source
    return rw.make("convert", source, element=node.attrs["element"])


def algebraic() -> RewritePass:
    return RewritePass("algebraic", {
        "add": [add_zero, factored_sum],
        "subtract": [subtract_zero],
        "multiply": [multiply_one, multiply_zero, half_of_tanh],
        "divide": [divide_one],
        "matmul": [product_of_nothing],
        "convolution": [product_of_nothing],
        "integer_matmul": [product_of_nothing],
        "integer_convolution": [product_of_nothing],
        "power": [power_small],
        "negative": [double_negative],
        "abs": [absolute],
        "identity": [identity],
        "relu": [relu_is_clamp],
        "maximum": [bound_is_clamp],
        "minimum": [bound_is_clamp],
        "clamp": [clamp_nothing, clamp_of_clamp],
        "convert": [convert_nothing],
    })


Bounds = tuple[float, float]

_FLOATS = ("f32", "f64")
_DEEP = 8
"""How many operators an answer looks through."""


def _whole(value: Value, rw: Rewriter, depth: int = _DEEP) -> Bounds | None:
    """Between which whole numbers a float value's are, if they are all whole. NaN aside."""
    node = rw.producer(value)
    if node is None or not depth or value.type.element.name not in _FLOATS:
        return None
    name = node.op.name
    if name == "convert":
        room = _room(node.inputs[0])
        return room and (_nearest(room[0], value), _nearest(room[1], value))
    if node.op.selects:
        parts = [_whole(operand, rw, depth - 1) for operand in node.inputs]
        known = [part for part in parts if part is not None]
        if not parts or len(known) < len(parts):
            return None
        return min(low for low, _ in known), max(high for _, high in known)
    if name == "round":
        clamp = rw.producer(node.inputs[0], "clamp")
        bounds = (clamp.attrs["lower"], clamp.attrs["upper"]) if clamp is not None else None
        return bounds if bounds is not None and _are_whole(bounds) else None
    if name == "clamp":
        inner, own = _whole(node.inputs[0], rw, depth - 1), (node.attrs["lower"], node.attrs["upper"])
        if inner is None:
            return None
        low, high = max(inner[0], own[0]), min(inner[1], own[1])
        return (low, high) if _are_whole((low, high)) else None
    return None


def _room(x: Value) -> Bounds | None:
    """The limits of an integer type of at most 32 bits."""
    if x.type.element.numpy.kind not in "iu" or x.type.element.numpy.itemsize > 4:
        return None
    limits = np.iinfo(x.type.element.numpy)
    return float(limits.min), float(limits.max)


def _nearest(number: float, value: Value) -> float:
    return float(value.type.element.numpy.type(number))


def _are_whole(bounds: Bounds) -> bool:
    return all(math.isfinite(bound) and bound == math.floor(bound) for bound in bounds)


def convert_and_back(node: Node, rw: Rewriter) -> Answer:
    """convert(convert(x)) -> x, where x is whole, and the integers between have room for it."""
    inner = rw.producer(node.inputs[0], "convert")
    if inner is None or inner.inputs[0].type != node.output.type:
        return None
    x = inner.inputs[0]
    room, bounds = _room(inner.output), _whole(x, rw)
    if room is None or bounds is None:
        return None
    return x if room[0] <= bounds[0] and bounds[1] <= room[1] else "the integers between have no room"


def round_whole(node: Node, rw: Rewriter) -> Answer:
    """round(x) -> x, where x is whole."""
    x = node.inputs[0]
    return x if x.type.element.is_float and _whole(x, rw) is not None else None


def clamp_within(node: Node, rw: Rewriter) -> Answer:
    """clamp(x) -> x, where x is whole and within the bounds."""
    bounds = _whole(node.inputs[0], rw)
    if bounds is None or bounds[0] < node.attrs["lower"] or bounds[1] > node.attrs["upper"]:
        return None
    return node.inputs[0]


def clamp_before_round(node: Node, rw: Rewriter) -> Answer:
    """clamp(round(x)) -> round(clamp(x)), where the bounds are whole."""
    inner = rw.producer(node.inputs[0], "round")
    bounds = (node.attrs["lower"], node.attrs["upper"])
    if inner is None or not node.output.type.element.is_float or not all(
            math.isinf(bound) or bound == math.floor(bound) for bound in bounds):
        return None
    if not rw.single(inner.output):
        return f"{inner} has other readers"
    return rw.make("round", rw.make("clamp", inner.inputs[0], **node.attrs), origin=(inner, node))


def whole_numbers() -> RewritePass:
    return RewritePass("whole_numbers", {
        "convert": [convert_and_back],
        "round": [round_whole],
        "clamp": [clamp_within, clamp_before_round],
    })


_COMPARED_BYTES = 1 << 16
"""Constants up to this size are compared by content, larger ones by identity: hashing weights costs more
than two equal copies of them do, and frontends make each large constant once."""

_HEAD = 16
"""Elements."""


class Cse:
    """Merges nodes of one op with equal attributes and equal operands.

    Operands of a commutative op count in any order. The first node stays, with its origin. Does not see
    through rewrites (`a + b + c` in another grouping).
    """

    name = "cse"

    def run(self, graph: Graph) -> bool:
        heads = {node: _head(node.attrs["value"]) for node in graph.nodes if node.op.name == "constant"}
        alike = Counter(heads.values())
        seen: dict[tuple[Any, ...], Node] = {}
        replaced: dict[Value, Value] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            if node in heads and alike[heads[node]] == 1:
                nodes.append(node)
                continue
            if replaced:
                node.inputs = [replaced.get(v, v) for v in node.inputs]
            operands = [id(v) for v in node.inputs]
            if node.op.commutative:
                operands.sort()
            key = (node.op.name, *map(_key, node.attrs.values()), *operands)
            first = seen.setdefault(key, node)
            if first is node:
                nodes.append(node)
            else:
                replaced.update(zip(node.outputs, first.outputs, strict=True))
        if replaced:
            graph.nodes = nodes
            graph.replace(replaced)
        return bool(replaced)


def _head(array: np.ndarray) -> tuple[Any, ...]:
    """Return a key that equal constants share. To hash all elements of each would take longer than the rest."""
    return array.dtype.str, array.shape, array.reshape(-1)[:_HEAD].tobytes()


def _key(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()  # 0.0 and -0.0 are equal, but not the same attribute
    if isinstance(value, np.ndarray):
        content = value.tobytes() if value.nbytes <= _COMPARED_BYTES else id(value)
        return value.dtype.str, value.shape, content
    return value


class DeadCode:
    """Parameters stay, read or not: they are the graph's signature."""

    name = "dead_code"

    def run(self, graph: Graph) -> bool:
        before = len(graph.nodes)
        graph.remove_dead()
        return len(graph.nodes) != before


def dropout(node: Node, rw: Rewriter) -> Answer:
    """dropout(x) -> x. The IR's dropout is the inference one: a training graph states its mask. What says how gradients
    go back is x, too, once they are there."""
    return node.inputs[0]


def dropout_removal() -> RewritePass:
    return RewritePass("dropout_removal", {"dropout": [dropout], "stop_gradient": [dropout], "own_gradient": [dropout]})
