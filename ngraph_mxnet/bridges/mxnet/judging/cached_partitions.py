"""Partitioned symbols in memory and in the cache: to make one takes several times as long as to read it again.

The entry of a graph is the record of its partitioning and the partitioned symbol's JSON, with places for names
(`nameless`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ngraph_mxnet.bridges.mxnet.judging.nameless import NamelessGraph, dump
from ngraph_mxnet.bridges.mxnet.packaged import is_small
from ngraph_mxnet.cache import place_for
from ngraph_mxnet.ir.graph import Cost
from ngraph_mxnet.placement.verdicts.report import Partition, Region, Verdict
from ngraph_mxnet.recent import Recent

recent = Recent(32)  # about 100 KiB each

Made = tuple[Partition, str | None]
"""A partitioning, and the partitioned symbol's JSON if it has a region."""


def get_or_make(graph: NamelessGraph, facts: str, make: Callable[[], Made]) -> Made:
    """Return the result of `make` with this graph's names. The result is made once for such a graph and `facts`.

    `facts` are what the partitioning depends on beside the graph.
    """
    key = f"{facts}\n{graph.text}"
    content = recent.get(key)
    if content is None:
        place = place_for("partition", key, small=is_small(graph.text))
        entry = place.get() if place is not None else None
        if entry is None:
            partition, symbol = make()
            content = dump(_record(partition)) + "\n" + (symbol or "")
            if place is not None:
                place.put(content.encode())
        else:
            content = entry.decode()
        recent.put(key, content)
    record, _, text = graph.with_names(content).partition("\n")
    return _partition(json.loads(record)), text or None


def with_names(partition: Partition, graph: NamelessGraph) -> Partition:
    """The partition of such a graph, with this one's names."""
    return _partition(json.loads(graph.with_names(dump(_record(partition)))))


def _record(partition: Partition) -> list[Any]:
    """Plain data; `_partition` is the reverse."""
    return [
        partition.backend, [[verdict.name, verdict.op, verdict.reason] for verdict in partition.verdicts],
        [[region.nodes, region.inputs, region.outputs, [region.cost.macs, region.cost.operations, region.cost.bytes],
          region.rejected] for region in partition.reviewed],
    ]


def _partition(record: list[Any]) -> Partition:
    backend, verdicts, reviewed = record
    return Partition(
        backend, [Verdict(*verdict) for verdict in verdicts],
        [Region(tuple((name, op) for name, op in nodes), tuple(inputs), tuple(outputs), Cost(*cost), rejected)
         for nodes, inputs, outputs, cost, rejected in reviewed],
    )
