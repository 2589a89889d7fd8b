"""Boxes: the part of a tensor that an engine or an instruction computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import NamedTuple

from ngraph_mxnet.ir.types import Shape


class Box(NamedTuple):
    """The elements from index `begin` on, `shape` of them along each axis."""

    begin: Shape
    shape: Shape

    @property
    def size(self) -> int:
        return prod(self.shape)

    def contains(self, other: Box) -> bool:
        sides = zip(self.begin, self.shape, other.begin, other.shape, strict=True)
        return all(a <= b and b + m <= a + n for a, n, b, m in sides)

    def meet(self, other: Box) -> Box | None:
        """What both have; None if nothing."""
        begin = tuple(map(max, self.begin, other.begin))
        end = (min(a + n, b + m) for a, n, b, m in zip(self.begin, self.shape, other.begin, other.shape, strict=True))
        shape = tuple(e - b for b, e in zip(begin, end, strict=True))
        return Box(begin, shape) if all(n > 0 for n in shape) else None

    def along(self, axis: int, begin: int, size: int) -> Box:
        """The box with another range on `axis`."""
        return Box(_put(self.begin, axis, begin), _put(self.shape, axis, size))

    def shifted(self, origin: Shape) -> Box:
        """The box as seen from `origin`."""
        return Box(tuple(b - o for b, o in zip(self.begin, origin, strict=True)), self.shape)


def _put(values: Shape, axis: int, value: int) -> Shape:
    return (*values[:axis], value, *values[axis + 1 :])


def full(shape: Shape) -> Box:
    return Box((0,) * len(shape), tuple(shape))


def even(size: int, parts: int, multiple: int = 1) -> list[tuple[int, int]]:
    """[0, size) in at most `parts` ranges (begin, size), as even as multiples of `multiple` can be."""
    step = -(-size // parts)
    step = -(-step // multiple) * multiple
    return [(begin, min(step, size - begin)) for begin in range(0, size, step)] or [(0, size)]


def cut(box: Box, parts: Mapping[int, int], multiples: Mapping[int, int] | None = None) -> Iterator[Box]:
    """The boxes that `parts` cuts along each of its axes make of `box`; the first axis named varies slowest."""
    multiples = multiples or {}
    ranges = [even(box.shape[axis], count, multiples.get(axis, 1)) for axis, count in parts.items()]
    for choice in product(*ranges):
        piece = box
        for axis, (begin, size) in zip(parts, choice, strict=True):
            piece = piece.along(axis, box.begin[axis] + begin, size)
        yield piece
