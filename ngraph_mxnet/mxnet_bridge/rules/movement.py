"""Operators that move elements: shapes, slices, joins, repetition, padding, look-ups."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import Shape, element_type
from ngraph_mxnet.mxnet_bridge.attrs import Attrs
from ngraph_mxnet.mxnet_bridge.rules.common import image_shape, normal_axes, normal_axis, positive, slice_axis
from ngraph_mxnet.mxnet_bridge.rules.registry import moves as rule
from ngraph_mxnet.mxnet_bridge.symbol_json import SymbolNode

# ---- shapes ---------------------------------------------------------------------------------------------


@rule("Flatten", "flatten", operands=1)
def flatten(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """(N, ...) to (N, the rest)."""
    (x,) = inputs
    return b.reshape(x, shape=(x.shape[0], prod(x.shape[1:])))


@rule("Reshape", "reshape", operands=1, ignored=["keep_highest"])
def reshape(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """All codes of `shape`, from either end; the long deprecated `target_shape` stays with MXNet."""
    (x,) = inputs
    codes = attrs.ints("shape", ())
    if attrs.ints("target_shape", ()) or not codes:
        raise UnsupportedError("target_shape is not supported, use shape")
    return b.reshape(x, shape=resolve_shape(codes, x.shape, reverse=attrs.bool("reverse", False)))


def resolve_shape(codes: tuple[int, ...], shape: Shape, *, reverse: bool = False) -> Shape:
    """The shape that MXNet's codes mean.

    n > 0: that size; 0: the input's; -1: what is left (once); -2: all remaining; -3: the product of two;
    -4: split one into the next two, of which one may be -1. `reverse` reads codes and shape from the right.
    """
    if reverse:
        return resolve_shape(codes[::-1], shape[::-1])[::-1]
    result: list[int] = []
    at, unknown, position = 0, None, 0
    while position < len(codes):
        code = codes[position]
        if code == -1:
            if unknown is not None:
                raise UnsupportedError(f"shape={codes} has two -1")
            unknown = len(result)
            result.append(1)
            at += 1
        elif code == -2:
            result += shape[at:]
            at = len(shape)
        elif code == -3:
            result.append(_dim(shape, at, codes) * _dim(shape, at + 1, codes))
            at += 2
        elif code == -4:
            result += _split(_dim(shape, at, codes), codes[position + 1:position + 3], codes)
            at, position = at + 1, position + 2
        elif code < -4:
            raise UnsupportedError(f"shape={codes}: no such code {code}")
        else:
            result.append(code if code > 0 else _dim(shape, at, codes))
            at += 1
        position += 1
    known: int = prod(tuple(result))
    if unknown is not None and known:
        result[unknown] = prod(shape) // known
    return tuple(result)


def _dim(shape: Shape, at: int, codes: tuple[int, ...]) -> int:
    if at >= len(shape):
        raise UnsupportedError(f"shape={codes} refers to axis {at} of {shape}")
    return shape[at]


def _split(size: int, parts: tuple[int, ...], codes: tuple[int, ...]) -> tuple[int, int]:
    if len(parts) != 2:
        raise UnsupportedError(f"shape={codes}: -4 needs two sizes after it")
    first, second = parts
    if first == -1 and second > 0:
        first = size // second
    elif second == -1 and first > 0:
        second = size // first
    if first * second != size:
        raise UnsupportedError(f"shape={codes}: -4 can't split {size} into {parts}")
    return first, second


@rule("reshape_like", operands=2)
def reshape_like(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The whole shape of the second input; ranges of axes stay with MXNet."""
    return b.reshape(inputs[0], shape=inputs[1].shape)


