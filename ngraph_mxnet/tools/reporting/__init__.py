"""The content of the page of `report`: passes' changes, names as a tree of blocks, and all of it as data."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import SequenceMatcher
from importlib.resources import files
from itertools import starmap
from string import Template
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ngraph_mxnet.base.config import cpu_info
from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.base.rendered import finite, jsonable, pieces, short
from ngraph_mxnet.base.version import __version__
from ngraph_mxnet.ir.graph import Graph, Node, Value, constant_of, count_ops, format_node, graph_cost, print_graph
from ngraph_mxnet.ir.types import format_attribute
from ngraph_mxnet.passes.base import PassManager, PassRecord
from ngraph_mxnet.program.backend import Backend, get_backend
from ngraph_mxnet.program.compile import bind_weights
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.program.differences import DEFAULTS, Tolerance, compare
from ngraph_mxnet.program.executable import Executable, Lowered
from ngraph_mxnet.tools.debug import Item, items_of

_CONTEXT = 2
_MOST_LINES = 1500
_MOST_OF_HISTORY = 320


@dataclass(frozen=True)
class Change:
    """A run of a pass that changed the graph. `nodes`: how many there are then; `ops`: by how many more or fewer.
    `lines` are a sign and a text each: `-` before, `+` after, a blank for what is around, `@` for a gap; `left_out`
    counts those beyond the most that are kept."""

    name: str
    ms: float
    nodes: int
    ops: list[tuple[str, int]]
    lines: list[tuple[str, str]]
    left_out: int


class History:
    """An observer for `PassManager`. A value keeps its number through all passes, so that a difference shows what a
    pass did, and not that all that follows is numbered anew."""

    def __init__(self, graph: Graph) -> None:
        self.changes: list[Change] = []
        self.unchanged = 0
        self._names: WeakKeyDictionary[Value, str] = WeakKeyDictionary()
        self._count = 0
        self._text = self._lines(graph)
        self.start = list(self._text)

    def __call__(self, record: PassRecord, graph: Graph) -> None:
        if not record.changed:
            self.unchanged += 1
            return
        before, self._text = self._text, self._lines(graph)
        lines = list(_difference(before, self._text))
        counts = [(name, record.after.get(name, 0) - record.before.get(name, 0))
                  for name in sorted({*record.before, *record.after})]
        self.changes.append(Change(record.name, round(record.ms, 3), sum(record.after.values()),
                                   [(name, change) for name, change in counts if change], lines[:_MOST_LINES],
                                   max(len(lines) - _MOST_LINES, 0)))

    @property
    def end(self) -> list[str]:
        """The graph's lines after the last change."""
        return self._text

    def _lines(self, graph: Graph) -> list[str]:
        names = {parameter: f"%{parameter.name}" for parameter in graph.parameters}
        for node in graph.nodes:
            for value in node.outputs:
                if value not in self._names:
                    self._names[value] = f"%{self._count}"
                    self._count += 1
                names[value] = self._names[value]
        lines = [f"{names[parameter]}: {parameter.type}" for parameter in graph.parameters]
        for node in graph.nodes:
            lines.append(format_node(node, names, elide=True).strip())
            for name, body in node.attrs.items():
                if isinstance(body, Graph):
                    lines += [f"    {line}" for line in print_graph(body, elide=True).replace("graph", name, 1)
                              .splitlines()]
        lines.append("return " + ", ".join(names[value] for value in graph.results))
        return [_cut(line) for line in lines]


def _difference(before: list[str], after: list[str]) -> Iterator[tuple[str, str]]:
    groups = SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_CONTEXT)
    for number, group in enumerate(groups):
        if number:
            yield "@", ""
        for tag, low, high, new_low, new_high in group:
            if tag == "equal":
                yield from ((" ", line) for line in before[low:high])
            else:
                yield from (("-", line) for line in before[low:high])
                yield from (("+", line) for line in after[new_low:new_high])


def _cut(line: str) -> str:
    return line if len(line) <= _MOST_OF_HISTORY else line[:_MOST_OF_HISTORY - 1] + "\u2026"


_DENSE = 0.4
"""The least share that a block has of the nodes from its first to its last: others are no part of the model, but
counters of an operator's kind, such as Conv in Conv_1, Conv_2."""


