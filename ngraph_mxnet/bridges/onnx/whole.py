"""A model that is compiled as a whole, before there are data; and which operators it can't be lowered for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

from ngraph_mxnet.bridges.onnx.inputs import Shapes
from ngraph_mxnet.bridges.onnx.model import Model, all_nodes
from ngraph_mxnet.bridges.onnx.rules.registry import find_rule
from ngraph_mxnet.errors import UnsupportedError, listed
from ngraph_mxnet.ir import Graph, Value
from ngraph_mxnet.ir.sizes import at_hand

if TYPE_CHECKING:
    from collections.abc import Iterator


def import_whole(model: Model, shapes: Shapes) -> tuple[Graph, dict[str, np.ndarray]]:
    """The model's graph for these shapes, and its weights.

    Raises:
        ModelError: the model is damaged, or a shape is missing or does not fit.
        UnsupportedError: it can't be lowered before there are data, or not at all; the text names all such nodes.
    """
    from ngraph_mxnet.bridges.onnx.importer import find_refusals, import_model

    try:
        imported = import_model(model, shapes)
    except UnsupportedError as error:
        numbers = {name: tuple(map(at_hand, shape)) for name, shape in shapes.items()}  # ONNX is asked for types
        refused = find_refusals(model, numbers) if str(error).startswith("node ") else []
        named = "\n".join(refused)
        within = [f"node {node.name or '?'} {node.op_type}: no rule for the operator" for node in _without_rule(model)
                  if not node.name or f"node {node.name} " not in named]
        raise UnsupportedError("\n  ".join(dict.fromkeys(
            ["the model can't be compiled as a whole:", *(refused or [str(error)]), *within]))) from None
    others = [name for name, item in imported.outputs if not isinstance(item, Value)]
    if others:
        raise UnsupportedError(f"outputs {listed(others)} are no tensors whose shapes are known before there are data")
    return imported.graph, imported.weights


def unknown_operators(model: Model) -> list[str]:
    """Return the names of operators in the model that have no rule and that ONNX does not define as functions."""
    return sorted({f"{node.domain + ' ' if node.domain not in ('', 'ai.onnx') else ''}{node.op_type}"
                   for node in _without_rule(model)})


def _without_rule(model: Model) -> Iterator[onnx.NodeProto]:
    for node in all_nodes(model.proto.graph.node):
        domain = "" if node.domain == "ai.onnx" else node.domain
        if find_rule(node.op_type, domain) is None:
            version = model.opsets.get(domain, 1)
            known = onnx.defs.has(node.op_type, version, domain)
            schema = onnx.defs.get_schema(node.op_type, version, domain) if known else None
            defined = schema is not None and (schema.has_function or schema.has_context_dependent_function)  # type: ignore[attr-defined]
            if not defined:
                yield node