@rule("expand_dims", operands=1)
def expand_dims(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """A new axis of size 1."""
    (x,) = inputs
    axis = normal_axis(attrs.int("axis"), len(x.shape) + 1)
    return b.reshape(x, shape=(*x.shape[:axis], 1, *x.shape[axis:]))


@rule("squeeze", operands=1)
def squeeze(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The named axes of size 1, or all; one stays when none would."""
    (x,) = inputs
    rank = len(x.shape)
    ones = tuple(axis for axis in range(rank) if x.shape[axis] == 1)
    axes = normal_axes(attrs.ints("axis", ones), rank)
    return b.reshape(x, shape=tuple(d for axis, d in enumerate(x.shape) if axis not in axes) or (1,))


@rule("transpose", operands=1)
def transpose(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """No axes: all reversed."""
    rank = len(inputs[0].shape)
    axes = attrs.ints("axes", ()) or tuple(range(rank))[::-1]
    return b.transpose(inputs[0], order=[normal_axis(axis, rank) for axis in axes])


@rule("SwapAxis", "swapaxes", operands=1)
def swap_axes(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Two axes change places."""
    rank = len(inputs[0].shape)
    first, second = normal_axis(attrs.int("dim1", 0), rank), normal_axis(attrs.int("dim2", 0), rank)
    order = list(range(rank))
    order[first], order[second] = second, first
    return b.transpose(inputs[0], order=order)


@rule("depth_to_space", operands=1)
def depth_to_space(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Blocks of channels to places, depth-column-row order."""
    (x,), size = inputs, positive(attrs.int("block_size"), "block_size")
    n, c, h, w = image_shape(x)
    split = b.reshape(x, shape=(n, size, size, c // size**2, h, w))
    moved = b.transpose(split, order=(0, 3, 4, 1, 5, 2))
    return b.reshape(moved, shape=(n, c // size**2, h * size, w * size))


@rule("space_to_depth", operands=1)
def space_to_depth(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The inverse of depth_to_space."""
    (x,), size = inputs, positive(attrs.int("block_size"), "block_size")
    n, c, h, w = image_shape(x)
    split = b.reshape(x, shape=(n, c, h // size, size, w // size, size))
    moved = b.transpose(split, order=(0, 3, 5, 1, 2, 4))
    return b.reshape(moved, shape=(n, c * size**2, h // size, w // size))


# ---- slices ---------------------------------------------------------------------------------------------

@rule("slice", "crop", operands=1)
def slice_(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Python's rules on the leading axes: None, negative bounds and steps. Empty results stay with MXNet."""
    (x,) = inputs
    begin, end = attrs.optional_ints("begin"), attrs.optional_ints("end")
    step = attrs.optional_ints("step", ()) or (None,) * len(begin)
    if not len(begin) == len(end) == len(step) <= len(x.shape) or 0 in step:
        raise UnsupportedError(f"begin={begin}, end={end}, step={step} do not fit rank {len(x.shape)}")
    bounds = [slice(*b).indices(size) for *b, size in zip(begin, end, step, x.shape, strict=False)]
    bounds += [(0, size, 1) for size in x.shape[len(begin):]]
    if not all(len(range(*bound)) for bound in bounds):
        raise UnsupportedError(f"begin={begin}, end={end}, step={step} leaves nothing of {x.type}")
    begins, ends, strides = zip(*bounds, strict=True)
    return b.slice(x, begin=begins, end=ends, strides=strides)


@rule("slice_axis", operands=1)
def slice_one_axis(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Negative bounds count from the end; `end` may be None."""
    (x,) = inputs
    axis = normal_axis(attrs.int("axis"), len(x.shape))
    begin, end, _ = slice(attrs.int("begin"), attrs.int("end", None)).indices(x.shape[axis])
    if begin >= end:
        raise UnsupportedError(f"[{begin}:{end}] of axis {axis} is empty")
    return slice_axis(b, x, axis, begin, end)


@rule("slice_like", operands=2)
def slice_like(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The leading part as large as the second input, on the named axes or on all."""
    x, like = inputs
    axes = normal_axes(attrs.ints("axes", ()), len(x.shape)) or tuple(range(len(x.shape)))
    if max(axes) >= len(like.shape):
        raise UnsupportedError(f"axes={axes} of {like.type}")
    end = [like.shape[axis] if axis in axes else size for axis, size in enumerate(x.shape)]
    return b.slice(x, begin=[0] * len(end), end=end)


@rule("SliceChannel", "split", operands=1)
def split(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> list[Value]:
    """Equal parts of one axis, which may then be dropped."""
    (x,) = inputs
    axis = normal_axis(attrs.int("axis", 1), len(x.shape))
    count = positive(attrs.int("num_outputs"), "num_outputs")
    if x.shape[axis] % count:
        raise UnsupportedError(f"axis {axis} of {x.type} has no {count} equal parts")
    size = x.shape[axis] // count
    return _parts(b, x, axis, [size * i for i in range(count)], attrs.bool("squeeze_axis", False))


@rule("_split_v2", operands=1)
def split_v2(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> list[Value]:
    """Parts of one axis that begin at `indices`, or `sections` equal ones."""
    (x,) = inputs
    axis, sections = normal_axis(attrs.int("axis", 1), len(x.shape)), attrs.int("sections", 0)
    starts = list(attrs.ints("indices", ()))
    if sections:
        starts = [x.shape[axis] // sections * i for i in range(sections)]
    if not starts or starts[0] != 0:
        raise UnsupportedError(f"indices={starts} do not begin at 0")
    return _parts(b, x, axis, starts, attrs.bool("squeeze_axis", False))


def _parts(b: Builder, x: Value, axis: int, starts: list[int], squeezed: bool) -> list[Value]:
    stops = [*starts[1:], x.shape[axis]]
    parts = [slice_axis(b, x, axis, begin, end) for begin, end in zip(starts, stops, strict=True)]
    if squeezed:
        parts = [b.reshape(part, shape=part.shape[:axis] + part.shape[axis + 1:]) for part in parts]
    return parts


@rule("reverse", "flip", operands=1)
def reverse(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Along the named axes."""
    (x,) = inputs
    axes = normal_axes(attrs.ints("axis"), len(x.shape))
    return b.slice(x, begin=[s - 1 if i in axes else 0 for i, s in enumerate(x.shape)],
                   end=[-1 if i in axes else s for i, s in enumerate(x.shape)],
                   strides=[-1 if i in axes else 1 for i in range(len(x.shape))])


# ---- joins and repetition -------------------------------------------------------------------------------

@rule("Concat", "concat", ignored=["num_args"])
def concat(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """One or more tensors along `dim`."""
    return b.concat(*inputs, axis=normal_axis(attrs.int("dim", 1), len(inputs[0].shape)))


@rule("stack", ignored=["num_args"])
def stack(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Along a new axis."""
    shape = inputs[0].shape
    axis = normal_axis(attrs.int("axis", 0), len(shape) + 1)
    return b.concat(*(b.reshape(x, shape=(*shape[:axis], 1, *shape[axis:])) for x in inputs), axis=axis)


@rule("tile", operands=1)
def tile(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """`reps` and the shape are aligned at the right."""
    (x,), reps = inputs, attrs.ints("reps")
    rank = max(len(reps), len(x.shape))
    shape = (1,) * (rank - len(x.shape)) + x.shape
    reps = (1,) * (rank - len(reps)) + reps
    return _repeated(b, x, shape, reps, block_first=True)


@rule("repeat", operands=1)
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
    if all(count == 1 for count in reps):
        return x if x.shape == shape else b.reshape(x, shape=shape)
    pairs = [((1, size), (count, size)) if block_first else ((size, 1), (size, count))
             for size, count in zip(shape, reps, strict=True)]
    narrow = b.reshape(x, shape=[d for pair in pairs for d in pair[0]])
    wide = b.broadcast(narrow, shape=[d for pair in pairs for d in pair[1]])
    return b.reshape(wide, shape=[size * count for size, count in zip(shape, reps, strict=True)])


@rule("broadcast_to", operands=1)
def broadcast_to(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """To a shape of the same rank; 0 keeps the input's size."""
    (x,), shape = inputs, attrs.ints("shape")
    if len(shape) != len(x.shape):
        raise UnsupportedError(f"shape={shape} for {x.type}")
    return b.broadcast(x, shape=[new or old for new, old in zip(shape, x.shape, strict=True)])


@rule("broadcast_axis", "broadcast_axes", operands=1)
def broadcast_axis(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Axes of size 1 to given sizes."""
    (x,), shape = inputs, list(inputs[0].shape)
    axes, sizes = attrs.ints("axis", ()), attrs.ints("size", ())
    if len(axes) != len(sizes):
        raise UnsupportedError(f"axis={axes} and size={sizes} differ in length")
    for axis, size in zip(axes, sizes, strict=True):
        shape[normal_axis(axis, len(shape))] = size
    return b.broadcast(x, shape=shape)


@rule("broadcast_like", operands=2)
def broadcast_like(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """To the whole shape of the second input, or `lhs_axes` to the sizes of its `rhs_axes`."""
    x, like = inputs
    own, theirs = attrs.ints("lhs_axes", None), attrs.ints("rhs_axes", None)
    if own is None and theirs is None:
        return b.broadcast(x, shape=like.shape)
    if own is None or theirs is None or len(own) != len(theirs):
        raise UnsupportedError(f"lhs_axes={own} and rhs_axes={theirs} differ in length")
    shape = list(x.shape)
    for axis, other in zip(own, theirs, strict=True):
        shape[normal_axis(axis, len(shape))] = like.shape[normal_axis(other, len(like.shape))]
    return b.broadcast(x, shape=shape)


@rule("Pad", "pad", operands=1)
def pad(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """constant, edge and reflect; `pad_width` has a begin and an end for each axis."""
    widths = attrs.ints("pad_width")
    mode = attrs.choice("mode", "constant", ("constant", "edge", "reflect"))
    return b.pad(inputs[0], pads_begin=widths[::2], pads_end=widths[1::2], mode=mode,
                 value=attrs.float("constant_value", 0.0))


# ---- look-ups -------------------------------------------------------------------------------------------

@rule("take", operands=2)
def take(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Indices outside are clipped; `wrap` and `raise` stay with MXNet."""
    attrs.choice("mode", "clip", ("clip",))
    data, indices = inputs
    axis = normal_axis(attrs.int("axis", 0), len(data.shape))
    return b.gather(data, b.convert(indices, element=element_type("i64")), axis=axis)


@rule("Embedding", operands=2, parameters=[1], typed_by=1, ignored=["input_dim", "output_dim", "sparse_grad"])
def embedding(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Rows of the weight; indices outside are clipped, as MXNet does."""
    attrs.ignore("dtype")  # of a weight whose type is not given
    indices, weight = inputs
    return b.gather(weight, b.convert(indices, element=element_type("i64")), axis=0)
