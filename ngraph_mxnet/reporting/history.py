"""The changes that each pass made, as differences of the IR's text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any
from weakref import WeakKeyDictionary

from ngraph_mxnet.ir.graph import Graph, Value, format_node, print_graph
from ngraph_mxnet.passes.base import PassRecord

_CONTEXT = 2
_MOST_LINES = 1500
_MOST_CHARACTERS = 320


@dataclass(frozen=True)
class Change:
    """A run of a pass that changed the graph. `lines` are a sign and a text each: `-` before, `+` after, a blank for
    what is around, `@` for a gap; `left_out` counts those beyond the most that are kept."""

    record: PassRecord
    lines: list[tuple[str, str]]
    left_out: int

    def to_dict(self) -> dict[str, Any]:
        ops = [(name, self.record.after.get(name, 0) - self.record.before.get(name, 0))
               for name in sorted({*self.record.before, *self.record.after})]
        return {"name": self.record.name, "ms": round(self.record.ms, 3), "nodes": sum(self.record.after.values()),
                "ops": [[name, change] for name, change in ops if change], "lines": self.lines,
                "left_out": self.left_out}


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
        self.changes.append(Change(record, lines[:_MOST_LINES], max(len(lines) - _MOST_LINES, 0)))

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
    return line if len(line) <= _MOST_CHARACTERS else line[:_MOST_CHARACTERS - 1] + "\u2026"
