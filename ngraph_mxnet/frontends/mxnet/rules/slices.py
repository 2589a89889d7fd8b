"""Slices and joins."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs
from ngraph_mxnet.frontends.mxnet.rules.registry import (
    ANY,
    MOVED,
    NUMBERS,
    at_least_1d,
    axis_of,
    expressions,
    image_shape,
    moves,
    normal_axes,
    normal_axis,
    positive,
    rule,
)
from ngraph_mxnet.frontends.mxnet.rules.shapes import at_least
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import Shape
from ngraph_mxnet.ops.compositions import (
    flipped,
    full,
    repeated,
    require_small,
    reshaped,
    scalar,
    slice_axis,
    slice_bounds,
    stacked,
    swapped,
    without_axis,
)

Bounds = list[tuple[int, int, int]]


def _bounds(attrs: Attrs, shape: Shape) -> Bounds:
    """Normalised begin, end and step of each axis, by Python's rules on the leading axes."""
    begin, end = attrs.optional_ints("begin"), attrs.optional_ints("end")
    step = attrs.optional_ints("step", ()) or (None,) * len(begin)
    if not len(begin) == len(end) == len(step) <= len(shape) or 0 in step:
        raise UnsupportedError(f"begin={begin}, end={end}, step={step} do not fit rank {len(shape)}")
    bounds = [slice_bounds(first, last, by, size)
              for first, last, by, size in zip(begin, end, step, shape, strict=False)]
    bounds += [(0, size, 1) for size in shape[len(begin):]]
    if not all(first < last if by > 0 else last < first for first, last, by in bounds):
        raise UnsupportedError(f"begin={begin}, end={end}, step={step} leaves nothing of {shape}")
    return bounds


