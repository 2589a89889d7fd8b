"""The nodes of a branch in place of the If that takes it, so that the graph may end between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx
from onnx import helper

from ngraph_mxnet.bridges.onnx.names import subgraphs
from ngraph_mxnet.errors import ModelError


@dataclass(frozen=True)
class Unfolded:
    """What takes the place of an If."""

    nodes: list[onnx.NodeProto]
    initializers: list[onnx.TensorProto]


def unfold(node: onnx.NodeProto, branch: onnx.GraphProto, around: Iterable[str]) -> Unfolded:
    """The branch's nodes and initialisers under names that nothing else has, then the If's outputs.

    Args:
        around: the names that are taken.

    Raises:
        ModelError: the branch has not as many outputs as the If.
    """
    if len(branch.output) < len(node.output):
        raise ModelError(f"its subgraph has {len(branch.output)} outputs, expected {len(node.output)}")
    own = _own(branch)
    prefix, taken = f"{next(filter(None, node.output), node.name)}/", set(around)
    while not taken.isdisjoint(prefix + name for name in own):
        prefix += "/"
    names = {name: prefix + name for name in own}
    ends = [helper.make_node("Identity", [names.get(inner.name, inner.name)], [outer])
            for inner, outer in zip(branch.output, node.output, strict=False) if outer]
    return Unfolded([*renamed(branch.node, names), *ends], [_tensor(held, names) for held in branch.initializer])


def _own(graph: onnx.GraphProto) -> set[str]:
    """The names that the graph gives, subgraphs aside."""
    made = (name for node in graph.node for name in node.output if name)
    return {*made, *(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)}


def renamed(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> list[onnx.NodeProto]:
    """Copies that read and give other names, in their subgraphs too, as far as these have none of their own."""
    copies = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [names.get(name, name) for name in node.input]
        copy.output[:] = [names.get(name, name) for name in node.output]
        for graph in subgraphs(copy):
            own = _own(graph)
            outer = {name: other for name, other in names.items() if name not in own}
            inner = renamed(graph.node, outer)
            del graph.node[:]
            graph.node.extend(inner)
            for output in graph.output:
                output.name = outer.get(output.name, output.name)
        copies.append(copy)
    return copies


def _tensor(tensor: onnx.TensorProto, names: Mapping[str, str]) -> onnx.TensorProto:
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    copy.name = names[tensor.name]
    return copy
