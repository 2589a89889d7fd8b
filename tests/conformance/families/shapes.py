"""Shapes and orders of axes."""

from __future__ import annotations

from math import prod
from typing import Any

from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, any_axis, dims, maybe, pick, some_axes, typed

# MXNet transposes and reshapes up to rank 6.


def _codes(draw: Draw, kind: dict[str, int]) -> tuple[tuple[int, ...], list[int]]:
    """A shape, and codes for it from the left: `kind` names copy, merge, split, rest and drop; only one is -1.

    The shape has at most three axes, as MXNet reshapes no more than six.
    """
    shape, codes, free = dims(draw, 1, 3), [], draw(st.booleans())
    at = 0
    while at < len(shape):
        code = pick(draw, *kind, "size")
        if code == "rest" and at + 2 < len(shape):
            code = "copy"
        if code == "drop" and shape[at] == 1:
            codes.append(kind["drop"])
        elif code == "rest":
            codes.append(kind["rest"])
            break
        elif code == "merge" and at + 1 < len(shape):
            codes.append(kind["merge"])
            at += 1
        elif code == "split":
            parts = [pick(draw, *(n for n in range(1, shape[at] + 1) if shape[at] % n == 0)), 0]
            parts[1] = shape[at] // parts[0]
            if free and draw(st.booleans()):
                parts[draw(st.integers(0, 1))] = -1
                free = False
            codes += [kind["split"], *parts]
        elif code == "size":
            codes.append(-1 if free else shape[at])
            free = False
        else:
            codes.append(kind["copy"])
        at += 1
    return shape, codes


def _reshape(draw: Draw) -> Case:
    shape, codes = _codes(draw, {"copy": 0, "merge": -3, "split": -4, "rest": -2})
    if draw(st.booleans()):
        target = list(draw(st.permutations(shape)))
        target[draw(st.integers(0, len(shape) - 1))] = -1
        return Case([Operand(shape)], {"shape": tuple(target)})
    return Case([Operand(shape)], {"shape": tuple(codes)})


def _reverse_reshape(draw: Draw) -> Case:
    shape, codes = _codes(draw, {"copy": 0, "merge": -3, "rest": -2})
    return Case([Operand(shape[::-1])], {"shape": tuple(codes[::-1]), "reverse": True})


def _target_shape(draw: Draw) -> Case:
    shape, keep = dims(draw, 2, 3), draw(st.booleans())
    target = list(shape) if keep else list(draw(st.permutations(shape)))
    if draw(st.booleans()):
        target[draw(st.integers(1 if keep else 0, len(shape) - 1))] = 0
    return Case([Operand(shape)], {"target_shape": tuple(target), "keep_highest": keep})


def _npx_reshape(draw: Draw) -> Case:
    shape, codes = _codes(draw, {"copy": -2, "drop": -3, "rest": -4, "merge": -5, "split": -6})
    if {*codes} <= {-3}:  # no axis would be left
        return _np_reshape(draw)
    return Case([Operand(shape)], {"newshape": tuple(codes)})


def _np_reshape(draw: Draw) -> Case:
    shape = dims(draw)
    target = list(draw(st.permutations(shape)))
    if draw(st.booleans()):
        target[draw(st.integers(0, len(shape) - 1))] = -1
    return Case([Operand(shape)], {"newshape": tuple(target)} | maybe(draw, order="C"))


def _reshape_like(draw: Draw) -> Case:
    shape = dims(draw, 2, 4)
    begin = draw(st.integers(0, len(shape) - 1))
    end = draw(st.integers(begin + 1, len(shape)))
    like = (7, prod(shape[begin:end]), 1, 5)
    attrs: dict[str, Any] = {"lhs_begin": begin, "lhs_end": end, "rhs_begin": 1, "rhs_end": 3}
    if draw(st.booleans()):
        attrs |= {"lhs_begin": begin - len(shape), "rhs_begin": -3}
    if draw(st.booleans()):
        like, attrs = (prod(shape),), {}
    return Case([Operand(shape), Operand(like)], attrs)


