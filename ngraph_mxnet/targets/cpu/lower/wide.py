"""Elementwise ops, reductions and products of the rarer element types: operands become the type that computes.

float16 is computed in float32, integers and bool in int64: where their own arithmetic would wrap, the conversion back
does. uint64 has the same bits as int64, so that only what depends on their order differs: it is computed of the numbers
less 2^63, which int64 holds, or by kernels of its own. The few ops that have no float32 kernel are computed in float64.
See `kernels/wide.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.opdef import OpDef
from ngraph_mxnet.ir.types import ElementType, Shape, TensorType, boolean, f16, f32, f64, i16, i32, i64, u16, u32, u64
from ngraph_mxnet.targets.cpu.lower.context import Lowering
from ngraph_mxnet.targets.cpu.lower.movement import broadcast_strides
from ngraph_mxnet.targets.cpu.params import KERNELS
from ngraph_mxnet.targets.cpu.params.product import PRODUCT
from ngraph_mxnet.targets.cpu.params.reduction import REDUCE, REDUCE_CODES, REDUCE_WIDE, reduced
from ngraph_mxnet.targets.cpu.params.reduction import position as position_params
from ngraph_mxnet.targets.cpu.params.strided import WIDE_CODES
from ngraph_mxnet.targets.cpu.planning.view import PlainView, contiguous_strides, plain_view

_UNSIGNED = {"divide": "divide_unsigned", "mod": "mod_unsigned"}
_RARE = frozenset({i16, u16, u32})
_SAME_BITS = {u64: i64, u32: i32, u16: i16}


def computing_element(element: ElementType) -> ElementType:
    """The element type in which operands of `element` are computed."""
    return {"f": f32 if element in (f16, f32) else f64}.get(element.numpy.kind, i64)


def _elementwise_element(op: OpDef, element: ElementType) -> ElementType:
    """The same for the elementwise `op`: float64 where it has no kernel of float32."""
    found = computing_element(element)
    return f64 if found is f32 and op.name not in KERNELS else found


def missing(op: OpDef, element: ElementType) -> str | None:
    """Why there is no kernel for the elementwise `op` of `element` here; None when there is."""
    tables = [codes for kernel, codes in WIDE_CODES.items() if kernel.endswith("f64" if element.is_float else "i64")]
    found = op.name == "clamp" or (op.rounds and not element.is_float) or any(op.name in codes for codes in tables)
    if element is u64 and op.name == "power":
        found = False
    return None if found else f"{op.name} of {element} has no CPU kernel"


# ---- conversion ------------------------------------------------------------------------------------------


def converted(ctx: Lowering, view: PlainView, element: ElementType) -> PlainView:
    """The view's elements as `element`: itself, the same bits, or new memory."""
    source = view.type.element
    if source == element:
        return view
    if _SAME_BITS.get(source, source) == _SAME_BITS.get(element, element):
        return _same_bits(view, element)
    between = _between(source, element)
    if between is not None:
        return converted(ctx, converted(ctx, view, between), element)
    target = i16 if element is u16 else element
    out = ctx.new_plain(TensorType(target, view.type.shape))
    ctx.strided(f"convert_{source}_{target}", view.type.shape, [(view, view.strides)], (out, out.strides))
    return _same_bits(out, element)


def _between(source: ElementType, element: ElementType) -> ElementType | None:
    """What a conversion without a kernel goes through: float16 has only those from and to float32, and integers that
    are rare those from and to int64, uint64 also to and from floating point."""
    if f16 in (source, element):
        return None if f32 in (source, element) else f32
    if element is boolean and source in _RARE:
        return i64
    if source is u64:
        return None if element.is_float else i64
    if element is u64:
        return None if source is f64 else f64 if source.is_float else i64
    if source in _RARE or element in _RARE:
        if element is u32:
            return i64 if source is not i64 else i32
        return None if i64 in (source, element) else i64
    return None


def _same_bits(view: PlainView, element: ElementType) -> PlainView:
    """The memory as another element type of the size."""
    return view if view.type.element == element else replace(view, type=TensorType(element, view.type.shape))


def read(ctx: Lowering, value: Value, element: ElementType, *, ordered: bool = False) -> PlainView:
    """The value as `element`; with `ordered`, uint64 as int64 in the same order."""
    view = converted(ctx, ctx.plain(value), element)
    return _less_half(ctx, view) if ordered and value.type.element is u64 else view


def _less_half(ctx: Lowering, view: PlainView) -> PlainView:
    """The bits of uint64, as int64, less 2^63; a second time this gives them back."""
    return _binary(ctx, "bitwise_xor", [view, _constant(ctx, np.asarray(np.iinfo(np.int64).min))], view.type.shape)


def written(ctx: Lowering, view: PlainView, element: ElementType, *, ordered: bool = False) -> PlainView:
    """What was computed of such operands, as `element`."""
    return converted(ctx, _less_half(ctx, view) if ordered and element is u64 else view, element)


