'''Runs passes: in order, in groups up to a fixed point, timed, verified and observed on request; and rewrites.

A pass does not say whether it changed the graph; the runner finds out from the graph itself. A rewrite is a small
function that looks at one node and its operands, and replaces it or says why not:

    def double_negative(node, rw):
        """negative(negative(x)) -> x."""
        inner = rw.producer(node.inputs[0], "negative")
        return inner.inputs[0] if inner else None

Its answer is one of

* a `Value`: it takes the place of the node's only output;
* a `dict` of replaced values: for rewrites that replace more than the node's own output;
* a `str`: the pattern is here, but may not be applied, for this reason (collected for `explain`);
* `None`: the pattern is not here.
'''

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import numpy as np

from ngraph_mxnet.base.errors import ConfigError, GraphError, listed
from ngraph_mxnet.ir.graph import Graph, Node, Value, constant_of, count_ops, make_folded, make_node, verify
from ngraph_mxnet.ir.module import Changes, Derivation
from ngraph_mxnet.ir.ranges import because
from ngraph_mxnet.ir.sizes import are_same_shape


class Pass(Protocol):
    """Rewrites a graph in place.

    What every pass must leave behind: topological order, the parameters (even unread ones) and the number,
    order and types of the results. A pass may leave dead nodes.
    A pass that can say why it left something alone offers `misses`, a list filled by `run`.
    """

    name: str

    def run(self, graph: Graph) -> bool:
        """Work on `graph` in place; whether that changed it."""


class Miss(NamedTuple):
    """A rewrite that nearly applied: which, at which node, and why not."""

    rewrite: str
    node: str
    reason: str

    def __str__(self) -> str:
        return f"{self.rewrite} at {self.node}: {self.reason}"


class FixedPoint(NamedTuple):
    """Passes that enable one another: repeated until none changes the graph, at most `bound` times."""

    name: str
    passes: tuple[Pass, ...]
    bound: int = 8


class PassRecord(NamedTuple):
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
        """Run all passes on `graph`, in place. Raises GraphError: `verify_each` is on and a pass left a malformed
        graph."""
        report = Report()
        if len(graph.names) != len(graph.results):  # rewrites put other values in their place, of two perhaps one
            graph.names = [value.name for value in graph.results]
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


Answer = Value | dict[Value, Value] | str | None
Rewrite = Callable[[Node, "Rewriter"], Answer]

# A chain of rewrites, each on what the one before made, longer than this is a cycle between rules.
_MAX_CHAIN = 32


_OP_NAME = attrgetter("op.name")


class RewritePass:
    """A pass made of a table: op name -> rewrites tried in order at every node of that op.

    One run is one sweep in topological order. A node that a rewrite makes is itself rewritten at once, so
    a chain of fusions (convolution, bias, residual, clamp) needs a single sweep. Operands have always been
    visited before the node that reads them.
    """

    def __init__(self, name: str, table: Mapping[str, Sequence[Rewrite]]) -> None:
        self.name = name
        self.table = table
        self.misses: list[Miss] = []

    def run(self, graph: Graph) -> bool:
        self.misses = []
        if self.table.keys().isdisjoint(map(_OP_NAME, graph.nodes)):
            return False
        rewriter = Rewriter(graph, self.table)
        self.misses = list(dict.fromkeys(rewriter.sweep()))
        return rewriter.changed

    def __repr__(self) -> str:
        return f"RewritePass({self.name})"


