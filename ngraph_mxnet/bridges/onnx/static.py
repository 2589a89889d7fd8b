"""What is known of values when the model is compiled: shapes, axes and counts that it computes from its own shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ngraph_mxnet.ir import Value
from ngraph_mxnet.ir.graph import Node

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
        self._sizes: dict[Value, np.ndarray] = {}
        """Those that stand for sizes of which some are symbols: arrays of ints and `Dim`s."""

    def add(self, value: Value, array: np.ndarray) -> None:
        """A weight's elements."""
        self._weights[value] = array

    def note_sizes(self, value: Value, sizes: Sequence[int]) -> None:
        """`value` is a constant of these sizes as they are at hand."""
        self._sizes[value] = np.array(sizes, object)

    def fix_sizes(self, nodes: Iterable[Node]) -> None:
        """Where such a constant is still read, it has to be what it says: the graph is for these sizes."""
        for node in nodes:
            for value in node.outputs:
                for size in self._sizes[value].reshape(-1) if value in self._sizes else ():
                    int(size)

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
            elif top in self._sizes:
                known[top] = self._sizes[top]
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
                    operands = [known[operand] for operand in node.inputs]
                    known.update(zip(node.outputs, _evaluated(node, operands), strict=True))  # type: ignore[arg-type]
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


def _evaluated(node: Node, operands: list[np.ndarray]) -> list[np.ndarray]:
    """Of sizes that are symbols as far as the reference goes; whatever asks for a value is guarded."""
    if any(array.dtype == object for array in operands) and not node.outputs[0].type.element.is_float:
        if node.op.name == "convert":
            return operands
        try:
            if node.op.name == "divide":
                return [operands[0] // operands[1]]  # sizes are not negative
            return [np.asarray(result, object) for result in node.op.evaluate(operands, node.attrs)]
        except (TypeError, ValueError, AttributeError):
            pass  # it is no such reference: of values
    operands = [array.astype(value.type.element.numpy) if array.dtype == object else array
                for array, value in zip(operands, node.inputs, strict=True)]
    with np.errstate(all="ignore"):
        return list(node.op.evaluate(operands, node.attrs))
