"""The lowered form of a graph, for pictures and reports: kernel calls in levels, memory over the levels, layouts."""

from __future__ import annotations

from dataclasses import dataclass

from ngraph_mxnet.ir.graph import Graph


@dataclass(frozen=True)
class KernelCall:
    """An instruction, for the node at the place `node` of the graph's nodes. `operations` count a multiply-add as two;
    `bytes` are those of the tensors read and written."""

    kernel: str
    node: int
    level: int
    tasks: int
    operations: float
    bytes: int


@dataclass(frozen=True)
class PlannedBuffer:
    """`bytes` of the arena from `offset` on, in use from level `first` to level `last`, both included. `node` is the
    place of that for which it is written first."""

    offset: int
    bytes: int
    first: int
    last: int
    node: int


@dataclass(frozen=True)
class Lowered:
    """`graph`: as it was lowered. `layouts`: for each of its nodes how its first output is stored, for people; empty
    where it is not stored."""

    graph: Graph
    calls: tuple[KernelCall, ...]
    buffers: tuple[PlannedBuffer, ...]
    layouts: tuple[str, ...]
    levels: int
    arena_bytes: int
