"""A joint graph as two: the forward one, which runs first, and the backward one, which reads what that saved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ngraph_mxnet.autodiff.rematerialize import Halves, saved_values
from ngraph_mxnet.autodiff.reverse import Joint
from ngraph_mxnet.ir.graph import Builder, Graph, Node, Value, extract, make_node
from ngraph_mxnet.ir.types import TensorType, f32


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
        """Bytes of the values that the forward half saves for the backward half."""
        return sum(p.type.bytes for p in self.backward.parameters if p.name in self.saved)


def split(joint: Joint, early: int, *, blocks: int = 1, share: float | None = 0.0) -> Split:
    """The forward graph has the first `early` results. Of what both halves need, `saved_values` are saved, and the
    backward graph computes the others again, each right before its first reader; numbers of rank 0 are saved as [1],
    which every framework's arrays can be.

    Args:
        blocks: images [N, C, *S] are saved as [N, C / blocks, *S, blocks] where blocks divide C: the layout of a
            target that computes in such blocks of channels, which then moves nothing.
        share: see `saved_values`.
    """
    whole = joint.graph.clone()
    # What goes back instead of a derivative is made where it is read: going forth these are their first operands.
    whole.replace({node.output: node.inputs[0] for node in whole.nodes if node.op.name == "own_gradient"})
    whole.remove_dead()
    affine = _take_apart(whole, blocks)
    first = _needed(whole.results[:early])
    halves = Halves(whole, first, whole.results[early:], affine)
    stops = [*saved_values(halves, share), *whole.parameters]
    backward = Graph(whole.name)
    backward.parameters, backward.results = whole.parameters, whole.results
    backward.nodes = _just_in_time(halves, set(stops))
    later = extract(backward, halves.results, stops, name=f"{whole.name}.backward",
                    label=lambda value, number: f"saved.{number}")
    pairs = list(zip(later.inputs, later.graph.parameters, strict=True))
    saved = [(value, parameter) for value, parameter in pairs if value.node is not None]
    sooner = extract(whole, [*whole.results[:early], *(value for value, _ in saved)], whole.parameters,
                     name=f"{whole.name}.forward", label=lambda value, number: "")
    images = _images(whole.nodes) if blocks > 1 else set()
    ways: dict[Value, Way] = {}
    for place, (value, parameter) in enumerate(saved, early):
        way = _way(value.type.shape, blocks if value in images else 1)
        if way is not None:
            ways[parameter] = way
            sooner.graph.nodes += (nodes := _chain(sooner.graph.results[place], way.there))
            sooner.graph.results[place] = nodes[-1].output
    _read_as(later.graph, ways)
    return Split(sooner.graph, later.graph, tuple(parameter.name for _, parameter in saved))


def _take_apart(graph: Graph, blocks: int) -> set[Node]:
    """A batch norm of images is its statistics, factors for each channel, and a `scale_shift`, as targets compute it.
    The last two, which are returned, are cheap to compute again of saved statistics. With fewer channels than `blocks`
    a target's layout, and so its kernel, may differ from half to half. A norm of one value a channel stays whole: what
    it gives is beta, which a rounded shift would hide."""
    found: dict[Value, Value] = {}
    affine: set[Node] = set()
    builder = Builder(graph)
    nodes, graph.nodes = graph.nodes, []
    for node in nodes:
        x = node.inputs[0] if node.inputs else None
        if x is None or node.op.name != "batch_norm_training" or x.type.element is not f32 or x.shape[1] < blocks \
                or not 3 <= x.type.rank <= 5 or x.type.size in (0, x.shape[1]):
            graph.nodes.append(node)
            continue
        builder.origin = node.origin
        mean, variance = builder.node("batch_norm_statistics", [x], {}).outputs
        factors = builder.node("batch_norm_factors", [*node.inputs[1:], mean, variance],
                               {"epsilon": node.attrs["epsilon"]})
        y = builder.scale_shift(x, *factors.outputs)
        affine |= {factors, y.node}
        found |= dict(zip(node.outputs, (y, mean, variance), strict=True))
    graph.replace(found)
    return affine


def _just_in_time(halves: Halves, stops: Collection[Value]) -> list[Node]:
    """Return the nodes of the backward half, in order. Nodes of the first half that it computes again stand right
    before their values are read."""
    place = {node: number for number, node in enumerate(halves.graph.nodes)}
    order: dict[Node, None] = {}

    def compute(values: Iterable[Value]) -> None:
        again: set[Node] = set()
        stack = list(values)
        while stack:
            value = stack.pop()
            node = value.node
            if node is None or node not in halves.first or value in stops:
                continue
            if node not in again and node not in order:
                again.add(node)
                stack += node.inputs
        order.update(dict.fromkeys(sorted(again, key=place.__getitem__)))

    for node in halves.graph.nodes:
        if node not in halves.first:
            compute(node.inputs)
            order[node] = None
    compute(halves.results)
    return list(order)


Ops = list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Way:
    """How a value is saved otherwise: its shape then, the ops that lead there and those back."""

    shape: tuple[int, ...]
    there: Ops
    back: Ops


def _way(shape: tuple[int, ...], blocks: int) -> Way | None:
    """Return the way in which a value of this shape is saved; None where the value is saved as it is."""
    if not shape:
        return Way((1,), [("reshape", {"shape": (1,)})], [("reshape", {"shape": ()})])
    if blocks == 1 or not 3 <= len(shape) <= 4 or shape[1] % blocks:
        return None
    cut, axes = (shape[0], shape[1] // blocks, blocks, *shape[2:]), range(3, len(shape) + 1)
    order, back = (0, 1, *axes, 2), (0, 1, len(shape), *(axis - 1 for axis in axes))
    return Way(tuple(cut[axis] for axis in order),
               [("reshape", {"shape": cut}), ("transpose", {"order": order})],
               [("transpose", {"order": back}), ("reshape", {"shape": shape})])


def _images(nodes: list[Node]) -> set[Value]:
    """Return the results of convolutions, pools and batch norms, and of elementwise ops and concatenations of such
    results."""
    found: set[Value] = set()
    for node in nodes:
        made = node.op.kind in ("convolution", "pool") or node.op.name == "batch_norm_training"
        keeps = node.op.elementwise or node.op.name == "concat" or (
            bool(node.inputs) and node.inputs[0].type == node.outputs[0].type)
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


def _read_as(graph: Graph, ways: Mapping[Value, Way]) -> None:
    """These parameters come otherwise; the ops that lead back stand first."""
    back: list[Node] = []
    found: dict[Value, Value] = {}
    for number, parameter in enumerate(graph.parameters):
        way = ways.get(parameter)
        if way is not None:
            wide = Value(TensorType(parameter.type.element, way.shape), name=parameter.name, role=parameter.role)
            back += (nodes := _chain(wide, way.back))
            found[parameter] = nodes[-1].output
            graph.parameters[number] = wide
    graph.replace(found)
    graph.nodes[:0] = back
