"""Whole numbers: quantised graphs round and convert to 8 bits and back between any two of their operators.

What is known to be whole and within the integers' range loses nothing there, so that the pair of conversions goes, and
a second rounding with it. A clamp to whole bounds changes places with the rounding before it: there it can become the
bounds of a contraction.
"""

from __future__ import annotations

import math

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.passes.pattern import Answer, RewritePass, Rewriter

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
    """The pass."""
    return RewritePass("whole_numbers", {
        "convert": [convert_and_back],
        "round": [round_whole],
        "clamp": [clamp_within, clamp_before_round],
    })
