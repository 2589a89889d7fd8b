"""From a graph and some backends to a placement problem: what may go where, and what passes between."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ngraph_mxnet.base.errors import ConfigError, UnsupportedError
from ngraph_mxnet.ir.graph import Extract, Graph, Node, Value, extract, neighbourhood
from ngraph_mxnet.ir.module import Changes, Derivation, Flow, Module, Modules, Shared
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.program.backend import Backend, DeviceCosts
from ngraph_mxnet.targets.hybrid.search import HOST, Item, Problem, Region, Tensor

Reasons = tuple[str | None, ...]
"""Why each device does not run something; None where it does."""


@dataclass(frozen=True)
class Outline:
    """A graph as a problem. `nodes[i]` is item i, `values[t]` tensor t; `reasons` and `pins` are the items'.

    `prepared` are the nodes that depend on weights and constants only: they are computed once, in each region that
    reads them, and cost a call nothing.
    """

    graph: Graph
    nodes: tuple[Node, ...]
    values: tuple[Value, ...]
    prepared: frozenset[Node]
    reasons: tuple[Reasons, ...]
    pins: tuple[int | None, ...]
    problem: Problem
    unmatched: tuple[str, ...]
    """Patterns of pins that no node's name matches."""


def outline(graph: Graph, backends: Sequence[Backend], costs: Sequence[DeviceCosts],
            pins: Mapping[str, str], *, memories: tuple[int, ...], unfit: Sequence[Mapping[Node, str]] = ()) -> Outline:
    """The problem of placing `graph`, which has no dead nodes, on devices.

    Args:
        pins: device by a pattern of `fnmatch` for a node's name or origin; the last that matches counts.
        memories: a number for the memory of each device, in which its tensors lie.
        unfit: of each device, why nodes should not run there although it can: unless they are pinned there, or no
            other can.

    Raises:
        UnsupportedError: no device runs a node, or the one to which it is pinned does not.
        ConfigError: a pin names another device.
    """
    names = tuple(backend.name for backend in backends)
    for pattern, device in pins.items():
        if device.upper() not in _known(names):
            raise ConfigError(f"{pattern!r} is pinned to {device!r}, expected one of {', '.join(names)}")
    derivation = Derivation()
    prepared = {node for node in graph.nodes if derivation.of_node(node) is not Changes.WITH_CALLS}
    nodes = tuple(node for node in graph.nodes if node not in prepared)
    verdicts = _verdicts(graph, backends, prepared)
    pinned, used = [], set()
    for node in nodes:
        found = [pattern for pattern in (pin_on(origin, pins) for origin in origins(node)) if pattern is not None]
        used.update(found)
        pinned.append(_known(names)[pins[found[-1]].upper()] if found else None)
    items = []
    for node, pin in zip(nodes, pinned, strict=True):
        reasons = verdicts[node]
        if None not in reasons or (pin is not None and reasons[pin] is not None):
            raise UnsupportedError(f"{_refusal(node, reasons, names, pin)}\n{neighbourhood(graph, node)}")
        for here, why in enumerate(unfit):
            if node in why and pin != here and None in (*reasons[:here], *reasons[here + 1:]):
                reasons = verdicts[node] = (*reasons[:here], reasons[here] or why[node], *reasons[here + 1:])
        seconds = [costs[device].seconds(node) if reason is None and pin in (None, device) else math.inf
                   for device, reason in enumerate(reasons)]
        items.append(Item(_name(node), tuple(seconds)))
    values, tensors = _tensors(graph, nodes, prepared, costs, memories)
    problem = Problem(tuple(items), tensors, tuple(device.launch for device in costs), names)
    return Outline(graph, nodes, values, frozenset(prepared), tuple(verdicts[node] for node in nodes), tuple(pinned),
                   problem, tuple(pattern for pattern in pins if pattern not in used))


def _verdicts(graph: Graph, backends: Sequence[Backend], prepared: set[Node]) -> dict[Node, Reasons]:
    """Return each backend's reason not to run each node. A backend that runs a node also prepares the node's
    weights."""
    found: dict[Node, Reasons] = {}
    for node in graph.nodes:
        own = [backend.supports(node) for backend in backends]
        for value in node.inputs:
            if value.node in prepared:
                behind = found[value.node]
                own = [reason if reason is not None or weight is None else f"it reads weights of {value.node}: {weight}"
                       for reason, weight in zip(own, behind, strict=True)]
        found[node] = tuple(own)
    return found


def _tensors(graph: Graph, nodes: Sequence[Node], prepared: set[Node], costs: Sequence[DeviceCosts],
             memories: tuple[int, ...]) -> tuple[tuple[Value, ...], tuple[Tensor, ...]]:
    """Return the values and tensors that items read or make, weights aside."""
    number = {node: place for place, node in enumerate(nodes)}
    readers: dict[Value, list[int]] = {}
    for value in graph.values():
        if value.role is Role.INPUT or value.node in number:
            readers[value] = []
    for node in nodes:
        for value in dict.fromkeys(node.inputs):
            if value in readers:
                readers[value].append(number[node])
    results = set(graph.results)
    tensors = []
    for value, items in readers.items():
        copy, leaving = (tuple(way(value.type) if way else 0.0 for way in ways) for ways in (
            [device.transfer for device in costs], [device.leaving or device.transfer for device in costs]))
        producer = number[value.node] if value.node is not None else None
        tensors.append(Tensor(value.name or (_name(value.node) if value.node else ""), producer, tuple(items),
                              value.type.bytes, copy, value in results and producer is not None, leaving, memories))
    return tuple(readers), tuple(tensors)


