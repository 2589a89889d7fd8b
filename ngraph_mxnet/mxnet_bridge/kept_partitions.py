"""Partitioned symbols, remembered: MXNet's partitioner takes ten times as long as reading its result again.

What is kept of a graph is the record of its partitioning and the partitioned symbol's JSON, with the places of nodes
in the graph instead of their names. So it serves every graph that differs in names only: a model's second instance.
"""

from __future__ import annotations

import json
import re
from json.encoder import encode_basestring
from typing import Any

from ngraph_mxnet.cache import Place, place_for
from ngraph_mxnet.mxnet_bridge import known
from ngraph_mxnet.partition.cost import Cost
from ngraph_mxnet.partition.report import Partition, Region
from ngraph_mxnet.partition.support import Verdict

#: On both sides of a node's place. It stands for itself in JSON, and no name has it.
_MARK = "\x7f"
_PLACE = re.compile(f"{_MARK}([0-9]+){_MARK}")

memory = known.Memory(32)  # about 100 KiB each


class UnnamedGraph:
    """A symbol's graph apart from the names of its nodes."""

    def __init__(self, text: str) -> None:
        """`text`: the symbol's JSON."""
        root = json.loads(text)
        self._names: list[str] = [node.pop("name") for node in root["nodes"]]
        self._places = {name: place for place, name in enumerate(self._names)}
        self.repeats_names = len(self._places) < len(self._names)
        self.structure = _dump(root)
        self.is_small = len(self._names) <= known.SMALL_NODES
        #: Whether a place tells a name and a name a place.
        self.usable = (not self.repeats_names and "" not in self._places
                       and _MARK not in self.structure + "".join(self._names))

    def without_names(self, text: str) -> str:
        """A name, or what MXNet makes by adding to one, with the name's place instead: the longest that fits."""
        for end in range(len(text), 0, -1):
            place = self._places.get(text[:end])
            if place is not None:
                return f"{_MARK}{place}{_MARK}{text[end:]}"
        return text

    def with_names(self, text: str) -> str:
        """A JSON text with this graph's names put in."""
        names = [encode_basestring(name)[1:-1] for name in self._names]
        return _PLACE.sub(lambda found: names[int(found[1])], text)


def with_distinct_names(text: str) -> str:
    """A symbol's JSON in which each operator has a name of its own; variables keep theirs."""
    root = json.loads(text)
    taken = {node["name"] for node in root["nodes"]}
    seen = {node["name"] for node in root["nodes"] if node["op"] == "null"}
    for node in root["nodes"]:
        if node["op"] == "null":
            continue
        name, number = node["name"], 1
        if name in seen:
            while name in taken:
                name, number = f"{node['name']}_again{number}", number + 1
            node["name"] = name
            taken.add(name)
        seen.add(name)
    return _dump(root)


def recall(graph: UnnamedGraph, facts: str) -> tuple[Partition, str | None] | None:
    """What was kept for such a graph and `facts`, with this graph's names."""
    if not graph.usable:
        return None
    key = _key(graph, facts)
    content = memory.get(key)
    if content is None:
        place = _place(graph, key)
        kept = place.get() if place is not None else None
        if kept is None:
            return None
        content = kept.decode()
        memory.put(key, content)
    record, _, symbol = graph.with_names(content).partition("\n")
    return _partition(json.loads(record)), symbol or None


def keep(graph: UnnamedGraph, facts: str, partition: Partition, symbol: str | None) -> None:
    """Remember the record and the partitioned symbol's JSON, None if it has no region.

    `facts` are what the partitioning depends on beside the graph.
    """
    if not graph.usable:
        return
    record = _dump(_record(partition, graph.without_names))
    content = record + "\n" + ("" if symbol is None else _dump(_bare(json.loads(symbol), graph)))
    key = _key(graph, facts)
    memory.put(key, content)
    place = _place(graph, key)
    if place is not None:
        place.put(content.encode())


def _place(graph: UnnamedGraph, key: str) -> Place | None:
    return place_for("partition", key, small=graph.is_small)


def _key(graph: UnnamedGraph, facts: str) -> str:
    return f"{facts}\n{graph.structure}"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _bare(root: dict[str, Any], graph: UnnamedGraph) -> dict[str, Any]:
    """The graph without names, and without the types that the partitioner wrote."""
    for node in root["nodes"]:
        node["name"] = graph.without_names(node["name"])
        attrs = {key: value for key, value in node.pop("attrs", {}).items() if not key.startswith("__ext_")}
        if "argName" in attrs:
            attrs["argName"] = graph.without_names(attrs["argName"])
        if attrs:
            node["attrs"] = attrs
        for region in node.get("subgraphs", ()) if node["op"] == "NGraphSubgraphOp" else ():
            _bare(region, graph)
    root.pop("node_row_ptr", None)
    return root


def _record(partition: Partition, bare: Any) -> list[Any]:
    """Plain data; `_partition` is the reverse."""
    return [
        partition.backend,
        [[bare(verdict.name), verdict.op, verdict.reason] for verdict in partition.verdicts],
        [[[[bare(name), op] for name, op in region.nodes], [bare(name) for name in region.inputs],
          [bare(name) for name in region.outputs], [region.cost.macs, region.cost.operations, region.cost.bytes],
          region.rejected] for region in partition.reviewed],
    ]


def _partition(record: list[Any]) -> Partition:
    backend, verdicts, reviewed = record
    return Partition(
        backend, [Verdict(*verdict) for verdict in verdicts],
        [Region(tuple((name, op) for name, op in nodes), tuple(inputs), tuple(outputs), Cost(*cost), rejected)
         for nodes, inputs, outputs, cost, rejected in reviewed],
    )
