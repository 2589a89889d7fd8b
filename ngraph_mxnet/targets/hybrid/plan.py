"""The plan of a placed graph, as facts and pictures: what runs where and why, what crosses, what it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any, ClassVar
from xml.sax.saxutils import escape as xml_escape

from ngraph_mxnet.base.drawing import MARGIN, Box, Edge, Look, picture, svg, text
from ngraph_mxnet.base.errors import PackageError
from ngraph_mxnet.base.rendered import Facts, finite, numbered, short, time_text
from ngraph_mxnet.ir.graph import Cost, count_ops, node_cost
from ngraph_mxnet.program.package import count, decode_graph, encode_graph
from ngraph_mxnet.targets.hybrid.extraction import Outline
from ngraph_mxnet.targets.hybrid.search import (
    Crossing,
    Item,
    Placement,
    Problem,
    Region,
    Schedule,
    Seconds,
    Span,
    Tensor,
)
from ngraph_mxnet.targets.hybrid.throughput import Throughput


@dataclass(frozen=True)
class PlacedNode:
    """One node. `seconds` predicted on each device, None where it can't run; `why` it is on `device`, for people."""

    name: str
    op: str
    origin: str
    device: str
    region: int
    seconds: tuple[float | None, ...]
    why: str


@dataclass(frozen=True)
class PlacedRegion(Facts):
    """Nodes that run as one, from `begin` to `end` in predicted seconds. `simulated_seconds`: on a simulated device, as
    it was compiled, its transfers among them; on a measured one, of its kernels."""

    device: str
    nodes: tuple[int, ...]
    ops: dict[str, int]
    cost: Cost
    begin: float
    end: float
    simulated_seconds: float | None = None

    renamed: ClassVar[Mapping[str, str | None]] = {"cost": ""}

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Transfer:
    """A tensor that another device reads. `copied`: else both address it, and `saved_seconds` of a copy are not
    spent."""

    name: str
    to: str
    bytes: int
    begin: float
    end: float
    copied: bool
    saved_seconds: float


