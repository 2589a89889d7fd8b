"""Operators that join tensors, repeat and pad them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngraph_mxnet.bridges.mxnet.rules.common import normal_axis
from ngraph_mxnet.bridges.mxnet.rules.registry import NUMBERS, moves, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import reshaped
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import Shape


@moves("Concat", ignored=["num_args"], operands=(1, 1 << 20))
def concat(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """One or more tensors along `dim`."""
    return b.concat(*inputs, axis=normal_axis(attrs.int("dim", 1), len(inputs[0].shape)))


@moves("_npi_concatenate", ignored=["num_args"], operands=(1, 1 << 20))
def concatenate(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Along `axis`; without one, the flat tensors."""
    if attrs.is_none("axis"):
        return b.concat(*(reshaped(b, x, (x.type.size,)) for x in inputs), axis=0)
    return b.concat(*inputs, axis=normal_axis(attrs.int("axis", 0), len(inputs[0].shape)))


@moves("stack", "_npi_stack", ignored=["num_args"], operands=(1, 1 << 20))
def stack(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Along a new axis."""
    shape = inputs[0].shape
    axis = normal_axis(attrs.int("axis", 0), len(shape) + 1)
    return b.concat(*(b.reshape(x, shape=(*x.shape[:axis], 1, *x.shape[axis:])) for x in inputs), axis=axis)


@moves("_npi_vstack", ignored=["num_args"], operands=(1, 1 << 20))
def vstack(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Along axis 0; vectors are rows."""
    return b.concat(*(reshaped(b, x, x.shape if len(x.shape) > 1 else (1, x.type.size)) for x in inputs), axis=0)


@moves("_npi_hstack", ignored=["num_args", "dim"], operands=(1, 1 << 20))
def hstack(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Along axis 1; vectors one after the other."""
    rows = [x if x.shape else b.reshape(x, shape=(1,)) for x in inputs]
    return b.concat(*rows, axis=min(1, len(rows[0].shape) - 1))


@moves("_npi_dstack", ignored=["num_args", "dim"], operands=(1, 1 << 20))
def dstack(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Along axis 2; vectors are rows, matrices have depth 1."""
    def deep(shape: Shape) -> Shape:
        return shape if len(shape) > 2 else (1,) * (2 - len(shape)) + (*shape, 1)

    return b.concat(*(reshaped(b, x, deep(x.shape)) for x in inputs), axis=2)


@moves("_npi_column_stack", ignored=["num_args"], operands=(1, 1 << 20))
def column_stack(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Along axis 1; vectors are columns."""
    return b.concat(*(reshaped(b, x, x.shape if len(x.shape) > 1 else (x.type.size, 1)) for x in inputs), axis=1)


# ---- repetition ------------------------------------------------------------------------------------------------


@moves("tile", operands=1)
def tile(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """`reps` and the shape are aligned at the right."""
    (x,), reps = inputs, attrs.ints("reps")
    rank = max(len(reps), len(x.shape))
    shape = (1,) * (rank - len(x.shape)) + x.shape
    reps = (1,) * (rank - len(reps)) + reps
    return _repeated(b, x, shape, reps, block_first=True)


@moves("repeat", operands=1)
def repeat(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Each element along `axis`; without an axis, of the flat tensor."""
    (x,), count = inputs, attrs.int("repeats")
    axis = attrs.int("axis", None)
    shape = x.shape if axis is not None else (x.type.size,)
    at = normal_axis(axis or 0, len(shape))
    reps = tuple(count if i == at else 1 for i in range(len(shape)))
    return _repeated(b, x, shape, reps, block_first=False)


def _repeated(b: Builder, x: Value, shape: Shape, reps: tuple[int, ...], *, block_first: bool) -> Value:
    """Each axis `reps` times: as a whole, or element by element."""
    if min(reps, default=1) < 1:
        raise UnsupportedError(f"{reps} times each axis leaves nothing")
    if all(count == 1 for count in reps):
        return b.identity(reshaped(b, x, shape))
    pairs = [((1, size), (count, size)) if block_first else ((size, 1), (size, count))
             for size, count in zip(shape, reps, strict=True)]
    narrow = b.reshape(x, shape=[d for pair in pairs for d in pair[0]])
    wide = b.broadcast(narrow, shape=[d for pair in pairs for d in pair[1]])
    return b.reshape(wide, shape=[size * count for size, count in zip(shape, reps, strict=True)])


@moves("broadcast_to", operands=1)
def broadcast_to(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """To a shape of the same rank; 0 keeps the input's size."""
    (x,), shape = inputs, attrs.ints("shape")
    if len(shape) != len(x.shape):
        raise UnsupportedError(f"shape={shape} for {x.type}")
    return b.broadcast(x, shape=[new or old for new, old in zip(shape, x.shape, strict=True)])


@moves("_npi_broadcast_to", operands=1)
def np_broadcast_to(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """To a shape of the same or a higher rank, as in NumPy."""
    return b.broadcast(inputs[0], shape=attrs.ints("shape"))


@moves("broadcast_axis", operands=1)
def broadcast_axis(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Axes of size 1 to given sizes."""
    axes, sizes = attrs.ints("axis", ()), attrs.ints("size", ())
    if len(axes) != len(sizes):
        raise UnsupportedError(f"axis={axes} and size={sizes} differ in length")
    return _stretched(b, inputs[0], axes, sizes)


@moves("broadcast_like", operands=2)
def broadcast_like(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """To the shape of the second input; with axes, `lhs_axes` to the sizes of `rhs_axes` there."""
    x, like = inputs
    axes, others = attrs.ints("lhs_axes", None), attrs.ints("rhs_axes", None)
    if axes is None or others is None:
        if len(x.shape) != len(like.shape):
            raise UnsupportedError(f"{x.type} and {like.type} differ in rank")
        return b.broadcast(x, shape=like.shape)
    if len(axes) != len(others):
        raise UnsupportedError(f"lhs_axes={axes} and rhs_axes={others} differ in length")
    return _stretched(b, x, axes, [like.shape[normal_axis(axis, len(like.shape))] for axis in others])


def _stretched(b: Builder, x: Value, axes: Sequence[int], sizes: Sequence[int]) -> Value:
    shape = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[normal_axis(axis, len(shape))] = size
    return b.broadcast(x, shape=shape)


# ---- padding ---------------------------------------------------------------------------------------------------


@moves("Pad", operands=1)
def pad(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """constant, edge and reflect; `pad_width` has a begin and an end for each axis."""
    widths = attrs.ints("pad_width")
    mode = attrs.choice("mode", "constant", ("constant", "edge", "reflect"))
    return b.pad(inputs[0], pads_begin=widths[::2], pads_end=widths[1::2], mode=mode,
                 value=attrs.float("constant_value", 0.0))


@rule("_npi_pad", operands=1, types=NUMBERS)
def np_pad(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """NumPy's constant, edge, reflect, symmetric, maximum and minimum; `reflect_type` even only."""
    (x,), widths = inputs, attrs.pairs("pad_width")
    mode = attrs.choice("mode", "constant", ("constant", "edge", "reflect", "symmetric", "maximum", "minimum"))
    attrs.choice("reflect_type", "even", ("even",))
    value = attrs.float("constant_value", 0.0)
    if len(widths) == 1:
        widths *= len(x.shape)
    if len(widths) != len(x.shape) or min(min(pair) for pair in widths) < 0:
        raise UnsupportedError(f"pad_width={widths} for {x.type}")
    begins, ends = zip(*widths, strict=True)
    if mode == "constant":
        return b.pad(x, pads_begin=begins, pads_end=ends, value=value)
    for axis, (begin, end) in enumerate(widths):
        if not begin and not end:
            continue
        if mode in ("maximum", "minimum"):
            extreme = b.apply("reduce_max" if mode == "maximum" else "reduce_min", x, axes=(axis,), keep_dims=True)
            sides = [b.broadcast(extreme, shape=(*x.shape[:axis], count, *x.shape[axis + 1:]))
                     for count in (begin, end)]
            x = b.concat(*([sides[0]] if begin else []), x, *([sides[1]] if end else []), axis=axis)
        else:
            places = np.pad(np.arange(x.shape[axis]), (begin, end), mode)  # type: ignore[call-overload]
            x = b.gather(x, b.constant(places), axis=axis)
    return x if any(map(any, widths)) else b.identity(x)
