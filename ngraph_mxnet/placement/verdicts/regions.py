"""Groups supported nodes into regions, each to run as one node."""

from __future__ import annotations

from collections.abc import Sequence

ALONE = -1
"""The number of a node that belongs to no region."""


def grow_regions(inputs: Sequence[Sequence[int]], supported: Sequence[bool]) -> list[int]:
    """For each node the number of its region, from 0 in the order of their first nodes; ALONE where not supported.

    `inputs[i]` are the nodes that node i reads, all below i. Regions are connected; each taken as one node, they
    leave the graph without a cycle; and no two that an edge joins could be one. The nodes are visited in their
    order: each joins the regions that it reads as far as that makes no cycle, again until nothing changes.
    """
    # No path leads through what reads nothing, such as variables, of which a region soon reads thousands.
    groups = _Groups([[source for source in sources if supported[source] or inputs[source]] for sources in inputs])
    edges = [(source, node) for node, sources in enumerate(inputs) if supported[node]
             for source in sorted(set(sources)) if supported[source]]
    merged = True
    while merged:
        # A merge can make others possible: what was a third group between two may now be part of one.
        merged = False
        for source, node in edges:
            merged |= groups.try_to_merge(source, node)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(groups.of[node], len(numbers)) if supported[node] else ALONE
            for node in range(len(inputs))]


class _Groups:
    """Nodes in groups, each called by one of its nodes, and what each group reads."""

    def __init__(self, inputs: Sequence[Sequence[int]]) -> None:
        count = range(len(inputs))
        self.of = list(count)
        self._members = [[node] for node in count]
        self._reads = [set(sources) for sources in inputs]
        self._readers: list[set[int]] = [set() for _ in count]
        for node, sources in enumerate(inputs):
            for source in sources:
                self._readers[source].add(node)
        self._lowest, self._highest = list(count), list(count)

    def try_to_merge(self, earlier: int, later: int) -> bool:
        """Put the two nodes' groups together, unless one reaches the other through a third; whether it did."""
        first, second = self.of[earlier], self.of[later]
        if first == second or self._indirectly(second, first) or self._indirectly(first, second):
            return False
        if len(self._members[first]) < len(self._members[second]):
            first, second = second, first
        for node in self._members[second]:
            self.of[node] = first
        self._members[first] += self._members[second]
        self._lowest[first] = min(self._lowest[first], self._lowest[second])
        self._highest[first] = max(self._highest[first], self._highest[second])
        for edges, back in ((self._reads, self._readers), (self._readers, self._reads)):
            edges[first] |= edges[second]
            edges[first] -= {first, second}
            for other in edges[second] - {first}:
                back[other].discard(second)
                back[other].add(first)
            edges[second] = set()
        return True

    def _indirectly(self, reader: int, target: int) -> bool:
        """Whether `reader` depends on `target` through a third group."""
        lowest = self._lowest[target]
        stack, seen = [group for group in self._reads[reader] if group != target], {reader, target}
        while stack:
            group = stack.pop()
            # An edge leads from a lower to a higher node: what lies below the target does not depend on it.
            if group in seen or self._highest[group] < lowest:
                continue
            seen.add(group)
            if target in self._reads[group]:
                return True
            stack.extend(self._reads[group])
        return False
