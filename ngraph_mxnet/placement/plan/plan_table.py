"""A plan as tables for people."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ngraph_mxnet.placement.plan.plan_data import PlacedNode, PlanData, time_text
from ngraph_mxnet.placement.verdicts.render import short

_MOST_OPS = 6


def render(plan: PlanData) -> RenderableType:
    """The times, the regions, what crosses, and where each node goes and why."""
    parts: list[RenderableType] = [Text(headline(plan), style="bold"), Text(costs_text(plan)), _times(plan)]
    if plan.regions:
        parts.append(_regions(plan))
    if plan.transfers:
        parts.append(_transfers(plan))
    if plan.nodes:
        parts.append(_nodes(plan))
    for pattern in plan.outline.unmatched:
        parts.append(Text(f"no node here is called {pattern!r}: that pin did nothing", style="yellow"))
    return Group(*parts)


def headline(plan: PlanData) -> str:
    """One line: how many nodes and regions on each device."""
    texts = []
    for device, name in enumerate(plan.devices):
        nodes = sum(node.device == device for node in plan.nodes)
        regions = sum(region.device == device for region in plan.regions)
        texts.append(f"{nodes} nodes on {name} in {regions} region{'' if regions == 1 else 's'}")
    return ", ".join(texts)


def costs_text(plan: PlanData) -> str:
    """Return the origin of the predicted times, as text: the kind of each device's costs."""
    return "; ".join(f"{name}'s costs are {kind}" for name, kind in zip(plan.devices, plan.kinds, strict=True))


def _times(plan: PlanData) -> Table:
    table = Table("predicted time of a call", "")
    table.add_row("as placed" + (", devices working at once" if plan.overlaps else ""), time_text(plan.seconds))
    for name, seconds in zip(plan.devices, plan.alone, strict=True):
        table.add_row(f"all on {name}", time_text(seconds) if math.isfinite(seconds) else "not possible")
    table.add_row("found by", plan.placement.method)
    return table


def _regions(plan: PlanData) -> Table:
    table = Table(title="Regions, in the order in which they begin", title_justify="left")
    for name in ("#", "device", "ops"):
        table.add_column(name)
    simulated = ("simulated as compiled",) if plan.simulated else ()
    for name in ("nodes", "MACs", "begin", "time", *simulated):
        table.add_column(name, justify="right", no_wrap=len(name) < 10)
    for number, region in enumerate(plan.regions, 1):
        ops = list(region.ops.items())
        shown = ", ".join(f"{op} x{count}" if count > 1 else op for op, count in ops[:_MOST_OPS])
        shown += f", and {len(ops) - _MOST_OPS} more kinds" if len(ops) > _MOST_OPS else ""
        table.add_row(str(number), plan.devices[region.device], escape(shown), str(len(region.nodes)),
                      short(region.cost.macs), time_text(region.begin), time_text(region.end - region.begin),
                      *([_simulated(plan, number - 1)] if simulated else []))
    if plan.simulated:
        table.caption = "as compiled: with the transfers of the region's inputs and results"
    return table


def _simulated(plan: PlanData, region: int) -> str:
    return time_text(plan.simulated[region]) if region in plan.simulated else ""


def _transfers(plan: PlanData) -> Table:
    table = Table(title="Between the devices", title_justify="left")
    for name in ("tensor", "to"):
        table.add_column(name)
    for name in ("bytes", "begin", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for transfer in plan.transfers:
        took = time_text(transfer.end - transfer.begin) if transfer.copied else "shared"
        table.add_row(escape(transfer.name), plan.devices[transfer.to], short(transfer.bytes),
                      time_text(transfer.begin), took)
    shared = [transfer for transfer in plan.transfers if not transfer.copied]
    if shared:
        table.caption = (f"{len(shared)} tensors of {short(sum(t.bytes for t in shared))}B lie in memory that all "
                         f"devices address: not copied, which saved {time_text(sum(t.saved for t in shared))}")
    return table


def _nodes(plan: PlanData) -> Table:
    """Neighbours of one device and reason are one row."""
    table = Table(title="Where each node goes", title_justify="left")
    for name in ("nodes", "device", *plan.devices, "why"):
        table.add_column(name)
    rows: list[list[PlacedNode]] = []
    for node in plan.nodes:
        if rows and _alike(rows[-1][0], node):
            rows[-1].append(node)
        else:
            rows.append([node])
    for nodes in rows:
        names = _named(nodes[0]) if len(nodes) == 1 else f"{_named(nodes[0])} to {_named(nodes[-1])} ({len(nodes)})"
        times = ["-" if None in column else time_text(sum(s for s in column if s is not None))
                 for column in zip(*(node.seconds for node in nodes), strict=True)]
        table.add_row(escape(names), plan.devices[nodes[0].device], *times, escape(nodes[0].why))
    return table


def _named(node: PlacedNode) -> str:
    return node.name if node.name == node.op else f"{node.name} {node.op}"


def _alike(one: PlacedNode, other: PlacedNode) -> bool:
    return (one.device, one.region, one.why) == (other.device, other.region, other.why)
