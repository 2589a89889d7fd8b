"""ONNX operators that move, choose and order elements, and that reduce them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzzing.values.closeness import EXACT
from fuzzing.values.drawing import chance, integer, pick, some
from fuzzing.values.nets import Net, Value
from fuzzing.values.operators import (
    SUMS,
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


def _data(net: Net, op: str, least: int = 1, most: int = 4, place: int = 0, *, special: bool = False,
          opens: bool = True) -> Value:
    dtype = draw_type(net.draw, allowed(op, net.opset, place))
    shape = draw_shape(net.draw, least, most)
    return net.input(shape, elements(dtype, special=special, low=-9, high=9),
                     open_somewhere(net.draw, shape) if opens else None)


def _flags(net: Net, *names: str) -> dict[str, int]:
    return {name: integer(net.draw, 0, 1) for name in names if chance(net.draw)}


def _ints(net: Net, numbers: Any, dtype: Any = np.int64) -> Value:
    """A constant; rarely an input, which the model is compiled for."""
    array = np.asarray(numbers, dtype)
    return net.input(array.shape, lambda rng, shape: array.reshape(shape) if array.size == np.prod(shape) else
                     np.zeros(shape, array.dtype)) if chance(net.draw, 10) else net.constant(array)


@operators("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSum",
           "ReduceLogSumExp", "ReduceSumSquare")
def reduction(net: Net, op: str) -> Drawn:
    x = _data(net, op, 0)
    if op in ("ReduceLogSum", "ReduceProd"):
        value, _, open_axes = net.inputs[x.name]
        net.inputs[x.name] = value, elements(value.dtype, low=0.5 if value.dtype.kind == "f" else 1, high=2), open_axes
    axes = [axis - x.rank if chance(net.draw, 3) else axis for axis in some(net.draw, range(x.rank))]
    attrs = _flags(net, "keepdims", "noop_with_empty_axes")
    operands = [] if not axes and chance(net.draw) else [_ints(net, axes)]
    y = net.node(op, x, *operands, **attrs)
    return [y], exact_if_whole(y.dtype, SUMS)


@operators("ArgMax", "ArgMin")
def arg(net: Net, op: str) -> Drawn:
    x = _data(net, op, special=False)
    attrs: dict[str, Any] = _flags(net, "keepdims", "select_last_index")
    return [net.node(op, x, axis=draw_axis(net.draw, x.rank), **attrs)], EXACT


@operators("Transpose")
def transpose(net: Net, op: str) -> Drawn:
    x = _data(net, op, 0)
    order = list(net.rng.permutation(x.rank)) if x.rank and not chance(net.draw, 4) else None
    return [net.node(op, x, perm=order)], EXACT


@operators("Concat", weight=4)
def concat(net: Net, op: str) -> Drawn:
    x = _data(net, op, opens=False)
    axis = draw_axis(net.draw, x.rank)
    parts = [x]
    for _ in range(integer(net.draw, 0, 3)):
        shape = list(x.shape)
        shape[axis] = pick(net.draw, shape[axis], 0, 1, 16, 3)
        parts.append(pick(net.draw, x, net.input(shape, elements(x.dtype))))
    return [net.node(op, *parts, axis=axis)], EXACT


@operators("Split")
def split(net: Net, op: str) -> Drawn:
    x = _data(net, op, opens=False)
    axis = draw_axis(net.draw, x.rank)
    size, count = x.shape[axis], integer(net.draw, 1, 4)
    if chance(net.draw) and size:
        count = min(count, size)
        if -(-size // count) * (count - 1) >= size:
            count = 1
        return net.several(op, x, outputs=count, axis=axis, num_outputs=count), EXACT
    cuts = sorted(integer(net.draw, 0, size) for _ in range(count - 1))
    lengths = np.diff([0, *cuts, size])
    return net.several(op, x, _ints(net, lengths), outputs=count, axis=axis), EXACT


@operators("Slice", weight=4)
def slice_(net: Net, op: str) -> Drawn:
    x = _data(net, op)
    axes = some(net.draw, range(x.rank), least=1)
    begin, end, step = ([] for _ in range(3))
    for axis in axes:
        size = x.shape[axis]
        back = chance(net.draw, 4)
        first, last = sorted(integer(net.draw, -size - 2, size + 2) for _ in range(2))
        begin.append(last if back else first)
        end.append(pick(net.draw, first, -2**62) if back else pick(net.draw, last, 2**62))
        step.append(pick(net.draw, 1, 2, 3) * (-1 if back else 1))
    axes = [axis - x.rank if chance(net.draw, 4) else axis for axis in axes]
    operands = [_ints(net, begin), _ints(net, end), _ints(net, axes)]
    if chance(net.draw) or any(each != 1 for each in step):
        operands.append(_ints(net, step))
    return [net.node(op, x, *operands)], EXACT


@operators("Pad", weight=4)
def pad(net: Net, op: str) -> Drawn:
    x = _data(net, op)
    mode = pick(net.draw, "constant", "edge", "reflect", "wrap")
    if mode != "constant" and 0 in x.shape:
        mode = "constant"
    least = -1 if mode == "constant" else 0
    most = [3 if mode in ("constant", "edge") else size - 1 for size in x.shape]
    widths = [integer(net.draw, max(least, -(size // 2)), min(3, top)) for _ in range(2)
              for size, top in zip(x.shape, most, strict=True)]
    operands = [_ints(net, widths)]
    if mode == "constant" and chance(net.draw):
        operands.append(net.constant(np.array(pick(net.draw, 0, 1, 7), x.dtype)))
    return [net.node(op, x, *operands, mode=mode)], EXACT


@operators("Expand")
def expand(net: Net, op: str) -> Drawn:
    x = _data(net, op, 0, 3, opens=False)
    shape = [pick(net.draw, size, 1) if size != 1 else pick(net.draw, 1, 4, 16) for size in x.shape]
    return [net.node(op, x, _ints(net, [*([2] if chance(net.draw) else []), *shape]))], EXACT


@operators("Tile")
def tile(net: Net, op: str) -> Drawn:
    x = _data(net, op)
    return [net.node(op, x, _ints(net, [pick(net.draw, 1, 2, 3) for _ in x.shape]))], EXACT


@operators("DepthToSpace", "SpaceToDepth")
def depth(net: Net, op: str) -> Drawn:
    block, dtype = pick(net.draw, 2, 3), draw_type(net.draw, allowed(op, net.opset))
    few = pick(net.draw, 1, 2), pick(net.draw, 1, 3, 4, 16), pick(net.draw, 1, 3, 6), pick(net.draw, 2, 5)
    shape = (*few[:2], few[2] * block, few[3] * block)
    if op == "DepthToSpace":
        shape = (few[0], few[1] * block**2, *few[2:])
    mode = pick(net.draw, "DCR", "CRD") if op == "DepthToSpace" else None
    return [net.node(op, net.input(shape, elements(dtype)), blocksize=block, mode=mode)], EXACT


def _places(size: int, dtype: Any = np.int64, *, unique: bool = False, negative: bool = True) -> Any:
    """Indices into an axis of this size."""
    def make(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        if unique:
            return np.argsort(rng.random(shape), axis=-1).astype(dtype)
        return rng.integers(-size if negative else 0, size, shape).astype(dtype)

    return make


@operators("Gather", weight=4)
def gather(net: Net, op: str) -> Drawn:
    x = _data(net, op)
    axis = draw_axis(net.draw, x.rank)
    size = x.shape[axis]
    if not size:
        return [net.node("Identity", x)], EXACT
    shape = draw_shape(net.draw, 0, 2)
    make = _places(size, pick(net.draw, np.int64, np.int32))
    places = net.input(shape, make) if chance(net.draw) else net.weight(shape, make)
    if chance(net.draw, 4):
        places = net.constant(np.array(pick(net.draw, -1, 0, -size), np.int64))
    return [net.node(op, x, places, axis=axis)], EXACT


@operators("GatherElements")
def gather_elements(net: Net, op: str) -> Drawn:
    x = _data(net, op, opens=False)
    axis = draw_axis(net.draw, x.rank)
    if 0 in x.shape:
        return [net.node("Identity", x)], EXACT
    shape = [integer(net.draw, 1, size) for size in x.shape]
    shape[axis] = integer(net.draw, 1, 5)
    return [net.node(op, x, net.input(shape, _places(x.shape[axis])), axis=axis)], EXACT


@operators("GatherND")
def gather_nd(net: Net, op: str) -> Drawn:
    x = _data(net, op, 2, opens=False)
    if 0 in x.shape:
        return [net.node("Identity", x)], EXACT
    batch = integer(net.draw, 0, 1)
    count = integer(net.draw, 1, x.rank - batch)
    sizes = x.shape[batch:batch + count]

    def make(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return np.stack([rng.integers(-size, size, shape[:-1]) for size in sizes], -1).astype(np.int64) \
            if shape[-1] == count else np.zeros(shape, np.int64)

    shape = (*x.shape[:batch], pick(net.draw, 1, 4, 17), count)
    return [net.node(op, x, net.input(shape, make), batch_dims=batch)], EXACT


@operators("ScatterElements", "ScatterND")
def scatter(net: Net, op: str) -> Drawn:
    x = _data(net, op, opens=False)
    if 0 in x.shape or x.dtype.kind == "b":
        return [net.node("Identity", x)], EXACT
    kind = pick(net.draw, None, "add", "mul", "max", "min")
    if op == "ScatterElements":
        axis = draw_axis(net.draw, x.rank)
        shape = [integer(net.draw, 1, size) for size in x.shape]
        make = _places(x.shape[axis], unique=kind is None, negative=kind is not None)
        if kind is None:  # places that are unique along the axis
            def make(rng: np.random.Generator, given: tuple[int, ...]) -> np.ndarray:
                return np.argsort(rng.random(given), axis=axis).astype(np.int64)
        operands = [net.input(shape, make), net.input(shape, elements(x.dtype))]
        return [net.node(op, x, *operands, axis=axis, reduction=kind)], exact_if_whole(x.dtype, SUMS)
    size, count = x.shape[0], integer(net.draw, 1, x.shape[0])
    places = net.weight((count, 1), lambda rng, shape: (rng.permutation(size)[:count] if kind is None else rng.integers(
        -size, size, count)).reshape(shape).astype(np.int64))
    updates = net.input((count, *x.shape[1:]), elements(x.dtype))
    return [net.node(op, x, places, updates, reduction=kind)], exact_if_whole(x.dtype, SUMS)


@operators("TopK", weight=4)
def top_k(net: Net, op: str) -> Drawn:
    x = _data(net, op, special=chance(net.draw, 4), opens=False)
    axis = draw_axis(net.draw, x.rank)
    if x.dtype.kind != "f" and chance(net.draw):
        pass  # ties
    count = integer(net.draw, 0, x.shape[axis])
    attrs: dict[str, Any] = {"largest": integer(net.draw, 0, 1)} if chance(net.draw) else {}
    return net.several(op, x, _ints(net, [count]), outputs=2, axis=axis, sorted=1, **attrs), EXACT


@operators("CumSum", "CumProd")
def cumulative(net: Net, op: str) -> Drawn:
    x = _data(net, op)
    attrs = _flags(net, "exclusive", "reverse")
    axis = net.constant(np.array(draw_axis(net.draw, x.rank), np.int64))
    return [net.node(op, x, axis, **attrs)], exact_if_whole(x.dtype, SUMS)


@operators("ReverseSequence")
def reverse_sequence(net: Net, op: str) -> Drawn:
    dtype = draw_type(net.draw, allowed(op, net.opset))
    batch, time = pick(net.draw, 1, 3), pick(net.draw, 2, 5)
    axes = integer(net.draw, 0, 1)
    shape = (batch, time, 3) if axes else (time, batch, 3)
    lengths = net.input((batch,), lambda rng, given: rng.integers(1, time + 1, given).astype(np.int64))
    return [net.node(op, net.input(shape, elements(dtype)), lengths, batch_axis=1 - axes, time_axis=axes)], EXACT


@operators("OneHot")
def one_hot(net: Net, op: str) -> Drawn:
    places = net.input(draw_shape(net.draw, 1, 2), _places(5, pick(net.draw, np.int64, np.int32, np.float32)))
    dtype = pick(net.draw, np.float32, np.int32, np.int64, np.uint8)
    return [net.node(op, places, _ints(net, [5]), net.constant([0, 3], dtype),
                     axis=draw_axis(net.draw, places.rank + 1))], EXACT


@operators("Trilu")
def trilu(net: Net, op: str) -> Drawn:
    x = _data(net, op, 2, opens=False)
    places = [] if chance(net.draw) else [net.constant(np.array(integer(net.draw, -3, 3), np.int64))]
    return [net.node(op, x, *places, upper=integer(net.draw, 0, 1))], EXACT


@operators("EyeLike")
def eye_like(net: Net, op: str) -> Drawn:
    x = _data(net, op, 2, 2)
    return [net.node(op, x, k=integer(net.draw, -2, 2))], EXACT


@operators("Range")
def range_(net: Net, op: str) -> Drawn:
    dtype = pick(net.draw, np.int64, np.int32, np.float32)
    ends = [net.constant(np.array(each, dtype)) for each in (pick(net.draw, 0, 3, -2), pick(net.draw, 9, 4, 33),
                                                            pick(net.draw, 1, 2, 3))]
    return [net.node("Add", net.node(op, *ends), net.input((1,), elements(dtype)))], EXACT


@operators("ConstantOfShape")
def constant_of_shape(net: Net, op: str) -> Drawn:
    shape = draw_shape(net.draw, 0, 3)
    return [net.node("Add", net.node(op, net.constant(np.array(shape, np.int64))), net.input(shape))], EXACT


@operators("Shape", "Size")
def shape_of(net: Net, op: str) -> Drawn:
    x = _data(net, op, 0)
    names = [name for name in ("start", "end") if op == "Shape" and chance(net.draw)]
    attrs = {name: integer(net.draw, -x.rank, x.rank) for name in names}
    return [net.node(op, x, **attrs)], EXACT


@operators("Reshape")
def reshape(net: Net, op: str) -> Drawn:
    x = _data(net, op, 1, opens=False)
    total, target = int(np.prod(x.shape)), []
    left = total
    for _ in range(integer(net.draw, 0, 2)):
        by = pick(net.draw, *[each for each in range(1, 65) if left % each == 0][:8]) if left else 1
        target.append(by)
        left //= max(by, 1)
    target.append(pick(net.draw, left, -1) if left else left)
    if left and chance(net.draw, 3) and target[0] == x.shape[0]:
        target[0] = 0
    return [net.node(op, x, _ints(net, target), allowzero=1 if 0 in target and not left else None)], EXACT


@operators("Flatten")
def flatten(net: Net, op: str) -> Drawn:
    x = _data(net, op)
    return [net.node(op, x, axis=integer(net.draw, -x.rank, x.rank))], EXACT


@operators("Squeeze", "Unsqueeze")
def squeeze(net: Net, op: str) -> Drawn:
    x = _data(net, op)
    if op == "Unsqueeze":
        axes = some(net.draw, range(x.rank + 1), least=1)
        if max(axes) >= x.rank + len(axes):
            axes = [0]
        return [net.node(op, x, _ints(net, axes))], EXACT
    x = net.node("Unsqueeze", x, net.constant([1], np.int64))
    return [net.node(op, x, _ints(net, [1]))], EXACT


@operators("NonZero")
def non_zero(net: Net, op: str) -> Drawn:
    return [net.node(op, _data(net, op))], EXACT


@operators("Compress")
def compress(net: Net, op: str) -> Drawn:
    x = _data(net, op, opens=False)
    axis = draw_axis(net.draw, x.rank)
    chosen = net.input((max(1, x.shape[axis]),), elements(bool))
    return [net.node(op, x, chosen, axis=axis)], EXACT


@operators("Unique")
def unique(net: Net, op: str) -> Drawn:
    x = _data(net, op)
    axis = draw_axis(net.draw, x.rank) if chance(net.draw, 3) else None
    return net.several(op, x, outputs=4, axis=axis, sorted=integer(net.draw, 0, 1)), EXACT
