"""Ops that move elements: mostly views, else strided copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from operator import mul

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.opdef import OpDef
from ngraph_mxnet.ir.sizes import are_same, are_same_shape, is_one, is_zero
from ngraph_mxnet.ir.types import ElementType, Shape, TensorType, boolean, f16, f32, f64, i16, i32, i64, u16, u32, u64
from ngraph_mxnet.ops.common import whole_bounds
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.params import KERNELS
from ngraph_mxnet.targets.cpu.params.layout import PRODUCT
from ngraph_mxnet.targets.cpu.params.reduction import REDUCE, REDUCE_CODES, REDUCE_WIDE, reduced
from ngraph_mxnet.targets.cpu.params.reduction import position as position_params
from ngraph_mxnet.targets.cpu.params.strided import SIZE_SUFFIX, WIDE_CODES, merged_dims
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, BlockedView, PlainView, contiguous_strides, plain_view


@lowers("constant")
def constant(ctx: Lowering, node: Node) -> None:
    """Nothing: it is stored in the Program that reads it, when that is lowered."""


@lowers("identity", "dropout")
def identity(ctx: Lowering, node: Node) -> None:
    """The same memory."""
    ctx.alias(node.output, node.inputs[0])


@lowers("reshape")
def reshape(ctx: Lowering, node: Node) -> None:
    """The same memory, if strides can say so or the operand has no gaps."""
    if _cuts_blocks(ctx, node) or _joins_blocks(ctx, node):
        return
    source = ctx.plain(node.inputs[0])
    strides = moved_strides(source.type.shape, source.strides, node.output.shape)
    if strides is None:
        source = ctx.contiguous(node.inputs[0])
        strides = contiguous_strides(node.output.shape)
    ctx.set_plain(node.output, source.seen(node.output.type, strides))


def _cuts_blocks(ctx: Lowering, node: Node) -> bool:
    """[N, C, ..] as [N, C / 16, 16, ..], of what lies in the blocked layout."""
    value, shape = node.inputs[0], node.inputs[0].shape
    if not ctx.has_blocked(value) or len(shape) not in (3, 4) or shape[1] % BLOCK:
        return False
    if not are_same_shape(node.output.shape, (shape[0], shape[1] // BLOCK, BLOCK, *shape[2:])):
        return False
    view = ctx.blocked(value)
    strides = (view.image, view.block, 1, *(view.row, view.pixel)[4 - len(shape):])
    ctx.set_plain(node.output, PlainView(node.output.type, view.buffer, view.offset, view.writers, strides))
    return True


def _joins_blocks(ctx: Lowering, node: Node) -> bool:
    """The way back: [N, C / 16, 16, ..], where 16 channels are neighbours, as [N, C, ..] in the blocked layout."""
    value, shape = node.inputs[0], node.inputs[0].shape
    if len(shape) not in (4, 5) or not are_same_shape(node.output.shape, (shape[0], shape[1] * BLOCK, *shape[3:])):
        return False
    if shape[2] != BLOCK or value.type.element is not f32 or ctx.has_blocked(value):
        return False
    source = ctx.plain(value)
    if source.strides[2] != 1 or source.strides[-1] != BLOCK:
        return False
    row = source.strides[3] if len(shape) == 5 else shape[3] * BLOCK
    view = BlockedView(node.output.type, source.buffer, source.offset, source.writers, source.strides[0],
                       source.strides[1], row)
    if ctx.layout.halo.get(node.output) or node.output in ctx.layout.placement:
        view = ctx.converted(view, ctx.new_blocked(node.output, narrow=True))
    ctx.set_blocked(node.output, view)
    return True


def moved_strides(shape: Shape, strides: Sequence[int], wanted: Shape) -> tuple[int, ...] | None:
    """Strides over `wanted`, of the same elements in the same order, or None where one stride an axis can't say it.

    >>> moved_strides((4, 6), (1, 4), (4, 2, 3)), moved_strides((4, 6), (1, 4), (24,))
    ((1, 12, 4), None)
    """
    if 0 in shape:
        return contiguous_strides(wanted)
    runs = merged_dims(shape, [strides])[::-1]
    result, inner = [], 1
    for size in reversed(wanted):
        if is_one(size):
            result.append(1)
            continue
        while runs and are_same(inner, runs[0][0]):
            runs, inner = runs[1:], 1
        if not runs or not is_zero(runs[0][0] % (inner * size)):
            return None
        result.append(inner * runs[0][1][0])
        inner *= size
    return tuple(reversed(result))


@lowers("bitcast")
def bitcast(ctx: Lowering, node: Node) -> None:
    """The same memory."""
    source = ctx.plain(node.inputs[0])
    ctx.set_plain(node.output, source.seen(node.output.type, source.strides))


@lowers("transpose")
def transpose(ctx: Lowering, node: Node) -> None:
    """A view; whoever needs contiguous memory copies."""
    source = ctx.plain(node.inputs[0])
    ctx.set_plain(node.output, source.seen(node.output.type, [source.strides[i] for i in node.attrs["order"]]))


@lowers("broadcast")
def broadcast(ctx: Lowering, node: Node) -> None:
    """A view with strides of 0."""
    source = ctx.plain(node.inputs[0])
    ctx.set_plain(node.output, source.seen(node.output.type, source.over(node.output.shape)))


@lowers("slice")
def slice_(ctx: Lowering, node: Node) -> None:
    """A view, also for negative steps."""
    source = ctx.plain(node.inputs[0])
    begin, steps = node.attrs["begin"], node.attrs["strides"]
    offset = sum(b * s for b, s in zip(begin, source.strides, strict=True)) if node.output.type.size else 0
    strides = [step * s for step, s in zip(steps, source.strides, strict=True)]
    ctx.set_plain(node.output, source.seen(node.output.type, strides, offset))


def plain_concat(ctx: Lowering, node: Node) -> None:
    """One strided copy an operand."""
    out, axis = ctx.new_plain(node.output.type), node.attrs["axis"]
    first = 0
    for value in node.inputs:
        ctx.copy(ctx.plain(value), out.seen(value.type, out.strides, first * out.strides[axis]))
        first += value.shape[axis]
    ctx.set_plain(node.output, out)


@lowers("pad")
def pad(ctx: Lowering, node: Node) -> None:
    """The value everywhere, then a copy inside; edges and mirror images are copies too."""
    if node.attrs["mode"] != "constant":
        _pad_with_elements(ctx, node)
        return
    source, out = ctx.plain(node.inputs[0]), ctx.new_plain(node.output.type)
    size = node.output.type.element.size
    with np.errstate(all="ignore"):
        array = np.asarray(node.attrs["value"]).astype(node.output.type.element.numpy)
    value = plain_view(node.output.type.with_shape(()), ctx.builder.constant(array))
    ctx.strided(f"copy_{SIZE_SUFFIX[size]}", out.type.shape, [(value, value.over(out.type.shape))], out)
    first = sum(p * s for p, s in zip(node.attrs["pads_begin"], out.strides, strict=True))
    inside = out.seen(source.type, out.strides, first).unwritten()
    ctx.strided(f"copy_{SIZE_SUFFIX[size]}", source.type.shape, [source], inside, after=[out])
    ctx.set_plain(node.output, replace(out, writers=[*out.writers, *inside.writers]))


def _pad_with_elements(ctx: Lowering, node: Node) -> None:
    """One copy for each combination of the parts of the axes."""
    source, out = ctx.plain(node.inputs[0]), ctx.new_plain(node.output.type)
    pads = zip(source.type.shape, node.attrs["pads_begin"], node.attrs["pads_end"], strict=True)
    for parts in product(*(_padded_parts(*sizes, node.attrs["mode"]) for sizes in pads)):
        targets, firsts, steps, counts = zip(*parts, strict=True)
        type_ = source.type.with_shape(counts)
        read = source.seen(type_, tuple(map(mul, steps, source.strides)), sum(map(mul, firsts, source.strides)))
        ctx.copy(read, out.seen(type_, out.strides, sum(map(mul, targets, out.strides))))
    ctx.set_plain(node.output, out)


def _padded_parts(size: int, begin: int, end: int, mode: str) -> Iterator[tuple[int, int, int, int]]:
    """The parts of a padded axis that read with a constant step: place in the result, first element, step and count."""
    step, inwards = (-1, 1) if mode == "reflect" else (0, 0)
    if begin:
        yield 0, begin * inwards, step, begin
    yield begin, 0, 1, size
    if end:
        yield begin + size, size - 1 - inwards, step, end


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
    out = ctx.computed(f"convert_{source}_{target}", [view], TensorType(target, view.type.shape))
    return _same_bits(out, element)


def _between(source: ElementType, element: ElementType) -> ElementType | None:
    """Return the type that a conversion without a kernel goes through, or None. float16 has only the conversions from
    and to float32. Rare integers have only those from and to int64. uint64 also has conversions to and from floating
    point."""
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
    """Convert a result that was computed of such operands to `element`. `ordered` is as for `read`."""
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
        out = ctx.computed(name, views, TensorType(kernel_out, shape), floats)
    elif name == "clamp":
        out = _clamp(ctx, node, views[0])
    elif len(views) == 2:
        out = _binary(ctx, f"{name}_unsigned" if own is u64 and node.op.signed else name, views, shape)
    elif element is i64 and (node.op.rounds or (own is u64 and name in ("abs", "relu"))):
        out = views[0]
    elif own is u64 and name == "sign":
        out = converted(ctx, views[0], boolean)
    else:
        floats = [WIDE_CODES[f"unary_{element}"][name], next(iter(node.attrs.values()), 0.0)]
        out = ctx.computed(f"unary_{element}", views, TensorType(element, shape), floats)
    _finish(ctx, node.output, out, ordered=ordered)


def _binary(ctx: Lowering, name: str, views: Sequence[PlainView], shape: Shape) -> PlainView:
    element = views[0].type.element
    kind = "compare" if name in WIDE_CODES["compare_f64"] else "binary"
    code = _constant(ctx, np.asarray(WIDE_CODES[f"{kind}_{element}"][name], np.int64))
    made = TensorType(boolean if kind == "compare" else element, shape)
    return ctx.computed(f"{kind}_{element}", [code, *views], made)


def _clamp(ctx: Lowering, node: Node, view: PlainView) -> PlainView:
    """Bounds of integers round inwards, and saturate in the operand's own type, as the reference does."""
    lower, upper, own = node.attrs["lower"], node.attrs["upper"], node.inputs[0].type.element
    bounds: list[tuple[str, float]] = [("maximum", lower), ("minimum", upper)]
    if view.type.element is i64:
        low, high = whole_bounds(own.numpy, lower, upper)
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
    ctx.emit(kernel, params, input=source, output=out, exact=True)
    _finish(ctx, node.output, out, ordered=ordered)


