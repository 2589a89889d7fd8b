"""Operators that take parts of a tensor, or write into them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from ngraph_mxnet.bridges.mxnet.rules.common import image_shape, normal_axes, normal_axis, positive
from ngraph_mxnet.bridges.mxnet.rules.registry import NUMBERS, moves, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import reshaped, scalar, slice_axis
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import Shape

Bounds = list[tuple[int, int, int]]


def _bounds(attrs: Attrs, shape: Shape) -> Bounds:
    """Normalised begin, end and step of each axis, by Python's rules on the leading axes."""
    begin, end = attrs.optional_ints("begin"), attrs.optional_ints("end")
    step = attrs.optional_ints("step", ()) or (None,) * len(begin)
    if not len(begin) == len(end) == len(step) <= len(shape) or 0 in step:
        raise UnsupportedError(f"begin={begin}, end={end}, step={step} do not fit rank {len(shape)}")
    bounds = [slice(*b).indices(size) for *b, size in zip(begin, end, step, shape, strict=False)]
    bounds += [(0, size, 1) for size in shape[len(begin):]]
    if not all(len(range(*bound)) for bound in bounds):
        raise UnsupportedError(f"begin={begin}, end={end}, step={step} leaves nothing of {shape}")
    return bounds


@moves("slice", operands=1)
def slice_(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Python's rules on the leading axes: None, negative bounds and steps. Empty results stay with MXNet."""
    (x,) = inputs
    begins, ends, strides = zip(*_bounds(attrs, x.shape), strict=True)
    return b.slice(x, begin=begins, end=ends, strides=strides)


@moves("_slice_assign", operands=2)
def slice_assign(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The first input with the second in place of a slice."""
    x, part = inputs
    return _assigned(b, x, part, _bounds(attrs, x.shape))


@moves("_slice_assign_scalar", operands=1)
def slice_assign_scalar(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The input with one number in place of a slice."""
    (x,) = inputs
    bounds = _bounds(attrs, x.shape)
    value = scalar(b, attrs.float("scalar", 0.0), x)
    return _assigned(b, x, b.broadcast(value, shape=[len(range(*bound)) for bound in bounds]), bounds)


def _assigned(b: Builder, x: Value, part: Value, bounds: Bounds) -> Value:
    """x with `part` in place of the slice. The trailing axes that the slice has whole are rows, which are scattered."""
    if part.shape != tuple(len(range(*bound)) for bound in bounds):
        raise UnsupportedError(f"found a part of {part.type}, expected the slice's shape")
    axes = max((i + 1 for i, (bound, size) in enumerate(zip(bounds, x.shape, strict=True)) if bound != (0, size, 1)),
               default=0)
    if not axes:
        return b.identity(part)
    rows, rest = prod(x.shape[:axes]), prod(x.shape[axes:])
    places = np.arange(rows).reshape(x.shape[:axes])[np.ix_(*(range(*bound) for bound in bounds[:axes]))]
    flat = b.scatter_nd(b.reshape(x, shape=(rows, rest)), b.constant(places.reshape(1, -1)),
                        b.reshape(part, shape=(places.size, rest)))
    return b.reshape(flat, shape=x.shape)


@moves("slice_axis", operands=1)
def slice_one_axis(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Negative bounds count from the end; `end` may be None."""
    (x,) = inputs
    axis = normal_axis(attrs.int("axis"), len(x.shape))
    begin, end, _ = slice(attrs.int("begin"), attrs.int("end", None)).indices(x.shape[axis])
    if begin >= end:
        raise UnsupportedError(f"[{begin}:{end}] of axis {axis} is empty")
    return slice_axis(b, x, axis, begin, end)


@moves("slice_like", operands=2)
def slice_like(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The leading part as large as the second input, on the named axes or on all."""
    x, like = inputs
    axes = normal_axes(attrs.ints("axes", ()), len(x.shape)) or tuple(range(len(x.shape)))
    if max(axes) >= len(like.shape):
        raise UnsupportedError(f"axes={axes} of {like.type}")
    end = [like.shape[axis] if axis in axes else size for axis, size in enumerate(x.shape)]
    return b.slice(x, begin=[0] * len(end), end=end)


@moves("Crop", operands=(1, 2), ignored=["num_args"])
def crop(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """A window of images at `offset` or in the centre, of size `h_w` or as large as the second input."""
    x = inputs[0]
    n, c, *size = image_shape(x)
    window = attrs.ints("h_w", (0, 0)) if len(inputs) == 1 else image_shape(inputs[1])[2:]
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
def split(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> list[Value]:
    """Equal parts of one axis, which may then be dropped."""
    (x,) = inputs
    axis = normal_axis(attrs.int("axis", 1), len(x.shape))
    return _parts(b, x, axis, _equal_starts(x, axis, attrs.int("num_outputs")), attrs.bool("squeeze_axis", False))


@moves("_split_v2", operands=1)
def split_v2(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> list[Value]:
    """Parts of one axis that begin at `indices`, or `sections` equal ones."""
    return _numpy_split(b, inputs[0], attrs, attrs.int("axis", 1))


@moves("_npi_hsplit", operands=1, ignored=["axis"])
def hsplit(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> list[Value]:
    """Parts of axis 1, or of a vector."""
    return _numpy_split(b, inputs[0], attrs, min(1, len(inputs[0].shape) - 1))


@moves("_npi_dsplit", operands=1, ignored=["axis"])
def dsplit(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> list[Value]:
    """Parts of axis 2."""
    return _numpy_split(b, inputs[0], attrs, 2)


def _numpy_split(b: Builder, x: Value, attrs: Attrs, axis: int) -> list[Value]:
    axis, sections = normal_axis(axis, len(x.shape)), attrs.int("sections", 0)
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
    if squeezed:
        parts = [b.reshape(part, shape=part.shape[:axis] + part.shape[axis + 1:]) for part in parts]
    return parts


@rule("_npi_diff", operands=1, types=NUMBERS)
def diff(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Differences of neighbours along an axis, `n` times."""
    (x,), times = inputs, attrs.int("n", 1)
    axis = normal_axis(attrs.int("axis", -1), len(x.shape))
    if not 0 <= times < x.shape[axis]:
        raise UnsupportedError(f"n={times} differences along {x.shape[axis]} elements")
    for _ in range(times):
        size = x.shape[axis]
        x = b.subtract(slice_axis(b, x, axis, 1, size), slice_axis(b, x, axis, 0, size - 1))
    return x if times else b.identity(x)


@rule("_npi_ediff1d", operands=(1, 3), types=NUMBERS)
def ediff1d(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Differences of neighbours in the flat tensor, between what is to come before and after: a tensor or a number."""
    x, given = inputs[0], list(inputs[1:])
    tensors = {side: attrs.bool(f"to_{side}_arr_given", False) for side in ("begin", "end")}
    numbers = {side: attrs.float(f"to_{side}_scalar", None) for side in ("begin", "end")}
    if sum(tensors.values()) == 1 and numbers["begin" if tensors["begin"] else "end"] is not None:
        raise UnsupportedError("a tensor and a number for one side: MXNet's result leaves room for both")
    size = x.type.size
    flat = reshaped(b, x, (size,))
    parts = [b.subtract(slice_axis(b, flat, 0, 1, size), slice_axis(b, flat, 0, 0, size - 1))] if size > 1 else []
    for side, number in numbers.items():
        if tensors[side]:
            more = given.pop(0)
        elif number is not None:
            more = scalar(b, number, x)
        else:
            continue
        parts.insert(0 if side == "begin" else len(parts), b.reshape(more, shape=(more.type.size,)))
    if not parts:
        raise UnsupportedError(f"{x.type} has no neighbours, and nothing comes before or after")
    return b.concat(*parts, axis=0)


@moves("im2col", operands=1)
def im2col(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """(N, C, H, W) to (N, C * taps, places): what each tap of a convolution reads at each place of its output."""
    (x,), kernel = inputs, attrs.ints("kernel")
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


@moves("reverse", "_npi_flip", operands=1)
def reverse(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Along the named axes."""
    return flipped(b, inputs[0], normal_axes(attrs.ints("axis"), len(inputs[0].shape)))


def flipped(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """The elements of `axes` in reverse."""
    return b.slice(x, begin=[size - 1 if i in axes else 0 for i, size in enumerate(x.shape)],
                   end=[-1 if i in axes else size for i, size in enumerate(x.shape)],
                   strides=[-1 if i in axes else 1 for i in range(len(x.shape))])


@moves("_np_roll", operands=1)
def roll(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Each axis by its shift, or the flat tensor; what leaves at one end comes in at the other."""
    (x,), shifts, axes = inputs, attrs.ints("shift"), attrs.ints("axis", None)
    if axes is None:
        if len(shifts) != 1:
            raise UnsupportedError(f"shift={shifts} without axes")
        flat = _rolled(b, b.reshape(x, shape=(x.type.size,)), 0, shifts[0])
        return b.reshape(flat, shape=x.shape)
    if len(shifts) not in (1, len(axes)):
        raise UnsupportedError(f"shift={shifts} and axis={axes} differ in length")
    for axis, shift in zip(axes, shifts if len(shifts) == len(axes) else shifts * len(axes), strict=True):
        x = _rolled(b, x, normal_axis(axis, len(x.shape)), shift)
    return x


def _rolled(b: Builder, x: Value, axis: int, shift: int) -> Value:
    size = x.shape[axis]
    first = -shift % size
    if not first:
        return b.identity(x)
    return b.concat(slice_axis(b, x, axis, first, size), slice_axis(b, x, axis, 0, first), axis=axis)


@moves("_npi_rot90", operands=1)
def rot90(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """`k` quarter turns from the first of two axes towards the second."""
    (x,), turns = inputs, attrs.int("k", 1) % 4
    rank = len(x.shape)
    axes = [normal_axis(axis, rank) for axis in attrs.ints("axes", (0, 1))]
    if len(set(axes)) != 2 or len(axes) != 2:
        raise UnsupportedError(f"axes={axes}, expected two different ones")
    first, second = axes
    order = list(range(rank))
    order[first], order[second] = second, first
    if turns == 2:
        return flipped(b, x, axes)
    if turns == 1:
        return b.transpose(flipped(b, x, [second]), order=order)
    if turns == 3:
        return flipped(b, b.transpose(x, order=order), [second])
    return b.identity(x)
