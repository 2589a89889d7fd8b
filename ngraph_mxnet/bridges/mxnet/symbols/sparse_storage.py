"""Sparse arrays of a symbol: variables that are stored sparse, and gradients that come sparse."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs, canonical
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolGraph

A_SPARSE_GRADIENT = "a gradient is sparse"
"""Why a model is not trained as a whole."""

# MXNet's numbers for storage types: -1 undefined, 0 default.
_SPARSE = re.compile(r'"__storage_type__": "(?!0"|-1")')


def why_not_dense(text: str) -> str | None:
    """Why MXNet runs all of a symbol whose JSON is `text`: a variable has sparse storage. None: none has."""
    return "a variable has sparse storage" if _SPARSE.search(text) else None


def sparse_gradients(graph: SymbolGraph) -> list[str]:
    """The variables whose gradients MXNet makes row_sparse: weights of an Embedding with `sparse_grad`."""
    weights = [graph.nodes[node.inputs[1].node] for node in graph.operators()
               if canonical(node.op) == "Embedding" and Attrs(node.attrs, node.origin).bool("sparse_grad", False)]
    return [weight.name for weight in weights if weight.is_variable]


def why_left(names: Iterable[str]) -> dict[str, str]:
    """Return, for each named parameter with a sparse gradient, the reason why MXNet runs what reads the parameter."""
    return {name: f"the gradient of {name} is sparse" for name in names}