def _known(names: Sequence[str]) -> dict[str, int]:
    """Devices by name; by that of the backend alone where no other has it."""
    short = [name.upper().split(":")[0] for name in names]
    table = {name: device for device, name in enumerate(short) if short.count(name) == 1}
    return table | {name.upper(): device for device, name in enumerate(names)}


def _name(node: Node) -> str:
    """Return the framework's name of the first node that this one was made of; without one, the name of the op."""
    return _framework_name(origins(node)[0]) if node.origin else node.op.name


def _framework_name(origin: str) -> str:
    """`conv0` of `mx:conv0 Convolution`."""
    return origin.partition(":")[2].partition(" ")[0] or origin


def origins(node: Node) -> list[str]:
    """The framework's names of all that passes made the node of."""
    return node.origin.split(" + ") if node.origin else []


def pin_on(origin: str, pins: Mapping[str, str]) -> str | None:
    """The last pattern that matches a node's origin, or the name in it."""
    found = [p for p in pins if fnmatchcase(_framework_name(origin), p) or fnmatchcase(origin, p)]
    return found[-1] if found else None


def _refusal(node: Node, reasons: Reasons, names: Sequence[str], pin: int | None) -> str:
    devices = range(len(names)) if pin is None else (pin,)
    texts = "; ".join(f"{names[device]}: {reasons[device]}" for device in devices)
    pinned = ", to which it is pinned," if pin is not None else ""
    return f"backend HYBRID does not run {node}: {'no device' if pin is None else names[pin]}{pinned} can. {texts}"


@dataclass(frozen=True)
class Regions:
    """A graph for each region, and the device of each step."""

    module: Module
    devices: tuple[int, ...]

    def on(self, device: int) -> Module:
        """The steps of one device: the inputs are what others make or the caller gives, the results what others read.
        """
        flow, graphs = self.module.flow, self.module.graphs
        own = tuple(step for step, on in zip(flow.steps, self.devices, strict=True) if on == device)
        made = dict.fromkeys(value for step in own for value in step.outputs)
        read = dict.fromkeys(value for step in own for value in step.inputs if value not in made)
        others = {value for step in flow.steps if step not in own for value in step.inputs} | set(flow.results)
        wanted = tuple(value for value in made if value in others)
        return Module(f"{self.module.name}_{device}", {step.graph: graphs[step.graph] for step in own},
                      Flow(tuple(read), own, wanted, tuple(value.name for value in wanted)))

    def near(self, device: int, memories: Sequence[int]) -> frozenset[str]:
        """The values between this device and others that only devices with the same memory make and read."""
        flow, users = self.module.flow, dict[Shared, set[int]]()
        for value in (*flow.inputs, *flow.results):
            users.setdefault(value, set()).add(HOST)
        for step, on in zip(flow.steps, self.devices, strict=True):
            for value in (*step.inputs, *step.outputs):
                users.setdefault(value, set()).add(on)
        return frozenset(value.name for value, own in users.items()
                         if len(own) > 1 and all(memories[each] == memories[device] for each in own))


def extract_regions(outline: Outline, regions: Sequence[Region]) -> Regions:
    """Each region, with a copy of what prepares its weights; first what only prepared nodes make for the results."""
    graph, modules = outline.graph, Modules(outline.graph)
    made = tuple(value for value in dict.fromkeys(graph.results) if value.node in outline.prepared)
    if made:
        name = f"{graph.name}_weights"
        modules.add(name, _extract(name, outline, set(), made), made)
    for number, region in enumerate(regions):
        nodes = [outline.nodes[item] for item in region.items]
        own = set(nodes)
        outside = {value for node in graph.nodes if node not in own for value in node.inputs} | set(graph.results)
        outputs = tuple(value for node in nodes for value in node.outputs if value in outside)
        name = f"{graph.name}_{region.device}_{number}"
        modules.add(name, _extract(name, outline, own, outputs), outputs)
    return Regions(modules.build(), (*[HOST] * bool(made), *(region.device for region in regions)))


def whole_region(graph: Graph, device: int) -> Regions:
    """The whole graph, all its parameters too, as the only region."""
    own, modules = graph.clone(), Modules(graph)  # what is compiled may be rewritten
    both = dict.fromkeys(pair for pair in zip(graph.results, own.results, strict=True) if pair[0].node is not None)
    own.results = [result for _, result in both]
    modules.add(graph.name, Extract(own, tuple(graph.parameters)), [result for result, _ in both])
    return Regions(modules.build(), (device,))


def _extract(name: str, outline: Outline, own: Collection[Node], outputs: tuple[Value, ...]) -> Extract:
    """With a copy of what prepares its weights."""
    inside = outline.prepared.union(own)
    return extract(outline.graph, outputs, (value for value in outline.graph.values() if value.node not in inside),
                   name=name, label=lambda value, number: value.name or f"value{number}")
