"""The plan of a placed graph: what runs where and why, what crosses, what it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ngraph_mxnet.ir.graph import Cost, count_ops, node_cost
from ngraph_mxnet.placement.extraction import Outline
from ngraph_mxnet.placement.problem import Seconds
from ngraph_mxnet.placement.search import Placement


@dataclass(frozen=True)
class PlacedNode:
    """One node. `seconds` predicted on each device, None where it can't run; `why` it is on `device`, for people."""

    name: str
    op: str
    origin: str
    device: int
    region: int
    seconds: tuple[float | None, ...]
    why: str


@dataclass(frozen=True)
class PlacedRegion:
    """Nodes that run as one, from `begin` to `end` in predicted seconds."""

    device: int
    nodes: tuple[int, ...]
    ops: dict[str, int]
    cost: Cost
    begin: float
    end: float


@dataclass(frozen=True)
class Transfer:
    """A tensor that another device reads. `copied`: else all address it, and `saved` seconds of a copy are not
    spent."""

    name: str
    to: int
    bytes: int
    begin: float
    end: float
    copied: bool
    saved: float


class PlanData:
    """`kinds`: whether the costs of each device are modelled, measured or simulated."""

    def __init__(self, outline: Outline, placement: Placement, kinds: tuple[str, ...]) -> None:
        self.outline = outline
        self.placement = placement
        self.kinds = kinds
        self.devices = outline.problem.devices
        self.simulated: dict[int, float] = {}
        """Seconds of each region on a simulated device, as it was compiled; its transfers are among them."""

    @property
    def seconds(self) -> float:
        """Predicted for a call."""
        return self.placement.seconds

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

    @cached_property
    def regions(self) -> tuple[PlacedRegion, ...]:
        spans = {span.what: span for span in self.placement.schedule.spans}
        found = []
        for number, region in enumerate(self.placement.regions):
            nodes = [self.outline.nodes[item] for item in region.items]
            cost = sum(map(node_cost, nodes), Cost())
            found.append(PlacedRegion(region.device, region.items, count_ops(nodes), cost, spans[number].begin,
                                      spans[number].end))
        return tuple(found)

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        spans = {span.what: span for span in self.placement.schedule.spans}
        problem = self.outline.problem
        found = []
        for crossing in problem.crossings(self.placement.devices):
            tensor, span = problem.tensors[crossing.tensor], spans[crossing]
            copied, saved = problem.crossing_seconds(crossing) > 0, tensor.copy_seconds(crossing.here, crossing.to)
            found.append(Transfer(tensor.name, crossing.to, tensor.bytes, span.begin, span.end, copied,
                                  0.0 if copied else saved))
        return tuple(sorted(found, key=lambda transfer: transfer.begin))

    @cached_property
    def nodes(self) -> tuple[PlacedNode, ...]:
        region_of = {item: number for number, region in enumerate(self.placement.regions) for item in region.items}
        found = []
        for item, node in enumerate(self.outline.nodes):
            seconds = [s if math.isfinite(s) else None for s in self.outline.problem.items[item].seconds]
            found.append(PlacedNode(self.outline.problem.items[item].name, node.op.name, node.origin,
                                    self.placement.devices[item],
                                    region_of[item], tuple(seconds), self._why(item)))
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
        return f"faster on {name}, which is busy meanwhile"

    def to_dict(self) -> dict[str, Any]:
        """For JSON. Times are in seconds, predicted; `alone` is null where a device does not run everything."""
        return {
            "devices": list(self.devices),
            "costs": list(self.kinds),
            "predicted_seconds": self.seconds,
            "alone_seconds": [s if math.isfinite(s) else None for s in self.alone],
            "serial_seconds": self.placement.serial,
            "method": self.placement.method,
            "nodes": [{"name": n.name, "op": n.op, "origin": n.origin, "device": self.devices[n.device],
                       "region": n.region, "seconds": list(n.seconds), "why": n.why} for n in self.nodes],
            "regions": [{"device": self.devices[r.device], "nodes": list(r.nodes), "ops": r.ops, "macs": r.cost.macs,
                         "operations": r.cost.operations, "begin": r.begin, "end": r.end,
                         "simulated_seconds": self.simulated.get(n)} for n, r in enumerate(self.regions)],
            "transfers": [{"name": t.name, "to": self.devices[t.to], "bytes": t.bytes, "begin": t.begin, "end": t.end,
                           "copied": t.copied, "saved_seconds": t.saved} for t in self.transfers],
            "shared": {"tensors": sum(not t.copied for t in self.transfers),
                       "bytes": sum(t.bytes for t in self.transfers if not t.copied),
                       "seconds": sum(t.saved for t in self.transfers)},
            "unmatched_pins": list(self.outline.unmatched),
        }


def time_text(seconds: float) -> str:
    """3 significant digits with a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
