"""Which numbers each value takes: histograms over a calibration run in float32."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Value
from ngraph_mxnet.quantise.histogram import Histogram
from ngraph_mxnet.targets.nnp.quantise.quantization import uniform
from ngraph_mxnet.targets.nnp.simulate.reference import quantized_reference


def observe(
    graph: Graph, samples: Sequence[Sequence[np.ndarray]], wanted: Collection[Value]
) -> tuple[dict[Value, Histogram], list[list[np.ndarray]]]:
    """Run `graph` in float32 for each sample, an array for each parameter.

    Returns:
        The histograms of the values in `wanted`, and each sample's results.
    """
    histograms = {value: Histogram() for value in wanted}
    plain = uniform(graph, {}, "f32")

    def visit(value: Value, stored: np.ndarray) -> None:
        if value in histograms:
            histograms[value].add(stored)

    return histograms, [quantized_reference(graph, plain, sample, visit) for sample in samples]
