"""A model as points, values that a reference knows too, and how parts of it are cut out and run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Point:
    """A value that can be compared.

    Attributes:
        name: the framework's, or that of the graph's text.
        origin: the framework's name of the node that computes it, and its operator.
        value: what it is in the model.
    """

    name: str
    origin: str
    value: Hashable


Arrays = Mapping[Point, np.ndarray]


class Traced(ABC):
    """A model's points, in topological order, and those of its outputs: None for an output that is none."""

    def __init__(self, points: Sequence[Point], outputs: Sequence[Point | None]) -> None:
        self.points, self.outputs = points, outputs
        self._places = {point.value: place for place, point in enumerate(points)}

    @abstractmethod
    def reads(self, value: Hashable) -> Iterable[Hashable]:
        """The values that the node reads which computes this one; none if it is no node's."""

    @abstractmethod
    def run(self, results: Sequence[Point], given: Arrays) -> list[Any]:
        """What these points are when the model is cut behind them and in front of those given, and compiled alone.

        Raises:
            NGraphError: such a part can't be compiled.
        """

    @abstractmethod
    def text(self, point: Point, given: Arrays) -> str:
        """What computes the point of those given, marked with `>`, and what computes these, as text for people."""

    @abstractmethod
    def parameters(self, point: Point, given: Collection[Point]) -> list[str]:
        """The names of the model's inputs and weights that are read on the way to the point from those given."""

    def before(self, point: Point) -> list[Point]:
        """All points that this one is computed of."""
        return self._behind(point, lambda place: False)

    def operands(self, point: Point, known: Collection[Point]) -> list[Point]:
        """The last ones before this one, among those known."""
        return [one for one in self._behind(point, lambda place: self.points[place] in known) if one in known]

    def _behind(self, point: Point, stops: Callable[[int], bool]) -> list[Point]:
        found, seen, stack = set[int](), {point.value}, list(self.reads(point.value))
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            place = self._places.get(value)
            if place is not None:
                found.add(place)
            if place is None or not stops(place):
                stack.extend(self.reads(value))
        return [self.points[place] for place in sorted(found)]
