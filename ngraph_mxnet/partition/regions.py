"""Groups supported nodes into regions, for when the framework's own partitioner can't be asked."""

from __future__ import annotations

from collections.abc import Sequence


def grow_regions(inputs: Sequence[Sequence[int]], supported: Sequence[bool]) -> list[list[int]]:
    """Connected groups of supported nodes which, each taken as one node, leave the graph without a cycle.

    `inputs[i]` are the nodes that node i reads, all below i. Greedy, in topological order: a node joins the
    groups of its inputs, and so joins them, as far as that makes no cycle.
    """
    groups = _Groups()
    for node, sources in enumerate(inputs):
        groups.add(node, sources)
        if supported[node]:
            for source in sorted(set(sources)):
                if supported[source]:
                    groups.try_to_merge(source, node)
    return groups.members(supported)


class _Groups:
    """Nodes in groups, and what each group reads."""

    def __init__(self) -> None:
        self._of: list[int] = []
        self._nodes: dict[int, list[int]] = {}
        self._reads: dict[int, set[int]] = {}

    def add(self, node: int, sources: Sequence[int]) -> None:
        self._of.append(node)
        self._nodes[node] = [node]
        self._reads[node] = {self._of[source] for source in sources}

    def try_to_merge(self, earlier: int, later: int) -> None:
        """Put the two nodes' groups together, unless one reaches the other through a third."""
        first, second = self._of[earlier], self._of[later]
        if first == second or self._indirectly(first, second) or self._indirectly(second, first):
            return
        for node in self._nodes[second]:
            self._of[node] = first
        self._nodes[first] += self._nodes.pop(second)
        self._reads[first] = (self._reads[first] | self._reads.pop(second)) - {first, second}
        for reads in self._reads.values():
            if second in reads:
                reads.remove(second)
                reads.add(first)

    def _indirectly(self, reader: int, target: int) -> bool:
        """Whether `reader` depends on `target` through a third group."""
        stack, seen = list(self._reads[reader] - {target}), {reader, target}
        while stack:
            group = stack.pop()
            if group not in seen:
                seen.add(group)
                if target in self._reads[group]:
                    return True
                stack.extend(self._reads[group])
        return False

    def members(self, supported: Sequence[bool]) -> list[list[int]]:
        return [sorted(nodes) for nodes in self._nodes.values() if supported[nodes[0]]]
