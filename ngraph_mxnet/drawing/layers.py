"""Where to draw the nodes of a graph: in layers, each below all that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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
