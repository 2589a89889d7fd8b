"""Graphs that are one region, which C++ runs without MXNet's op around it: csrc/mxnet/direct.h."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from mxnet.executor import Executor
from mxnet.symbol import Symbol

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.judging.partitioner import json_of
from ngraph_mxnet.bridges.mxnet.judging.partitioning import SUBGRAPH_OP


class Wiring(NamedTuple):
    """How the one op of a graph is connected."""

    inputs: list[str]
    """The names of the op's inputs, in order."""
    outputs: list[int]
    """Which of the op's outputs each of the graph's is: a permutation."""


def wiring(symbol: Symbol) -> Wiring | None:
    """None if the graph is more than one op of ours, or less, or does not show each of its outputs once."""
    graph = json.loads(json_of(symbol))
    nodes = graph["nodes"]
    operators = [index for index, node in enumerate(nodes) if node["op"] != "null"]
    if len(operators) != 1 or nodes[operators[0]]["op"] != SUBGRAPH_OP:
        return None
    heads = [(head[0], head[1]) for head in graph["heads"]]
    outputs = [output for node, output in heads if node == operators[0]]
    if len(outputs) != len(heads) or sorted(outputs) != list(range(len(heads))):
        return None
    return Wiring([nodes[edge[0]]["name"] for edge in nodes[operators[0]]["inputs"]], outputs)


def run_executor(executor: Executor, holder: Any) -> None:
    """Let C++ run this new executor, whose one op was made for `holder`, if that is possible."""
    found = wiring(executor._symbol) if config.get("NGRAPH_DIRECT") and holder.ops == 1 else None
    if found is None:
        return
    from ngraph_mxnet import _core

    arrays = {**executor.arg_dict, **executor.aux_dict}
    shown = dict(zip(found.outputs, executor.outputs, strict=True))
    _before_forks()
    _core.direct_executor(executor.handle.value, holder, [arrays[name].handle.value for name in found.inputs],
                          [shown[output].handle.value for output in range(len(shown))])


def run_cached_op(op: Any, symbol: Symbol, holder: Any) -> bool:
    """Let C++ run the graph's cached op, whose ops are made for `holder`, where it can; false if it never can."""
    found = wiring(symbol) if config.get("NGRAPH_DIRECT") else None
    if found is None:
        return False
    from ngraph_mxnet import _core

    places = {name: place for place, name in enumerate(symbol.list_inputs())}
    _before_forks()
    return bool(_core.direct_cached_op(op.handle.value, holder, [places[name] for name in found.inputs], found.outputs))


_registered = False


def _before_forks() -> None:
    """From now on the process does not fork while a call runs, which may need Python to keep prepared weights."""
    global _registered
    if not _registered:
        from ngraph_mxnet import _core

        os.register_at_fork(before=_core.finish_direct_calls)
        _registered = True
