"""Runs passes: in order, in groups up to a fixed point, timed, verified and observed on request.

A pass does not say whether it changed the graph; the runner finds out from the graph itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ngraph_mxnet.errors import ConfigError, GraphError, listed
from ngraph_mxnet.ir.graph import Graph, Value, count_ops, verify
from ngraph_mxnet.ir.sizes import because


class Pass(Protocol):
    """Rewrites a graph in place.

    What every pass must leave behind: topological order, the parameters (even unread ones) and the number,
    order and types of the results. A pass may leave dead nodes.
    A pass that can say why it left something alone offers `misses`, a list filled by `run`.
    """

    name: str

    def run(self, graph: Graph) -> bool:
        """Work on `graph` in place; whether that changed it."""


@dataclass(frozen=True)
class Miss:
    """A rewrite that nearly applied: which, at which node, and why not."""

    rewrite: str
    node: str
    reason: str

    def __str__(self) -> str:
        return f"{self.rewrite} at {self.node}: {self.reason}"


@dataclass(frozen=True)
class FixedPoint:
    """Passes that enable one another: repeated until none changes the graph, at most `bound` times."""

    name: str
    passes: tuple[Pass, ...]
    bound: int = 8


@dataclass(frozen=True)
class PassRecord:
    """One execution of one pass. `ms` leaves out verification and the callback."""

    name: str
    ms: float
    changed: bool
    before: dict[str, int]
    after: dict[str, int]

    def __str__(self) -> str:
        names = sorted(self.before.keys() | self.after.keys())
        delta = [(name, self.after.get(name, 0) - self.before.get(name, 0)) for name in names]
        moved = ", ".join(f"{name} {change:+d}" for name, change in delta if change)
        state = moved or ("changed" if self.changed else "-")
        return f"{self.name:<24}{self.ms:8.2f} ms  {sum(self.after.values()):5d} ops  {state}"


@dataclass
class Report:
    """The outcome of a run: one record for each pass execution, and the misses of each pass's last execution."""

    records: list[PassRecord] = field(default_factory=list)
    misses: dict[str, list[Miss]] = field(default_factory=dict)
    unsettled: list[str] = field(default_factory=list)
    """Fixed-point groups that still changed the graph when they reached their bound."""
    idle: dict[str, int] = field(default_factory=dict)
    """Behind how many changes each pass last ran and changed nothing."""

    @property
    def changes(self) -> int:
        return sum([record.changed for record in self.records])

    @property
    def ms(self) -> float:
        return sum(record.ms for record in self.records)

    @property
    def changed(self) -> bool:
        return any(record.changed for record in self.records)

    def explain(self) -> str:
        """One line a miss: pass, rewrite, node, reason."""
        return "\n".join(f"{name}: {miss}" for name, misses in self.misses.items() for miss in misses)

    def __str__(self) -> str:
        lines = [str(record) for record in self.records]
        lines += [f"{name}: not settled within its bound" for name in self.unsettled]
        return "\n".join([*lines, f"{'total':<24}{self.ms:8.2f} ms"])


Observer = Callable[[PassRecord, Graph], None]


class PassManager:
    """Runs `passes` in order, but none on a graph that one of its name has just left as it was.

    Args:
        verify_each: verify the graph after every pass, and leave none out; an error names the pass.
        disable: names of passes and groups to leave out. A name that occurs nowhere is a ConfigError.
        observer: called after every pass with its record and the graph, e.g. `debug.Dump`.
    """

    def __init__(self, passes: Sequence[Pass | FixedPoint], *, verify_each: bool = False,
                 disable: Collection[str] = (), observer: Observer | None = None) -> None:
        known = list(_names(passes))
        unknown = sorted(set(disable) - set(known))
        if unknown:
            raise ConfigError(f"no pass is called {listed(unknown)}; there are {listed(known, unknown[0])}")
        self.passes = tuple(passes)
        self.verify_each = verify_each
        self.disable = frozenset(disable)
        self.observer = observer

    def run(self, graph: Graph) -> Report:
        """Run all passes on `graph`, in place.

        Raises:
            GraphError: `verify_each` is on and a pass left a malformed graph.
        """
        report = Report()
        for item in self.passes:
            if item.name in self.disable:
                continue
            if isinstance(item, FixedPoint):
                self._run_group(item, graph, report)
            else:
                self._run_pass(item, graph, report)
        return report

    def _run_group(self, group: FixedPoint, graph: Graph, report: Report) -> None:
        """Stops as soon as every pass has seen the graph as it is, which may be in the middle of a round."""
        passes = [p for p in group.passes if p.name not in self.disable]
        idle = 0
        for _ in range(group.bound):
            for pass_ in passes:
                idle = 0 if self._run_pass(pass_, graph, report) else idle + 1
                if idle >= len(passes):
                    return
        if passes:
            report.unsettled.append(group.name)

    def _run_pass(self, pass_: Pass, graph: Graph, report: Report) -> bool:
        changes = report.changes
        if report.idle.get(pass_.name) == changes and not self.verify_each:
            return False
        before = report.records[-1].after if report.records else count_ops(graph.nodes)
        state = fingerprint(graph) if self.verify_each else 0
        start = time.perf_counter()
        with because(f"pass {pass_.name}"):
            changed = pass_.run(graph)
        ms = (time.perf_counter() - start) * 1e3
        record = PassRecord(pass_.name, ms, changed, before, count_ops(graph.nodes) if changed else before)
        report.records.append(record)
        if not changed:
            report.idle[pass_.name] = changes
        report.misses[pass_.name] = list(getattr(pass_, "misses", ()))
        if self.verify_each:
            try:
                verify(graph)
            except GraphError as error:
                raise GraphError(f"after pass {pass_.name}: {error}") from None
            if not changed and fingerprint(graph) != state:
                raise GraphError(f"pass {pass_.name} changed the graph and says that it did not")
        if self.observer is not None:
            self.observer(record, graph)
        return changed


def fingerprint(graph: Graph) -> int:
    """A hash of the structure: ops, attributes, wiring, results.

    Arrays count by identity (attribute arrays are read-only). Names and origins do not count.
    """
    number: dict[Value, int] = {value: index for index, value in enumerate(graph.parameters)}
    rows: list[object] = []
    for node in graph.nodes:
        attrs = tuple([id(v) if isinstance(v, np.ndarray) else v for v in node.attrs.values()])
        # A read before the definition is the verifier's to report: -1 keeps this total.
        rows.append((node.op.name, attrs, tuple([number.get(v, -1) for v in node.inputs])))
        for output in node.outputs:
            number[output] = len(number)
    rows.append(tuple([number.get(v, -1) for v in graph.results]))
    return hash(tuple(rows))


def _names(passes: Sequence[Pass | FixedPoint]) -> Iterator[str]:
    for item in passes:
        yield item.name
        if isinstance(item, FixedPoint):
            yield from _names(item.passes)
