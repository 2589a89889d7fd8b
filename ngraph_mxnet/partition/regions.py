"""Groups supported nodes into regions, for when the framework's own partitioner can't be asked."""

from __future__ import annotations

from collections.abc import Sequence


def grow_regions(inputs: Sequence[Sequence[int]], supported: Sequence[bool]) -> list[list[int]]:
    """Connected groups of supported nodes, each convex: no path leaves a group and comes back.

    `inputs[i]` are the nodes that node i reads, all below i. Greedy, in topological order: a node joins the
    group of an input unless a path from that group to it leads through a node outside.
    """
    group: list[int | None] = [None] * len(inputs)
    # Groups that a node depends on through at least one node outside of them.
    outside: list[set[int]] = [set() for _ in inputs]
    members: dict[int, list[int]] = {}
    for node, sources in enumerate(inputs):
        reached = set().union(*(outside[s] for s in sources)) if sources else set()
        candidates = {group[s] for s in sources} - {None} - reached if supported[node] else set()
        if supported[node]:
            # Groups merge only where none reaches another through the outside.
            chosen = min(candidates) if candidates else node
            group[node] = chosen
            members.setdefault(chosen, []).append(node)
        left = {group[s] for s in sources} - {None, group[node]}
        outside[node] = reached | left
    return list(members.values())
