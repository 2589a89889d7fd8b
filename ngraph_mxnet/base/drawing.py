"""Pictures of graphs, as SVG: layout and drawing in layers, where each node is below all nodes that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from textwrap import wrap
from xml.sax.saxutils import escape

_ROUNDS = 6


@dataclass(frozen=True)
class Layers:
    """`rows` of places, from the top; places below `count` are nodes, the others lie on edges that pass a row.

    `paths`: for each edge (source, reader) the places that it passes, with both ends.
    """

    count: int
    rows: list[list[int]]
    paths: dict[tuple[int, int], list[int]]


def arrange(sources: Sequence[Sequence[int]]) -> Layers:
    """Nodes by their depth; within a row each near the middle of what it is joined to, so that few edges cross."""
    depth: list[int] = []
    for read in sources:
        depth.append(max((depth[source] + 1 for source in read), default=0))
    rows: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for node in range(len(sources)):
        rows[depth[node]].append(node)
    places = len(sources)
    paths: dict[tuple[int, int], list[int]] = {}
    passing: dict[tuple[int, int], int] = {}
    for reader, read in enumerate(sources):
        for source in read:
            path = [source]
            for row in range(depth[source] + 1, depth[reader]):
                # Edges of one source share their way as far as they go together.
                if (source, row) not in passing:
                    passing[source, row] = places
                    rows[row].append(places)
                    places += 1
                path.append(passing[source, row])
            paths[source, reader] = [*path, reader]
    return Layers(len(sources), _ordered(rows, paths, places), paths)


def _ordered(rows: list[list[int]], paths: dict[tuple[int, int], list[int]], places: int) -> list[list[int]]:
    above: list[set[int]] = [set() for _ in range(places)]
    below: list[set[int]] = [set() for _ in range(places)]
    for path in paths.values():
        for upper, lower in pairwise(path):
            above[lower].add(upper)
            below[upper].add(lower)
    column = [0.0] * places

    def number(row: list[int]) -> None:
        for place, node in enumerate(row):
            column[node] = place - (len(row) - 1) / 2

    for row in rows:
        number(row)
    for turn in range(_ROUNDS):
        near, order = (above, rows) if turn % 2 == 0 else (below, rows[::-1])
        for row in order:
            middle = {node: sum(column[n] for n in near[node]) / len(near[node]) if near[node] else column[node]
                      for node in row}
            row.sort(key=lambda node, at=middle: (at[node], node))  # type: ignore[misc]
            number(row)
    return rows


BOX_WIDTH, BOX_HEIGHT = 214, 38
PASSING_WIDTH = 12
"""Width of an edge that passes a row."""
GAP_X, GAP_Y = 26, 40
GUTTER = 60
"""Between columns; edges from one to the next go there."""
_SHAPE = 1.5
"""The width over the height that is aimed at."""
_MOST_COLUMNS = 8
_WINDOW = 6
"""Rows around an even cut, among which the one behind the fewest places is chosen: edges go on from these."""


@dataclass(frozen=True)
class Placed:
    """The middle of each place, its column, and the sides of each column; all from 0, 0 on."""

    x: dict[int, float]
    y: dict[int, float]
    column: dict[int, int]
    left: list[float]
    width: float
    height: float


def place(layers: Layers) -> Placed:
    """The rows of `layers` in as many columns as give a picture of about the shape of a screen."""
    x: dict[int, float] = {}
    y: dict[int, float] = {}
    column: dict[int, int] = {}
    left: list[float] = []
    right = height = 0.0
    for number, rows in enumerate(_cut(layers)):
        across = _across(rows, layers)
        low = min((at - wide(item, layers.count) / 2 for item, at in across.items()), default=0.0)
        begin = right + GUTTER if number else 0.0
        left.append(begin)
        for depth, row in enumerate(rows):
            for item in row:
                x[item] = begin + across[item] - low
                y[item] = depth * (BOX_HEIGHT + GAP_Y) + BOX_HEIGHT / 2
                column[item] = number
                right = max(right, x[item] + wide(item, layers.count) / 2)
        height = max(height, len(rows) * (BOX_HEIGHT + GAP_Y) - GAP_Y)
    return Placed(x, y, column, left, right, height)


def wide(item: int, nodes: int) -> int:
    """A node's box, or an edge that passes."""
    return BOX_WIDTH if item < nodes else PASSING_WIDTH


