"""A recorded run, read back: its graphs, and its calls in the order in which they began."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from ngraph_mxnet.base.errors import AuditError
from ngraph_mxnet.base.rendered import Facts
from ngraph_mxnet.ir.types import element_type
from ngraph_mxnet.program.differences import Statistics
from ngraph_mxnet.program.recorder import HASH, KINDS, VALUE, Reader, Tensor, location


@dataclass(frozen=True)
class Recorded(Facts):
    tensor: Tensor
    statistics: Statistics
    hash: str

    renamed: ClassVar[Mapping[str, str | None]] = {"tensor": "", "statistics": ""}


@dataclass(frozen=True)
class Checkpoint:
    """The weights that calls of a graph read. `columns` are those of the table."""

    columns: Mapping[str, Any]
    tensors: list[Recorded]


@dataclass(frozen=True)
class RecordedCall:
    """`number` of its graph's; `checkpoints`: of its inputs that are weights, and of constants."""

    graph: RecordedGraph
    number: int
    begin: float
    seconds: float
    tensors: list[Recorded]
    checkpoints: list[Checkpoint]


@dataclass
class RecordedGraph:
    """`columns` are those of the table; `place`: the how many-th graph of this name it is."""

    columns: Mapping[str, Any]
    place: int
    tensors: dict[int, Tensor] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.columns["name"])

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.place


@dataclass(frozen=True)
class Run:
    """`columns` are those of the table; `lost`: how many calls were not recorded, for the file was not written to fast
    enough."""

    columns: Mapping[str, Any]
    graphs: list[RecordedGraph]
    calls: list[RecordedCall]
    checkpoints: list[Checkpoint]
    lost: int

    @property
    def hash_version(self) -> int:
        """The same content has equal hashes in runs of the same one only."""
        return int(self.columns["versions"].get(HASH, 1))


def open_run(path: str | Path) -> Run:
    """The run at FILE|FOLDER, or FILE|FOLDER@RUN: without a number the last one that has calls. Raises AuditError:
    there is no such file or run, or it can't be read."""
    text = str(path)
    file, _, wanted = text.rpartition("@")
    if not file or not wanted.isdigit() or Path(text).exists():
        file, wanted = text, ""
    reader = Reader(location(file))
    runs = reader.runs()
    if wanted:
        runs = [run for run in runs if run["id"] == int(wanted)]
        if not runs:
            raise AuditError(f"{file} has no run {wanted}")
        return _run(reader, runs[0])
    found = next((run for run in reversed(runs) if reader.rows("calls", {"run": run["id"]}, "id LIMIT 1")), None)
    if found is None:
        raise AuditError(f"{file} has no run in which a call was recorded")
    return _run(reader, found)


def _run(reader: Reader, columns: dict[str, Any]) -> Run:
    where = {"run": columns["id"]}
    graphs: dict[int, RecordedGraph] = {}
    counts: dict[str, int] = {}
    for row in reader.rows("graphs", where, "id"):
        counts[row["name"]] = counts.get(row["name"], 0) + 1
        graphs[row["id"]] = RecordedGraph(row, counts[row["name"]])
    for row in reader.rows("tensors", where, "place"):
        graphs[row["graph"]].tensors[row["place"]] = Tensor(
            row["place"], row["kind"], row["name"], row["node"], row["element"], tuple(json.loads(row["shape"])))
    numbers: dict[int, list[dict[str, Any]]] = {}
    for row in reader.rows("statistics", where):
        numbers.setdefault(row["owner"], []).append(row)
    checkpoints = {row["id"]: Checkpoint(row, _tensors(graphs[row["graph"]], numbers.get(row["id"], [])))
                   for row in reader.rows("checkpoints", where, "begin, id")}
    calls = []
    for row in reader.rows("calls", where, "begin, id"):
        graph = graphs[row["graph"]]
        read = [checkpoints[owner] for owner in (graph.columns["constants"], row["weights"]) if owner in checkpoints]
        calls.append(RecordedCall(graph, row["number"], row["begin"], row["seconds"],
                                  _tensors(graph, numbers.get(row["id"], [])), read))
    lost = sum(row["calls"] for row in reader.rows("losses", where))
    return Run(columns, list(graphs.values()), calls, list(checkpoints.values()), lost)


def _tensors(graph: RecordedGraph, rows: list[dict[str, Any]]) -> list[Recorded]:
    """In the order of execution."""
    def recorded() -> Iterator[Recorded]:
        for row in rows:
            tensor = graph.tensors[row["place"]]
            numbers = [row[name] for name in ("min", "max", "mean", "norm", "nan", "infinite", "zeros", "denormals")]
            yield Recorded(tensor, Statistics(tensor.shape, str(element_type(tensor.element).numpy), *numbers),
                           row["hash"].hex())

    return sorted(recorded(), key=lambda each: (KINDS.index(each.tensor.kind), each.tensor.place))


_JOINED = " + "
"""Between the names of nodes that a pass made one of."""


@dataclass(frozen=True)
class Pair(Facts):
    a: Recorded
    b: Recorded

    @property
    def node(self) -> str:
        """The framework's name of the node that makes it, or reads it first."""
        return self.a.tensor.node

    @property
    def of(self) -> dict[str, str]:
        return {name: getattr(self.a.tensor, name) for name in ("kind", "name", "node")}

    renamed: ClassVar[Mapping[str, str | None]] = {"of": ""}
    derived = ("of",)


class At(NamedTuple):
    """A call: its graph's name, and its number."""

    graph: str
    number: int


class Compared(NamedTuple):
    tensors: int
    calls: int


