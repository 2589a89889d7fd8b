"""Expressions of several ops that both frontends emit: shapes, slices, norms, einsum, quantised arithmetic, deformable
and transposed convolutions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from math import inf, prod
from string import ascii_letters

import numpy as np

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import are_same_shape, at_hand, greatest, is_symbolic, least
from ngraph_mxnet.ir.types import ElementType, boolean, f32, f64, i8, i32, u8


def scalar(b: Builder, value: float, like: Value) -> Value:
    """A rank-0 constant of the element type of `like`."""
    return b.constant(value, like.element)


def size_as(b: Builder, size: int, like: Value) -> Value:
    """A size as a rank-0 value of the element type of `like`: one that is a symbol is the sum of so many ones."""
    if not is_symbolic(size):
        return scalar(b, size, like)
    return b.reduce_sum(broadcast_to(b, scalar(b, 1, like), (size,)), axes=[0], keep_dims=False)


def reshaped(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    """`x` as `shape`, which it may have already."""
    return x if are_same_shape(x.shape, shape) else b.reshape(x, shape=tuple(shape))


def broadcast_to(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    """`x` as `shape`, which it may have already."""
    return x if are_same_shape(x.shape, shape) else b.broadcast(x, shape=tuple(shape))


def full(b: Builder, number: float, like: Value, shape: Sequence[int] | None = None) -> Value:
    """A number everywhere, in the element type of `like`, and in its shape unless another is given."""
    return b.broadcast(scalar(b, number, like), shape=like.shape if shape is None else tuple(shape))


def converted(b: Builder, x: Value, like: Value | ElementType) -> Value:
    """`x` in the element type `like`, or in that of a value; it may have the type already."""
    element = like.element if isinstance(like, Value) else like
    return x if x.element == element else b.convert(x, element=element)


def times(x: Value, factor: float) -> Value:
    """x times a number, if that is not 1."""
    return x if factor == 1 else x * factor


def truth(b: Builder, x: Value) -> Value:
    """bool: x != 0, which holds for NaN."""
    return x if x.element is boolean else b.not_equal(x, 0)


def with_axis(b: Builder, x: Value, axis: int) -> Value:
    """x with a new axis of size 1 at `axis`, which counts from 0."""
    return b.reshape(x, shape=(*x.shape[:axis], 1, *x.shape[axis:]))


def without_axis(b: Builder, x: Value, axis: int) -> Value:
    """x without `axis`, whose size is 1."""
    return b.reshape(x, shape=(*x.shape[:axis], *x.shape[axis + 1:]))


def stacked(b: Builder, values: Iterable[Value], axis: int = 0) -> Value:
    """Values of one shape along a new axis."""
    return b.concat(*(with_axis(b, value, axis) for value in values), axis=axis)


def swapped(b: Builder, x: Value, first: int, second: int) -> Value:
    """x with two axes exchanged."""
    order = list(range(x.rank))
    order[first], order[second] = second, first
    return b.transpose(x, order=order)


def moved_axis(b: Builder, x: Value, source: int, destination: int) -> Value:
    """x with an axis at another place, the others in their order."""
    order = [axis for axis in range(x.rank) if axis != source]
    order.insert(destination, source)
    return b.transpose(x, order=order)


def channels_first(b: Builder, x: Value) -> Value:
    """[N, *spatial, C] as [N, C, *spatial]."""
    return moved_axis(b, x, x.rank - 1, 1)


def channels_last(b: Builder, x: Value) -> Value:
    """[N, C, *spatial] as [N, *spatial, C]."""
    return moved_axis(b, x, 1, x.rank - 1)


def with_bias(b: Builder, x: Value, bias: Value | None) -> Value:
    """x plus one number for each channel of axis 1."""
    return x if bias is None else x + along_axis(b, bias, 1, x.rank)


def moments(b: Builder, x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """The mean over `axes`, which stay as 1, x less the mean, and the biased variance."""
    mean = b.reduce_mean(x, axes=axes, keep_dims=True)
    centred = x - mean
    return mean, centred, b.reduce_mean(b.square(centred), axes=axes, keep_dims=True)


def affine(b: Builder, x: Value, scale: Value, shift: Value) -> Value:
    """x times a scale plus a shift, each one number for each place of axis 1."""
    return x * along_axis(b, scale, 1, x.rank) + along_axis(b, shift, 1, x.rank)


def hard_sigmoid(b: Builder, x: Value, slope: float = 0.2, offset: float = 0.5) -> Value:
    """clamp(slope x + offset, 0, 1)."""
    return b.clamp(x * slope + offset, lower=0.0, upper=1.0)


def mish(b: Builder, x: Value) -> Value:
    """x tanh(log(1 + e^x))."""
    return x * b.tanh(b.softplus(x))


LARGEST = 1 << 24
"""Elements of the largest constant that is made of sizes alone."""


def require_small(*sizes: int) -> None:
    """Bound a constant of this shape before NumPy makes it: a few letters of a model may ask for any number of
    elements.

    Raises:
        UnsupportedError: it has more than LARGEST elements.
    """
    count = prod(map(at_hand, sizes))
    if count > LARGEST:
        raise UnsupportedError(f"a constant of {count} elements, expected at most {LARGEST}")


def triangle(b: Builder, x: Value, diagonal: int, *, lower: bool) -> Value:
    """The matrices in the last two axes, with zeros above the diagonal, or else below it."""
    require_small(*x.shape[-2:])
    kept = np.ones(x.shape[-2:], bool)
    return b.select(b.constant(np.tril(kept, diagonal) if lower else np.triu(kept, diagonal)), x, 0)


def parts(b: Builder, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """x cut along `axis` into parts of these sizes, which together are the axis'."""
    return [slice_axis(b, x, axis, begin, end) for begin, end in pairwise((0, *accumulate(sizes)))]