class Plan(Facts):
    """The plan of a placed graph; see `docs/hybrid.md`.

    `kinds`: whether the costs of each device are modelled, measured or simulated."""

    def __init__(self, outline: Outline, placement: Placement, kinds: tuple[str, ...]) -> None:
        self.outline = outline
        self.placement = placement
        self.kinds = kinds
        self.devices = outline.problem.devices
        self.simulated: dict[int, float] = {}
        """Seconds of regions; see `PlacedRegion.simulated_seconds`."""
        self.simulated_seconds: float | None = None
        """Of a call as it was compiled, regions on other devices as predicted; None where nothing was simulated."""
        self.throughput: Throughput | None = None
        """Told where it is asked for."""

    @property
    def seconds(self) -> float:
        """Predicted for a call."""
        return self.placement.seconds

    @property
    def memories(self) -> tuple[int, ...]:
        """A number for the memory that each device addresses."""
        tensors = self.outline.problem.tensors
        return tensors[0].memories if tensors and tensors[0].memories else tuple(range(len(self.devices)))

    @property
    def alone(self) -> Seconds:
        """Predicted with everything on one device; infinite where it does not run everything."""
        return self.placement.alone

    @property
    def overlaps(self) -> bool:
        """True if regions of several devices work at once."""
        ends = 0.0
        for region in sorted(self.regions, key=lambda r: (r.begin, r.end)):
            if region.begin < ends:
                return True
            ends = max(ends, region.end)
        return False

    @property
    def regions(self) -> tuple[PlacedRegion, ...]:
        spans = {span.what: span for span in self.placement.schedule.spans}
        found = []
        for number, region in enumerate(self.placement.regions):
            nodes = [self.outline.nodes[item] for item in region.items]
            cost = sum(map(node_cost, nodes), Cost())
            found.append(PlacedRegion(self.devices[region.device], region.items, count_ops(nodes), cost,
                                      spans[number].begin, spans[number].end, self.simulated.get(number)))
        return tuple(found)

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        spans = {span.what: span for span in self.placement.schedule.spans}
        problem = self.outline.problem
        found = []
        for crossing in problem.crossings(self.placement.devices):
            tensor, span = problem.tensors[crossing.tensor], spans[crossing]
            copied, saved = problem.crossing_seconds(crossing) > 0, tensor.copy_seconds(crossing.here, crossing.to)
            found.append(Transfer(tensor.name, self.devices[crossing.to], tensor.bytes, span.begin, span.end, copied,
                                  0.0 if copied else saved))
        return tuple(sorted(found, key=lambda transfer: transfer.begin))

    @cached_property
    def nodes(self) -> tuple[PlacedNode, ...]:
        region_of = {item: number for number, region in enumerate(self.placement.regions) for item in region.items}
        found = []
        for item, node in enumerate(self.outline.nodes):
            seconds = [s if math.isfinite(s) else None for s in self.outline.problem.items[item].seconds]
            found.append(PlacedNode(self.outline.problem.items[item].name, node.op.name, node.origin,
                                    self.devices[self.placement.devices[item]], region_of[item], tuple(seconds),
                                    self._why(item)))
        return tuple(found)

    def _why(self, item: int) -> str:
        here = self.placement.devices[item]
        if self.outline.pins[item] is not None:
            return "pinned by the user"
        seconds = self.outline.problem.items[item].seconds
        others = [device for device in range(len(seconds)) if device != here]
        reasons = [(self.devices[device], self.outline.reasons[item][device]) for device in others]
        if all(reason is not None for _, reason in reasons):
            return "; ".join(f"{name} does not run it: {reason}" for name, reason in reasons)
        other = min(others, key=seconds.__getitem__)
        name = self.devices[other]
        if set(self.placement.devices) == {here}:
            return f"all on {self.devices[here]} is fastest"
        if seconds[here] <= seconds[other]:
            return "faster here" if seconds[here] < seconds[other] else "as fast here"
        moved = list(self.placement.devices)
        moved[item] = other
        problem = self.outline.problem
        more = problem.serial_seconds(moved) - problem.serial_seconds(self.placement.devices)
        if more > 0:
            return f"faster on {name}, but with what crosses then the call would take {time_text(more)} more"
        if self.simulated_seconds is not None:
            return f"faster on {name} by itself, but a call was no shorter as compiled"
        return f"faster on {name}, which is busy meanwhile"

    @property
    def shared(self) -> dict[str, float]:
        """The transfers that are none, as both devices address the tensors: how many, their bytes, and the seconds that
        copies would take."""
        found = [transfer for transfer in self.transfers if not transfer.copied]
        return {"tensors": len(found), "bytes": sum(one.bytes for one in found),
                "seconds": sum(one.saved_seconds for one in found)}

    @property
    def facts(self) -> dict[str, Any]:
        """For JSON. Times are in seconds, predicted; `alone` is null where a device does not run everything."""
        return {"devices": self.devices, "costs": self.kinds, "predicted_seconds": self.seconds,
                "simulated_seconds": self.simulated_seconds,
                "alone_seconds": finite(self.alone), "serial_seconds": self.placement.serial,
                "method": self.placement.method, "unmatched_pins": self.outline.unmatched,
                **({} if self.throughput is None else {"throughput": self.throughput})}

    renamed: ClassVar[Mapping[str, str | None]] = {"facts": ""}
    derived = ("facts", "nodes", "regions", "transfers", "shared")
    layout = "placement"

    @property
    def headline(self) -> str:
        """One line: how many nodes and regions on each device."""
        def on(name: str, noun: str, parts: Sequence[PlacedNode | PlacedRegion]) -> str:
            return numbered(sum(part.device == name for part in parts), noun)

        return ", ".join(f"{on(name, 'node', self.nodes)} on {name} in {on(name, 'region', self.regions)}"
                         for name in self.devices)

    @property
    def told_costs(self) -> str:
        """The kind of each device's costs, as text."""
        return "; ".join(f"{name}'s costs are {kind}" for name, kind in zip(self.devices, self.kinds, strict=True))

    def svg(self) -> str:
        """A picture of the placed graph."""
        return graph_picture(self)

    def timeline_svg(self) -> str:
        """A picture of the predicted schedule."""
        return timeline_picture(self)


