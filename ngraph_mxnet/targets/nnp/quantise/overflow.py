"""Which nodes make numbers that a device's format can't hold, seen on samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value

_LARGEST = {"f16": 65504.0}
"""The largest number, in the formats that are too small for numbers of real models."""


def overflowing(graph: Graph, samples: Sequence[Sequence[np.ndarray]], element: str) -> dict[Node, str]:
    """Why nodes of `graph` should not run where real numbers are stored as `element`, by what they read and make when
    it runs on `samples` in float32, each an array for each parameter."""
    largest = _LARGEST.get(element)
    found: dict[Node, str] = {}
    for sample in samples if largest is not None else ():
        values: dict[Value, np.ndarray] = dict(zip(graph.parameters, sample, strict=True))
        for node in graph.nodes:
            results = node.op.evaluate([values[operand] for operand in node.inputs], node.attrs)
            values.update(zip(node.outputs, results, strict=True))
            top = max(map(_magnitude, (*(values[operand] for operand in node.inputs), *results)), default=0.0)
            if largest is not None and top > largest:
                found[node] = f"its numbers reach {top:.3g} on the samples, {element} holds up to {largest:g}"
    return found


def _magnitude(array: np.ndarray) -> float:
    """The largest absolute value that is finite: masks and the like are infinite on purpose."""
    if array.dtype.kind != "f":
        return 0.0
    return float(np.abs(array[np.isfinite(array)], dtype=np.float64).max(initial=0.0))
