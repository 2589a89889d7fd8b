"""Which value is the first that differs from the reference's: parts of the model are compiled, up to one value each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.verifying.comparison import Difference, Tolerance, compare
from ngraph_mxnet.verifying.report import Diverging, Operand
from ngraph_mxnet.verifying.traced import Arrays, Point, Traced


class Bisection:
    """Of a model whose parts can be run, and the arrays of a reference at its points."""

    def __init__(self, traced: Traced, expected: Sequence[Any], tolerance: Tolerance,
                 on_part: Callable[[], None] = lambda: None) -> None:
        """`expected`: for each point; what is no array is not compared. `on_part`: called after each part."""
        self._traced, self._tolerance, self._on_part = traced, tolerance, on_part
        self._expected = {point: array for point, array in zip(traced.points, expected, strict=True)
                          if isinstance(array, np.ndarray) and array.dtype.kind in "biuf"}
        self._found: dict[Point, Difference] = {}
        self.parts = 0
        """That were compiled so far."""

    def difference(self, point: Point) -> Difference:
        """Of the model cut behind this value."""
        if point not in self._found:
            self._found[point] = self._compared([point], {})
        return self._found[point]

    def first(self) -> Point | None:
        """A value that differs, while those that it is computed of agree; None if no output of a part differs."""
        for output in self._traced.outputs:
            if output is not None and output in self._expected and not self.difference(output).agrees:
                return self._earliest(output)
        return None

    def _earliest(self, found: Point) -> Point:
        """Bisects what comes before a value that differs. Behind one that agrees nothing is looked for: but as it may
        hide a difference, as a relu does, the operands of what is found at last are looked at, too."""
        agreeing = set[Point]()
        while True:
            left = [point for point in self._traced.before(found) if point in self._expected and point not in agreeing]
            while left:
                middle = left[len(left) // 2]
                before = {middle, *self._traced.before(middle)}
                if self.difference(middle).agrees:
                    agreeing.add(middle)
                    left = [point for point in left if point not in before]
                else:
                    found, left = middle, [point for point in left if point in before and point != middle]
            operands = self._traced.operands(found, self._expected)
            suspect = next((point for point in operands if not self.difference(point).agrees), None)
            if suspect is None:
                return found
            found = suspect

    def described(self, point: Point) -> Diverging:
        """What there is to tell of the first value that differs."""
        operands = self._traced.operands(point, self._expected)
        given = {operand: self._expected[operand] for operand in operands}
        outputs = [output for output in self._traced.outputs if output is not None]
        alone, whole = self._compared([point], given), self._compared([*outputs, point], {})
        return Diverging(point.name, point.origin, self._traced.text(point, given), self.difference(point), alone,
                         whole, [Operand(one.name, one.origin, self.difference(one)) for one in operands],
                         self._traced.parameters(point, given), self.parts)

    def _compared(self, results: Sequence[Point], given: Arrays) -> Difference:
        """Of the last of these points, in the part of the model that has them as results."""
        found = self._traced.run(results, given)[-1]
        self.parts += 1
        self._on_part()
        return compare(found, self._expected[results[-1]], self._tolerance)