def repeated(b: Builder, x: Value, shape: Sequence[int], counts: Sequence[int], *, whole: bool) -> Value:
    """Each axis of x, as `shape`, so many times: as a whole, or element by element."""
    around = [(1, size) if whole else (size, 1) for size in shape]
    wide = [(count, size) if whole else (size, count) for size, count in zip(shape, counts, strict=True)]
    apart = b.reshape(x, shape=[size for pair in around for size in pair])
    return reshaped(b, broadcast_to(b, apart, [size for pair in wide for size in pair]), [p * q for p, q in wide])


def depth_to_space(b: Builder, x: Value, size: int, *, blocks_first: bool = True) -> Value:
    """[N, C, H, W] as [N, C / size^2, H size, W size]. Channels are blocks, rows of a block, then columns, or the block
    is the last part of a channel's number."""
    n, channels, height, width = x.shape
    each = channels // size**2
    shape, order = ((size, size, each), (3, 4, 1, 5, 2)) if blocks_first else ((each, size, size), (1, 4, 2, 5, 3))
    apart = b.reshape(x, shape=(n, *shape, height, width))
    return b.reshape(b.transpose(apart, order=(0, *order)), shape=(n, each, height * size, width * size))


def space_to_depth(b: Builder, x: Value, size: int, *, blocks_first: bool = True) -> Value:
    """The inverse of `depth_to_space`."""
    n, channels, height, width = x.shape
    apart = b.reshape(x, shape=(n, channels, height // size, size, width // size, size))
    moved = b.transpose(apart, order=(0, 3, 5, 1, 2, 4) if blocks_first else (0, 1, 3, 5, 2, 4))
    return b.reshape(moved, shape=(n, channels * size**2, height // size, width // size))


def along_axis(b: Builder, vector: Value, axis: int, rank: int) -> Value:
    """A vector ready to broadcast along `axis` of a tensor of `rank`."""
    return b.reshape(vector, shape=[vector.size if i == axis else 1 for i in range(rank)])


def slice_bounds(begin: int | None, end: int | None, step: int | None, size: int) -> tuple[int, int, int]:
    """A slice of an axis by Python's rules, as what the op `slice` takes. A size that is a symbol stays one where the
    step is 1."""
    if step not in (None, 1) or not is_symbolic(size):
        return slice(begin, end, step).indices(size)

    def place(bound: int) -> int:
        found: int = greatest(size + bound, 0) if bound < 0 else least(bound, size)
        return found

    return 0 if begin is None else place(begin), size if end is None else place(end), 1


def slice_axis(b: Builder, x: Value, axis: int, begin: int, end: int) -> Value:
    """x[..., begin:end, ...] with bounds in range."""
    rank = x.rank
    return b.slice(x, begin=[begin if i == axis else 0 for i in range(rank)],
                   end=[end if i == axis else x.shape[i] for i in range(rank)])


def place_of(b: Builder, x: Value, axis: int, place: int) -> Value:
    """x[..., place, ...], without the axis."""
    return without_axis(b, slice_axis(b, x, axis, place, place + 1), axis)


def flipped(b: Builder, x: Value, *axes: int) -> Value:
    """x with the order of its elements along `axes` reversed."""
    if not all(x.shape[axis] for axis in axes):
        return x
    return b.slice(x, begin=[size - 1 if i in axes else 0 for i, size in enumerate(x.shape)],
                   end=[-1 if i in axes else size for i, size in enumerate(x.shape)],
                   strides=[-1 if i in axes else 1 for i in range(x.rank)])


def iota(b: Builder, size: int, axis: int, rank: int, dtype: str = "i64") -> Value:
    """0, 1, ... ready to broadcast along `axis` of a tensor of `rank`; of a size that is a symbol the ones before each
    place are counted."""
    shape = [size if i == axis else 1 for i in range(rank)]
    if not is_symbolic(size):
        require_small(size)
        return b.constant(np.arange(size).reshape(shape), dtype)
    ones = broadcast_to(b, b.constant(1, dtype), (size,))
    return b.reshape(b.cumsum(ones, axis=0) - b.constant(1, dtype), shape=shape)


def places_of(b: Builder, shape: Sequence[int], axis: int) -> Value:
    """The place of each element along `axis`, in i64."""
    return broadcast_to(b, iota(b, shape[axis], axis, len(shape)), shape)


Term = tuple[Value, str]
"""A tensor and the names of its axes."""


def einsum(b: Builder, inputs: Sequence[Value], subscripts: str) -> Value:
    """From left to right, two operands at a time, with the subscripts of NumPy's `einsum`.

    An axis that is named twice in one operand is its diagonal; `...` stands for equal leading axes.

    Raises:
        UnsupportedError: the subscripts do not fit the operands.
    """
    subscripts = _without_ellipsis(inputs, subscripts.replace(" ", ""))
    left, arrow, result = subscripts.partition("->")
    names = left.split(",")
    if not arrow:
        result = "".join(sorted(name for name in {*left} - {","} if left.count(name) == 1))
    if len(names) != len(inputs) or len({*result}) != len(result) or not {*result} <= {*left}:
        raise UnsupportedError(f"subscripts={subscripts} do not fit {len(inputs)} operands")
    terms = [_diagonal(b, term, subscripts) for term in zip(inputs, names, strict=True)]
    sizes: dict[str, int] = {}
    for value, axes in terms:
        for name, size in zip(axes, value.shape, strict=True):
            if sizes.setdefault(name, size) != size:
                raise UnsupportedError(f"subscripts={subscripts}: {name} is {sizes[name]} and {size}")
    term = terms.pop(0)
    while terms:
        needed = {*result}.union(*(axes for _, axes in terms[1:]))
        term = _product(b, term, terms.pop(0), needed)
    value, axes = _summed(b, term, {*result})
    order = [axes.index(name) for name in result]
    return b.identity(value) if order == sorted(order) and value in inputs else b.transpose(value, order=order)


def _without_ellipsis(inputs: Sequence[Value], subscripts: str) -> str:
    """The subscripts with names of their own for the axes of `...`."""
    if "..." not in subscripts:
        return subscripts
    left, arrow, result = subscripts.partition("->")
    free = "".join(name for name in ascii_letters if name not in subscripts)
    counts = {value.rank - len(axes) + 3 for value, axes in zip(inputs, left.split(","), strict=False) if "..." in axes}
    if len(counts) != 1 or min(counts) < 0:
        raise UnsupportedError(f"subscripts={subscripts}: `...` stands for different numbers of axes")
    batch = free[: counts.pop()]
    if not arrow:
        result = batch + "".join(sorted(name for name in {*left} - {*",."} if left.count(name) == 1))
    return f"{left.replace('...', batch)}->{result.replace('...', batch)}"


def _diagonal(b: Builder, term: Term, subscripts: str) -> Term:
    """The term with each axis named once."""
    value, axes = term
    if len(axes) != value.rank:
        raise UnsupportedError(f"subscripts={subscripts}: {axes} for {value.type}, expected a name for each axis")
    while len({*axes}) != len(axes):
        name = next(name for name in axes if axes.count(name) > 1)
        first, second = [i for i, other in enumerate(axes) if other == name][:2]
        size = value.shape[first]
        if value.shape[second] != size:
            raise UnsupportedError(f"subscripts={subscripts}: {name} is {size} and {value.shape[second]}")
        rest = [i for i in range(len(axes)) if i not in (first, second)]
        shape = [value.shape[i] for i in rest]
        flat = b.reshape(b.transpose(value, order=[*rest, first, second]), shape=[*shape, size * size])
        value = b.slice(flat, begin=[0] * flat.rank, end=flat.shape, strides=[*(1 for _ in rest), size + 1])
        axes = "".join(axes[i] for i in rest) + name
    return value, axes


def _summed(b: Builder, term: Term, needed: set[str]) -> Term:
    """The term, summed over the axes that are not `needed`."""
    value, axes = term
    gone = tuple(i for i, name in enumerate(axes) if name not in needed)
    if not gone:
        return term
    return b.reduce_sum(value, axes=gone), "".join(name for name in axes if name in needed)


def _product(b: Builder, left: Term, right: Term, needed: set[str]) -> Term:
    """The product of two terms, summed over the axes that are not `needed`: a batch of matrix products, one for each
    index of the needed axes that both have."""
    left, right = _summed(b, left, needed | {*right[1]}), _summed(b, right, needed | {*left[1]})
    common = [name for name in left[1] if name in right[1]]
    batch = "".join(name for name in common if name in needed)
    inner = "".join(name for name in common if name not in needed)
    rows = "".join(name for name in left[1] if name not in common)
    columns = "".join(name for name in right[1] if name not in common)
    a, c = _matrices(b, left, batch, rows, inner), _matrices(b, right, batch, inner, columns)
    sizes = {**dict(zip(left[1], left[0].shape, strict=True)), **dict(zip(right[1], right[0].shape, strict=True))}
    out = batch + rows + columns
    return reshaped(b, b.matmul(a, c), [sizes[name] for name in out]), out


def _matrices(b: Builder, term: Term, batch: str, rows: str, columns: str) -> Value:
    """[batch][rows][columns], each of which is several axes as one."""
    value, axes = term
    sizes = dict(zip(axes, value.shape, strict=True))
    moved = b.transpose(value, order=[axes.index(name) for name in batch + rows + columns])
    return reshaped(b, moved, [prod(sizes[name] for name in names) for names in (batch, rows, columns)])


_BYTES = (u8, i8)
_LARGEST_I32 = float(np.nextafter(np.float32(2**31), np.float32(0)))


def widened(b: Builder, x: Value) -> Value:
    """Integers in float32."""
    if x.element in _BYTES:
        return b.dequantize(x, b.constant(np.float32(1)), b.constant(0, x.element))
    return b.convert(x, element=f32)


def limits(element: ElementType) -> tuple[float, float]:
    """The least and greatest number of an integer type, as float32 holds them within its range; 0 and 1 of bool."""
    if element is boolean:
        return 0.0, 1.0
    bounds = np.iinfo(element.numpy)
    return float(bounds.min), _LARGEST_I32 if element is i32 else float(bounds.max)


def saturated(b: Builder, whole: Value, element: ElementType) -> Value:
    """Whole float numbers as integers; those outside the type's range become its limits."""
    lower, upper = limits(element)
    return b.convert(b.clamp(whole, lower=lower, upper=upper), element=element)


def rounded(b: Builder, x: Value, element: ElementType) -> Value:
    """The nearest integers, halves to even, within the type's range.

    But for bytes they are bounded before they are rounded: so the bounds become those of the contraction that x is of.
    """
    if element in _BYTES:
        return b.quantize(x, b.constant(np.float32(1)), b.constant(0, element))
    lower, upper = limits(element)
    return b.convert(b.round(b.clamp(x, lower=lower, upper=upper)), element=element)


# Powers of 2, of f32 and of f64: below the first and above the second there is a scale, the third and the fourth. The
# squares of whatever is scaled so, and the sums of 2^24 of them, have all their digits.
_RANGES = {False: (2.0**-40, 2.0**48, 2.0**-90, 2.0**80), True: (2.0**-300, 2.0**480, 2.0**-700, 2.0**640)}


def square_scale(b: Builder, largest: Value) -> Value:
    """A power of 2 for numbers up to `largest`, which is not negative: their squares over it are within range. 1 for
    most, and for NaN."""
    low, high, tiny, huge = _RANGES[largest.element is f64]
    up = b.select(largest > high, huge, scalar(b, 1, largest))
    return b.stop_gradient(b.select(largest < low, tiny, up))


def euclidean_norm(b: Builder, x: Value, axes: Sequence[int], *, keep: bool) -> Value:
    """The root of the sum of squares over `axes`."""
    if not x.size:
        return b.sqrt(b.reduce_sum(b.square(x), axes=axes, keep_dims=keep))
    scale = square_scale(b, b.reduce_max(b.abs(x), axes=axes, keep_dims=True))
    root = b.sqrt(b.reduce_sum(b.square(x / scale), axes=axes, keep_dims=keep))
    return root * reshaped(b, scale, root.shape)


def power_norm(b: Builder, x: Value, order: float, axes: Sequence[int], *, keep: bool) -> Value:
    """The sum of |x|^order over `axes`, to the power of 1 / order, which is neither 0 nor infinite.

    Of positive orders the scale is the largest number, of negative ones the least.
    """
    size = b.abs(x)
    most = b.apply("reduce_max" if order > 0 else "reduce_min", size, axes=axes, keep_dims=True)
    within = (most > 0) & (most < inf)
    scale = b.stop_gradient(b.select(within, most, 1))
    total = b.reduce_sum((size / scale) ** order, axes=axes, keep_dims=keep)
    root = total ** (1 / order)
    return root * reshaped(b, scale, root.shape)


def hypotenuse(b: Builder, x: Value, y: Value) -> Value:
    """sqrt(x^2 + y^2); infinite where either is, whatever the other."""
    sizes = b.abs(x), b.abs(y)
    scale = square_scale(b, b.maximum(*sizes))
    root = b.sqrt(b.square(x / scale) + b.square(y / scale))
    endless = b.logical_or(*(b.equal(size, inf) for size in sizes))
    return b.select(endless, inf, root * scale)


def root_or_flat(b: Builder, op: str, x: Value) -> Value:
    """`sqrt` or `cbrt`, through which nothing goes back at 0, where it has no derivative."""
    flat = b.equal(x, 0)
    return b.select(flat, 0, b.apply(op, b.select(flat, 1, x)))


Ints = tuple[int, ...]


def deformable_convolution(b: Builder, x: Value, offset: Value, mask: Value | None, weight: Value, *, groups: int,
                           offset_groups: int, stride: Ints, dilate: Ints, pad: Ints) -> Value:
    """Tap k of the filter reads the data, linear between pixels, at its place plus an offset, times a mask; the columns
    so read are multiplied with the weight.

    x [N, C, H, W], offset [N, 2 G taps, P, Q] (row, column), mask [N, G taps, P, Q], weight [F, C / groups, *kernel].
    (Zhu et al., "Deformable ConvNets v2", 2018; MXNet's src/operator/contrib/nn/modulated_deformable_im2col.h.)
    """
    batch, channels, height, width = x.shape
    filters, per_group, *kernel = weight.shape
    if min(height, width) < 2:
        raise UnsupportedError(f"found {x.type}, expected at least 2 rows and 2 columns")
    taps, sizes = kernel[0] * kernel[1], offset.shape[2:]
    if (per_group * groups != channels or filters % groups or channels % offset_groups
            or offset.shape[1] != 2 * offset_groups * taps):
        raise UnsupportedError(f"{groups} groups and {offset_groups} of offsets {offset.type} do not fit the weight "
                               f"{weight.type} and {x.type}")
    places = sizes[0] * sizes[1]
    grid = _grid(b, b.reshape(offset, shape=(batch * offset_groups, taps, 2, places)),
                 _taps(tuple(kernel), sizes, stride, dilate, pad), (height, width))
    found = b.bilinear_sample(
        b.reshape(x, shape=(batch * offset_groups, channels // offset_groups, height, width)), grid)
    if mask is not None:
        found = found * b.reshape(mask, shape=(batch * offset_groups, 1, taps, places))
    rows = channels // groups * taps
    found = b.matmul(b.reshape(weight, shape=(1, groups, filters // groups, rows)),
                     b.reshape(found, shape=(batch, groups, rows, places)))
    return b.reshape(found, shape=(batch, filters, *sizes))


def _taps(kernel: Ints, sizes: Ints, *axes: Ints) -> np.ndarray:
    """Return where an ordinary convolution's taps read the data: (row, column), f32 [taps, 2, places]."""
    require_small(*kernel, 2, *sizes)
    at = [np.arange(size)[None, :] * stride + np.arange(span)[:, None] * dilate - pad
          for size, span, stride, dilate, pad in zip(sizes, kernel, *axes, strict=True)]
    rows, columns = np.broadcast_arrays(at[0][:, None, :, None], at[1][None, :, None, :])
    return np.stack([rows, columns], axis=2).reshape(-1, 2, sizes[0] * sizes[1]).astype(np.float32)


def _grid(b: Builder, offset: Value, taps: np.ndarray, sizes: Ints) -> Value:
    """[N, taps, 2, places] -> (x, y) [N, 2, taps, places], from -1 to 1 over the image."""
    element = offset.element
    scale = np.array([2 / (size - 1) for size in sizes], np.float32).reshape(2, 1)
    scaled = offset * b.constant(scale, element) + b.constant(taps * scale - np.float32(1), element)
    y, x = (b.transpose(slice_axis(b, scaled, 2, place, place + 1), order=(0, 2, 1, 3)) for place in range(2))
    return b.concat(x, y, axis=1)


def transposed_convolution(b: Builder, x: Value, weight: Value, *, groups: int, stride: Ints, dilate: Ints, pad: Ints,
                           adjust: Ints) -> Value:
    """A weight [C, O / groups, *K] over x [N, C, *S]: stride (S - 1) + dilate (K - 1) + 1 - 2 pad + adjust places.

    A convolution of the data with zeros between its elements and of the kernel turned round.
    """
    count, kernel = len(stride), weight.shape[2:]
    turned = _turned(b, weight, groups)
    # What padding would have to remove is cut off behind.
    full = [step * (size - 1) for step, size in zip(dilate, kernel, strict=True)]
    begin = [reach - cut for reach, cut in zip(full, pad, strict=True)]
    end = [first + extra for first, extra in zip(begin, adjust, strict=True)]
    steps: Ints = stride
    if not _meets_kernel(kernel, stride, dilate):
        x, steps = _spread(b, x, stride), (1,) * count
    out = b.convolution(x, turned, dilations=dilate, pads_begin=tuple(max(0, p) for p in begin),
                        pads_end=tuple(max(0, p) for p in end), groups=groups, data_dilations=steps)
    if min(*begin, *end) >= 0:
        return out
    first = (0, 0, *(max(0, -p) for p in begin))
    last = tuple(size - max(0, -p) for size, p in zip(out.shape, (0, 0, *end), strict=True))
    return b.slice(out, begin=first, end=last)


def _meets_kernel(kernel: Ints, stride: Ints, dilate: Ints) -> bool:
    """True if each output reads an element of the data, so that the convolution can be cut into phases."""
    return all(len({tap * far % step for tap in range(size)}) == step
               for size, step, far in zip(kernel, stride, dilate, strict=True))


def _turned(b: Builder, weight: Value, groups: int) -> Value:
    """[C, O / groups, *K] as [O, C / groups, *K] with the kernel turned round."""
    channels, outputs, *kernel = weight.shape
    rank = weight.rank
    grouped = b.reshape(weight, shape=(groups, channels // groups, outputs, *kernel))
    order = (0, 2, 1, *range(3, rank + 1))
    swapped = b.reshape(b.transpose(grouped, order=order), shape=(groups * outputs, channels // groups, *kernel))
    return flipped(b, swapped, *range(2, rank))


def _spread(b: Builder, x: Value, stride: Ints) -> Value:
    """x with zeros between its elements."""
    if prod(stride) == 1:
        return x
    sizes = x.shape[2:]
    apart = b.reshape(x, shape=(*x.shape[:2], *(d for size in sizes for d in (size, 1))))
    none = (0,) * (2 + 2 * len(sizes))
    wide = b.pad(apart, pads_begin=none, pads_end=(0, 0, *(d for step in stride for d in (0, step - 1))))
    whole = b.reshape(wide, shape=(*x.shape[:2], *(size * step for size, step in zip(sizes, stride, strict=True))))
    return b.slice(whole, begin=(0,) * x.rank,
                   end=(*x.shape[:2], *((size - 1) * step + 1 for size, step in zip(sizes, stride, strict=True))))