class Rewriter:
    """The questions that a rewrite may ask during one sweep, and the nodes that it may make.

    Reader counts are taken once, before anything is replaced, and kept up to date with every replacement.
    """

    def __init__(self, graph: Graph, table: Mapping[str, Sequence[Rewrite]]) -> None:
        self._graph, self._table = graph, table
        self._derivation = Derivation()
        self._replaced: dict[Value, Value] = {}
        self._made: list[Node] = []
        self._done: list[Node] = []
        self._dead: set[Node] = set()
        self._root: Node | None = None
        self._at = 0
        self._places: dict[Node, int] = {}
        self._reaches_back = False
        """True once a rewrite has replaced values that nodes before it may read."""

    @cached_property
    def _readers(self) -> dict[Value, int]:
        counts = dict.fromkeys(self._graph.values(), 0)
        for node in self._graph.nodes:
            for operand in node.inputs:
                counts[operand] += 1
        for result in self._graph.results:
            counts[result] += 1
        return counts

    @cached_property
    def _positions(self) -> dict[Node, int]:
        return {node: index for index, node in enumerate(self._graph.nodes)}

    # Questions

    def single(self, value: Value) -> bool:
        """Has `value` one reader and is it no result? (A result counts as a reader.)"""
        return self._readers[self.resolve(value)] == 1

    def producer(self, value: Value, *ops: str) -> Node | None:
        """The node that makes `value`, if its op is one of `ops` (any op when none is given)."""
        node = self.resolve(value).node
        return node if node is not None and (not ops or node.op.name in ops) else None

    def static(self, value: Value) -> bool:
        """Does `value` depend on constants and weights only? Then it is computed in prepare."""
        return self._derivation.of(self.resolve(value)) is not Changes.WITH_CALLS

    def position(self, node: Node) -> int:
        """Return the node's place in topological order. A new node has the place of the node that it replaces."""
        place = self._places.get(node)
        return self._positions[node] if place is None else place

    # Makers

    def make(self, op: str, *inputs: Value, origin: Sequence[Node] = (), **attrs: Any) -> Value:
        """A new node's output. `origin` names the nodes it stands for; by default the rewritten one."""
        return self._keep(make_node, op, inputs, attrs, origin)

    def folded(self, op: str, *inputs: Value, **attrs: Any) -> Value:
        """Make a node as `make` does; where all operands are constants, a constant. Later rewrites ask for its
        numbers."""
        return self._keep(make_folded, op, inputs, attrs)

    def _keep(self, maker: Callable[..., Node], op: str, inputs: Sequence[Value], attrs: dict[str, Any],
              origin: Sequence[Node] = ()) -> Value:
        assert self._root is not None
        node = maker(op, [self.resolve(v) for v in inputs], attrs, join_origins(origin or (self._root,)))
        self._made.append(node)
        return node.outputs[0]

    def constant(self, array: np.ndarray | np.generic) -> Value:
        return self.make("constant", value=np.asarray(array))

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """`value` itself when it has that shape already."""
        return value if are_same_shape(value.shape, shape) else self.make("reshape", value, shape=tuple(shape))

    # The sweep

    @property
    def changed(self) -> bool:
        return bool(self._replaced)

    def sweep(self) -> list[Miss]:
        misses: list[Miss] = []
        for index, node in enumerate(self._graph.nodes):
            self._at = index
            self._visit(node, 0, misses)
        if self._replaced:
            self._graph.nodes = [node for node in self._done if node not in self._dead]
            self._graph.results = [self.resolve(result) for result in self._graph.results]
        if self._reaches_back:
            self._graph.replace(self._replaced)
            if self._out_of_order():
                self._graph.sort()
        return misses

    def _visit(self, node: Node, depth: int, misses: list[Miss]) -> None:
        """Rewrite a node, then what that makes, in order; emit what stays."""
        if node in self._dead:
            return
        if self._replaced:
            self._resolve_inputs(node)
        rewrites = self._table.get(node.op.name)
        made = self._rewrite(node, rewrites, misses) if rewrites and depth < _MAX_CHAIN else None
        if made is None:
            self._done.append(node)
        else:
            for new in made:
                self._visit(new, depth + 1, misses)

    def _rewrite(self, node: Node, rewrites: Sequence[Rewrite], misses: list[Miss]) -> list[Node] | None:
        """The nodes that take the place of `node` (with `node` itself, when it still has readers)."""
        self._root = node
        for rewrite in rewrites:
            self._made = []
            answer = rewrite(node, self)
            if answer is None:
                continue
            if isinstance(answer, str):
                misses.append(Miss(rewrite.__name__, str(node), answer))
            else:
                if isinstance(answer, Value):
                    answer = {node.output: answer}
                else:
                    self._reaches_back = True
                self._replace(answer)
                return self._made if node in self._dead else [*self._made, node]
        return None

    def _replace(self, mapping: dict[Value, Value]) -> None:
        readers = self._readers
        for new in self._made:
            self._places[new] = self._at
            for output in new.outputs:
                readers[output] = 0
            for operand in new.inputs:
                readers[operand] += 1
        for old, new_value in mapping.items():
            new_value = self.resolve(new_value)
            if old.type != new_value.type:
                raise AssertionError(f"a rewrite of {old.node} changes {old.type} to {new_value.type}")
            readers[new_value] += readers[old]
            readers[old] = 0
            self._replaced[old] = new_value
        for value in [*mapping, *(output for new in self._made for output in new.outputs)]:
            self._bury(value)

    def _bury(self, value: Value) -> None:
        """Drop the producer of `value` if nothing reads it, and then what only that read."""
        stack = [value]
        while stack:
            node = stack.pop().node
            if node is None or node in self._dead or any(self._readers[v] for v in node.outputs):
                continue
            self._dead.add(node)
            for operand in node.inputs:
                final = self.resolve(operand)
                self._readers[final] -= 1
                stack.append(final)

    def resolve(self, value: Value) -> Value:
        """Return the value that stands for `value` by now."""
        while value in self._replaced:
            value = self._replaced[value]
        return value

    def _resolve_inputs(self, node: Node) -> None:
        if not self._replaced.keys().isdisjoint(node.inputs):
            node.inputs = [self.resolve(v) for v in node.inputs]

    def _out_of_order(self) -> bool:
        """A rewrite that replaces more than its own node may have put a definition behind a read."""
        defined = set(self._graph.parameters)
        for node in self._graph.nodes:
            if any(operand not in defined for operand in node.inputs):
                return True
            defined.update(node.outputs)
        return False


def join_origins(nodes: Sequence[Node]) -> str:
    """The framework names of all nodes that one node stands for, each once."""
    parts = [part for node in nodes if node.origin for part in node.origin.split(" + ")]
    return " + ".join(dict.fromkeys(parts))


def uniform(value: Value) -> Any:
    """The number that fills a non-empty constant, or None. NaN counts as no number."""
    array = constant_of(value)
    if array is None or not array.size:
        return None
    first = array.reshape(-1)[0]
    return first.item() if bool((array == first).all()) else None
