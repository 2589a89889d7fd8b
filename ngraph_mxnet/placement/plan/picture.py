"""Pictures of a plan, as SVG: the placed graph in layers, and the predicted schedule."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

from ngraph_mxnet.placement.plan.layers import arrange
from ngraph_mxnet.placement.plan.plan_data import PlanData, time_text
from ngraph_mxnet.placement.plan.plan_table import costs_text, headline
from ngraph_mxnet.placement.verdicts.render import short

_COLOURS = ("#bcd9f5", "#f9cfa0", "#cde8c4", "#e3d0f0")
_BORDERS = ("#2f6ca8", "#b36a12", "#3f7f35", "#7a4a9c")
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN, _TOP = 190, 38, 26, 34, 20, 62


def graph_picture(plan: PlanData) -> str:
    """The nodes in layers, each below all that it reads; colours tell the device, numbers the region. Thick edges cross
    from one device to another."""
    problem = plan.outline.problem
    layers = arrange(problem.sources)
    widths = [sum(map(_wide, row, [layers.count] * len(row))) for row in layers.rows]
    width = max([2 * _MARGIN + wide for wide in widths] + [640])
    height = _TOP + len(layers.rows) * (_HEIGHT + _GAP_Y) + _MARGIN
    middle: dict[int, tuple[float, float]] = {}
    for number, row in enumerate(layers.rows):
        x, y = (width - widths[number]) / 2, _TOP + number * (_HEIGHT + _GAP_Y) + _HEIGHT / 2
        for place in row:
            middle[place] = (x + _wide(place, layers.count) / 2, y)
            x += _wide(place, layers.count)
    body = [_text(_MARGIN, 22, headline(plan), 14, "bold"), _text(_MARGIN, 40, _times(plan), 12)]
    crossing = {(c.tensor, c.to) for c in problem.crossings(plan.placement.devices)}
    for number, tensor in enumerate(problem.tensors):
        for reader in tensor.readers if tensor.producer is not None else ():
            assert tensor.producer is not None
            crosses = (number, plan.placement.devices[reader]) in crossing
            points = [middle[place] for place in layers.paths[tensor.producer, reader]]
            body.append(_edge(points, crosses, f"{tensor.name}: {short(tensor.bytes)}B"))
    for item, node in enumerate(plan.nodes):
        x, y = middle[item][0] - _WIDTH / 2, middle[item][1] - _HEIGHT / 2
        times = ", ".join(f"{name} {'-' if seconds is None else time_text(seconds)}"
                          for name, seconds in zip(plan.devices, node.seconds, strict=True))
        title = f"{node.name} ({node.op}) on {plan.devices[node.device]}\n{times}\n{node.why}"
        body += [
            f"<g><title>{escape(title)}</title>",
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" '
            f'fill="{_COLOURS[node.device % len(_COLOURS)]}" stroke="{_BORDERS[node.device % len(_BORDERS)]}"/>',
            _text(x + 8, y + 16, _shortened(f"{node.region + 1}: {node.op}"), 12),
            _text(x + 8, y + 31, _shortened(node.name), 10), "</g>",
        ]
    return _svg(width, height, body)


def timeline_picture(plan: PlanData) -> str:
    """The predicted schedule: a lane for each device, and one for each way to a device."""
    host, *others = plan.devices
    lanes = [host, *(f"to {name}" for name in others), f"to {host}", *others]
    left, right, lane, total = 110, 900, 44, plan.seconds or 1.0
    body = [_text(_MARGIN, 22, f"Predicted schedule of a call: {time_text(plan.seconds)}", 14, "bold"),
            _text(_MARGIN, 40, costs_text(plan), 12)]

    def bar(row: int, begin: float, end: float, device: int, label: str, title: str) -> None:
        x, wide = left + begin / total * (right - left), max((end - begin) / total * (right - left), 0.5)
        y = _TOP + row * lane
        body.append(f'<g><title>{escape(title)}</title><rect x="{x:.2f}" y="{y}" width="{wide:.2f}" height="30" '
                    f'fill="{_COLOURS[device % len(_COLOURS)]}" stroke="{_BORDERS[device % len(_BORDERS)]}"/>')
        if wide > 7 * len(label):
            body.append(_text(x + 4, y + 20, label, 12))
        body.append("</g>")

    for row, name in enumerate(lanes):
        body.append(_text(_MARGIN, _TOP + row * lane + 20, name, 12))
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
        body.append(_text(x - 16, bottom + 16, time_text(plan.seconds * tick / 4), 11))
    return _svg(right + 60, bottom + 30, body)


def _times(plan: PlanData) -> str:
    alone = ", ".join(f"all on {name} {time_text(seconds)}" if seconds != float("inf") else f"{name} can't run all"
                      for name, seconds in zip(plan.devices, plan.alone, strict=True))
    return f"predicted {time_text(plan.seconds)}; {alone} ({costs_text(plan)})"


def _wide(place: int, nodes: int) -> int:
    """With the gap beside it: a node's box, or an edge that passes."""
    return _WIDTH + _GAP_X if place < nodes else _GAP_X


def _edge(points: Sequence[tuple[float, float]], crosses: bool, title: str) -> str:
    """From below the first point, straight down through the rows, to above the last."""
    look = 'stroke="#c03030" stroke-width="2.5"' if crosses else 'stroke="#777777" stroke-width="1"'
    half, bend = _HEIGHT / 2, _GAP_Y / 2
    path = f"M{points[0][0]:.0f},{points[0][1] + half:.0f}"
    for (x, y), (to_x, to_y) in pairwise(points):
        down, up = y + half, to_y - half
        path += f" L{x:.0f},{down:.0f} C{x:.0f},{down + bend:.0f} {to_x:.0f},{up - bend:.0f} {to_x:.0f},{up:.0f}"
    return f'<path d="{path}" fill="none" {look}><title>{escape(title)}</title></path>'


def _text(x: float, y: float, text: str, size: int, weight: str = "normal") -> str:
    return (f'<text x="{x:.0f}" y="{y:.0f}" font-family="sans-serif" font-size="{size}" font-weight="{weight}">'
            f"{escape(text)}</text>")


def _shortened(text: str, most: int = 28) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _svg(width: float, height: float, body: Sequence[str]) -> str:
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}">')
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>"]) + "\n"
