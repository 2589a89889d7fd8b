"""Operators that give a tensor another shape or order of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs
from ngraph_mxnet.frontends.mxnet.rules.registry import (
    MOVED,
    expressions,
    image_shape,
    moves,
    normal_axes,
    normal_axis,
    positive,
)
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import Shape
from ngraph_mxnet.ops import compositions as composed
from ngraph_mxnet.ops.compositions import reshaped

# ---- reshape ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReshapeCodes:
    """The meaning of the numbers in a new shape, beside sizes and -1. The number -1 stands for what is left (once).

    `copy`: the input's size; `rest`: all its remaining sizes; `merge`: the product of two; `split`: one as the next two
    numbers, of which one may be -1; `drop`: a size of 1 goes.
    """

    copy: int | None
    rest: int
    merge: int
    split: int
    drop: int | None = None


RESHAPE = ReshapeCodes(copy=0, rest=-2, merge=-3, split=-4)
NPX_RESHAPE = ReshapeCodes(copy=-2, drop=-3, rest=-4, merge=-5, split=-6)


@moves("Reshape", operands=1)
def reshape(b: Builder, attrs: Attrs, x: Value) -> Value:
    """All codes of `shape`, from either end; `target_shape` of old files, where 0 stands for what is left."""
    codes, old = attrs.ints("shape", ()), attrs.ints("target_shape", ())
    reverse, keep = attrs.bool("reverse", False), attrs.bool("keep_highest", False)
    if codes:
        return b.reshape(x, shape=resolve_shape(codes, x.shape, RESHAPE, reverse=reverse))
    if not old:
        raise UnsupportedError("neither shape nor target_shape is given")
    sizes = [x.shape[0], *old[1:]] if keep else list(old)
    if sizes.count(0) == 1:
        known = prod(size for size in sizes if size)
        sizes[sizes.index(0)] = x.size // known if known else 0
    return b.reshape(x, shape=sizes)


@moves("_npx_reshape", operands=1)
def npx_reshape(b: Builder, attrs: Attrs, x: Value) -> Value:
    """All codes of `newshape`, from either end."""
    attrs.choice("order", "C", ("C",))
    codes = attrs.ints("newshape")
    return b.reshape(x, shape=resolve_shape(codes, x.shape, NPX_RESHAPE, reverse=attrs.bool("reverse", False)))


@moves("_np_reshape", operands=1)
def np_reshape(b: Builder, attrs: Attrs, x: Value) -> Value:
    """NumPy's: one size may be -1."""
    attrs.choice("order", "C", ("C",))
    sizes = attrs.ints("newshape")
    if min(sizes, default=0) < -1:
        raise UnsupportedError(f"newshape={sizes}: no such code")
    return b.reshape(x, shape=resolve_shape(sizes, x.shape, NPX_RESHAPE))


def resolve_shape(codes: tuple[int, ...], shape: Shape, kind: ReshapeCodes, *, reverse: bool = False) -> Shape:
    """The shape that `codes` mean for an input of `shape`; `reverse` reads both from the right."""
    if reverse:
        return resolve_shape(codes[::-1], shape[::-1], kind)[::-1]
    result: list[int] = []
    at, unknown, position = 0, None, 0

    def size() -> int:
        nonlocal at
        if at >= len(shape):
            raise UnsupportedError(f"shape={codes} refers to axis {at} of {shape}")
        at += 1
        return shape[at - 1]

    while position < len(codes):
        code = codes[position]
        if code == kind.copy:
            result.append(size())
        elif code == -1:
            if unknown is not None:
                raise UnsupportedError(f"shape={codes} has two -1")
            unknown = len(result)
            result.append(1)
            at += 1
        elif code == kind.rest:
            result += shape[at:]
            at = len(shape)
        elif code == kind.merge:
            result.append(size() * size())
        elif code == kind.split:
            result += _split(size(), codes[position + 1:position + 3], codes)
            position += 2
        elif code == kind.drop:
            if size() != 1:
                raise UnsupportedError(f"shape={codes}: {code} meets a size of {shape[at - 1]}, not 1")
        elif code < 0:
            raise UnsupportedError(f"shape={codes}: no such code {code}")
        else:
            result.append(code)
            at += 1
        position += 1
    known = prod(result)
    if unknown is not None and known:
        result[unknown] = prod(shape) // known
    return tuple(result)


def _split(size: int, parts: tuple[int, ...], codes: tuple[int, ...]) -> tuple[int, int]:
    if len(parts) != 2:
        raise UnsupportedError(f"shape={codes}: a split needs two sizes after it")
    first, second = parts
    if first == -1 and second > 0:
        first = size // second
    elif second == -1 and first > 0:
        second = size // first
    if first * second != size:
        raise UnsupportedError(f"shape={codes}: {size} is not {first} times {second}")
    return first, second


@moves("reshape_like", operands=2)
def reshape_like(b: Builder, attrs: Attrs, data: Value, other: Value) -> Value:
    """The second input's sizes from rhs_begin to rhs_end in place of the first's from lhs_begin to lhs_end."""
    x, like = data.shape, other.shape
    begin, end = _range(attrs, "lhs", len(x))
    like_begin, like_end = _range(attrs, "rhs", len(like))
    return b.reshape(data, shape=(*x[:begin], *like[like_begin:like_end], *x[end:]))


