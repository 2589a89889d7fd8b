"""Gradients through integers: MXNet hands back what came to an operator that converts to them, the IR has none."""

from __future__ import annotations

from collections.abc import Collection

from ngraph_mxnet.autodiff.adjoints import ADJOINTS
from ngraph_mxnet.bridges.mxnet.symbols.aliases import canonical
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Graph

_CONVERTING = frozenset(map(canonical, ("Cast", "_npi_cast", "amp_cast", "sum", "_np_sum", "_np_cumsum")))
"""Operators that convert where an attribute asks for it; others convert positions and counts, without a gradient."""


def refuse_gradients(graph: Graph, wanted: Collection[str]) -> None:
    """
    Raises:
        UnsupportedError: one of these operators makes integers of what depends on the `wanted` parameters.
    """
    active = {parameter for parameter in graph.parameters if parameter.name in wanted}
    for node in graph.nodes:
        if not any(value in active for value in node.inputs):
            continue
        if node.op.name == "convert" and not node.output.type.element.is_float:
            if canonical(node.origin.rpartition(" ")[2]) in _CONVERTING:
                raise UnsupportedError(f"{node.origin}: MXNet hands gradients back through {node.output.type}, here "
                                       "nothing goes back from integers")
        elif node.op.name in ADJOINTS:
            active.update(value for value in node.outputs if value.type.element.is_float)