def _cut(layers: Layers) -> list[list[list[int]]]:
    rows = layers.rows
    widest = max((sum(wide(item, layers.count) + GAP_X for item in row) for row in rows), default=1) + GUTTER
    height = len(rows) * (BOX_HEIGHT + GAP_Y)
    wanted = min(max(round(sqrt(_SHAPE * height / widest)), 1), _MOST_COLUMNS, max(len(rows), 1))
    cuts = [0]
    for number in range(1, wanted):
        even = round(number * len(rows) / wanted)
        near = range(max(even - _WINDOW, cuts[-1] + 1), min(even + _WINDOW, len(rows) - 1) + 1)
        if near:
            cuts.append(min(near, key=lambda row: (len(rows[row - 1]), abs(row - even))))
    return [rows[begin:end] for begin, end in zip(cuts, [*cuts[1:], len(rows)], strict=True)]


def _across(rows: Sequence[Sequence[int]], layers: Layers) -> dict[int, float]:
    """Each item as near to the mean of what it is joined to as the widths in its row allow."""
    joined: dict[int, list[list[int]]] = {item: [[], []] for row in rows for item in row}
    for path in layers.paths.values():
        for upper, lower in pairwise(path):
            if upper in joined and lower in joined and upper not in joined[lower][0]:
                joined[lower][0].append(upper)
                joined[upper][1].append(lower)
    x = {item: 0.0 for row in rows for item in row}
    for turn in range(6):
        for row in rows if turn % 2 == 0 else rows[::-1]:
            wanted = []
            for item in row:
                near = joined[item][turn % 2]
                wanted.append(sum(x[other] for other in near) / len(near) if near else x[item])
            x.update(zip(row, spread(wanted, [wide(item, layers.count) for item in row]), strict=True))
    return x


