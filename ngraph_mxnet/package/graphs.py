"""Graphs as plain data, and back; unlike their text, with arrays as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ngraph_mxnet.errors import GraphError, PackageError, TypeRuleError
from ngraph_mxnet.ir.graph import Body, Graph, Value, make_node, verify
from ngraph_mxnet.ir.module import Module
from ngraph_mxnet.ir.opdef import get_op
from ngraph_mxnet.ir.types import Array, Attribute, ElementType, Role, TensorType, element_type
from ngraph_mxnet.package.pack import count, text
from ngraph_mxnet.package.package import Package


def encode_graph(graph: Graph) -> dict[str, Any]:
    """Plain data (see `pack`)."""
    numbers = {value: number for number, value in enumerate(graph.values())}
    return {
        "name": graph.name,
        "parameters": [[p.name, p.type.element.name, p.type.shape, p.role.value, p.origin] for p in graph.parameters],
        "nodes": [[node.op.name, [numbers[value] for value in node.inputs],
                   {name: _encoded(value) for name, value in node.attrs.items()}, node.origin,
                   [value.name for value in node.outputs]] for node in graph.nodes],
        "results": [numbers[value] for value in graph.results],
    }


def _encoded(value: Any) -> Any:
    if isinstance(value, Graph):
        return encode_graph(value)
    return value.name if isinstance(value, ElementType) else value


def decode_graph(found: Any) -> Graph:
    """The graph of which these are the data, verified.

    Raises:
        PackageError: there is no such graph.
    """
    try:
        graph = _decoded(found)
        verify(graph)
    except (ArithmeticError, AttributeError, GraphError, LookupError, RecursionError, TypeError, TypeRuleError,
            ValueError) as error:
        raise PackageError(f"these are no data of a graph: {error}") from error
    return graph


def decode_module(package: Package) -> Module:
    """The module whose graphs are the package's code, verified.

    Raises:
        PackageError: they are no graphs, or do not fit the package's steps.
    """
    module = Module(package.name, {name: decode_graph(found) for name, found in package.code.items()}, package.flow)
    try:
        module.verify()
    except GraphError as error:
        raise PackageError(f"package {package.name}: {error}") from error
    return module


def _decoded(found: Mapping[str, Any]) -> Graph:
    graph = Graph(text(found["name"]))
    for name, element, shape, role, origin in found["parameters"]:
        type_ = TensorType(element_type(text(element)), tuple(map(count, shape)))
        graph.add_parameter(type_, text(name), Role(role), origin=text(origin))
    values: list[Value] = list(graph.parameters)
    for op, inputs, attrs, origin, names in found["nodes"]:
        schema = get_op(op).schema
        own = {name: _attribute(schema.get(name), value) for name, value in attrs.items()}
        node = make_node(op, [values[count(number)] for number in inputs], own, text(origin))
        for value, name in zip(node.outputs, names, strict=True):
            value.name = text(name)
        graph.nodes.append(node)
        values += node.outputs
    graph.results = [values[count(number)] for number in found["results"]]
    return graph


def _attribute(kind: Attribute | None, value: Any) -> Any:
    """Return the value as the node has it. The op refuses values of the wrong kind."""
    if isinstance(kind, Body):
        return _decoded(value)
    if isinstance(kind, Array) and not isinstance(value, np.ndarray):
        raise TypeError(f"{value!r} is no array")
    return value