@dataclass(frozen=True)
class Scope:
    """A block. `parent` is the place of the block around it, -1 where there is none."""

    label: str
    parent: int


def scopes(names: Sequence[str]) -> tuple[list[Scope], list[int]]:
    """The blocks that names of nodes, in order, tell of: what several begin with, up to `/`, `.` or `_`.

    Returns:
        The blocks, each behind the one around it; and for each name the innermost that it is in, -1 for none.
    """
    found: list[Scope] = []
    innermost = [-1] * len(names)
    cut = [pieces(name) for name in names]

    def divide(members: list[int], depth: int, taken: int, parent: int) -> None:
        groups: dict[str, list[int]] = {}
        for member in members:
            innermost[member] = parent
            if depth < len(cut[member]) - 1:
                groups.setdefault(cut[member][depth], []).append(member)
        for group in groups.values():
            whole = len(group) == len(members)
            if len(group) < 2 or whole or len(group) / (group[-1] - group[0] + 1) < _DENSE:
                divide(group, depth + 1, taken, parent)
                continue
            label = "".join(cut[group[0]][taken:depth + 1]).strip("/._")
            found.append(Scope(label, parent))
            divide(group, depth + 1, depth + 1, len(found) - 1)

    divide(list(range(len(names))), 0, 0, -1)
    return found, innermost


_MOST_CHARACTERS = 200


def graph_data(graph: Graph, lowered: Lowered | None, where: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """For JSON: `nodes` in order, the inputs before and the results behind; `edges` of places, with a place among
    `types`; `scopes`.

    Args:
        lowered: of the same graph, for layouts.
        where: the device of nodes, and why it is that, by origin.
    """
    items, edges = items_of(graph)
    numbers = {node: number for number, node in enumerate(graph.nodes)}
    kept = {place: item for place, item in enumerate(items) if isinstance(item, Node)}
    found, innermost = scopes([name_of(node) for node in kept.values()])
    scope_of = dict(zip(kept, innermost, strict=True))

    def told(place: int, item: Item) -> dict[str, Any]:
        if isinstance(item, Value):
            kind = "weight" if item.is_weight else "input"
            return {"kind": kind, "op": kind, "name": item.name, "types": [str(item.type)]}
        if isinstance(item, int):
            name, type_ = graph.results[item].name or f"result {item}", graph.results[item].type
            return {"kind": "result", "op": "result", "name": name, "types": [str(type_)]}
        layout = lowered.layouts[numbers[item]] if lowered else ""
        return {**_node(item, layout, where.get(item.origin)), "scope": scope_of[place]}

    types: dict[str, int] = {}
    between = [(source, reader, types.setdefault(str(value.type), len(types)))
               for source, reader, value in dict.fromkeys(edges)]
    return {"name": graph.name, "nodes": list(starmap(told, enumerate(items))), "edges": between, "types": list(types),
            "scopes": [[scope.label, scope.parent] for scope in found],
            "places": {numbers[node]: place for place, node in kept.items()}}


def name_of(node: Node) -> str:
    """The framework's name of the first of what the node was made of; empty if it has none."""
    return node.origin.partition(" + ")[0].partition(":")[2].partition(" ")[0]


def _node(node: Node, layout: str, where: tuple[str, str] | None) -> dict[str, Any]:
    kind = "contraction" if node.op.contraction else "computing" if node.op.computes else "moving"
    operands = [str(value.type) + (" constant" if constant_of(value) is not None else "") for value in node.inputs]
    found = {"kind": kind, "op": node.op.name, "name": name_of(node), "origin": node.origin,
             "types": [str(value.type) for value in node.outputs], "operands": operands,
             "attributes": {name: _text(value) for name, value in node.attrs.items()
                            if value != node.op.schema[name].default or isinstance(value, np.ndarray)}}
    if layout:
        found["layout"] = layout
    if where is not None:
        found["device"], found["why"] = where
    return found


def _text(value: Any) -> str:
    if isinstance(value, Graph):
        return "\n".join(f"{node.op.name}: {node.outputs[0].type}" for node in value.nodes)
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    text = format_attribute(value)
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS - 1] + "\u2026"


