"""A recorded run, read back: its graphs, and its calls in the order in which they began."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngraph_mxnet.auditing.database import HASH, Reader, location
from ngraph_mxnet.auditing.tensors import KINDS, Tensor
from ngraph_mxnet.debug.statistics import Statistics
from ngraph_mxnet.errors import AuditError
from ngraph_mxnet.ir.types import element_type


@dataclass(frozen=True)
class Recorded:
    """One tensor of one call."""

    tensor: Tensor
    statistics: Statistics
    hash: bytes

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.tensor.kind, "name": self.tensor.name, "node": self.tensor.node,
                **self.statistics.to_dict(), "hash": self.hash.hex()}


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
    """The run at FILE|FOLDER, or FILE|FOLDER@RUN: without a number the last one that has calls.

    Raises:
        AuditError: there is no such file or run, or it can't be read.
    """
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
                           row["hash"])

    return sorted(recorded(), key=lambda each: (KINDS.index(each.tensor.kind), each.tensor.place))
