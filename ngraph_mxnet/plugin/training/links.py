"""Links: operators that a script calls between compiled calls and the loss, or between two compiled calls.

Their gradients are compiled as one program, from what the operators have read and returned. Forward, each operator is a
program of its own, because MXNet calls them one by one.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
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
_NUMBERED = {"_plus_scalar": ("broadcast_add", False), "_minus_scalar": ("broadcast_sub", False),
             "_rminus_scalar": ("broadcast_sub", True), "_mul_scalar": ("broadcast_mul", False),
             "_div_scalar": ("broadcast_div", False), "_rdiv_scalar": ("broadcast_div", True)}
"""Operators of an array and a number. A number that changes from pass to pass is the last input, of shape (1,). For
each: the operator of two arrays that it is then, and whether the number comes first."""
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


def operators_of(description: Description) -> Iterator[tuple[int, list[Any], list[Any], list[Any]]]:
    """Each operator of a link as MXNet calls it, without those that read a number from an array: its handle, its
    attributes, and the types of its inputs and results."""
    operators, values, leaves, *_ = description
    first = 0
    for op, attributes, inputs, outputs in operators:
        types = []
        for is_leaf, index, shape in inputs:
            element, own = (leaves if is_leaf else values)[index]
            types.append((element, own if shape is None else shape))
        if not _reads_number(name_of(op), attributes):
            yield op, attributes, types, values[first:first + outputs]
        first += outputs


def compiled_operator(op: int, attributes: list[Any], types: Sequence[Any], results: Sequence[Any]
                      ) -> tuple[Any, Sources]:
    """The native program of an operator's results, and the source of each of its inputs.

    Raises:
        UnsupportedError: it has to be MXNet that computes them; the text says why.
    """
    told = [name_of(op), attributes, [(True, place, None) for place in range(len(types))], len(results)]
    made = get_or_make(lambda: program_key(("training", "operator", json.dumps([told, types, results])),
                                           registry.TRAINER, {}),
                       lambda: _compiled_forward(told, _types(types), _types(results)), small=True)
    return made.programs[0].native, [tuple(source) for source in made.facts["sources"]]


def _compiled_forward(operator: list[Any], types: list[TensorType], results: list[TensorType]) -> Made:
    symbol, edges = _symbol([operator], len(types), {})
    b = Builder(name="operator")
    lowered = lower_values(b, symbol, types, Halves(scalars=True), rules=find_training_rule)
    _check_pure(b, symbol, len(types))
    if (found := [lowered[edge].type for edge in edges]) != results or not all(type_.shape for type_ in results):
        raise UnsupportedError(f"results are {results}, lowered {found}")
    graph = b.results(*(lowered[edge] for edge in edges))
    names = [parameter.name for parameter in graph.parameters]
    _drop_unread(graph)
    sources = [(_LEAF, names.index(parameter.name)) for parameter in graph.parameters]
    return Made([compiled_half(graph)], {"sources": sources})


def _compiled(operators: list[Any], values: list[Any], leaves: list[Any], wanted: list[bool],
              heads: list[int]) -> Made:
    ranks = {(is_leaf, place): len(shape) for is_leaf, all_ in ((True, leaves), (False, values))
             for place, (_, shape) in enumerate(all_)}
    types, symbol, edges = _types(values), *_symbol(operators, len(leaves), ranks)
    b, halves = Builder(name="link"), Halves(scalars=True)
    lowered = lower_values(b, symbol, _types(leaves), halves, rules=find_training_rule)
    _check_pure(b, symbol, len(leaves))
    results = [lowered[edge] for edge in edges]
    for place in heads:
        if results[place].type != types[place]:
            raise UnsupportedError(f"output {place} of the operators is {types[place]}, lowered {results[place].type}")
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


def _check_pure(b: Any, symbol: SymbolGraph, leaves: int) -> None:
    """Raises UnsupportedError if an operator does more than to compute."""
    for node in symbol.operators():
        if updates_statistics(node, Attrs(node.attrs, node.origin)):
            raise UnsupportedError(f"{node.origin} moves statistics")
    if len(b.graph.parameters) != leaves:
        raise UnsupportedError("an operator draws random numbers")


def _types(given: Sequence[Any]) -> list[TensorType]:
    return [TensorType(element_type(name), tuple(shape)) for name, shape in given]


def _reads_number(op: str, attributes: Sequence[tuple[str, str]]) -> bool:
    return op in _NUMBERED and "scalar" not in dict(attributes)


def _symbol(operators: Sequence[Any], leaves: int, ranks: Mapping[tuple[bool, int], int]
            ) -> tuple[SymbolGraph, list[Edge]]:
    """The operators as a symbol of the leaves, and the edge of each value. `ranks`: of leaves and values."""
    nodes: list[Any] = [{"op": "null", "name": f"leaf{place}", "inputs": []} for place in range(leaves)]
    edges: list[Edge] = []
    for op, attributes, inputs, outputs in operators:
        read: list[Any] = []
        if is_numbered := _reads_number(op, attributes):
            (is_leaf, index, shape), number = inputs
            rank = ranks[is_leaf, index] if shape is None else len(shape)
            inputs = [(is_leaf, index, shape), (*number[:2], (1,) * rank)]
        for is_leaf, index, shape in inputs:
            edge = [index, 0, 0] if is_leaf else [edges[index].node, edges[index].output, 0]
            if shape is not None:
                nodes.append({"op": "Reshape", "name": f"reshape{len(nodes)}", "inputs": [edge],
                              "attrs": {"shape": str(tuple(shape))}})
                edge = [len(nodes) - 1, 0, 0]
            read.append(edge)
        if is_numbered:
            op, is_first = _NUMBERED[op]
            read = read[::-1] if is_first else read
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
    _drop_unread(graph)
    return sources


def _drop_unread(graph: Graph) -> None:
    graph.remove_dead()
    read = {value for node in graph.nodes for value in node.inputs} | set(graph.results)
    graph.parameters = [parameter for parameter in graph.parameters if parameter in read]
