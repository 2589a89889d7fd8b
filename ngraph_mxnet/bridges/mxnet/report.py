"""`ngraph_mxnet.report()`: what was compiled in this process, how often it ran, and what MXNet ran instead."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ngraph_mxnet.bridges.mxnet.binding import environment, fallbacks, updates
from ngraph_mxnet.bridges.mxnet.regions import chosen_backend, precision_of, range_verdicts
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import mxnet_element, parse_symbol
from ngraph_mxnet.bridges.mxnet.training.program import PlannedStep, planned_steps
from ngraph_mxnet.ir import TensorType
from ngraph_mxnet.placement.verdicts import left_table, operators_text
from ngraph_mxnet.rendered import Rendered
from ngraph_mxnet.runtime.ranges import RangeVerdict, range_table

if TYPE_CHECKING:
    from rich.console import RenderableType


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
class Report(Rendered):
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

    def to_dict(self) -> dict[str, Any]:
        left = [{"op": op, "reason": reason, "nodes": count} for (op, reason), count in self.left.items()]
        return {**asdict(self), "left": left}

    def __rich__(self) -> RenderableType:
        counts = f"{self.calls} calls, {len(self.regions)} compiled regions, {len(self.fallbacks)} fallbacks"
        if self.updates:
            counts += f", {self.updates} compiled updates"
        parts: list[RenderableType] = [Text(counts, style="bold")]
        if self.problem is not None:
            parts.append(Text(f"Nothing is compiled: {self.problem}", style="yellow"))
        if self.regions:
            parts.append(_region_table(self.regions))
        if self.ranges:
            parts.append(range_table(self.ranges))
        if self.steps:
            parts.append(_step_table(self.steps))
        if self.left:
            parts.append(left_table(self.left))
        if self.fallbacks:
            parts.append(_fallback_table(self.fallbacks))
        return Group(*parts)


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


def _region_table(regions: tuple[CompiledRegion, ...]) -> Table:
    table = Table(title="Compiled regions", title_justify="left")
    for name in ("output", "backend", "operators", "first input"):
        table.add_column(name)
    for name in ("threads", "calls"):
        table.add_column(name, justify="right")
    for region in regions:
        table.add_row(Text(region.name), f"{region.backend} {region.precision}", operators_text(region.ops),
                      Text(region.first_input), str(region.threads), str(region.calls))
    return table


def _step_table(steps: tuple[PlannedStep, ...]) -> Table:
    table = Table(title="Memory of training steps, MiB", title_justify="left")
    table.add_column("output")
    for name in ("forward", "backward", "saved", "times", "in all"):
        table.add_column(name, justify="right")
    for step in steps:
        sizes = [f"{size / 2**20:.1f}" for size in (step.forward, step.backward, step.saved, step.total)]
        table.add_row(Text(step.name), *sizes[:3], str(step.times), sizes[3])
    return table


def _fallback_table(found: tuple[Fallback, ...]) -> Table:
    table = Table(title="Run by MXNet", title_justify="left")
    table.add_column("what")
    table.add_column("times", justify="right")
    table.add_column("reason")
    for fallback in found:
        table.add_row(Text(fallback.what), str(fallback.count), Text(fallback.reason))
    return table
