"""The plan of a placed graph, as text, JSON and pictures."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from ngraph_mxnet.errors import PackageError
from ngraph_mxnet.package import decode_graph, encode_graph
from ngraph_mxnet.package.pack import count
from ngraph_mxnet.placement.extraction import Outline
from ngraph_mxnet.placement.plan.plan_data import PlanData
from ngraph_mxnet.placement.problem import Crossing, Item, Problem, Tensor
from ngraph_mxnet.placement.search import Placement, Region, Schedule, Span
from ngraph_mxnet.rendered import Rendered


class Plan(Rendered, PlanData):
    """See `docs/hybrid.md`."""

    width = 120

    def __rich__(self) -> Any:
        from ngraph_mxnet.placement.plan.plan_table import render

        return render(self)

    def svg(self) -> str:
        """A picture of the placed graph."""
        from ngraph_mxnet.placement.plan.picture import graph_picture

        return graph_picture(self)

    def timeline_svg(self) -> str:
        """A picture of the predicted schedule."""
        from ngraph_mxnet.placement.plan.picture import timeline_picture

        return timeline_picture(self)


def encode_plan(plan: Plan) -> dict[str, Any]:
    """Plain data (see `package.pack`)."""
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
    }


def decode_plan(found: Any) -> Plan:
    """Return the plan that `encode_plan` encoded.

    Raises:
        PackageError: it is something else.
    """
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
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise PackageError(f"these are no data of a plan: {error!r}") from error
    return plan


def _span(found: Any) -> Span:
    what, begin, end = found
    return Span(Crossing(*what) if isinstance(what, tuple) else what, begin, end)


def _tuples(value: Any) -> Any:
    """With tuples for the lists that packing makes of them."""
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value
