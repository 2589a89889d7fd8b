"""The functions as which ONNX itself defines many of its operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from ngraph_mxnet.bridges.onnx.branches import renamed
from ngraph_mxnet.bridges.onnx.budget import all_nodes
from ngraph_mxnet.bridges.onnx.names import names_in_subgraphs, subgraphs
from ngraph_mxnet.errors import UnsupportedError


@dataclass(frozen=True)
class Function:
    """`opsets` are the versions that its nodes are of, by domain."""

    input: list[str]
    output: list[str]
    nodes: list[onnx.NodeProto]
    opsets: dict[str, int]


def function_of(node: onnx.NodeProto, domain: str, opset: int,
                types: Sequence[onnx.TypeProto | None]) -> Function | None:
    """The body of `node` with its attributes filled in, or None if ONNX defines it in words only. Its own names are
    none that the node's subgraphs read of what is around the node.

    Args:
        types: of the node's inputs, None for one that is left out.
    """
    if not onnx.defs.has(node.op_type, opset, domain):
        return None
    schema: Any = onnx.defs.get_schema(node.op_type, opset, domain)  # its stubs lack what functions need
    apart = _apart(node)
    node, = renamed([node], apart)
    body = _body(schema, node, opset, types)
    if body is None:
        return None
    proto = onnx.FunctionProto()
    proto.ParseFromString(body)
    given = {attribute.name: attribute for attribute in node.attribute}
    given = {**{name: attribute.default_value for name, attribute in schema.attributes.items()
                if attribute.default_value.type}, **given}
    opsets = {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in proto.opset_import}
    # A body is written in some version of the operators; the newest that it says is what it means.
    nodes = [_filled(part, given) for part in proto.node]
    _rename(nodes, apart)
    inputs, outputs = ([apart.get(name, name) for name in names] for names in (proto.input, proto.output))
    return Function(inputs, outputs, nodes, opsets or {domain: opset})


def _apart(node: onnx.NodeProto) -> dict[str, str]:
    """Other names for those that the node's subgraphs read, and these for the others: put in before the body is made,
    which may have such names, and again after, it leaves the other ones to the body's own."""
    prefix = "/"
    while any(name.startswith(prefix) for each in all_nodes([node]) for name in (*each.input, *each.output)):
        prefix += "/"
    others = {name: prefix + name for name in names_in_subgraphs(node)}
    return {**others, **{other: name for name, other in others.items()}}


def _rename(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    """Whatever is called so, in subgraphs too."""
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for graph in subgraphs(node):
            for part in (*graph.input, *graph.output, *graph.initializer):
                part.name = names.get(part.name, part.name)
            _rename(graph.node, names)


def _body(schema: Any, node: onnx.NodeProto, opset: int,
          types: Sequence[onnx.TypeProto | None]) -> bytes | None:
    if schema.has_context_dependent_function:
        written = [type_ if type_ is not None else onnx.TypeProto() for type_ in types]
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        if versions:
            try:
                found: bytes = schema.get_context_dependent_function_with_opset_version(
                    max(versions), node.SerializeToString(), [proto.SerializeToString() for proto in written])
            except RuntimeError as error:  # of onnx's builders of bodies
                raise UnsupportedError(f"onnx makes no body of it: {str(error).splitlines()[0]}") from None
            return found
    versions = [v for v in schema.function_opset_versions if v <= opset] if schema.has_function else []
    return bytes(schema.get_function_with_opset_version(max(versions))) if versions else None


def _filled(node: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A copy with the function's attributes in place of references to them."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copy.attribute.append(attribute)
        elif attribute.ref_attr_name in given:
            filled = onnx.AttributeProto()
            filled.CopyFrom(given[attribute.ref_attr_name])
            filled.name = attribute.name
            copy.attribute.append(filled)
    return copy
