"""A joint graph as two: the forward one, which runs first, and the backward one, which reads what that saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


def split(joint: Joint, early: int, *, blocks: int = 1) -> Split:
    """The forward graph has the first `early` results. What both halves need is saved, but for constants and
    parameters; numbers of rank 0 as [1], which every framework's arrays can be.

    Args:
        blocks: images [N, C, *S] are saved as [N, C / blocks, *S, blocks] where blocks divide C: the layout of a
            target that computes in such blocks of channels, which then moves nothing.
    """
    whole = joint.graph.clone()
    # What goes back instead of a derivative is made where it is read: going forth these are their first operands.
    whole.replace({node.output: node.inputs[0] for node in whole.nodes if node.op.name == "own_gradient"})
    whole.remove_dead()
    first = _needed(whole.results[:early])
    made = [value for node in whole.nodes if node in first and node.op.kind != "constant" for value in node.outputs]
    later = extract(whole, whole.results[early:], [*made, *whole.parameters], name=f"{whole.name}.backward",
                    label=lambda value, number: f"saved.{number}")
    pairs = list(zip(later.inputs, later.graph.parameters, strict=True))
    saved = [(value, parameter) for value, parameter in pairs if value.node is not None]
    sooner = extract(whole, [*whole.results[:early], *(value for value, _ in saved)], whole.parameters,
                     name=f"{whole.name}.forward", label=lambda value, number: "")
    images = _images(whole.nodes) if blocks > 1 else set()
    for place, (value, parameter) in enumerate(saved, early):
        for wide, there, back in _ways(value.type.shape, blocks if value in images else 1):
            sooner.graph.nodes += (nodes := _chain(sooner.graph.results[place], there))
            sooner.graph.results[place] = nodes[-1].output
            _read_as(later.graph, parameter, wide, back)
    return Split(sooner.graph, later.graph, tuple(parameter.name for _, parameter in saved))


Ops = list[tuple[str, dict[str, Any]]]
Way = tuple[tuple[int, ...], Ops, Ops]


def _ways(shape: tuple[int, ...], blocks: int) -> list[Way]:
    """Nothing, or how a value of this shape is saved otherwise: the shape, the ops that lead there and those back."""
    if not shape:
        return [((1,), [("reshape", {"shape": (1,)})], [("reshape", {"shape": ()})])]
    if blocks == 1 or not 3 <= len(shape) <= 4 or shape[1] % blocks:
        return []
    cut, axes = (shape[0], shape[1] // blocks, blocks, *shape[2:]), range(3, len(shape) + 1)
    order, back = (0, 1, *axes, 2), (0, 1, len(shape), *(axis - 1 for axis in axes))
    return [(tuple(cut[axis] for axis in order),
             [("reshape", {"shape": cut}), ("transpose", {"order": order})],
             [("transpose", {"order": back}), ("reshape", {"shape": shape})])]


def _images(nodes: list[Node]) -> set[Value]:
    """What convolutions, pools and batch norms make, and elementwise ops and concatenations of it."""
    found: set[Value] = set()
    for node in nodes:
        made = node.op.kind in ("convolution", "pool") or node.op.name == "batch_norm_training"
        keeps = node.op.elementwise or node.op.name == "concat"
        if made or (keeps and found & set(node.inputs)):
            found.update(node.outputs)
    return found


def _needed(results: list[Value]) -> set[Node]:
    found: set[Node] = set()
    stack = [value.node for value in results]
    while stack:
        node = stack.pop()
        if node is not None and node not in found:
            found.add(node)
            stack.extend(value.node for value in node.inputs)
    return found


def _chain(value: Value, ops: Ops) -> list[Node]:
    """One op behind the other."""
    nodes: list[Node] = []
    for op, attrs in ops:
        nodes.append(make_node(op, [nodes[-1].output if nodes else value], attrs))
    return nodes


def _read_as(graph: Graph, parameter: Value, shape: tuple[int, ...], ops: Ops) -> None:
    """The parameter comes in this shape, and these ops lead back to its own."""
    wide = Value(TensorType(parameter.type.element, shape), name=parameter.name, role=parameter.role)
    nodes = _chain(wide, ops)
    graph.replace({parameter: nodes[-1].output})
    graph.parameters[graph.parameters.index(parameter)] = wide
    graph.nodes[:0] = nodes