_MOST_EVENTS = 20_000
_REFERENCE = "INTERPRETER"
"""The backend that defines the ops."""


@dataclass(frozen=True)
class Subject:
    """The subject of a report: a graph with its weights. `notes`: sentences about the model for the page."""

    title: str
    graph: Graph
    weights: Mapping[str, np.ndarray]
    notes: list[str] = field(default_factory=list)


def collect(subject: Subject, backend: Backend, settings: Mapping[str, Any], make_inputs: Callable[[Executable], Any],
            *, rounds: int, verified: bool) -> dict[str, Any]:
    """Compile the graph, run it, and tell of it; a part that the backend can't tell is the reason why, as text.

    Args:
        make_inputs: gives arrays by name for the executable's inputs.
        rounds: calls to measure; nothing runs if 0.
        verified: compare the results with the definitions of the ops.

    Raises:
        NGraphError: as `runtime.compile.compile`.
    """
    bound = bind_weights(subject.graph, subject.weights)
    plan = backend.plan(bound.clone(), settings) if backend.devices else None
    optimised = bound.clone()
    history = History(optimised)
    backend.require_support(bound)
    PassManager(backend.pipeline(), observer=history).run(optimised)
    begin = time.perf_counter()
    executable = compile_graph(bound, backend.name, **settings)
    seconds = time.perf_counter() - begin
    lowered = executable.lowered()
    graph = lowered.graph if lowered is not None else optimised
    arrays = executable.checked((make_inputs(executable),)) if rounds else None
    drawn, kernels = graph_data(graph, lowered, _devices(plan)), _kernels(executable, arrays, rounds)
    told = [kernels["note"]] if isinstance(kernels, dict) and kernels.get("note") else []
    return {
        "title": subject.title, "version": __version__, "notes": [*subject.notes, *backend.notices(), *told],
        "facts": _facts(subject.graph, graph, backend, executable, seconds, lowered),
        "graph": {name: entry for name, entry in drawn.items() if name != "places"},
        "placement": _placement(bound, backend, plan),
        "passes": {"changes": jsonable(history.changes), "unchanged": history.unchanged,
                   "start": history.start, "end": history.end},
        "memory": _memory(lowered, drawn["places"], backend),
        "kernels": kernels,
        "calls": _calls(lowered, drawn["places"]),
        "timeline": _timeline(executable, arrays),
        "accuracy": _accuracy(bound, executable, arrays) if verified else
        "Not verified: the option --verify compares the results with the definitions of the ops.",
    }


def _facts(imported: Graph, graph: Graph, backend: Backend, executable: Executable, seconds: float,
           lowered: Lowered | None) -> list[tuple[str, str]]:
    cost = graph_cost(imported)
    before, after = (sum(count for name, count in count_ops(each.nodes).items() if name != "constant")
                     for each in (imported, graph))
    found = [("backend", backend.name), ("precision", executable.precision),
             ("inputs", ", ".join(f"{port.name}: {port.type}" for port in executable.inputs) or "none"),
             ("outputs", ", ".join(f"{port.name}: {port.type}" for port in executable.outputs) or "none"),
             ("nodes", f"{before} imported, {after} compiled"),
             ("work", f"{short(cost.macs)} multiply-adds, {short(cost.operations)} other operations"),
             ("compiled in", f"{seconds:.2f} s"), ("CPU", cpu_info().get("model name", "unknown")),
             ("made", f"{datetime.now():%Y-%m-%d %H:%M} by ngraph_mxnet {__version__}")]
    if executable.threads is not None:
        found.append(("threads", f"at most {executable.threads}"))
    if lowered is not None:
        found.append(("program", f"{len(lowered.calls)} kernel calls in {lowered.levels} levels"))
    return found


def _devices(plan: Any) -> dict[str, tuple[str, str]]:
    """The device of each placed node, and why, by origin."""
    placed = plan.to_dict()["nodes"] if plan is not None else []
    return {node["origin"]: (node["device"], node["why"]) for node in placed if node["origin"]}


def _placement(graph: Graph, backend: Backend, plan: Any) -> dict[str, Any]:
    ops = {name: count for name, count in count_ops(graph.nodes).items() if name != "constant"}
    found: dict[str, Any] = {"backend": backend.name, "ops": ops}
    if plan is not None:
        found["plan"] = plan.to_dict()
    return found


