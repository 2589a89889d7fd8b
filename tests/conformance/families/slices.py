"""Parts of tensors, and writing into them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from records import FLOATS, Case, Draw, Left, Operand, Record, any_axis, dims, maybe, pick, some_axes, typed


def _bounds(draw: Draw, shape: tuple[int, ...]) -> dict[str, Any]:
    """Bounds of leading axes that leave something, written from either end or left out."""
    rows = []
    for size in shape[:draw(st.integers(1, len(shape)))]:
        low = draw(st.integers(0, size - 1))
        high = draw(st.integers(low + 1, size))
        step = pick(draw, 1, 1, 2, 3, -1, -2)
        begin, end = (low, high) if step > 0 else (high - 1, low - 1)
        if draw(st.booleans()) and begin:
            begin -= size
        if end < 0 or (end == size and draw(st.booleans())):
            end = None
        elif draw(st.booleans()) and 0 < end < size:
            end -= size
        if begin == (0 if step > 0 else size - 1) and draw(st.booleans()):
            begin = None
        rows.append((begin, end, step))
    attrs: dict[str, Any] = dict(zip(("begin", "end", "step"), zip(*rows, strict=True), strict=True))
    if all(step == 1 for step in attrs["step"]) and draw(st.booleans()):
        del attrs["step"]
    return attrs


def _taken(shape: tuple[int, ...], attrs: dict[str, Any]) -> tuple[int, ...]:
    steps = attrs.get("step", (None,) * len(attrs["begin"]))
    bounds = zip(attrs["begin"], attrs["end"], steps, shape, strict=False)
    sizes = [len(range(*slice(begin, end, step).indices(size))) for begin, end, step, size in bounds]
    return (*sizes, *shape[len(sizes):])


def _slice(draw: Draw) -> Case:
    shape = dims(draw)
    return Case([Operand(shape)], _bounds(draw, shape))


def _assign(draw: Draw) -> Case:
    shape = dims(draw)
    attrs = _bounds(draw, shape)
    return Case([Operand(shape), Operand(_taken(shape, attrs))], attrs)


def _assign_scalar(draw: Draw) -> Case:
    shape = dims(draw)
    return Case([Operand(shape)], _bounds(draw, shape) | maybe(draw, scalar=1.5))


def _slice_axis(draw: Draw) -> Case:
    shape = dims(draw)
    axis = any_axis(draw, len(shape))
    size = shape[axis]
    begin = draw(st.integers(0, size - 1))
    end = draw(st.integers(begin + 1, size))
    written = None if end == size and draw(st.booleans()) else end - size if end < size and draw(st.booleans()) else end
    return Case([Operand(shape)], {"axis": axis, "begin": begin - size if draw(st.booleans()) else begin,
                                   "end": written})


def _slice_like(draw: Draw) -> Case:
    shape = dims(draw)
    smaller = tuple(draw(st.integers(1, size)) for size in shape)
    axes = some_axes(draw, len(shape))
    return Case([Operand(shape), Operand(smaller)], {"axes": axes} if axes else {})


def _crop(draw: Draw) -> Case:
    shape = (2, 3, draw(st.integers(3, 8)), draw(st.integers(3, 8)))
    window = tuple(draw(st.integers(1, size)) for size in shape[2:])
    attrs: dict[str, Any] = {"center_crop": True}
    if draw(st.booleans()):
        attrs = {"offset": tuple(draw(st.integers(0, whole - part))
                                 for whole, part in zip(shape[2:], window, strict=True))}
    if draw(st.booleans()):
        return Case([Operand(shape), Operand((1, 1, *window))], attrs | {"num_args": 2})
    return Case([Operand(shape)], attrs | {"h_w": window, "num_args": 1})


def _split(draw: Draw) -> Case:
    shape, count = list(dims(draw, 1, 3)), draw(st.integers(1, 4))
    axis = any_axis(draw, len(shape))
    attrs = {"num_outputs": count, "axis": axis}
    shape[axis] = count * draw(st.integers(1, 3))
    if shape[axis] == count and len(shape) > 1:
        attrs |= maybe(draw, squeeze_axis=True)
    return Case([Operand(tuple(shape))], attrs)


def _numpy_split(draw: Draw, axis: int | None = None) -> Case:
    shape = list(dims(draw, 1 if axis is None else axis + 1, 4))
    along = any_axis(draw, len(shape)) if axis is None else axis
    attrs: dict[str, Any] = {"axis": along, "squeeze_axis": False}
    if draw(st.booleans()):
        attrs |= {"sections": draw(st.integers(1, 3)), "indices": ()}
        shape[along] = attrs["sections"] * draw(st.integers(1, 3))
    else:
        inner = draw(st.lists(st.integers(1, shape[along] - 1), unique=True)) if shape[along] > 1 else []
        attrs["indices"] = (0, *sorted(inner))
    return Case([Operand(tuple(shape))], attrs)


def _diff(draw: Draw) -> Case:
    shape = list(dims(draw))
    axis = any_axis(draw, len(shape))
    attrs = maybe(draw, n=draw(st.integers(1, 3)))
    shape[axis] += attrs.get("n", 1)
    return Case([Operand(tuple(shape))], {"axis": axis} | attrs)


def _ediff1d(draw: Draw) -> Case:
    operands, attrs = [Operand(dims(draw))], {}
    for side in ("begin", "end"):
        kind = pick(draw, "none", "number", "tensor")
        if kind == "number":
            attrs[f"to_{side}_scalar"] = 1.5
        if kind == "tensor":
            operands.append(Operand(dims(draw, 1, 2)))
            attrs[f"to_{side}_arr_given"] = True
    if operands[0].shape == (1,) * len(operands[0].shape):
        operands[0] = Operand((2,))
    return Case(operands, attrs)


def _im2col(draw: Draw) -> Case:
    """Images: of tensors of other ranks MXNet reads memory that is not theirs."""
    kernel, stride, dilate, pad = (tuple(draw(st.integers(low, 3 - low)) for _ in range(2)) for low in (1, 1, 1, 0))
    least = [d * (k - 1) + 1 for k, d in zip(kernel, dilate, strict=True)]
    image = tuple(draw(st.integers(size, size + 4)) for size in least)
    attrs = {"kernel": kernel} | maybe(draw, stride=stride, dilate=dilate, pad=tuple(min(p, 2) for p in pad))
    return Case([Operand((2, draw(st.integers(1, 3)), *image))], attrs)


def _reverse(draw: Draw) -> Case:
    shape = dims(draw)
    axes = draw(st.lists(st.integers(0, len(shape) - 1), unique=True, min_size=1))
    return Case([Operand(shape)], {"axis": tuple(axes)})


def _roll(draw: Draw) -> Case:
    shape = dims(draw)
    if draw(st.booleans()):
        return Case([Operand(shape)], {"shift": (draw(st.integers(-9, 9)),)})
    axes = some_axes(draw, len(shape), least=1)
    return Case([Operand(shape)], {"axis": axes, "shift": tuple(draw(st.integers(-9, 9)) for _ in axes)})


def _rot90(draw: Draw) -> Case:
    shape = dims(draw, 2, 4)
    first, second = draw(st.permutations(range(len(shape))))[:2]
    return Case([Operand(shape)], {"k": draw(st.integers(-5, 5)), "axes": (first, second)})


RECORDS = [
    Record("slice", typed(_slice)),
    Record("_slice_assign", typed(_assign)),
    Record("_slice_assign_scalar", typed(_assign_scalar)),
    Record("slice_axis", typed(_slice_axis)),
    Record("slice_like", typed(_slice_like)),
    Record("Crop", _crop),
    Record("SliceChannel", typed(_split)),
    Record("_split_v2", typed(_numpy_split)),
    Record("_npi_hsplit", typed(lambda draw: _numpy_split(draw, 1)), numpy=True),
    Record("_npi_dsplit", typed(lambda draw: _numpy_split(draw, 2)), numpy=True),
    Record("_npi_diff", typed(_diff), numpy=True),
    Record("_npi_ediff1d", typed(_ediff1d, "float32", "float64"), numpy=True),
    Record("im2col", typed(_im2col, *FLOATS)),
    Record("reverse", typed(_reverse)),
    Record("_npi_flip", typed(_reverse), numpy=True),
    Record("_np_roll", typed(_roll), numpy=True),
    Record("_npi_rot90", typed(_rot90), numpy=True),
]
LEFT: list[Left] = [
    Left("_npi_ediff1d", Case([Operand((5,)), Operand((2,))], {"to_begin_arr_given": True, "to_begin_scalar": 2.0}),
         "a tensor and a number for one side", numpy=True),
]
