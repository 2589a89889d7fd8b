"""Pictures of a plan, as SVG: the placed graph in layers, and the predicted schedule."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from ngraph_mxnet.hybrid.plan import Plan, time_text
from ngraph_mxnet.hybrid.plan_table import costs_text, headline
from ngraph_mxnet.partition.render import short

_COLOURS = ("#bcd9f5", "#f9cfa0")
_BORDERS = ("#2f6ca8", "#b36a12")
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN, _TOP = 190, 38, 26, 34, 20, 62
_ROUNDS = 4


def graph_picture(plan: Plan) -> str:
    """The nodes in layers, each below all that it reads; colours tell the device, numbers the region. Thick edges cross
    from one device to the other."""
    sources = plan.outline.problem.sources()
    layers = _layers(sources)
    place = {item: (row, column) for row, layer in enumerate(layers) for column, item in enumerate(layer)}
    widest = max(map(len, layers), default=1)
    width = max(2 * _MARGIN + widest * (_WIDTH + _GAP_X), 640)
    height = _TOP + len(layers) * (_HEIGHT + _GAP_Y) + _MARGIN

    def corner(item: int) -> tuple[float, float]:
        row, column = place[item]
        left = (width - len(layers[row]) * (_WIDTH + _GAP_X) + _GAP_X) / 2
        return left + column * (_WIDTH + _GAP_X), _TOP + row * (_HEIGHT + _GAP_Y)

    body = [_text(_MARGIN, 22, headline(plan), 14, "bold"), _text(_MARGIN, 40, _times(plan), 12)]
    crossing = {(t.tensor, t.to) for t in plan.outline.problem.crossings(plan.placement.devices)}
    for number, tensor in enumerate(plan.outline.problem.tensors):
        for reader in tensor.readers if tensor.producer is not None else ():
            assert tensor.producer is not None
            (x, y), (to_x, to_y) = corner(tensor.producer), corner(reader)
            crosses = (number, plan.placement.devices[reader]) in crossing
            body.append(_edge(x + _WIDTH / 2, y + _HEIGHT, to_x + _WIDTH / 2, to_y, crosses,
                              f"{tensor.name}: {short(tensor.bytes)}B"))
    for item, node in enumerate(plan.nodes):
        x, y = corner(item)
        times = ", ".join(f"{name} {'-' if seconds is None else time_text(seconds)}"
                          for name, seconds in zip(plan.devices, node.seconds, strict=True))
        title = f"{node.name} ({node.op}) on {plan.devices[node.device]}\n{times}\n{node.why}"
        body += [
            f"<g><title>{escape(title)}</title>",
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" '
            f'fill="{_COLOURS[node.device]}" stroke="{_BORDERS[node.device]}"/>',
            _text(x + 8, y + 16, _shortened(f"{node.region + 1}: {node.op}"), 12),
            _text(x + 8, y + 31, _shortened(node.name), 10), "</g>",
        ]  # fmt: skip
    return _svg(width, height, body)


def timeline_picture(plan: Plan) -> str:
    """The predicted schedule: a lane for each device, and one for each direction between them."""
    lanes = [plan.devices[0], f"to {plan.devices[1]}", f"to {plan.devices[0]}", plan.devices[1]]
    left, right, lane, total = 110, 900, 44, plan.seconds or 1.0
    body = [_text(_MARGIN, 22, f"Predicted schedule of a call: {time_text(plan.seconds)}", 14, "bold"),
            _text(_MARGIN, 40, costs_text(plan), 12)]

    def bar(row: int, begin: float, end: float, device: int, label: str, title: str) -> None:
        x, wide = left + begin / total * (right - left), max((end - begin) / total * (right - left), 0.5)
        y = _TOP + row * lane
        body.append(f'<g><title>{escape(title)}</title><rect x="{x:.2f}" y="{y}" width="{wide:.2f}" height="30" '
                    f'fill="{_COLOURS[device]}" stroke="{_BORDERS[device]}"/>')
        if wide > 7 * len(label):
            body.append(_text(x + 4, y + 20, label, 12))
        body.append("</g>")

    for row, name in enumerate(lanes):
        body.append(_text(_MARGIN, _TOP + row * lane + 20, name, 12))
    for number, region in enumerate(plan.regions, 1):
        ops = ", ".join(f"{op} x{count}" for op, count in region.ops.items())
        took = f"{time_text(region.begin)} to {time_text(region.end)}"
        bar(3 * region.device, region.begin, region.end, region.device, str(number), f"region {number}, {took}: {ops}")
    for transfer in plan.transfers:
        took = time_text(transfer.end - transfer.begin) if transfer.copied else "shared, not copied"
        bar(2 - transfer.to, transfer.begin, transfer.end, transfer.to, "",
            f"{transfer.name} to {plan.devices[transfer.to]}, {short(transfer.bytes)}B: {took}")
    bottom = _TOP + len(lanes) * lane
    for tick in range(5):
        x = left + tick / 4 * (right - left)
        body.append(f'<line x1="{x:.0f}" y1="{_TOP - 6}" x2="{x:.0f}" y2="{bottom}" stroke="#cccccc"/>')
        body.append(_text(x - 16, bottom + 16, time_text(plan.seconds * tick / 4), 11))
    return _svg(right + 60, bottom + 30, body)


def _layers(sources: Sequence[Sequence[int]]) -> list[list[int]]:
    """Items by their depth; within a layer near the middle of what they read and are read by, so that few edges cross.
    """
    depth: list[int] = []
    for read in sources:
        depth.append(max((depth[source] + 1 for source in read), default=0))
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    readers: list[list[int]] = [[] for _ in sources]
    for item, read in enumerate(sources):
        layers[depth[item]].append(item)
        for source in read:
            readers[source].append(item)
    column = {item: float(n) - len(layer) / 2 for layer in layers for n, item in enumerate(layer)}
    for turn in range(2 * _ROUNDS):
        near = sources if turn % 2 == 0 else readers
        for layer in layers if turn % 2 == 0 else reversed(layers):
            middle = {item: sum(column[n] for n in near[item]) / len(near[item]) if near[item] else column[item]
                      for item in layer}
            layer.sort(key=lambda item: (middle[item], item))
            column.update({item: n - len(layer) / 2 for n, item in enumerate(layer)})
    return layers


def _times(plan: Plan) -> str:
    alone = ", ".join(f"all on {name} {time_text(seconds)}" if seconds != float("inf") else f"{name} can't run all"
                      for name, seconds in zip(plan.devices, plan.alone, strict=True))
    return f"predicted {time_text(plan.seconds)}; {alone} ({costs_text(plan)})"


def _edge(x: float, y: float, to_x: float, to_y: float, crosses: bool, title: str) -> str:
    look = 'stroke="#c03030" stroke-width="2.5"' if crosses else 'stroke="#777777" stroke-width="1"'
    bend = (to_y - y) / 2
    return (f'<path d="M{x:.0f},{y:.0f} C{x:.0f},{y + bend:.0f} {to_x:.0f},{to_y - bend:.0f} {to_x:.0f},{to_y:.0f}" '
            f'fill="none" {look}><title>{escape(title)}</title></path>')


def _text(x: float, y: float, text: str, size: int, weight: str = "normal") -> str:
    return (f'<text x="{x:.0f}" y="{y:.0f}" font-family="sans-serif" font-size="{size}" font-weight="{weight}">'
            f"{escape(text)}</text>")


def _shortened(text: str, most: int = 28) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _svg(width: float, height: float, body: Sequence[str]) -> str:
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}">')
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>"]) + "\n"