def _memory(lowered: Lowered | None, places: Mapping[int, int], backend: Backend) -> dict[str, Any] | str:
    if lowered is None:
        return f"The backend {backend.name} does not tell how it plans memory."
    return {"levels": lowered.levels, "arena": lowered.arena_bytes,
            "buffers": [[b.offset, b.bytes, b.first, b.last, places.get(b.node, -1)] for b in lowered.buffers]}


def _calls(lowered: Lowered | None, places: Mapping[int, int]) -> list[list[Any]]:
    """Node, kernel, level, tasks, operations, bytes of each."""
    return [[places.get(c.node, -1), c.kernel, c.level, c.tasks, c.operations, c.bytes]
            for c in (lowered.calls if lowered is not None else ())]


def _kernels(executable: Executable, arrays: list[np.ndarray] | None, rounds: int) -> dict[str, Any] | str:
    if arrays is None:
        return "Not measured: nothing ran, as --rounds is 0."
    try:
        found: dict[str, Any] = executable.measured(arrays, rounds).to_dict()
        return found
    except NGraphError as error:
        return f"Not measured: {error}."


def _timeline(executable: Executable, arrays: list[np.ndarray] | None) -> dict[str, Any] | str:
    """Lane, begin and duration in microseconds, kernel and origin of each span."""
    if arrays is None:
        return "Nothing ran, as --rounds is 0."
    try:
        told = executable.traced(arrays)
    except NGraphError as error:
        return f"No timeline: {error}."
    events = [event for event in told if event["ph"] == "X"]
    titles = {(event["pid"], event["tid"]): event["args"]["name"] for event in told if event["name"] == "thread_name"}
    lanes = {lane: number for number, lane in enumerate(sorted({(event["pid"], event["tid"]) for event in events}))}
    begin = min((event["ts"] for event in events), default=0)
    texts: dict[str, int] = {}
    rows = [[lanes[event["pid"], event["tid"]], round(event["ts"] - begin, 2), round(event["dur"], 2),
             texts.setdefault(event["name"], len(texts)),
             texts.setdefault(str(event.get("args", {}).get("origin", "")), len(texts)), event.get("cat", "")]
            for event in sorted(events, key=lambda event: -event["dur"])[:_MOST_EVENTS]]
    return {"lanes": [titles.get(lane, f"thread {number}") for lane, number in lanes.items()], "rows": rows,
            "texts": list(texts), "left_out": max(len(events) - _MOST_EVENTS, 0),
            "simulated": executable.simulated_seconds() is not None,
            "engines": jsonable(list(executable.simulated_engines()))}


def _accuracy(graph: Graph, executable: Executable, arrays: list[np.ndarray] | None) -> dict[str, Any] | str:
    """How far each output is from what the definitions of the ops give."""
    if arrays is None:
        return "Not verified: nothing ran, as --rounds is 0."
    reference = get_backend(_REFERENCE)
    expected = compile_graph(graph, reference.name).run(arrays)
    tolerance = Tolerance(DEFAULTS[executable.precision])
    rows = [{"name": str(port), **compare(ours, theirs, tolerance).to_dict()}
            for port, ours, theirs in zip(executable.outputs, executable.run(arrays), expected, strict=True)]
    return {"reference": reference.name, "tolerance": str(tolerance), "rows": rows}


SCRIPTS = ("elements.js", "model.js", "colours.js", "layout.js", "viewport.js", "details.js", "graph.js", "charts.js",
           "sections.js", "page.js")
"""In the order of loading: each uses those before it."""


def page(data: Mapping[str, Any]) -> str:
    """The HTML of what `collect` gave."""
    asset = files("ngraph_mxnet.tools.reporting").joinpath("assets")
    script = "\n".join(asset.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    return Template(asset.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(str(data["title"])), style=asset.joinpath("page.css").read_text(encoding="utf-8"),
        script=script, data=_embedded(data))


def _embedded(data: Mapping[str, Any]) -> str:
    """JSON that can stand within a script element: nothing in it ends one, or begins a comment. Numbers that JSON does
    not know are null."""
    text = json.dumps(finite(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")