_COLOURS = ("#bcd9f5", "#f9cfa0", "#cde8c4", "#e3d0f0")
_BORDERS = ("#2f6ca8", "#b36a12", "#3f7f35", "#7a4a9c")
_TOP = 62


def graph_picture(plan: Plan) -> str:
    """The nodes in layers, each below all that it reads; colours tell the device, numbers the region. Bold edges cross
    from one device to another."""
    problem = plan.outline.problem
    crossing = {(c.tensor, c.to) for c in problem.crossings(plan.placement.devices)}
    edges = {}
    for number, tensor in enumerate(problem.tensors):
        for reader in tensor.readers if tensor.producer is not None else ():
            assert tensor.producer is not None
            crosses = (number, plan.placement.devices[reader]) in crossing
            edges[tensor.producer, reader] = Edge(
                tensor.producer, reader, _type_of(plan, tensor.producer, reader),
                f"{tensor.name}: {short(tensor.bytes)}B", crosses)
    looks = {name: Look(_COLOURS[device % len(_COLOURS)], _BORDERS[device % len(_BORDERS)], name)
             for device, name in enumerate(plan.devices)}
    boxes = []
    for node in plan.nodes:
        times = ", ".join(f"{name} {'-' if seconds is None else time_text(seconds)}"
                          for name, seconds in zip(plan.devices, node.seconds, strict=True))
        boxes.append(Box(f"{node.region + 1}: {node.op}", node.name, looks[node.device],
                         f"{node.name} ({node.op}) on {node.device}\n{times}\n{node.why}"))
    return picture(boxes, list(edges.values()), plan.headline, [_times_line(plan)],
                   "crosses from one device to another" if crossing else "")


def _type_of(plan: Plan, producer: int, reader: int) -> str:
    """That of the first value that the one node reads of the other."""
    made = plan.outline.nodes[producer].outputs
    return next((str(value.type) for value in plan.outline.nodes[reader].inputs if value in made), "")


def timeline_picture(plan: Plan) -> str:
    """The predicted schedule: a lane for each device, and one for each way to a device."""
    host, *others = plan.devices
    lanes = [host, *(f"to {name}" for name in others), f"to {host}", *others]
    left, right, lane, total = 110, 900, 44, plan.seconds or 1.0
    body = [text(MARGIN, 22, f"Predicted schedule of a call: {time_text(plan.seconds)}", 14, "title"),
            text(MARGIN, 40, plan.told_costs, 12)]

    def bar(row: int, begin: float, end: float, of: str, label: str, title: str) -> None:
        device = plan.devices.index(of)
        x, wide = left + begin / total * (right - left), max((end - begin) / total * (right - left), 0.5)
        y = _TOP + row * lane
        body.append(f'<g><title>{xml_escape(title)}</title><rect x="{x:.2f}" y="{y}" width="{wide:.2f}" height="30" '
                    f'fill="{_COLOURS[device % len(_COLOURS)]}" stroke="{_BORDERS[device % len(_BORDERS)]}"/>')
        if wide > 7 * len(label):
            body.append(text(x + 4, y + 20, label, 12))
        body.append("</g>")

    for row, name in enumerate(lanes):
        body.append(text(MARGIN, _TOP + row * lane + 20, name, 12))
    for number, region in enumerate(plan.regions, 1):
        ops = ", ".join(f"{op} x{count}" for op, count in region.ops.items())
        took = f"{time_text(region.begin)} to {time_text(region.end)}"
        bar(lanes.index(region.device), region.begin, region.end, region.device, str(number),
            f"region {number}, {took}: {ops}")
    for transfer in plan.transfers:
        took = time_text(transfer.end - transfer.begin) if transfer.copied else "shared, not copied"
        bar(lanes.index(f"to {transfer.to}"), transfer.begin, transfer.end, transfer.to, "",
            f"{transfer.name} to {transfer.to}, {short(transfer.bytes)}B: {took}")
    bottom = _TOP + len(lanes) * lane
    for tick in range(5):
        x = left + tick / 4 * (right - left)
        body.append(f'<line x1="{x:.0f}" y1="{_TOP - 6}" x2="{x:.0f}" y2="{bottom}" stroke="#cccccc"/>')
        body.append(text(x - 16, bottom + 16, time_text(plan.seconds * tick / 4), 11))
    return svg(right + 60, bottom + 30, body)


