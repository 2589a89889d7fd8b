"""Links: operators that a script calls between compiled calls and the loss, or between two compiled calls.

MXNet runs them forward. Their gradients are compiled as one program, from what the operators have read and returned.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from mxnet.base import _LIB, check_call

from ngraph_mxnet.autodiff import differentiate
from ngraph_mxnet.autodiff.reverse import HEAD
from ngraph_mxnet.base import registry
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs, Halves
from ngraph_mxnet.frontends.mxnet.importer import lower_values
from ngraph_mxnet.frontends.mxnet.symbol_json import Edge, SymbolGraph, graph_of
from ngraph_mxnet.ir import Builder, Graph, TensorType, Value, element_type
from ngraph_mxnet.plugin.training.graph import compiled_half, refuse_gradients
from ngraph_mxnet.plugin.training.rules import find_training_rule, updates_statistics
from ngraph_mxnet.program.program_cache import Made, get_or_make, program_key

Description = tuple[list[Any], list[Any], list[Any], list[bool], list[int]]
"""Operators, types of values and leaves, which leaves' gradients are wanted, and the values that get a gradient: see
LinkDescription in csrc/mxnet/short_way.h."""
Sources = list[tuple[int, int]]
_VALUE, _LEAF, _HEAD = range(3)
"""Kinds of sources: see Link in csrc/mxnet/short_way.h."""


@cache
def name_of(op: int) -> str:
    """The name of an operator of MXNet's, by its handle."""
    name = ctypes.c_char_p()
    check_call(_LIB.MXSymbolGetAtomicSymbolName(ctypes.c_void_p(op), ctypes.byref(name)))
    assert name.value is not None
    return name.value.decode()


def compiled_link(description: Description) -> tuple[Any, Sources]:
    """The native program of a link's gradients, and the source of each of its inputs.

    Raises:
        UnsupportedError: an operator can't be trained, or does more than to compute; the text says why.
    """
    operators, values, leaves, wanted, heads = description
    told = [[name_of(op), attributes, inputs, outputs] for op, attributes, inputs, outputs in operators]
    made = get_or_make(lambda: program_key(("training", "link", json.dumps([told, values, leaves, wanted, heads])),
                                           registry.TRAINER, {}),
                       lambda: _compiled(told, values, leaves, wanted, heads), small=True)
    return made.programs[0].native, [tuple(source) for source in made.facts["sources"]]


def _compiled(operators: list[Any], values: list[Any], leaves: list[Any], wanted: list[bool],
              heads: list[int]) -> Made:
    types, symbol, edges = _types(values), *_symbol(operators, len(leaves))
    b, halves = Builder(name="link"), Halves(scalars=True)
    lowered = lower_values(b, symbol, _types(leaves), halves, rules=find_training_rule)
    for node in symbol.operators():
        if updates_statistics(node, Attrs(node.attrs, node.origin)):
            raise UnsupportedError(f"{node.origin} moves statistics")
    results = [lowered[edge] for edge in edges]
    for place in heads:
        if results[place].type != types[place]:
            raise UnsupportedError(f"output {place} of the operators is {types[place]}, lowered {results[place].type}")
    if len(b.graph.parameters) != len(leaves):
        raise UnsupportedError("an operator draws random numbers")
    graph, names = b.results(*results), [parameter.name for parameter in b.graph.parameters]
    targets = [name for name, is_wanted in zip(names, wanted, strict=True) if is_wanted]
    if any(not type_.shape for type_, is_wanted in zip(_types(leaves), wanted, strict=True) if is_wanted):
        raise UnsupportedError("a gradient has no dimensions")
    refuse_gradients(graph, targets)
    joint = differentiate(graph, targets, heads)
    graph = joint.graph
    sources = _cut(graph, joint.results, joint.gradients, types)
    sources |= {name: (_LEAF, place) for place, name in enumerate(names)}
    sources |= {f"{HEAD}{place}": (_HEAD, number) for number, place in enumerate(heads)}
    return Made([compiled_half(graph)], {"sources": [sources[parameter.name] for parameter in graph.parameters]})


def _types(given: Sequence[Any]) -> list[TensorType]:
    return [TensorType(element_type(name), tuple(shape)) for name, shape in given]


def _symbol(operators: Sequence[Any], leaves: int) -> tuple[SymbolGraph, list[Edge]]:
    """The operators as a symbol of the leaves, and the edge of each value."""
    nodes: list[Any] = [{"op": "null", "name": f"leaf{place}", "inputs": []} for place in range(leaves)]
    edges: list[Edge] = []
    for op, attributes, inputs, outputs in operators:
        read = []
        for is_leaf, index, shape in inputs:
            edge = [index, 0, 0] if is_leaf else [edges[index].node, edges[index].output, 0]
            if shape is not None:
                nodes.append({"op": "Reshape", "name": f"reshape{len(nodes)}", "inputs": [edge],
                              "attrs": {"shape": str(tuple(shape))}})
                edge = [len(nodes) - 1, 0, 0]
            read.append(edge)
        edges += [Edge(len(nodes), output) for output in range(outputs)]
        nodes.append({"op": op, "name": f"op{len(nodes)}", "inputs": read, "attrs": dict(attributes)})
    heads = [[edge.node, edge.output, 0] for edge in edges]
    return graph_of({"nodes": nodes, "arg_nodes": list(range(leaves)), "heads": heads}), edges


def _cut(graph: Graph, results: Sequence[Value], gradients: Sequence[Value],
         types: Sequence[TensorType]) -> dict[str, tuple[int, int]]:
    """Compute only the gradients, from the values that are there. Return the sources of the values' parameters."""
    b, sources, there = Builder(graph), {}, {}
    for place, (value, type_) in enumerate(zip(results, types, strict=True)):
        if value.is_parameter or value in there or value.type != type_:
            continue
        there[value] = b.parameter(f"value.{place}", type_.shape, type_.element)
        sources[f"value.{place}"] = _VALUE, place
    graph.results = list(gradients)
    graph.replace(there)
    graph.remove_dead()
    read = {value for node in graph.nodes for value in node.inputs} | set(graph.results)
    graph.parameters = [parameter for parameter in graph.parameters if parameter in read]
    return sources