def _finish(ctx: Lowering, value: Value, view: PlainView, *, ordered: bool = False) -> None:
    ctx.set_plain(value, written(ctx, view, value.type.element, ordered=ordered))


# ---- elementwise -----------------------------------------------------------------------------------------


def elementwise(ctx: Lowering, node: Node) -> None:
    """Any elementwise op that `missing` does not refuse."""
    name, own = node.op.name, node.inputs[0].type.element
    element, ordered = _elementwise_element(node.op, own), node.op.ordinal
    views = [read(ctx, value, element, ordered=ordered) for value in node.inputs]
    shape = node.output.shape
    if element is f32:  # of float16
        floats = [node.attrs[key] for key in node.op.schema]
        kernel_out = boolean if node.op.kind == "comparison" else f32
        out = ctx.new_plain(TensorType(kernel_out, shape))
        ctx.strided(name, shape, [(view, broadcast_strides(view, shape)) for view in views], (out, out.strides), floats)
    elif name == "clamp":
        out = _clamp(ctx, node, views[0])
    elif len(views) == 2:
        out = _binary(ctx, _UNSIGNED.get(name, name) if own is u64 else name, views, shape)
    elif element is i64 and (node.op.rounds or (own is u64 and name in ("abs", "relu"))):
        out = views[0]
    elif own is u64 and name == "sign":
        out = converted(ctx, views[0], boolean)
    else:
        out = ctx.new_plain(TensorType(element, shape))
        floats = [WIDE_CODES[f"unary_{element}"][name], next(iter(node.attrs.values()), 0.0)]
        ctx.strided(f"unary_{element}", shape, [(views[0], views[0].strides)], (out, out.strides), floats)
    _finish(ctx, node.output, out, ordered=ordered)


def _binary(ctx: Lowering, name: str, views: Sequence[PlainView], shape: Shape) -> PlainView:
    element = views[0].type.element
    kind = "compare" if name in WIDE_CODES["compare_f64"] else "binary"
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
        half = 1 << 63 if own is u64 else 0
        bounds = [("maximum", low - half), ("minimum", high - half)]
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
    name = node.op.name
    element, ordered = computing_element(node.inputs[0].type.element), node.op.ordinal
    source = read(ctx, node.inputs[0], element, ordered=ordered)
    kept = tuple(d for i, d in enumerate(source.type.shape) if i not in axes)
    out = ctx.new_plain(TensorType(element, node.output.shape))
    kernel, record, code = (name, REDUCE, {}) if element is f32 else (
        f"reduce_{element}", REDUCE_WIDE, {"code": REDUCE_CODES[name]})
    params = reduced(record, source.type.shape, axes, source.strides, contiguous_strides(kept), **code)
    ctx.emit(kernel, params, input=source, output=out)
    _finish(ctx, node.output, out, ordered=ordered)


def position(ctx: Lowering, node: Node) -> None:
    """argmax and argmin."""
    element = computing_element(node.inputs[0].type.element)
    source = ctx.dense(read(ctx, node.inputs[0], element, ordered=True))
    out = ctx.new_plain(node.output.type)
    kernel = node.op.name if element is f32 else f"{node.op.name}_{element}"
    ctx.emit(kernel, position_params(node.inputs[0].shape, node.attrs["axis"]), input=source, output=out)
    ctx.set_plain(node.output, out)


# ---- products --------------------------------------------------------------------------------------------


def product(ctx: Lowering, node: Node) -> None:
    """matmul and matmul_bias of float64 and integers."""
    element = computing_element(node.inputs[0].type.element)
    *batch, rows, columns = node.output.shape
    views = []
    for value in node.inputs[:2]:
        view = converted(ctx, ctx.plain(value), element)
        shape = (*batch, *view.type.shape[-2:])
        spread = PlainView(TensorType(element, shape), view.buffer, view.offset, view.writers,
                           broadcast_strides(view, shape))
        views.append(ctx.dense(spread) if batch else spread)
    steps = []
    for view, flag in zip(views, ("transpose_a", "transpose_b"), strict=True):
        pair = view.strides[-2:][::-1] if node.attrs[flag] else view.strides[-2:]
        steps.append((prod(view.type.shape[-2:]), *pair))
    (a_batch, a_row, a_inner), (b_batch, b_inner, b_column) = steps
    inner = node.inputs[0].shape[-2 if node.attrs["transpose_a"] else -1]
    out = ctx.new_plain(TensorType(element, node.output.shape))
    params = PRODUCT(batch=prod(batch), rows=rows, inner=inner, columns=columns, a_batch=a_batch, a_row=a_row,
                     a_inner=a_inner, b_batch=b_batch, b_column=b_column, b_inner=b_inner)
    ctx.emit(f"product_{element}", params, a=views[0], b=views[1], output=out)
    if len(node.inputs) > 2:
        out = _binary(ctx, "add", [out, converted(ctx, ctx.plain(node.inputs[2]), element)], node.output.shape)
        out = _clamp(ctx, node, out)
    _finish(ctx, node.output, out)
