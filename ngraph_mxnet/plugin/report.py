"""`ngraph_mxnet.report()`: what was compiled in this process, how often it ran, and what MXNet ran instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ngraph_mxnet.base.rendered import Facts
from ngraph_mxnet.frontends.mxnet.symbol_json import mxnet_element, parse_symbol
from ngraph_mxnet.ir import TensorType
from ngraph_mxnet.plugin.binding import environment, fallbacks, updates
from ngraph_mxnet.plugin.regions import chosen_backend, precision_of, range_verdicts
from ngraph_mxnet.plugin.training.steps import PlannedStep, planned_steps
from ngraph_mxnet.program.ranges import RangeVerdict


@dataclass(frozen=True)
class CompiledRegion:
    """A region compiled for one set of shapes. `first_input`: the type of the first of its `inputs`. `precision`: of
    its convolutions and matrix products; with a recipe, how many are in 8 bits. `threads`: as many as its calls ask
    for, which for short ones depends on what was faster lately."""

    name: str
    backend: str
    ops: dict[str, int]
    inputs: int
    first_input: str
    calls: int
    precision: str = ""
    threads: int = 1


@dataclass(frozen=True)
class Fallback:
    """A fallback: what MXNet ran, the reason, and how many binds or calls of a hybridized block it was."""

    what: str
    reason: str
    count: int


@dataclass(frozen=True, repr=False)
class Report(Facts):
    """Prints as tables; `to_dict` is for programs.

    `calls`: of all regions, also those that the compile cache has dropped since. `left`: (operator, reason) and the
    number of nodes in the last graphs that were partitioned. `problem`: why nothing is compiled at all. `updates`: how
    many steps of optimizers were compiled ones. `steps`: the memory of compiled training steps. `ranges`: of regions
    whose shapes have changed, what is compiled for ranges of sizes, and why others are not.
    """

    calls: int
    regions: tuple[CompiledRegion, ...]
    left: dict[tuple[str, str], int]
    fallbacks: tuple[Fallback, ...]
    problem: str | None = None
    updates: int = 0
    steps: tuple[PlannedStep, ...] = ()
    ranges: tuple[RangeVerdict, ...] = ()

    renamed: ClassVar[Mapping[str, str | None]] = {"left": None, "left_nodes": "left"}
    derived = ("left_nodes",)
    layout = "report"

    @property
    def left_nodes(self) -> list[dict[str, Any]]:
        return [{"op": op, "reason": reason, "nodes": count} for (op, reason), count in self.left.items()]


def report() -> Report:
    """The regions that are compiled now, how often each ran, the operators left to MXNet in the last graphs, and what
    was to be compiled and was not."""
    problem = environment.problem() if environment.activated() else None
    left: Counter[tuple[str, str]] = Counter()
    for partition in fallbacks.partitions():
        left.update(partition.left_by_kind())
    found = tuple(Fallback(refusal.what, refusal.reason, count) for refusal, count in fallbacks.log.counts().items())
    try:
        from ngraph_mxnet import _core
    except ImportError as error:
        return Report(0, (), dict(left.most_common()), found, problem or f"the library does not load: {error}",
                      updates.ran(), planned_steps())
    regions = tuple(_region(*entry) for entry in _core.compiled_regions())
    return Report(_core.op_calls(), regions, dict(left.most_common()), found, problem, updates.ran(),
                  planned_steps(), tuple(range_verdicts()))


def _region(graph_json: str, shapes: list[list[int]], types: list[int], attrs: dict[str, str],
            calls: int, threads: int) -> CompiledRegion:
    symbol = parse_symbol(graph_json)
    ops = Counter(node.op for node in symbol.operators())
    first = str(TensorType(mxnet_element(types[0]), tuple(shapes[0]))) if shapes else ""
    return CompiledRegion(symbol.nodes[symbol.heads[0].node].name, chosen_backend(attrs),
                          dict(ops.most_common()), len(shapes), first, calls, precision_of(graph_json, attrs), threads)
