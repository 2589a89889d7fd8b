"""Which value is the first that differs from the reference's: parts of the model are compiled, up to one value each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.printer import format_node, value_names
from ngraph_mxnet.verifying.comparison import Difference, Tolerance, compare
from ngraph_mxnet.verifying.report import Diverging, Operand
from ngraph_mxnet.verifying.traced import Point, Runner, Traced

_MOST_LINES = 24


class Bisection:
    """Of a model, the arrays of a reference at its points, and what runs parts of the model."""

    def __init__(self, traced: Traced, expected: list[Any], runner: Runner, tolerance: Tolerance,
                 on_part: Callable[[], None] = lambda: None) -> None:
        """`expected`: for each point; what is no array is not compared. `on_part`: called after each part."""
        self._traced, self._runner, self._tolerance, self._on_part = traced, runner, tolerance, on_part
        self._expected = {point: array for point, array in zip(traced.points, expected, strict=True)
                          if isinstance(array, np.ndarray) and array.dtype.kind in "biuf"}
        self._found: dict[Point, Difference] = {}
        self.parts = 0
        """That were compiled so far."""

    def difference(self, point: Point) -> Difference:
        """Of the model cut behind this value."""
        if point not in self._found:
            self._found[point] = self._compared(point, self._run([point.value], {})[0])
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
            suspect = next((point for point in self._operands(found) if not self.difference(point).agrees), None)
            if suspect is None:
                return found
            found = suspect

    def described(self, point: Point) -> Diverging:
        """What there is to tell of the first value that differs."""
        operands = self._operands(point)
        given = {operand.value: self._expected[operand] for operand in operands}
        alone = self._compared(point, self._run([point.value], given)[0])
        outputs = [output.value for output in self._traced.outputs if output is not None]
        whole = self._compared(point, self._run([*outputs, point.value], {})[-1])
        part = self._traced.part([point.value], given)
        parameters = [value.name for value in part.inputs if value.is_parameter]
        return Diverging(point.name, point.origin, self._text(point.value, set(given)), self.difference(point), alone,
                         whole, [Operand(one.name, one.origin, self.difference(one)) for one in operands], parameters,
                         self.parts)

    def _operands(self, point: Point) -> list[Point]:
        return self._traced.operands(point, self._expected)

    def _compared(self, point: Point, ours: np.ndarray) -> Difference:
        return compare(ours, self._expected[point], self._tolerance)

    def _run(self, results: list[Value], given: dict[Value, np.ndarray]) -> list[np.ndarray]:
        found = self._runner.run(self._traced.part(results, given), given)
        self.parts += 1
        self._on_part()
        return found

    def _text(self, value: Value, given: set[Value]) -> str:
        """The lines of the graph that compute the value, marked, and those of its operands before them."""
        own = _needed(value, given)
        producers = {operand.node for node in own for operand in node.inputs if operand.node is not None}
        return _lines(self._traced.graph, own, producers - own)


def _needed(value: Value, given: set[Value]) -> set[Node]:
    """The nodes that compute the value, back to those given."""
    found, stack = set[Node](), [value]
    while stack:
        top = stack.pop()
        if top.node is not None and top not in given and top.node not in found:
            found.add(top.node)
            stack.extend(top.node.inputs)
    return found


def _lines(graph: Graph, marked: set[Node], others: set[Node]) -> str:
    names = value_names(graph)
    lines = [("> " if node in marked else "  ") + format_node(node, names, elide=True).strip()
             for node in graph.nodes if node in marked or node in others]
    return "\n".join(lines if len(lines) <= _MOST_LINES else ["  ...", *lines[-_MOST_LINES:]])
