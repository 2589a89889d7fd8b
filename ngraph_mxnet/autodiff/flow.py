"""Minimum cuts: Dinic, Algorithm for solution of a problem of maximum flow in networks with power estimation, 1970.

The networks here are a forest of small ones, which takes few rounds. (To import networkx takes longer than that.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from itertools import pairwise
from math import inf

Vertex = Hashable


class Network:
    """Edges with capacities: whole numbers or infinity."""

    def __init__(self) -> None:
        self._left: dict[Vertex, dict[Vertex, float]] = defaultdict(dict)
        """For each vertex, what may still flow to its neighbours, against the edges too."""

    def add(self, tail: Vertex, head: Vertex, capacity: float) -> None:
        """An edge; beside one that there is, one more."""
        self._left[tail][head] = self._left[tail].get(head, 0) + capacity
        self._left[head].setdefault(tail, 0)

    def near_side(self, source: Vertex, sink: Vertex) -> set[Vertex]:
        """The source's side of a minimum cut: of several cuts that with the fewest vertices there.

        Raises:
            ValueError: no cut is finite.
        """
        while sink in (far := self._distances(source)):
            self._fill(source, sink, far)
        return set(far)

    def _distances(self, source: Vertex) -> dict[Vertex, int]:
        """How far each vertex that flow still reaches is from the source."""
        far, front = {source: 0}, [source]
        while front:
            following = []
            for vertex in front:
                for head, left in self._left[vertex].items():
                    if left > 0 and head not in far:
                        far[head] = far[vertex] + 1
                        following.append(head)
            front = following
        return far

    def _fill(self, source: Vertex, sink: Vertex, far: dict[Vertex, int]) -> None:
        """Let all flow that goes away from the source with each edge."""
        heads = {vertex: [h for h in self._left[vertex] if far.get(h) == far[vertex] + 1] for vertex in far}
        path = [source]
        while path:
            if path[-1] == sink:
                edges = list(pairwise(path))
                flow = min(self._left[tail][head] for tail, head in edges)
                if flow == inf:
                    raise ValueError("no cut is finite")
                for tail, head in edges:
                    self._left[tail][head] -= flow
                    self._left[head][tail] += flow
                path = path[:next(at for at, (tail, head) in enumerate(edges) if not self._left[tail][head]) + 1]
            onward = heads[path[-1]]
            while onward and not self._left[path[-1]][onward[-1]]:
                onward.pop()
            if onward:
                path.append(onward[-1])
            else:
                path.pop()
                if path:
                    heads[path[-1]].pop()
