"""The kind of attribute that holds a graph."""

from __future__ import annotations

from typing import Any

from ngraph_mxnet.ir.attributes import Attribute
from ngraph_mxnet.ir.graph import Graph


class Body(Attribute):
    """A graph, not to be changed any more. It prints as lines of its own below the node."""

    expects = "a graph"

    def convert(self, value: Any) -> Graph:
        if not isinstance(value, Graph):
            raise TypeError(value)
        return value
