"""What is known of values when the model is compiled: shapes, axes and counts that it computes from its own shapes."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir import Value

MOST_ELEMENTS = 1 << 20
"""The most elements of a value that is computed for them: more are no shape, and not worth the time."""
FEW_ELEMENTS = 1 << 12
"""The same of what depends on inputs, where the graph may end instead and the rest be compiled for what it gives."""


class Statics:
    """Elements of values, computed by the ops' references when they are asked for.

    `offered` are the elements of graph inputs at the call that the model is compiled for. They are used only where a
    rule can't do without, and then the compiled model is for these elements only: `used` has such inputs.
    """

    def __init__(self) -> None:
        self._weights: dict[Value, np.ndarray] = {}
        self._always: dict[Value, np.ndarray | None] = {}
        self._now: dict[Value, np.ndarray | None] = {}
        self.offered: dict[Value, np.ndarray] = {}
        self.used: set[Value] = set()
        self._noted: set[Value] = set()
        """Whose inputs are among the used ones: each node is walked once, as a loop's trips lengthen one chain."""
        self.most_computed = MOST_ELEMENTS

    def add(self, value: Value, array: np.ndarray) -> None:
        """A weight's elements."""
        self._weights[value] = array

    def find(self, value: Value) -> np.ndarray | None:
        """The elements if they depend on constants and weights only, and are not too many."""
        return self._search(value, self._always, {})

    def require(self, value: Value) -> np.ndarray | None:
        """The elements, if need be of inputs as they are at this call."""
        found = self.find(value)
        if found is None and value in self.offered:
            self.used.add(value)
            return self.offered[value]
        if found is None and self.offered:
            found = self._search(value, self._now, self.offered)
            if found is not None:
                self._note(value)
        return found

    def _search(self, value: Value, known: dict[Value, np.ndarray | None],
                inputs: dict[Value, np.ndarray]) -> np.ndarray | None:
        waiting = [value]  # deep chains: no recursion
        while waiting:
            top = waiting[-1]
            node = top.node
            if top in known:
                waiting.pop()
            elif top.type.size > (self.most_computed if inputs else MOST_ELEMENTS):
                known[top] = self._weights.get(top)
            elif node is None:
                known[top] = self._weights.get(top, inputs.get(top))
            elif node.op.name == "constant":
                known[top] = node.attrs["value"]
            elif any(known.get(operand, operand) is None for operand in node.inputs):
                known[top] = None
            else:
                unknown = [operand for operand in node.inputs if operand not in known]
                waiting.extend(unknown)
                if not unknown:
                    with np.errstate(all="ignore"):
                        results = node.op.evaluate([known[v] for v in node.inputs], node.attrs)  # type: ignore[misc]
                    known.update(zip(node.outputs, results, strict=True))
        return known[value]

    def forget(self, used: set[Value]) -> None:
        """Only `used` of the inputs decide: what asked for others was taken back."""
        self.used = set(used)
        self._noted.clear()

    def _note(self, value: Value) -> None:
        """Remember which inputs `value` depends on."""
        waiting = [value]
        while waiting:
            top = waiting.pop()
            if top in self.offered:
                self.used.add(top)
            if top not in self._noted and top.node is not None:
                self._noted.add(top)
                waiting.extend(top.node.inputs)