@moves("slice", operands=1)
def slice_(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Python's rules on the leading axes: None, negative bounds and steps. Empty results stay with MXNet."""
    begins, ends, strides = zip(*_bounds(attrs, x.shape), strict=True)
    return b.slice(x, begin=begins, end=ends, strides=strides)


@moves("_slice_assign", operands=2)
def slice_assign(b: Builder, attrs: Attrs, x: Value, part: Value) -> Value:
    """The first input with the second in place of a slice."""
    return _assigned(b, x, part, _bounds(attrs, x.shape))


@moves("_slice_assign_scalar", operands=1)
def slice_assign_scalar(b: Builder, attrs: Attrs, x: Value) -> Value:
    """The input with one number in place of a slice."""
    bounds = _bounds(attrs, x.shape)
    shape = [len(range(*bound)) for bound in bounds]
    return _assigned(b, x, full(b, attrs.float("scalar", 0.0), x, shape), bounds)


def _assigned(b: Builder, x: Value, part: Value, bounds: Bounds) -> Value:
    """x with `part` in place of the slice. The trailing axes that the slice has whole are rows, which are scattered."""
    if part.shape != tuple(len(range(*bound)) for bound in bounds):
        raise UnsupportedError(f"found a part of {part.type}, expected the slice's shape")
    axes = max((i + 1 for i, (bound, size) in enumerate(zip(bounds, x.shape, strict=True)) if bound != (0, size, 1)),
               default=0)
    if not axes:
        return b.identity(part)
    rows, rest = prod(x.shape[:axes]), prod(x.shape[axes:])
    require_small(rows)
    places = np.arange(rows).reshape(x.shape[:axes])[np.ix_(*(range(*bound) for bound in bounds[:axes]))]
    flat = b.scatter_nd(b.reshape(x, shape=(rows, rest)), b.constant(places.reshape(1, -1)),
                        b.reshape(part, shape=(places.size, rest)))
    return b.reshape(flat, shape=x.shape)


@moves("slice_axis", operands=1)
def slice_one_axis(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Negative bounds count from the end; `end` may be None."""
    axis = axis_of(attrs, x)
    begin, end, _ = slice_bounds(attrs.int("begin"), attrs.int("end", None), 1, x.shape[axis])
    if begin >= end:
        raise UnsupportedError(f"[{begin}:{end}] of axis {axis} is empty")
    return slice_axis(b, x, axis, begin, end)


@moves("slice_like", operands=2)
def slice_like(b: Builder, attrs: Attrs, x: Value, like: Value) -> Value:
    """The leading part as large as the second input, on the named axes or on all."""
    axes = normal_axes(attrs.ints("axes", ()), x.rank) or tuple(range(x.rank))
    if max(axes) >= like.rank:
        raise UnsupportedError(f"axes={axes} of {like.type}")
    end = [like.shape[axis] if axis in axes else size for axis, size in enumerate(x.shape)]
    return b.slice(x, begin=[0] * len(end), end=end)


@moves("Crop", operands=(1, 2), ignored=["num_args"])
def crop(b: Builder, attrs: Attrs, x: Value, like: Value | None = None) -> Value:
    """A window of images at `offset` or in the centre, of size `h_w` or as large as the second input."""
    n, c, *size = image_shape(x)
    window = attrs.ints("h_w", (0, 0)) if like is None else image_shape(like)[2:]
    offset = attrs.ints("offset", (0, 0))
    if attrs.bool("center_crop", False):
        offset = tuple((whole - part) // 2 for whole, part in zip(size, window, strict=True))
    attrs.ignore("h_w")
    if len(window) != 2 or len(offset) != 2 or min(window) < 1:
        raise UnsupportedError(f"a window of {window} at {offset}")
    end = [first + part for first, part in zip(offset, window, strict=True)]
    return b.slice(x, begin=[0, 0, *offset], end=[n, c, *end])


# ---- parts ---------------------------------------------------------------------------------------------------


@moves("SliceChannel", operands=1)
def split(b: Builder, attrs: Attrs, x: Value) -> list[Value]:
    """Equal parts of one axis, which may then be dropped."""
    axis = axis_of(attrs, x, 1)
    return _parts(b, x, axis, _equal_starts(x, axis, attrs.int("num_outputs")), attrs.bool("squeeze_axis", False))


def _numpy_split(b: Builder, x: Value, attrs: Attrs, axis: int) -> list[Value]:
    axis, sections = normal_axis(axis, x.rank), attrs.int("sections", 0)
    starts = list(attrs.ints("indices", ()))
    if sections:
        starts = _equal_starts(x, axis, sections)
    if not starts or starts[0] != 0:
        raise UnsupportedError(f"indices={starts} do not begin at 0")
    return _parts(b, x, axis, starts, attrs.bool("squeeze_axis", False))


def _equal_starts(x: Value, axis: int, count: int) -> list[int]:
    if x.shape[axis] % positive(count, "number of parts"):
        raise UnsupportedError(f"axis {axis} of {x.type} has no {count} equal parts")
    return list(range(0, x.shape[axis], x.shape[axis] // count))


def _parts(b: Builder, x: Value, axis: int, starts: list[int], squeezed: bool) -> list[Value]:
    stops = [*starts[1:], x.shape[axis]]
    parts = [slice_axis(b, x, axis, begin, end) for begin, end in zip(starts, stops, strict=True)]
    return [without_axis(b, part, axis) for part in parts] if squeezed else parts


_MOST_DIFFERENCES = 1 << 10


@rule("_npi_diff", operands=1, types=NUMBERS)
def diff(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Differences of neighbours along an axis, `n` times."""
    times = attrs.int("n", 1)
    axis = axis_of(attrs, x, -1)
    if not 0 <= times < min(x.shape[axis], _MOST_DIFFERENCES):
        raise UnsupportedError(f"n={times} differences along {x.shape[axis]} elements, of which at most "
                               f"{_MOST_DIFFERENCES} are taken")
    for _ in range(times):
        size = x.shape[axis]
        x = slice_axis(b, x, axis, 1, size) - slice_axis(b, x, axis, 0, size - 1)
    return x if times else b.identity(x)


@rule("_npi_ediff1d", operands=(1, 3), types=NUMBERS)
def ediff1d(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """Differences of neighbours in the flat tensor, between what is to come before and after: a tensor or a number."""
    x, given = inputs[0], list(inputs[1:])
    tensors = {side: attrs.bool(f"to_{side}_arr_given", False) for side in ("begin", "end")}
    numbers = {side: attrs.float(f"to_{side}_scalar", None) for side in ("begin", "end")}
    if sum(tensors.values()) == 1 and numbers["begin" if tensors["begin"] else "end"] is not None:
        raise UnsupportedError("a tensor and a number for one side: MXNet's result leaves room for both")
    size = x.size
    flat = reshaped(b, x, (size,))
    parts = [slice_axis(b, flat, 0, 1, size) - slice_axis(b, flat, 0, 0, size - 1)] if size > 1 else []
    for side, number in numbers.items():
        if tensors[side]:
            more = given.pop(0)
        elif number is not None:
            more = scalar(b, number, x)
        else:
            continue
        parts.insert(0 if side == "begin" else len(parts), b.reshape(more, shape=(more.size,)))
    if not parts:
        raise UnsupportedError(f"{x.type} has no neighbours, and nothing comes before or after")
    return b.concat(*parts, axis=0)


@moves("im2col", operands=1)
def im2col(b: Builder, attrs: Attrs, x: Value) -> Value:
    """(N, C, H, W) to (N, C * taps, places): what each tap of a convolution reads at each place of its output."""
    kernel = attrs.ints("kernel")
    n, c, *_ = image_shape(x)
    stride, dilate = attrs.ints("stride", ()) or (1, 1), attrs.ints("dilate", ()) or (1, 1)
    pad = attrs.ints("pad", ()) or (0, 0)
    if not len(kernel) == len(stride) == len(dilate) == len(pad) == 2:
        raise UnsupportedError(f"kernel={kernel}, stride={stride}, dilate={dilate}, pad={pad}, expected two axes")
    if any(pad):
        x = b.pad(x, pads_begin=(0, 0, *pad), pads_end=(0, 0, *pad))
    steps = [range(0, size - d * (k - 1), s) for size, k, s, d in zip(x.shape[2:], kernel, stride, dilate, strict=True)]
    if not all(steps):
        raise UnsupportedError(f"kernel={kernel}, dilate={dilate} is larger than the image {x.type}")
    places = len(steps[0]) * len(steps[1])
    taps = []
    for tap in product(*map(range, kernel)):
        first = [at * d for at, d in zip(tap, dilate, strict=True)]
        read = b.slice(x, begin=(0, 0, *first), strides=(1, 1, *stride),
                       end=(n, c, *(at + along[-1] + 1 for at, along in zip(first, steps, strict=True))))
        taps.append(b.reshape(read, shape=(n, c, 1, places)))
    return b.reshape(b.concat(*taps, axis=2), shape=(n, c * len(taps), places))


# ---- reversed and rotated ------------------------------------------------------------------------------------


@moves("_np_roll", operands=1)
def roll(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Each axis by its shift, or the flat tensor; what leaves at one end comes in at the other."""
    shifts, axes = attrs.ints("shift"), attrs.ints("axis", None)
    if axes is None:
        if len(shifts) != 1:
            raise UnsupportedError(f"shift={shifts} without axes")
        flat = _rolled(b, b.reshape(x, shape=(x.size,)), 0, shifts[0])
        return b.reshape(flat, shape=x.shape)
    if len(shifts) not in (1, len(axes)):
        raise UnsupportedError(f"shift={shifts} and axis={axes} differ in length")
    for axis, shift in zip(axes, shifts if len(shifts) == len(axes) else shifts * len(axes), strict=True):
        x = _rolled(b, x, normal_axis(axis, x.rank), shift)
    return x


def _rolled(b: Builder, x: Value, axis: int, shift: int) -> Value:
    size = x.shape[axis]
    first = -shift % size
    if not first:
        return b.identity(x)
    return b.concat(slice_axis(b, x, axis, first, size), slice_axis(b, x, axis, 0, first), axis=axis)


@moves("_npi_rot90", operands=1)
def rot90(b: Builder, attrs: Attrs, x: Value) -> Value:
    """`k` quarter turns from the first of two axes towards the second."""
    turns = attrs.int("k", 1) % 4
    rank = x.rank
    axes = [normal_axis(axis, rank) for axis in attrs.ints("axes", (0, 1))]
    if len(set(axes)) != 2 or len(axes) != 2:
        raise UnsupportedError(f"axes={axes}, expected two different ones")
    if turns == 2:
        return flipped(b, x, *axes)
    if turns == 1:
        return swapped(b, flipped(b, x, axes[1]), *axes)
    return flipped(b, swapped(b, x, *axes), axes[1]) if turns else b.identity(x)


@moves("_npi_concatenate", ignored=["num_args"], operands=(1, ANY))
def concatenate(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """Along `axis`; without one, the flat tensors."""
    if attrs.is_none("axis"):
        return b.concat(*(reshaped(b, x, (x.size,)) for x in inputs), axis=0)
    return b.concat(*inputs, axis=axis_of(attrs, inputs[0], 0))


@moves("_npi_hstack", ignored=["num_args", "dim"], operands=(1, ANY))
def hstack(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """Along axis 1; vectors one after the other."""
    rows = [at_least_1d(b, x) for x in inputs]
    return b.concat(*rows, axis=min(1, rows[0].rank - 1))


@moves("_npi_dstack", ignored=["num_args", "dim"], operands=(1, ANY))
def dstack(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """Along axis 2; vectors are rows, matrices have depth 1."""
    return b.concat(*(reshaped(b, x, at_least(3, x.shape)) for x in inputs), axis=2)


# ---- repetition ------------------------------------------------------------------------------------------------


@moves("tile", operands=1)
def tile(b: Builder, attrs: Attrs, x: Value) -> Value:
    """`reps` and the shape are aligned at the right."""
    reps = attrs.ints("reps")
    more = len(reps) - x.rank
    return _repeated(b, x, (1,) * more + x.shape, (1,) * -more + reps, whole=True)


@moves("repeat", operands=1)
def repeat(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Each element along `axis`; without an axis, of the flat tensor."""
    count, axis = attrs.int("repeats"), attrs.int("axis", None)
    shape = (x.size,) if axis is None else x.shape
    at = normal_axis(axis or 0, len(shape))
    return _repeated(b, x, shape, tuple(count if i == at else 1 for i in range(len(shape))), whole=False)


def _repeated(b: Builder, x: Value, shape: Shape, counts: tuple[int, ...], *, whole: bool) -> Value:
    if min(counts, default=1) < 1:
        raise UnsupportedError(f"{counts} times each axis leaves nothing")
    if all(count == 1 for count in counts):
        return b.identity(reshaped(b, x, shape))
    return repeated(b, x, shape, counts, whole=whole)


@moves("broadcast_to", operands=1)
def broadcast_to(b: Builder, attrs: Attrs, x: Value) -> Value:
    """To a shape of the same rank; 0 keeps the input's size."""
    shape = attrs.ints("shape")
    if len(shape) != x.rank:
        raise UnsupportedError(f"shape={shape} for {x.type}")
    return b.broadcast(x, shape=[new or old for new, old in zip(shape, x.shape, strict=True)])


@moves("broadcast_axis", operands=1)
def broadcast_axis(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Axes of size 1 to given sizes."""
    axes, sizes = attrs.ints("axis", ()), attrs.ints("size", ())
    if len(axes) != len(sizes):
        raise UnsupportedError(f"axis={axes} and size={sizes} differ in length")
    return _stretched(b, x, axes, sizes)


@moves("broadcast_like", operands=2)
def broadcast_like(b: Builder, attrs: Attrs, x: Value, like: Value) -> Value:
    """To the shape of the second input; with axes, `lhs_axes` to the sizes of `rhs_axes` there."""
    axes, others = attrs.ints("lhs_axes", None), attrs.ints("rhs_axes", None)
    if axes is None or others is None:
        if x.rank != like.rank:
            raise UnsupportedError(f"{x.type} and {like.type} differ in rank")
        return b.broadcast(x, shape=like.shape)
    if len(axes) != len(others):
        raise UnsupportedError(f"lhs_axes={axes} and rhs_axes={others} differ in length")
    return _stretched(b, x, axes, [like.shape[normal_axis(axis, like.rank)] for axis in others])


def _stretched(b: Builder, x: Value, axes: Sequence[int], sizes: Sequence[int]) -> Value:
    shape = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[normal_axis(axis, len(shape))] = size
    return b.broadcast(x, shape=shape)


# ---- padding ---------------------------------------------------------------------------------------------------


@moves("Pad", operands=1)
def pad(b: Builder, attrs: Attrs, x: Value) -> Value:
    """constant, edge and reflect; `pad_width` has a begin and an end for each axis."""
    widths = attrs.ints("pad_width")
    mode = attrs.choice("mode", "constant", ("constant", "edge", "reflect"))
    return b.pad(x, pads_begin=widths[::2], pads_end=widths[1::2], mode=mode, value=attrs.float("constant_value", 0.0))


@rule("_npi_pad", operands=1, types=NUMBERS)
def np_pad(b: Builder, attrs: Attrs, x: Value) -> Value:
    """NumPy's constant, edge, reflect, symmetric, maximum and minimum; `reflect_type` even only."""
    widths = attrs.pairs("pad_width")
    mode = attrs.choice("mode", "constant", ("constant", "edge", "reflect", "symmetric", "maximum", "minimum"))
    attrs.choice("reflect_type", "even", ("even",))
    value = attrs.float("constant_value", 0.0)
    if len(widths) == 1:
        widths *= x.rank
    if len(widths) != x.rank or min(min(pair) for pair in widths) < 0:
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
            require_small(x.shape[axis] + begin + end)
            places = np.pad(np.arange(x.shape[axis]), (begin, end), mode)  # type: ignore[call-overload]
            x = b.gather(x, b.constant(places), axis=axis)
    return x if any(map(any, widths)) else b.identity(x)


expressions(
    ("_split_v2", "Parts of one axis that begin at `indices`, or `sections` equal ones.",
     lambda b, attrs, x: _numpy_split(b, x, attrs, attrs.int("axis", 1))),
    ("reverse _npi_flip", "Along the named axes.",
     lambda b, attrs, x: flipped(b, x, *normal_axes(attrs.ints("axis"), x.rank))),
    ("_npi_broadcast_to", "To a shape of the same or a higher rank, as in NumPy.",
     lambda b, attrs, x: b.broadcast(x, shape=attrs.ints("shape"))),
    operands=1, types=MOVED,
)

expressions(
    ("_npi_hsplit", "Parts of axis 1, or of a vector.",
     lambda b, attrs, x: _numpy_split(b, x, attrs, min(1, x.rank - 1))),
    ("_npi_dsplit", "Parts of axis 2.", lambda b, attrs, x: _numpy_split(b, x, attrs, 2)),
    operands=1, ignored=["axis"], types=MOVED,
)

expressions(
    ("Concat", "One or more tensors along `dim`.",
     lambda b, attrs, *inputs: b.concat(*inputs, axis=axis_of(attrs, inputs[0], 1, "dim"))),
    ("stack _npi_stack", "Along a new axis.",
     lambda b, attrs, *inputs: stacked(b, inputs, normal_axis(attrs.int("axis", 0), inputs[0].rank + 1))),
    ("_npi_vstack", "Along axis 0; vectors are rows.",
     lambda b, attrs, *inputs: b.concat(*(reshaped(b, x, at_least(2, x.shape)) for x in inputs), axis=0)),
    ("_npi_column_stack", "Along axis 1; vectors are columns.",
     lambda b, attrs, *inputs: b.concat(*(x if x.rank > 1 else b.reshape(x, shape=(x.size, 1)) for x in inputs),
                                        axis=1)),
    operands=(1, ANY), ignored=["num_args"], types=MOVED,
)
