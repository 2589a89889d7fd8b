"""A graph for a part of its batch, so that several devices share a call's work."""

from __future__ import annotations

from typing import Any

from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.ir.builder import make_node
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.roles import Role
from ngraph_mxnet.ir.types import Shape
from ngraph_mxnet.targets.nnp.lower.access import ways


def rebatched(graph: Graph, parts: int) -> Graph:
    """The graph for one of `parts` equal slices of the batch, axis 0 of all parameters that are no weights.

    Results that depend on the batch are slices of the original's, along axis 0; the others are whole.

    Raises:
        ConfigError: the batch is no multiple of `parts`, or a node mixes the images; the text names it.
    """
    found = Graph(graph.name)
    table: dict[Value, Value] = {}
    sliced: set[Value] = set()
    for parameter in graph.parameters:
        type_ = parameter.type
        if parameter.role is not Role.WEIGHT:
            type_ = type_.with_shape(_slice(parameter.shape, parts, f"input {parameter.name}"))
            sliced.add(parameter)
        table[parameter] = found.add_parameter(type_, parameter.name, parameter.role,
                                               origin=parameter.origin)
    for node in graph.nodes:
        attrs = dict(node.attrs)
        if any(value in sliced for value in node.inputs):
            attrs = _attrs(node, sliced, parts)
            sliced.update(node.outputs)
        twin = make_node(node.op.name, [table[value] for value in node.inputs], attrs, node.origin)
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            wanted = _slice(old.shape, parts, str(node)) if old in sliced else old.shape
            if new.shape != wanted:
                raise ConfigError(_refusal(node))
            table[old] = new
        found.nodes.append(twin)
    found.results = [table[result] for result in graph.results]
    return found


def _slice(shape: Shape, parts: int, what: str) -> Shape:
    if not shape or shape[0] % parts:
        raise ConfigError(f"{what} has shape {list(shape)}: expected a first axis that {parts} devices can share "
                          "evenly; run on one device, or with another batch")
    return (shape[0] // parts, *shape[1:])


def _refusal(node: Node) -> str:
    return f"{node} mixes the images of a batch: several devices can't share it; run on one device"


def _attrs(node: Node, sliced: set[Value], parts: int) -> dict[str, Any]:
    """The attributes for a slice, when every operand in `sliced` and so every output is cut along axis 0."""
    attrs, name = dict(node.attrs), node.op.name
    shape = node.outputs[0].shape
    if name == "reshape":  # rows of elements stay in order, so an equal share of them is a slice of any first axis
        return {**attrs, "shape": _slice(shape, parts, str(node))}
    if not shape or shape[0] <= 1:
        raise ConfigError(_refusal(node))
    way = ways(node).get(0)
    if way is None or any(own != 0 for own in way.outputs):
        raise ConfigError(_refusal(node))
    for value, own in zip(node.inputs, way.inputs, strict=True):
        # A slice that the node needs whole, or an operand that is whole where it needs a slice.
        if (value in sliced) != (own == 0) and (value in sliced or (own is not None and value.shape[own] > 1)):
            raise ConfigError(_refusal(node))
    if name == "broadcast":
        attrs["shape"] = _slice(shape, parts, str(node))
    elif name == "slice":
        attrs["end"] = (node.attrs["end"][0] // parts, *node.attrs["end"][1:])
    return attrs


