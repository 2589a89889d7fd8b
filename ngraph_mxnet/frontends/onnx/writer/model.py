"""An ONNX model of a graph: what computes with weights alone is computed here, every other node is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, count
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ngraph_mxnet.base.errors import ConfigError, UnsupportedError
from ngraph_mxnet.base.version import __version__
from ngraph_mxnet.frontends.onnx.writer import (  # noqa: F401  (they fill the table of writers)
    DEFAULT_OPSET,
    OPSETS,
    boxes,
    control_flow,
    elementwise,
    linear,
    movement,
    quantized,
    recurrent,
)
from ngraph_mxnet.frontends.onnx.writer.document import Document, described
from ngraph_mxnet.ir.graph import Graph, Value
from ngraph_mxnet.ir.module import result_names
from ngraph_mxnet.ir.sizes import Atom, Dim
from ngraph_mxnet.ir.types import RANDOM_STATE


def written(graph: Graph, weights: Mapping[str, Any], opset: int = DEFAULT_OPSET,
            metadata: Mapping[str, str] | None = None) -> onnx.ModelProto:
    """Return the graph as an ONNX model.

    Args:
        graph: parameters that have no weight are the model's inputs; sizes that are symbols get names.
        weights: arrays by the parameters' names.
        opset: one of OPSETS.
        metadata: texts that the model carries.

    Raises:
        ConfigError: no such opset.
        UnsupportedError: nodes can't be said in ONNX; the text names each and the reason.
    """
    if opset not in OPSETS:
        raise ConfigError(f"opset {opset}: expected one from {OPSETS[0]} to {OPSETS[-1]}")
    inputs = inputs_of(graph, weights)
    results = output_names(graph)
    held = [value.name for value in graph.parameters if value.name in weights]
    d = Document(opset, _sources(inputs), [*(value.name for value in inputs), *results, *held])
    for value in graph.parameters:
        d.names[value] = value.name
        if value.name in weights:
            d.put(value.name, np.asarray(weights[value.name]))
        elif value.name == RANDOM_STATE:
            draws = [node for node in graph.nodes if value in node.inputs]
            d.names[value] = movement.uniform_numbers(d, sum(node.output.type.size for node in draws))
    refused = d.write(graph.nodes)
    if refused:
        lines = "\n".join(f"  {one}" for one in refused)
        raise UnsupportedError(f"the model can't be written as ONNX:\n{lines}")
    d.node = None
    _name_results(d, graph, results, {value.name for value in graph.parameters})
    nodes, initialisers = _used(d, results)
    model = helper.make_model(
        helper.make_graph(nodes, graph.name, [described(value.name, value) for value in inputs],
                          [described(name, value) for name, value in zip(results, graph.results, strict=True)]),
        opset_imports=[helper.make_opsetid("", opset)], producer_name="ngraph_mxnet", producer_version=__version__)
    model.ir_version = helper.find_min_ir_version_for(model.opset_import)
    helper.set_model_props(model, dict(metadata or {}))
    for name in initialisers:  # one by one, in place: weights are large, and lists of messages are copied
        _initialise(model.graph.initializer.add(), name, d.initialisers[name])
    return model


def inputs_of(graph: Graph, weights: Collection[str]) -> list[Value]:
    """The parameters that are inputs of the model. The state of random numbers is none: ONNX's operators have their
    own."""
    return [value for value in graph.parameters if value.name not in weights and value.name != RANDOM_STATE]


def output_names(graph: Graph) -> list[str]:
    """The names of the results, which are no parameters' in ONNX, and different: a second one of a name is numbered."""
    taken, found = {value.name for value in graph.parameters}, list[str]()
    for name in result_names(graph):
        numbered = (f"{name}_{number}" for number in count(1))
        found.append(next(one for one in chain([name], numbered) if one not in taken))
        taken.add(found[-1])
    return found


def _initialise(tensor: onnx.TensorProto, name: str, array: np.ndarray) -> None:
    tensor.name, tensor.data_type = name, helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor.dims.extend(array.shape)
    tensor.raw_data = array.tobytes()  # x86's order of bytes, which is ONNX's


def _sources(inputs: Iterable[Value]) -> dict[Atom, tuple[str, int]]:
    """For each symbol the first input and axis that has it as its size."""
    found: dict[Atom, tuple[str, int]] = {}
    for value in inputs:
        for axis, size in enumerate(value.shape):
            if isinstance(size, Dim) and len(size.symbols) == 1 and str(size) == str(next(iter(size.symbols))):
                found.setdefault(next(iter(size.symbols)), (value.name, axis))
    return found


def _name_results(d: Document, graph: Graph, names: Iterable[str], parameters: set[str]) -> None:
    """Give what makes a result the result's name; a parameter, a constant or a second name takes an Identity."""
    renamed: dict[str, str] = {}
    for name, value in zip(names, graph.results, strict=True):
        own = d.names[value]
        if own in parameters or d.array(own) is not None or own in renamed:
            called = d.fresh(f"{name}/Identity")
            d.nodes.append(helper.make_node("Identity", [renamed.get(own, own)], [name], name=called))
        else:
            renamed[own] = name
    _rename(d.nodes, renamed)


def _rename(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    """In the graphs in them, too."""
    for node in nodes:
        for texts in (node.input, node.output):
            for place, text in enumerate(texts):
                if text in names:
                    texts[place] = names[text]
        for attribute in node.attribute:
            _rename(attribute.g.node, names)


def _used(d: Document, results: Iterable[str]) -> tuple[list[onnx.NodeProto], list[str]]:
    """The nodes, and the names of the initialisers, that results follow from."""
    needed, nodes = set(results), []
    for node in reversed(d.nodes):
        if needed.isdisjoint(node.output):
            continue
        nodes.append(node)
        needed.update(_read(node))
    return nodes[::-1], [name for name in d.initialisers if name in needed]


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """Also what the graphs in it read from outside."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                yield from _read(inner)