def _times_line(plan: Plan) -> str:
    alone = ", ".join(f"all on {name} {time_text(seconds)}" if seconds != float("inf") else f"{name} can't run all"
                      for name, seconds in zip(plan.devices, plan.alone, strict=True))
    return f"predicted {time_text(plan.seconds)}; {alone} ({plan.told_costs})"


def encode_plan(plan: Plan) -> dict[str, Any]:
    """Plain data (see `package.package.pack`)."""
    outline = plan.outline
    nodes = {node: number for number, node in enumerate(outline.graph.nodes)}
    values = {value: number for number, value in enumerate(outline.graph.values())}
    return {
        "graph": encode_graph(outline.graph),
        "nodes": [nodes[node] for node in outline.nodes],
        "values": [values[value] for value in outline.values],
        "prepared": sorted(nodes[node] for node in outline.prepared),
        "reasons": outline.reasons,
        "pins": outline.pins,
        "problem": astuple(outline.problem),
        "unmatched": outline.unmatched,
        "placement": astuple(plan.placement),
        "kinds": plan.kinds,
        "simulated": list(plan.simulated.items()),
        "simulated_seconds": plan.simulated_seconds,
    }


def decode_plan(found: Any) -> Plan:
    """Return the plan that `encode_plan` encoded. Raises PackageError: it is something else."""
    graph = decode_graph(found["graph"] if isinstance(found, dict) else None)
    try:
        items, tensors, launch, devices = _tuples(found["problem"])
        problem = Problem(tuple(Item(*item) for item in items), tuple(Tensor(*tensor) for tensor in tensors), launch,
                          devices)
        placed, (regions, spans, end), method, alone, serial = _tuples(found["placement"])
        schedule = Schedule(tuple(Region(*region) for region in regions), tuple(map(_span, spans)), end)
        values = list(graph.values())
        outline = Outline(graph, tuple(graph.nodes[count(number)] for number in found["nodes"]),
                          tuple(values[count(number)] for number in found["values"]),
                          frozenset(graph.nodes[count(number)] for number in found["prepared"]),
                          _tuples(found["reasons"]), _tuples(found["pins"]), problem, _tuples(found["unmatched"]))
        placed_items = sorted(item for region in schedule.regions for item in region.items)
        spans = {span.what for span in schedule.spans}
        if len(placed) != len(problem.items) or placed_items != list(range(len(placed))) or spans != {
                *range(len(schedule.regions)), *problem.crossings(placed)}:
            raise ValueError("its schedule is not of its items")
        plan = Plan(outline, Placement(placed, schedule, method, alone, serial), _tuples(found["kinds"]))
        plan.simulated.update(dict(found["simulated"]))
        plan.simulated_seconds = found["simulated_seconds"]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise PackageError(f"these are no data of a plan: {error!r}") from error
    return plan


def _span(found: Any) -> Span:
    what, begin, end = found
    return Span(Crossing(*what) if isinstance(what, tuple) else what, begin, end)


def _tuples(value: Any) -> Any:
    """With tuples for the lists that packing makes of them."""
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value
