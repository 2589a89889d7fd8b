"""A joint graph as two: the forward one, which runs first, and the backward one, which reads what that saved."""

from __future__ import annotations

from dataclasses import dataclass

from ngraph_mxnet.autodiff.reverse import Joint
from ngraph_mxnet.ir.builder import make_node
from ngraph_mxnet.ir.extract import extract
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.types import TensorType


@dataclass(frozen=True)
class Split:
    """The halves of a joint graph.

    Attributes:
        forward: its parameters are some of the joint graph's; its results are the first ones of the joint graph, then
            those that are saved.
        backward: its parameters are what is saved, by the names of `saved`, and some of the joint graph's; its results
            are the other ones of the joint graph.
        saved: names, in the order of the forward graph's last results.
    """

    forward: Graph
    backward: Graph
    saved: tuple[str, ...]

    @property
    def saved_bytes(self) -> int:
        """What is kept from the one to the other."""
        return sum(p.type.bytes for p in self.backward.parameters if p.name in self.saved)


def split(joint: Joint, early: int) -> Split:
    """The forward graph has the first `early` results. What both halves need is saved, but for constants and
    parameters; numbers of rank 0 as [1], which every framework's arrays can be."""
    whole = joint.graph
    first = _needed(whole.results[:early])
    made = [value for node in whole.nodes if node in first and node.op.kind != "constant" for value in node.outputs]
    later = extract(whole, whole.results[early:], [*made, *whole.parameters], name=f"{whole.name}.backward",
                    label=lambda value, number: f"saved.{number}")
    pairs = list(zip(later.inputs, later.graph.parameters, strict=True))
    saved = [(value, parameter) for value, parameter in pairs if value.node is not None]
    sooner = extract(whole, [*whole.results[:early], *(value for value, _ in saved)], whole.parameters,
                     name=f"{whole.name}.forward", label=lambda value, number: "")
    for place, (value, _) in enumerate(saved, early):
        if not value.type.rank:
            sooner.graph.results[place] = _appended(sooner.graph, sooner.graph.results[place])
    for _, parameter in saved:
        if not parameter.type.rank:
            _widen(later.graph, parameter)
    return Split(sooner.graph, later.graph, tuple(parameter.name for _, parameter in saved))


def _needed(results: list[Value]) -> set[Node]:
    found: set[Node] = set()
    stack = [value.node for value in results]
    while stack:
        node = stack.pop()
        if node is not None and node not in found:
            found.add(node)
            stack.extend(value.node for value in node.inputs)
    return found


def _appended(graph: Graph, value: Value) -> Value:
    node = make_node("reshape", [value], {"shape": (1,)})
    graph.nodes.append(node)
    return node.output


def _widen(graph: Graph, parameter: Value) -> None:
    """The parameter of rank 0 comes as [1]."""
    wide = Value(TensorType(parameter.type.element, (1,)), name=parameter.name, role=parameter.role)
    node = make_node("reshape", [wide], {"shape": ()})
    graph.replace({parameter: node.output})
    graph.parameters[graph.parameters.index(parameter)] = wide
    graph.nodes.insert(0, node)
