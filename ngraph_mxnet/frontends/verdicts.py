"""Verdicts: whether a backend takes a node, and the reason when not; partitionings."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ngraph_mxnet.base.forks import ForkSafeLock
from ngraph_mxnet.base.rendered import Facts
from ngraph_mxnet.ir.graph import Cost, Graph, Node, graph_cost
from ngraph_mxnet.program.backend import Backend

RULE_FAILED = "its rule failed"


@dataclass(frozen=True)
class Verdict:
    """On one node of the framework's graph. `reason` is None when it is supported."""

    name: str
    op: str
    reason: str | None = None

    @property
    def supported(self) -> bool:
        return self.reason is None


def backend_reason(backend: Backend, nodes: Iterable[Node]) -> str | None:
    """Why `backend` does not run one of the nodes; None when it runs them all."""
    for node in nodes:
        reason = backend.supports(node)
        if reason is not None:
            return f"backend {backend.name}: {reason}"
    return None


@dataclass(frozen=True)
class Region(Facts):
    """Framework nodes that were proposed to run as one. `rejected`: why they do not; None when they do. `precision`: of
    its convolutions and matrix products, where it is known; with a recipe, how many are in 8 bits."""

    nodes: tuple[tuple[str, str], ...]  # (name, operator)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    cost: Cost = field(default_factory=Cost)
    rejected: str | None = None
    precision: str | None = None

    renamed: ClassVar[Mapping[str, str | None]] = {"nodes": None, "named": "nodes", "cost": ""}
    derived = ("named", "ops")

    @property
    def named(self) -> list[dict[str, str]]:
        return [{"name": name, "op": op} for name, op in self.nodes]

    @property
    def ops(self) -> dict[str, int]:
        """How often each operator occurs, the most frequent first."""
        return dict(Counter(op for _, op in self.nodes).most_common())


@dataclass
class Partition(Facts):
    """One partitioning of one graph on one backend."""

    backend: str
    verdicts: list[Verdict]
    reviewed: list[Region] = field(default_factory=list)

    renamed: ClassVar[Mapping[str, str | None]] = {"verdicts": None, "reviewed": None}
    derived = ("regions", "rejected", "left")
    layout = "partition"

    @property
    def failed(self) -> bool:
        """True if a rule or the backend raised what is no refusal; another time it may not."""
        return any((verdict.reason or "").startswith(RULE_FAILED) for verdict in self.verdicts)

    @property
    def regions(self) -> list[Region]:
        """Return the regions that run on the backend."""
        return [region for region in self.reviewed if region.rejected is None]

    @property
    def rejected(self) -> list[Region]:
        return [region for region in self.reviewed if region.rejected is not None]

    def left(self) -> list[Verdict]:
        """The nodes that stay with the framework, each with its reason."""
        taken = {name for region in self.regions for name, _ in region.nodes}
        refused = {name: region.rejected for region in self.rejected for name, _ in region.nodes}
        return [
            verdict if not verdict.supported else Verdict(
                verdict.name, verdict.op, refused.get(verdict.name, "the framework put it in no region"))
            for verdict in self.verdicts if verdict.name not in taken
        ]

    def left_by_kind(self) -> dict[tuple[str, str], int]:
        """(operator, reason): how many nodes."""
        return count_kinds(self.left())


def count_kinds(verdicts: Iterable[Verdict]) -> dict[tuple[str, str], int]:
    """(operator, reason): how many of the unsupported nodes, the most frequent first."""
    return dict(Counter((v.op, v.reason) for v in verdicts if v.reason is not None).most_common())


@dataclass(frozen=True, repr=False)
class Explanation(Facts):
    """Prints as tables; `to_dict` is for programs.

    `details`: what the backend tells of each region (`Backend.explain`), if asked for.
    `notices`: settings that this machine can't follow.
    """

    partition: Partition
    details: Any = None
    plans: list[Any] = field(default_factory=list)
    notices: tuple[str, ...] = ()

    renamed: ClassVar[Mapping[str, str | None]] = {"partition": "", "details": ""}
    layout = "explanation"

    @staticmethod
    def of(found: Partition, regions: Sequence[tuple[Graph, Mapping[str, Any]]], backend: Backend, *, kernels: bool,
           options: Mapping[str, Any]) -> Explanation:
        """Of the partition into these graphs. With each: where its nodes are pinned, as an option."""
        found.reviewed = [*(replace(region, precision=backend.precision_of(graph.clone(), {}))
                            for region, (graph, _) in zip(found.regions, regions, strict=True)), *found.rejected]
        details = backend.explain([graph for graph, _ in regions]) if kernels else None
        plans = [backend.plan(graph, {**pins, **options}) for graph, pins in regions]
        return Explanation(found, details, [plan for plan in plans if plan is not None], tuple(backend.notices()))

    @property
    def compiles(self) -> bool:
        """True if any node runs on the backend."""
        return bool(self.partition.regions)


class PartitionLog:
    """The last partitionings of this process."""

    def __init__(self, size: int = 16) -> None:
        self._lock = ForkSafeLock()
        self._kept: deque[Partition] = deque(maxlen=size)
        self._here = threading.local()

    def add(self, partition: Partition) -> None:
        with self._lock:
            self._kept.append(partition)
        for listener in getattr(self._here, "listeners", ()):
            listener.append(partition)

    def last(self) -> list[Partition]:
        """The last partitionings of all threads, the oldest first."""
        with self._lock:
            return list(self._kept)

    @contextmanager
    def listening(self) -> Iterator[list[Partition]]:
        """The partitionings that this thread adds within it."""
        heard: list[Partition] = []
        self._here.listeners = [*getattr(self._here, "listeners", ()), heard]
        try:
            yield heard
        finally:
            self._here.listeners = [one for one in self._here.listeners if one is not heard]


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
        """True if `reader` depends on `target` through a third group."""
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


#: A lone operator that computes less is faster in MXNet: a region's call costs 2 to 5 us more than an operator's, a
#: thousand exponentials take MXNet 2 us longer. Two operators in one region save as much as the call costs.
LEAST_ALONE = 1024


def too_small_alone(graph: Graph) -> str | None:
    """Why a lone operator between MXNet's, lowered to `graph`, is no region of its own; None when it is, and when it
    computes nothing, of which `not_worth_it` tells."""
    total = graph_cost(graph)
    count = total.macs + total.operations
    if not 0 < count < LEAST_ALONE:
        return None
    return (f"alone between operators of MXNet it would compute {count} elements, and below {LEAST_ALONE} a call costs "
            "more than it saves")  # fmt: skip


def not_worth_it(total: Cost) -> str | None:
    """Why a backend should not take a graph of this cost although it can; None when it should."""
    if total.macs or total.operations:
        return None
    return "it only moves elements and computes nothing, so that a call would cost more than it saves"
