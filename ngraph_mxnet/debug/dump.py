"""Writes the graph after every pass to a folder, as text and on request as dot."""

from __future__ import annotations

from pathlib import Path

from ngraph_mxnet.debug.dot import to_dot
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.printer import print_graph
from ngraph_mxnet.passes.base import PassRecord


class Dump:
    """An observer for `PassManager`: `optimize(graph, observer=Dump("dumps"))`.

    Files are called `<graph>.<number>.<pass>.ngraph`, in the order of execution; a pass that changed nothing
    takes a number, but writes no file. `elide` shortens constants; such a text does not parse back.
    """

    def __init__(self, folder: str | Path, *, elide: bool = True, dot: bool = False) -> None:
        self.folder = Path(folder)
        self.elide, self.dot = elide, dot
        self._number = 0

    def __call__(self, record: PassRecord, graph: Graph) -> None:
        if record.changed:
            self.write(graph, record.name)
        self._number += 1

    def write(self, graph: Graph, stage: str) -> Path:
        """Write the graph as it is now; `stage` is part of the file's name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stem = f"{_file_name(graph.name)}.{self._number:03d}.{_file_name(stage)}"
        path = self.folder / f"{stem}.ngraph"
        path.write_text(print_graph(graph, elide=self.elide), encoding="utf-8")
        if self.dot:
            (self.folder / f"{stem}.dot").write_text(to_dot(graph), encoding="utf-8")
        return path


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name) or "graph"