@lowers("argmax", "argmin")
def position(ctx: Lowering, node: Node) -> None:
    """To i64."""
    element = computing_element(node.inputs[0].type.element)
    source = ctx.dense(read(ctx, node.inputs[0], element, ordered=True))
    kernel = node.op.name if element is f32 else f"{node.op.name}_{element}"
    ctx.make_plain(node.output, kernel, position_params(node.inputs[0].shape, node.attrs["axis"]), input=source)


# ---- products --------------------------------------------------------------------------------------------


def wide_product(ctx: Lowering, node: Node) -> None:
    """A matmul of float64 or integers."""
    element = computing_element(node.inputs[0].type.element)
    *batch, rows, columns = node.output.shape
    views = []
    for value in node.inputs[:2]:
        view = converted(ctx, ctx.plain(value), element)
        shape = (*batch, *view.type.shape[-2:])
        spread = view.seen(TensorType(element, shape), view.over(shape))
        views.append(ctx.dense(spread) if batch else spread)
    steps = []
    for view, flag in zip(views, ("transpose_a", "transpose_b"), strict=True):
        pair = view.strides[-2:][::-1] if node.attrs[flag] else view.strides[-2:]
        steps.append((prod(view.type.shape[-2:]), *pair))
    a, (b_batch, b_inner, b_column) = steps
    inner = node.inputs[0].shape[-2 if node.attrs["transpose_a"] else -1]
    out = ctx.new_plain(TensorType(element, node.output.shape))
    params = PRODUCT(batch=prod(batch), rows=rows, inner=inner, columns=columns, a=a,
                     b=(b_batch, b_column, b_inner))
    ctx.emit(f"product_{element}", params, a=views[0], b=views[1], output=out)
    if node.epilogue:
        out = _binary(ctx, "add", [out, converted(ctx, ctx.plain(node.epilogue["bias"]), element)], node.output.shape)
        out = _clamp(ctx, node, out)
    _finish(ctx, node.output, out)
