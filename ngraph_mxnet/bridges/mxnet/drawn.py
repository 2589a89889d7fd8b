"""What a symbol does with its inputs, for random ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ngraph_mxnet.bridges.mxnet.explain import all_dtypes, region_graphs
from ngraph_mxnet.bridges.mxnet.symbols.weights import graph_of
from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.runtime.backend import get_backend
from ngraph_mxnet.runtime.draws import Draw, draws_of

if TYPE_CHECKING:
    from mxnet.symbol import Symbol


def draws_of_symbol(symbol: Symbol, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, Any],
                    backend: str) -> dict[str, Draw]:
    """As `draws_of`, for the inputs of these shapes; of a symbol that MXNet runs in part, what the regions say that the
    backend would run."""
    try:
        return draws_of(graph_of(symbol, shapes, dtypes, {})[0])
    except NGraphError:
        told = all_dtypes(symbol, dtypes)
    found: dict[str, Draw] = {}
    for graph, _ in region_graphs(symbol, {name: (tuple(shapes[name]), told.get(name)) for name in shapes},
                                  get_backend(backend))[1]:
        found |= {name: draw for name, draw in draws_of(graph).items() if name in shapes}
    return found
