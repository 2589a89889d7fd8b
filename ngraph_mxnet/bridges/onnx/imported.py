"""What a model was imported as."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ngraph_mxnet.bridges.onnx.model import Model
from ngraph_mxnet.bridges.onnx.values import Item
from ngraph_mxnet.ir import Graph


@dataclass
class Imported:
    """A graph, and arrays for those of its parameters that are the model's weights."""

    graph: Graph
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    specialised: list[str] = field(default_factory=list)
    """Parameters whose elements, at the call that it was imported for, decided about shapes."""
    outputs: list[tuple[str, Item]] = field(default_factory=list)
    """What the graph's results are parts of, in their order."""
    rest: Model | None = None
    """The nodes from the one on at which the graph ends, if what is lowered there depends on the data; `outputs` are
    what it reads, beside inputs of the model."""
    reason: str = ""
    """Why the graph ends there; the text names the node."""