def _any(draw: Draw) -> Case:
    return Case([Operand(dims(draw))])


def _expand(draw: Draw) -> Case:
    shape = dims(draw)
    return Case([Operand(shape)], {"axis": any_axis(draw, len(shape) + 1)})


def _squeeze(draw: Draw, *, numpy: bool = False) -> Case:
    shape = tuple(pick(draw, 1, 1, 2, 3) for _ in range(draw(st.integers(1, 4))))
    if numpy:
        shape = (*shape, 2)  # some axis stays: a shape of rank 0 is drawn elsewhere
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    if not ones or draw(st.booleans()):
        return Case([Operand(shape)])
    axes = draw(st.lists(st.sampled_from(ones), unique=True, min_size=1))
    return Case([Operand(shape)], {"axis": tuple(axis - len(shape) if draw(st.booleans()) else axis for axis in axes)})


def _transpose(draw: Draw, *, most: int = 6) -> Case:
    shape = dims(draw, 1, most, 3)
    if draw(st.booleans()):
        return Case([Operand(shape)])
    return Case([Operand(shape)], {"axes": tuple(draw(st.permutations(range(len(shape)))))})


def _swap(draw: Draw) -> Case:
    shape = dims(draw, 2, 4)
    first, second = (any_axis(draw, len(shape)) for _ in range(2))
    if (first - second) % len(shape) == 0:
        second = first + 1 if first + 1 < len(shape) and first != -1 else first - 1
    return Case([Operand(shape)], {"dim1": first, "dim2": second})


def _moveaxis(draw: Draw) -> Case:
    shape = dims(draw)
    source = some_axes(draw, len(shape), least=1)
    destination = draw(st.permutations(range(len(shape))))[:len(source)]
    return Case([Operand(shape)], {"source": source, "destination": tuple(destination)})


def _depth_to_space(draw: Draw) -> Case:
    n, c, h, w = (draw(st.integers(1, 4)) for _ in range(4))
    size = draw(st.integers(1, 3))
    return Case([Operand((n, c * size * size, h, w))], {"block_size": size})


def _space_to_depth(draw: Draw) -> Case:
    n, c, h, w = (draw(st.integers(1, 4)) for _ in range(4))
    size = draw(st.integers(1, 3))
    return Case([Operand((n, c, h * size, w * size))], {"block_size": size})


def _several(draw: Draw) -> Case:
    return Case([Operand(dims(draw, 1, 3)) for _ in range(draw(st.integers(1, 3)))])


def _pair(draw: Draw) -> Case:
    shape = dims(draw)
    return Case([Operand(shape), Operand(shape)])


RECORDS = [
    Record("Reshape", typed(_reshape)),
    Record("Reshape", typed(_reverse_reshape), variant="reverse"),
    Record("Reshape", typed(_target_shape), variant="target_shape"),
    Record("_npx_reshape", typed(_npx_reshape), numpy=True),
    Record("_np_reshape", typed(_np_reshape), numpy=True),
    Record("reshape_like", typed(_reshape_like)),
    Record("Flatten", typed(_any)),
    Record("expand_dims", typed(_expand)),
    Record("squeeze", typed(_squeeze)),
    Record("_np_squeeze", typed(lambda draw: _squeeze(draw, numpy=True)), numpy=True),
    Record("transpose", typed(_transpose)),
    Record("_np_transpose", typed(_transpose), numpy=True),
    Record("SwapAxis", typed(_swap)),
    Record("_np_moveaxis", typed(_moveaxis), numpy=True),
    Record("depth_to_space", typed(_depth_to_space)),
    Record("space_to_depth", typed(_space_to_depth)),
    *(Record(f"_np_atleast_{rank}d", typed(_several), numpy=True) for rank in (1, 2, 3)),
    Record("_np_copy", typed(_any), numpy=True),
    Record("_identity_with_attr_like_rhs", typed(_pair)),
]
LEFT: list[Left] = []
