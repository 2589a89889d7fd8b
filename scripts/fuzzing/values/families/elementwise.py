"""ONNX operators by the element, of all types, at ordinary and at special values."""

from __future__ import annotations

import numpy as np
from onnx import helper

from fuzzing.values.closeness import EXACT, Closeness
from fuzzing.values.drawing import chance, integer, pick
from fuzzing.values.nets import Net, Value
from fuzzing.values.operators import (
    NEAR,
    Drawn,
    allowed,
    draw_axis,
    draw_shape,
    draw_type,
    elements,
    exact_if_whole,
    open_somewhere,
    operators,
)

_BOUNDS = {"Acos": (-1, 1), "Asin": (-1, 1), "Atanh": (-0.99, 0.99), "Acosh": (1, 9), "Log": (1e-3, 9), "Sqrt": (0, 9)}
_ATTRIBUTES = {"LeakyRelu": ("alpha",), "Elu": ("alpha",), "Selu": ("alpha", "gamma"), "Celu": ("alpha",),
               "ThresholdedRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Shrink": ("bias", "lambd"),
               "Swish": ("alpha",)}


@operators("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh", "Erf", "Exp",
           "Floor", "Log", "Neg", "Not", "Reciprocal", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
           "Softsign", "Sqrt", "Tan", "Tanh", "Identity", "Relu", "LeakyRelu", "Elu", "Selu", "Celu",
           "ThresholdedRelu", "HardSigmoid", "HardSwish", "Gelu", "Mish", "Shrink", "IsNaN", "IsInf", weight=1)
def unary(net: Net, op: str) -> Drawn:
    draw = net.draw
    dtype = draw_type(draw, allowed(op, net.opset))
    low, high = _BOUNDS.get(op, (-3, 3))
    shape = draw_shape(draw)
    x = net.input(shape, elements(dtype, special=chance(draw, 3), low=low, high=high), open_somewhere(draw, shape))
    attrs = {name: pick(draw, 0.5, 0.25, 1.0, 2.0) for name in _ATTRIBUTES.get(op, ()) if chance(draw)}
    if op == "Gelu" and chance(draw):
        attrs["approximate"] = "tanh"
    if op == "IsInf":
        attrs = {name: integer(draw, 0, 1) for name in ("detect_negative", "detect_positive") if chance(draw)}
    y = net.node(op, x, **attrs)
    return [y], exact_if_whole(y.dtype, Closeness(relative=3e-4, largest=1e-6))


def _other_shape(net: Net, shape: tuple[int, ...]) -> tuple[int, ...]:
    """One that is broadcast with `shape`."""
    found = tuple(1 if chance(net.draw, 3) else size for size in shape)
    return found[integer(net.draw, 0, len(found)):] if chance(net.draw) else found


@operators("Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
           "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Pow", "Mod", "BitShift", "PRelu")
def binary(net: Net, op: str) -> Drawn:
    draw = net.draw
    dtype = draw_type(draw, allowed(op, net.opset))
    shape = draw_shape(draw)
    other = _other_shape(net, shape)
    special = op != "Mod" and chance(draw, 4)
    kinds = [elements(dtype, special=special), elements(dtype, special=special)]
    attrs = {}
    if op in ("Div", "Mod") and dtype.kind in "iu":
        kinds[1] = elements(dtype, low=1, high=5)
    if op == "Mod":
        attrs["fmod"] = 1 if dtype.kind == "f" else integer(draw, 0, 1)
    if op == "Pow":
        kinds = [elements(dtype, low=0.1 if dtype.kind == "f" else 0), elements(dtype, low=0, high=3)]
    if op == "BitShift":
        attrs["direction"] = pick(draw, "LEFT", "RIGHT")
        kinds[1] = elements(dtype, low=0, high=7)
    shapes = [shape, other]
    if op != "PRelu" and chance(draw):
        shapes.reverse()
    axes = open_somewhere(draw, shape) if shape == other else {}
    operands = [net.input(each, kind, axes) if not number or axes or chance(draw) else net.weight(each, kind)
                for number, (each, kind) in enumerate(zip(shapes, kinds, strict=True))]
    if op == "PRelu":
        operands[1] = net.weight(other, kinds[1])
    elif chance(draw, 16):
        operands[1] = operands[0]
    y = net.node(op, *operands, **attrs)
    return [y], exact_if_whole(y.dtype)


@operators("Sum", "Max", "Min", "Mean")
def many(net: Net, op: str) -> Drawn:
    dtype = draw_type(net.draw, allowed(op, net.opset))
    shape = draw_shape(net.draw)
    shapes = [shape, *(_other_shape(net, shape) for _ in range(integer(net.draw, 0, 3)))]
    special = op in ("Max", "Min") and chance(net.draw, 3)
    y = net.node(op, *(net.input(each, elements(dtype, special=special)) for each in shapes))
    return [y], exact_if_whole(y.dtype)


@operators("Where")
def where(net: Net, op: str) -> Drawn:
    dtype = draw_type(net.draw, allowed(op, net.opset, 1))
    shape = draw_shape(net.draw)
    sides = [net.input(_other_shape(net, shape), elements(dtype, special=chance(net.draw, 4))) for _ in range(2)]
    return [net.node(op, net.input(shape, elements(bool)), *sides)], EXACT


@operators("Clip")
def clip(net: Net, op: str) -> Drawn:
    dtype = draw_type(net.draw, allowed(op, net.opset))
    x = net.input(draw_shape(net.draw), elements(dtype, special=chance(net.draw, 4), high=9))
    bounds: list[Value | None] = []
    for value in (pick(net.draw, None, 0, 1, 7), pick(net.draw, None, 6, 2, 0)):
        bounds.append(None if value is None else net.constant(np.array(value, dtype)))
    while bounds and bounds[-1] is None:
        bounds.pop()
    return [net.node(op, x, *bounds)], EXACT


@operators("Cast")
def cast(net: Net, op: str) -> Drawn:
    types = allowed(op, net.opset)
    dtype, target = draw_type(net.draw, types), pick(net.draw, *types)
    low = 0 if target.kind == "u" else -3
    special = target.kind in "fb" and chance(net.draw)
    x = net.input(draw_shape(net.draw), elements(dtype, low=low, high=100, special=special))
    return [net.node(op, x, to=helper.np_dtype_to_tensor_dtype(target))], EXACT


@operators("CastLike")
def cast_like(net: Net, op: str) -> Drawn:
    types = allowed(op, net.opset)
    dtype, target = draw_type(net.draw, types), pick(net.draw, *types)
    x = net.input(draw_shape(net.draw), elements(dtype, low=0, high=100))
    return [net.node(op, x, net.constant(np.zeros(1, target)))], EXACT


@operators("Softmax", "LogSoftmax", "Hardmax")
def softmax(net: Net, op: str) -> Drawn:
    dtype = draw_type(net.draw, allowed(op, net.opset))
    shape = draw_shape(net.draw, least=1)
    x = net.input(shape, elements(dtype, low=-5, high=9), open_somewhere(net.draw, shape))
    return [net.node(op, x, axis=draw_axis(net.draw, len(shape)) if chance(net.draw) else None)], NEAR


@operators("Dropout")
def dropout(net: Net, op: str) -> Drawn:
    return [net.node(op, net.input(draw_shape(net.draw)))], EXACT