def _range(attrs: Attrs, side: str, rank: int) -> tuple[int, int]:
    begin, end = attrs.int(f"{side}_begin", 0), attrs.int(f"{side}_end", rank)
    bounds = tuple(bound + rank if bound < 0 else bound for bound in (begin, end))
    if not 0 <= bounds[0] <= bounds[1] <= rank:
        raise UnsupportedError(f"{side}_begin={begin} and {side}_end={end} are no range of {rank} axes")
    return bounds[0], bounds[1]


def _squeezed(shape: Shape, attrs: Attrs) -> Shape:
    ones = tuple(axis for axis, size in enumerate(shape) if size == 1)
    axes = normal_axes(attrs.ints("axis", ones), len(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def at_least(rank: int, shape: Shape) -> Shape:
    """Return the shape with axes added as NumPy adds them: before a vector to make a matrix, around a vector to make
    rank 3."""
    if rank == 3 and len(shape) == 2:
        return (*shape, 1)
    if rank == 3 and len(shape) == 1:
        return (1, *shape, 1)
    return (1,) * (rank - len(shape)) + shape


def _of_rank(rank: int) -> None:
    @moves(f"_np_atleast_{rank}d", ignored=["num_args"])
    def lower(b: Builder, attrs: Attrs, *inputs: Value) -> list[Value]:
        return [reshaped(b, x, at_least(rank, x.shape)) for x in inputs]

    lower.__doc__ = f"Each input, of rank {rank} or more."


for _rank in (1, 2, 3):
    _of_rank(_rank)


@moves("_identity_with_attr_like_rhs", operands=2)
def identity_like(b: Builder, attrs: Attrs, x: Value, *_: Value) -> Value:
    """The first input."""
    return b.identity(x)


# ---- the order of axes -------------------------------------------------------------------------------------


@moves("transpose", "_np_transpose", operands=1)
def transpose(b: Builder, attrs: Attrs, x: Value) -> Value:
    """No axes: all reversed."""
    rank = x.rank
    axes = attrs.ints("axes", ()) or tuple(range(rank))[::-1]
    return b.transpose(x, order=[normal_axis(axis, rank) for axis in axes])


def moved_axes(b: Builder, x: Value, source: Sequence[int], destination: Sequence[int]) -> Value:
    """Move axes as NumPy's moveaxis does."""
    rank = x.rank
    origins = [normal_axis(axis, rank) for axis in source]
    places = [normal_axis(axis, rank) for axis in destination]
    if len(set(origins)) != len(origins) or len(set(places)) != len(places) or len(origins) != len(places):
        raise UnsupportedError(f"source={tuple(source)} and destination={tuple(destination)}: expected as many "
                               "distinct axes of each")
    moved = dict(zip(places, origins, strict=True))
    others = iter(axis for axis in range(rank) if axis not in origins)
    return b.transpose(x, order=[moved[place] if place in moved else next(others) for place in range(rank)])


# ---- channels and places ------------------------------------------------------------------------------------


@moves("depth_to_space", operands=1)
def depth_to_space(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Blocks of channels to places, depth-column-row order."""
    size = positive(attrs.int("block_size"), "block_size")
    channels = image_shape(x)[1]
    if channels % size**2:
        raise UnsupportedError(f"{x.type} has {channels} channels, expected a multiple of block_size^2 = {size**2}")
    return composed.depth_to_space(b, x, size)


@moves("space_to_depth", operands=1)
def space_to_depth(b: Builder, attrs: Attrs, x: Value) -> Value:
    """The inverse of depth_to_space."""
    size = positive(attrs.int("block_size"), "block_size")
    if any(side % size for side in image_shape(x)[2:]):
        raise UnsupportedError(f"{x.type}: height and width are no multiples of block_size={size}")
    return composed.space_to_depth(b, x, size)


expressions(
    ("Flatten", "(N, ...) to (N, the rest).", lambda b, attrs, x: reshaped(b, x, (x.shape[0], prod(x.shape[1:])))),
    ("expand_dims", "A new axis of size 1.",
     lambda b, attrs, x: composed.with_axis(b, x, normal_axis(attrs.int("axis"), x.rank + 1))),
    ("squeeze", "The named axes of size 1, or all; one stays when none would.",
     lambda b, attrs, x: b.reshape(x, shape=_squeezed(x.shape, attrs) or (1,))),
    ("_np_squeeze", "The named axes of size 1, or all.",
     lambda b, attrs, x: b.reshape(x, shape=_squeezed(x.shape, attrs))),
    ("_np_copy", "The input itself: no one writes into it.", lambda b, attrs, x: b.identity(x)),
    ("SwapAxis", "Two axes change places.",
     lambda b, attrs, x: composed.swapped(b, x, *(normal_axis(attrs.int(name, 0), x.rank)
                                                  for name in ("dim1", "dim2")))),
    ("_np_moveaxis", "The axes `source` become the axes `destination`; the others follow in their order.",
     lambda b, attrs, x: moved_axes(b, x, attrs.ints("source"), attrs.ints("destination"))),
    operands=1, types=MOVED,
)