def spread(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Middles in this order, GAP_X apart by their widths, with the least sum of squared distances from what is wanted:
    neighbours that are too near are pooled, and share the mean of what they want."""
    offsets, pools = [0.0], list[tuple[float, int]]()
    for before, width in pairwise(widths):
        offsets.append(offsets[-1] + (before + width) / 2 + GAP_X)
    for want, offset in zip(wanted, offsets, strict=False):
        total, size = want - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / size:
            before_total, before_size = pools.pop()
            total, size = total + before_total, size + before_size
        pools.append((total, size))
    means = [total / size for total, size in pools for _ in range(size)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]


MARGIN = 24
_LEAST_WIDTH = 640
_LINE = 18
_CHARACTER = 6.6
"""Pixels of a character of 12, at most about."""
_TITLE_CHARACTERS, _NAME_CHARACTERS, _LABEL_CHARACTERS = 25, 32, 32


@dataclass(frozen=True)
class Look:
    """Colours of a box, and what they say in the legend."""

    fill: str
    border: str
    meaning: str


@dataclass(frozen=True)
class Box:
    """`name` is cut at its front, as ends of names tell most. `tip` is shown where the pointer rests."""

    title: str
    name: str
    look: Look
    tip: str = ""
    is_round: bool = False


@dataclass(frozen=True)
class Edge:
    """From one box to another, by place; `label` is what it carries."""

    source: int
    reader: int
    label: str
    tip: str = ""
    is_bold: bool = False


def picture(boxes: Sequence[Box], edges: Sequence[Edge], title: str, lines: Sequence[str] = (),
            bold_means: str = "") -> str:
    """The SVG of a graph whose boxes come in order: each behind those that it reads. `lines`: below the title.
    `bold_means`: what bold edges say, for the legend."""
    sources: list[list[int]] = [[] for _ in boxes]
    for edge in edges:
        sources[edge.reader].append(edge.source)
    layers = arrange(sources)
    placed = place(layers)
    width = max(placed.width + 2 * MARGIN, _LEAST_WIDTH)
    head, top = _head(title, lines, boxes, bold_means, width)
    body = [*head, f'<g transform="translate({(width - placed.width) / 2:.0f},{top})">']
    lanes: list[dict[int, int]] = [{} for _ in placed.left]
    for edge in edges:
        body.append(_edge(placed, layers.paths[edge.source, edge.reader], edge, lanes))
    for (source, label), count in _labels(edges).items():
        body.append(text(placed.x[source] + 6, placed.y[source] + BOX_HEIGHT / 2 + 15 + 12 * count,
                         shortened(label, _LABEL_CHARACTERS), 10, "label"))
    body += [_box(box, placed.x[item], placed.y[item]) for item, box in enumerate(boxes)]
    below = MARGIN + 8 + 5 * max(map(len, lanes), default=0)
    return svg(width, top + placed.height + below, [*body, "</g>"])


def _labels(edges: Sequence[Edge]) -> dict[tuple[int, str], int]:
    """Return the line below the box for each (box, label). A box has at most two labels; tips show the others."""
    lines: dict[tuple[int, str], int] = {}
    counts: dict[int, int] = {}
    for edge in edges:
        count = counts.get(edge.source, 0)
        if edge.label and (edge.source, edge.label) not in lines and count < 2:
            lines[edge.source, edge.label] = count
            counts[edge.source] = count + 1
    return lines


def _head(title: str, lines: Sequence[str], boxes: Sequence[Box], bold_means: str,
          width: float) -> tuple[list[str], float]:
    """The title, the lines, broken where they are too long, and the legend; and where the graph begins."""
    room = int((width - 2 * MARGIN) / _CHARACTER)
    y, found = 8.0, []
    for number, line in enumerate([title, *lines]):
        for part in wrap(line, int(room / 1.3) if number == 0 else room) or [""]:
            y += _LINE
            found.append(text(MARGIN, y, part, 12 if number else 15, "" if number else "title"))
    x, y = float(MARGIN), y + _LINE + 4
    for look in dict.fromkeys(box.look for box in boxes):
        x, y = _next(x, y, look.meaning, width)
        found.append(f'<rect x="{x:.0f}" y="{y - 11:.0f}" width="14" height="14" rx="3" fill="{look.fill}" '
                     f'stroke="{look.border}"/>')
        found.append(text(x + 20, y, look.meaning, 12))
        x += _entry(look.meaning)
    if bold_means:
        x, y = _next(x, y, bold_means, width)
        found.append(f'<path d="M{x:.0f},{y - 4:.0f}h14" class="bold"/>')
        found.append(text(x + 20, y, bold_means, 12))
    return found, y + MARGIN


def _next(x: float, y: float, meaning: str, width: float) -> tuple[float, float]:
    """Return where an entry of the legend begins: in a new line if it does not fit."""
    return (MARGIN, y + _LINE) if x > MARGIN and x + _entry(meaning) > width else (x, y)


def _entry(meaning: str) -> float:
    return 40 + _CHARACTER * len(meaning)


def _edge(placed: Placed, path: Sequence[int], edge: Edge, lanes: Sequence[dict[int, int]]) -> str:
    """From below the first place, straight down through the rows, to above the last; to another column through the
    gutter before it. `lanes`: for each column the place in its gutter of what comes from another, by where from."""
    half, bend = BOX_HEIGHT / 2, GAP_Y * 0.55
    way = f"M{placed.x[path[0]]:.0f},{placed.y[path[0]] + half:.0f}"
    for before, after in pairwise(path):
        x, y, to_x, to_y = placed.x[before], placed.y[before] + half, placed.x[after], placed.y[after] - half
        if placed.column[before] == placed.column[after]:
            way += f"L{x:.0f},{y:.0f}C{x:.0f},{y + bend:.0f} {to_x:.0f},{to_y - bend:.0f} {to_x:.0f},{to_y:.0f}"
            continue
        number = placed.column[after]
        lane = lanes[number].setdefault(before, len(lanes[number]))
        gutter = placed.left[number] - GUTTER / 2 + min(lane, 4) * 5 - 10
        way += (f"L{x:.0f},{placed.height + 6 + 5 * lane:.0f}H{gutter:.0f}V{-8 - 3 * min(lane, 4)}"
                f"H{to_x:.0f}V{to_y:.0f}")
    tip = f"<title>{escape(edge.tip or edge.label)}</title>"
    return f'<path d="{way}" class="{"bold" if edge.is_bold else "edge"}">{tip}</path>'


def _box(box: Box, x: float, y: float) -> str:
    left, top = x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2
    parts = [f'<rect x="{left:.0f}" y="{top:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" '
             f'rx="{BOX_HEIGHT / 2 if box.is_round else 5}" fill="{box.look.fill}" stroke="{box.look.border}"/>',
             text(left + 10, top + 16, shortened(box.title, _TITLE_CHARACTERS), 12, "title"),
             text(left + 10, top + 30, cut_front(box.name, _NAME_CHARACTERS), 10)]
    return f"<g>{f'<title>{escape(box.tip)}</title>' if box.tip else ''}{''.join(parts)}</g>"


def text(x: float, y: float, content: str, size: int, kind: str = "") -> str:
    """A line of text; `kind` is a class of the style."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}"{named}>{escape(content)}</text>'


def shortened(content: str, most: int) -> str:
    return content if len(content) <= most else content[:most - 1] + "\u2026"


def cut_front(content: str, most: int) -> str:
    return content if len(content) <= most else "\u2026" + content[len(content) - most + 1:]


_STYLE = ("text{font-family:'Helvetica Neue',Arial,'DejaVu Sans',sans-serif;fill:#1b2026}.title{font-weight:600}"
          ".label{fill:#58626d;paint-order:stroke;stroke:#fff;stroke-width:3px}"
          ".edge{fill:none;stroke:#7b8794}.bold{fill:none;stroke:#b8303c;stroke-width:2.4}")


def svg(width: float, height: float, body: Sequence[str]) -> str:
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}">')
    return "\n".join([head, f"<style>{_STYLE}</style>", '<rect width="100%" height="100%" fill="white"/>', *body,
                      "</svg>"]) + "\n"
