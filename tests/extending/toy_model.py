"""A kind of model from outside: a matrix that multiplies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.frontends.model import Model, Sizes
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.compile import Ranged, Weighted


class MatrixModel(Model):
    """A matrix, by which the rows of `x` are multiplied."""

    kind = "linear map"
    needs_sizes = "x"
    source: np.ndarray

    def inputs(self) -> Mapping[str, Sequence[Any]]:
        return {"x": ("rows", self.source.shape[1])}

    def graph(self, sizes: Sizes, backend: str | None = None) -> Weighted | Ranged:
        def make(shapes: Mapping[str, Any]) -> tuple[Graph, Mapping[str, Any]]:
            b = Builder(name="matrix")
            product = b.matmul(b.parameter("x", shapes["x"]), b.weight("w", self.source.shape), transpose_b=True)
            return b.results(product), {"w": self.source}

        self.require_sizes(sizes)
        return self.for_sizes(make, sizes)