@dataclass(frozen=True, repr=False)
class Difference(Facts):
    """The difference of two runs.

    Attributes:
        compared: how many tensors of how many calls were compared, up to where the runs part.
        weights: the weights that differ in the call at which the runs part.
        first: the first other tensor that differs; None if none does.
        call: the one at which they part; None if they do not.
        unmatched: what only one run has, as sentences.
    """

    compared: Compared
    weights: list[Pair]
    first: Pair | None
    call: At | None
    unmatched: list[str]

    derived = ("differs", "node")
    layout = "parting"

    @property
    def node(self) -> str | None:
        """The node at which the runs part: it gives another value or, where that was not recorded, reads another
        weight."""
        if self.first is not None and self.first.a.tensor.kind == VALUE:
            return self.first.node
        return next((pair.node for pair in (*self.weights, *([self.first] if self.first else []))), None)

    @property
    def differs(self) -> bool:
        return self.call is not None


def difference(a: Run, b: Run, tolerance: float = 0.0) -> Difference:
    """Compare the calls that both runs recorded, by graph and number.

    Args:
        tolerance: tensors whose contents differ count as equal where their statistics differ by no more than this share
            of the largest magnitude.

    Raises:
        AuditError: the runs have no call in common, or without a tolerance hashes of two versions.
    """
    if tolerance == 0 and a.hash_version != b.hash_version:
        raise AuditError(f"contents can't be compared: {_hash_versions(a, b)}; record again what is older, or compare "
                         "the statistics (--tolerance)")
    others = {(call.graph.key, call.number): call for call in b.calls}
    pairs = [(call, others[call.graph.key, call.number]) for call in a.calls if (call.graph.key, call.number) in others]
    if not pairs:
        raise AuditError(f"the runs have no call in common: found graphs {_names(a)} and {_names(b)}")
    unmatched = _unmatched(a, b, len(pairs))
    tensors = 0
    for number, (one, other) in enumerate(pairs):
        weights, read = _parting(_weights(one), _weights(other), tolerance)
        found, seen = _parting(one.tensors, other.tensors, tolerance)
        tensors += read + seen
        if weights or found:
            return Difference(Compared(tensors, number + 1), weights, found[0] if found else None,
                              At(one.graph.name, one.number), unmatched)
    return Difference(Compared(tensors, len(pairs)), [], None, None, unmatched)


def _weights(call: RecordedCall) -> list[Recorded]:
    return [each for checkpoint in call.checkpoints for each in checkpoint.tensors]


def _parting(a: Sequence[Recorded], b: Sequence[Recorded], tolerance: float) -> tuple[list[Pair], int]:
    """The pairs that differ, and how many there are."""
    by_name = {_key(each): each for each in b}
    last = {(each.tensor.kind, _last(each.tensor.name)): each for each in b}
    pairs = []
    for each in a:
        # Of nodes that passes joined otherwise, the last one's value is the same.
        other = by_name.get(_key(each)) or last.get((each.tensor.kind, _last(each.tensor.name)))
        if other is not None:
            pairs.append(Pair(each, other))
    return [pair for pair in pairs if not _alike(pair.a, pair.b, tolerance)], len(pairs)


def _key(each: Recorded) -> tuple[str, str]:
    return each.tensor.kind, each.tensor.name


def _last(name: str) -> str:
    return name.rpartition(_JOINED)[2]


def _alike(a: Recorded, b: Recorded, tolerance: float) -> bool:
    if (a.tensor.element, a.tensor.shape) != (b.tensor.element, b.tensor.shape):
        return False
    one, other = a.statistics, b.statistics
    if a.hash == b.hash:
        return True
    if tolerance == 0 or (one.nan, one.infinite) != (other.nan, other.infinite):
        return False
    bounds = (one.min, one.max, other.min, other.max)
    numbers = [abs(float(bound)) for bound in bounds if bound is not None]
    largest = max(numbers, default=0.0)
    close = [_close(x, y, tolerance * largest) for x, y in zip(bounds[:2], bounds[2:], strict=True)]
    close.append(_close(one.mean, other.mean, tolerance * largest))
    close.append(_close(one.norm, other.norm, tolerance * max(one.norm or 0.0, other.norm or 0.0)))
    return all(close)


def _close(a: float | None, b: float | None, most: float) -> bool:
    return a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=0.0, abs_tol=most))


def _names(run: Run) -> str:
    return ", ".join(dict.fromkeys(graph.name for graph in run.graphs)) or "none"


def _hash_versions(a: Run, b: Run) -> str:
    return f"the first run has hashes of version {a.hash_version}, the second of version {b.hash_version}"


def _unmatched(a: Run, b: Run, calls: int) -> list[str]:
    found = []
    if a.hash_version != b.hash_version:
        found.append(f"{_hash_versions(a, b)}; only statistics are compared")
    for which, one in (("first", a), ("second", b)):
        if len(one.calls) > calls:
            found.append(f"{len(one.calls) - calls} calls of the {which} run have none to be compared with")
        if one.lost:
            found.append(f"{one.lost} calls of the {which} run were lost: they came faster than they were written")
    for key in _graphs(a).keys() & _graphs(b).keys():
        one_graph, other_graph = _graphs(a)[key], _graphs(b)[key]
        if one_graph["digest"] != other_graph["digest"]:
            found.append(f"graph {key[0]} is not the same in both runs; tensors of equal names are compared")
        elif one_graph["backend"] != other_graph["backend"]:
            found.append(f"graph {key[0]} ran on {one_graph['backend']} and {other_graph['backend']}")
    return sorted(found)


def _graphs(run: Run) -> Mapping[tuple[str, int], Mapping[str, Any]]:
    return {graph.key: graph.columns for graph in run.graphs}
