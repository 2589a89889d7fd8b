"""Elementwise ops and reductions of the rarer element types: operands are converted to the type that computes.

float16 is computed in float32, integers and bool in int64: where their own arithmetic would wrap, the conversion back
does. The few ops that have no float32 kernel are computed in float64. See `kernels/wide.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ngraph_mxnet.cpu import abi
from ngraph_mxnet.cpu.abi import REDUCE_CODES, WIDE_CODES
from ngraph_mxnet.cpu.lower.context import Lowering
from ngraph_mxnet.cpu.lower.movement import broadcast_strides
from ngraph_mxnet.cpu.view import PlainView, contiguous_strides, plain_view
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import ElementType, Shape, TensorType, boolean, f16, f32, f64, i64

DOUBLE_ONLY = frozenset({"atan2", "erfinv", "gamma", "lgamma"})
"""Ops that are computed in float64 whatever their element type."""
INTEGER_ONLY = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"})
COMPARISONS = frozenset(WIDE_CODES["compare_f64"])
_WHOLE = frozenset({"ceiling", "floor", "round", "trunc"})
"""Ops that leave integers as they are."""
_PARAMETERS = {"leaky_relu": "slope", "elu": "alpha"}

CONVERTIBLE = frozenset({"f16", "f32", "f64", "i32", "i64", "i8", "u8", "bool"})
"""`convert` exists between any two of these."""


def computing_element(name: str, element: ElementType) -> ElementType:
    """The element type in which the op `name` is computed for operands of `element`."""
    if name in DOUBLE_ONLY:
        return f64
    return {"f": f32 if element in (f16, f32) else f64}.get(element.numpy.kind, i64)


def missing(name: str, element: ElementType) -> str | None:
    """Why there is no kernel for the elementwise op `name` of `element` here; None when there is."""
    if element.name not in CONVERTIBLE:
        return f"{name} of {element} has no CPU kernel"
    integer = computing_element(name, element) is i64
    known = {"clamp", *COMPARISONS, *(_WHOLE if integer else ())}
    tables = ("unary_i64", "binary_i64") if integer else ("unary_f64", "binary_f64")
    found = name in known or any(name in WIDE_CODES[table] for table in tables)
    return None if found else f"{name} of {element} has no CPU kernel"


# ---- conversion ------------------------------------------------------------------------------------------


def converted(ctx: Lowering, view: PlainView, element: ElementType) -> PlainView:
    """The view's elements as `element`: itself, or new memory. float16 comes from and goes to float32 only."""
    source = view.type.element
    if source == element:
        return view
    if f16 in (source, element) and f32 not in (source, element):
        return converted(ctx, converted(ctx, view, f32), element)
    out = ctx.new_plain(TensorType(element, view.type.shape))
    ctx.strided(f"convert_{source}_{element}", view.type.shape, [(view, view.strides)], (out, out.strides))
    return out


def _read(ctx: Lowering, value: Value, element: ElementType) -> PlainView:
    return converted(ctx, ctx.plain(value), element)


def _finish(ctx: Lowering, value: Value, view: PlainView) -> None:
    ctx.set_plain(value, converted(ctx, view, value.type.element))


# ---- elementwise -----------------------------------------------------------------------------------------


def elementwise(ctx: Lowering, node: Node) -> None:
    """Any elementwise op that `missing` does not refuse."""
    name, element = node.op.name, computing_element(node.op.name, node.inputs[0].type.element)
    views = [_read(ctx, value, element) for value in node.inputs]
    shape = node.output.shape
    if element is f32:  # of float16
        floats = [node.attrs[key] for key in ("lower", "upper", "slope", "alpha") if key in node.attrs]
        kernel_out = boolean if name in COMPARISONS else f32
        out = ctx.new_plain(TensorType(kernel_out, shape))
        ctx.strided(name, shape, [(view, broadcast_strides(view, shape)) for view in views], (out, out.strides), floats)
    elif name == "clamp":
        out = _clamp(ctx, node, views[0])
    elif len(views) == 2:
        out = _binary(ctx, name, views, shape)
    elif name in _WHOLE and element is i64:
        out = views[0]
    else:
        out = ctx.new_plain(TensorType(element, shape))
        floats = [WIDE_CODES[f"unary_{element}"][name], node.attrs.get(_PARAMETERS.get(name, ""), 0.0)]
        ctx.strided(f"unary_{element}", shape, [(views[0], views[0].strides)], (out, out.strides), floats)
    _finish(ctx, node.output, out)


def _binary(ctx: Lowering, name: str, views: Sequence[PlainView], shape: Shape) -> PlainView:
    element = views[0].type.element
    kind = "compare" if name in COMPARISONS else "binary"
    code = _constant(ctx, np.asarray(WIDE_CODES[f"{kind}_{element}"][name], np.int64))
    out = ctx.new_plain(TensorType(boolean if kind == "compare" else element, shape))
    reads = [(view, broadcast_strides(view, shape)) for view in (code, *views)]
    ctx.strided(f"{kind}_{element}", shape, reads, (out, out.strides))
    return out


def _clamp(ctx: Lowering, node: Node, view: PlainView) -> PlainView:
    """Bounds of integers round inwards, and saturate in the operand's own type, as the reference does."""
    lower, upper, own = node.attrs["lower"], node.attrs["upper"], node.inputs[0].type.element
    bounds: list[tuple[str, float]] = [("maximum", lower), ("minimum", upper)]
    if view.type.element is i64:
        info = np.iinfo(own.numpy)
        low = info.min if lower <= info.min else info.max if lower >= info.max else math.ceil(lower)
        high = info.max if upper >= info.max else info.min if upper <= info.min else math.floor(upper)
        bounds = [("maximum", low), ("minimum", high)]
    for name, bound in bounds:
        limit = _constant(ctx, np.asarray(bound, view.type.element.numpy))
        view = _binary(ctx, name, [view, limit], view.type.shape)
    return view


def _constant(ctx: Lowering, array: np.ndarray) -> PlainView:
    element = i64 if array.dtype == np.int64 else f64
    return plain_view(TensorType(element, array.shape), ctx.builder.constant(array))


# ---- reductions ------------------------------------------------------------------------------------------


def reduction(ctx: Lowering, node: Node, axes: Sequence[int]) -> None:
    """`axes` are normal and sorted."""
    element = computing_element(node.op.name, node.inputs[0].type.element)
    source = _read(ctx, node.inputs[0], element)
    kept = tuple(d for i, d in enumerate(source.type.shape) if i not in axes)
    out = ctx.new_plain(TensorType(element, node.output.shape))
    ints = abi.reduce_ints(source.type.shape, axes, source.strides, contiguous_strides(kept))
    name = node.op.name if element is f32 else f"reduce_{element}"
    ctx.emit(name, [source], out, ints, [] if element is f32 else [REDUCE_CODES[node.op.name]])
    _finish(ctx, node.output, out)


def position(ctx: Lowering, node: Node) -> None:
    """argmax and argmin."""
    element = computing_element(node.op.name, node.inputs[0].type.element)
    source = converted(ctx, ctx.contiguous(node.inputs[0]), element)
    out = ctx.new_plain(node.output.type)
    kernel = node.op.name if element is f32 else f"{node.op.name}_{element}"
    ctx.emit(kernel, [source], out, abi.arg_ints(node.inputs[0].shape, node.attrs["axis"]))
    ctx.set_plain(node.output, out)
