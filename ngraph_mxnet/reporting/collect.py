"""The content of a report, as data for its page."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.ir.graph import Graph, count_ops, graph_cost
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.placement.verdicts.render import short
from ngraph_mxnet.reporting.graph_data import graph_data
from ngraph_mxnet.reporting.history import History
from ngraph_mxnet.runtime.backend import Backend, get_backend
from ngraph_mxnet.runtime.compile import bind_weights
from ngraph_mxnet.runtime.compile import compile as compile_graph
from ngraph_mxnet.runtime.executable import Executable
from ngraph_mxnet.runtime.lowered import Lowered
from ngraph_mxnet.verifying.report import DEFAULTS, Tolerance, compare
from ngraph_mxnet.version import __version__

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
    drawn = graph_data(graph, lowered, _devices(plan))
    return {
        "title": subject.title, "version": __version__, "notes": subject.notes + list(backend.notices()),
        "facts": _facts(subject.graph, graph, backend, executable, seconds, lowered),
        "graph": {name: entry for name, entry in drawn.items() if name != "places"},
        "placement": _placement(bound, backend, plan),
        "passes": {"changes": [change.to_dict() for change in history.changes], "unchanged": history.unchanged,
                   "start": history.start, "end": history.end},
        "memory": _memory(lowered, drawn["places"], backend),
        "kernels": _kernels(executable, arrays, rounds),
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
             ("compiled in", f"{seconds:.2f} s")]
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
    except NGraphError as error:
        return f"Not measured: {error}."
    whole = {name: found[name] for name in ("threads", "isa", "rounds", "wall_ms", "waiting_ms", "outside_ms", "peak")}
    return {**whole, "rows": found["rows"], "kinds": found["kinds"], "memory": found["memory"]}


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
            "simulated": executable.simulated_seconds() is not None}


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
    asset = files("ngraph_mxnet.reporting").joinpath("assets")
    script = "\n".join(asset.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    return Template(asset.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(str(data["title"])), style=asset.joinpath("page.css").read_text(encoding="utf-8"),
        script=script, data=_embedded(data))


def _embedded(data: Mapping[str, Any]) -> str:
    """JSON that can stand within a script element: nothing in it ends one, or begins a comment. Numbers that JSON does
    not know are null."""
    text = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None  # nan is not less
    if isinstance(value, Mapping):
        return {str(key): _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, (list, tuple)) else value
