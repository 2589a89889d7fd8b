"""Pictures of a plan, as SVG: the placed graph in layers, and the predicted schedule."""

from __future__ import annotations

from xml.sax.saxutils import escape

from ngraph_mxnet.drawing import MARGIN, Box, Edge, Look, picture, svg, text
from ngraph_mxnet.placement.plan.plan_data import PlanData, time_text
from ngraph_mxnet.placement.plan.plan_table import costs_text, headline
from ngraph_mxnet.placement.verdicts.render import short

_COLOURS = ("#bcd9f5", "#f9cfa0", "#cde8c4", "#e3d0f0")
_BORDERS = ("#2f6ca8", "#b36a12", "#3f7f35", "#7a4a9c")
_TOP = 62


def graph_picture(plan: PlanData) -> str:
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
    looks = [Look(_COLOURS[device % len(_COLOURS)], _BORDERS[device % len(_BORDERS)], name)
             for device, name in enumerate(plan.devices)]
    boxes = []
    for node in plan.nodes:
        times = ", ".join(f"{name} {'-' if seconds is None else time_text(seconds)}"
                          for name, seconds in zip(plan.devices, node.seconds, strict=True))
        boxes.append(Box(f"{node.region + 1}: {node.op}", node.name, looks[node.device],
                         f"{node.name} ({node.op}) on {plan.devices[node.device]}\n{times}\n{node.why}"))
    return picture(boxes, list(edges.values()), headline(plan), [_times(plan)],
                   "crosses from one device to another" if crossing else "")


def _type_of(plan: PlanData, producer: int, reader: int) -> str:
    """That of the first value that the one node reads of the other."""
    made = plan.outline.nodes[producer].outputs
    return next((str(value.type) for value in plan.outline.nodes[reader].inputs if value in made), "")


def timeline_picture(plan: PlanData) -> str:
    """The predicted schedule: a lane for each device, and one for each way to a device."""
    host, *others = plan.devices
    lanes = [host, *(f"to {name}" for name in others), f"to {host}", *others]
    left, right, lane, total = 110, 900, 44, plan.seconds or 1.0
    body = [text(MARGIN, 22, f"Predicted schedule of a call: {time_text(plan.seconds)}", 14, "title"),
            text(MARGIN, 40, costs_text(plan), 12)]

    def bar(row: int, begin: float, end: float, device: int, label: str, title: str) -> None:
        x, wide = left + begin / total * (right - left), max((end - begin) / total * (right - left), 0.5)
        y = _TOP + row * lane
        body.append(f'<g><title>{escape(title)}</title><rect x="{x:.2f}" y="{y}" width="{wide:.2f}" height="30" '
                    f'fill="{_COLOURS[device % len(_COLOURS)]}" stroke="{_BORDERS[device % len(_BORDERS)]}"/>')
        if wide > 7 * len(label):
            body.append(text(x + 4, y + 20, label, 12))
        body.append("</g>")

    for row, name in enumerate(lanes):
        body.append(text(MARGIN, _TOP + row * lane + 20, name, 12))
    for number, region in enumerate(plan.regions, 1):
        ops = ", ".join(f"{op} x{count}" for op, count in region.ops.items())
        took = f"{time_text(region.begin)} to {time_text(region.end)}"
        lane_of = lanes.index(plan.devices[region.device])
        bar(lane_of, region.begin, region.end, region.device, str(number), f"region {number}, {took}: {ops}")
    for transfer in plan.transfers:
        took = time_text(transfer.end - transfer.begin) if transfer.copied else "shared, not copied"
        bar(lanes.index(f"to {plan.devices[transfer.to]}"), transfer.begin, transfer.end, transfer.to, "",
            f"{transfer.name} to {plan.devices[transfer.to]}, {short(transfer.bytes)}B: {took}")
    bottom = _TOP + len(lanes) * lane
    for tick in range(5):
        x = left + tick / 4 * (right - left)
        body.append(f'<line x1="{x:.0f}" y1="{_TOP - 6}" x2="{x:.0f}" y2="{bottom}" stroke="#cccccc"/>')
        body.append(text(x - 16, bottom + 16, time_text(plan.seconds * tick / 4), 11))
    return svg(right + 60, bottom + 30, body)


def _times(plan: PlanData) -> str:
    alone = ", ".join(f"all on {name} {time_text(seconds)}" if seconds != float("inf") else f"{name} can't run all"
                      for name, seconds in zip(plan.devices, plan.alone, strict=True))
    return f"predicted {time_text(plan.seconds)}; {alone} ({costs_text(plan)})"
