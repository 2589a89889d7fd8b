"""A partitioning as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ngraph_mxnet.placement.verdicts.report import Partition, Region

_MOST_OPS = 6


def render(partition: Partition, precisions: Sequence[str] = ()) -> RenderableType:
    """The regions, each with its precision where that is known, then what was left and why. MACs are multiply-adds;
    bytes cross the region's border."""
    left = partition.left_by_kind()
    ours = sum(len(region.nodes) for region in partition.regions)
    total = ours + sum(left.values())
    regions = _count(len(partition.regions), "region")
    headline = f"{ours} of {total} nodes run on {partition.backend}, in {regions}"
    parts: list[RenderableType] = [Text(headline, style="bold")]
    if partition.regions:
        parts.append(_regions(partition.regions, precisions))
    if left:
        parts.append(left_table(left))
    return Group(*parts)


def _regions(regions: list[Region], precisions: Sequence[str]) -> Table:
    table = Table(title="Regions", title_justify="left")
    table.add_column("#")
    table.add_column("operators")
    if precisions:
        table.add_column("precision")
    for name in ("nodes", "in", "out", "MACs", "other ops", "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    for number, region in enumerate(regions, 1):
        cost, told = region.cost, precisions[number - 1:number]
        table.add_row(str(number), operators_text(region.ops()), *told, str(len(region.nodes)), str(len(region.inputs)),
                      str(len(region.outputs)), short(cost.macs), short(cost.operations), short(cost.bytes))
    return table


def left_table(left: dict[tuple[str, str], int]) -> Table:
    """How many nodes of which operator stay with the framework, and why."""
    table = Table(title="Left to MXNet", title_justify="left")
    table.add_column("operator")
    table.add_column("nodes", justify="right")
    table.add_column("reason")
    for (op, reason), count in left.items():
        table.add_row(Text(op), str(count), Text(reason))
    return table


def operators_text(counts: dict[str, int]) -> Text:
    """How often each operator occurs, the first few of them."""
    ops = list(counts.items())
    shown = ", ".join(f"{op} x{count}" if count > 1 else op for op, count in ops[:_MOST_OPS])
    return Text(shown + (f", and {len(ops) - _MOST_OPS} more kinds" if len(ops) > _MOST_OPS else ""))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def short(number: float) -> str:
    """3 significant digits with a unit: 1.82 G."""
    for unit in ("", " k", " M", " G", " T"):
        if number < 1000 or unit == " T":
            return f"{number:.3g}{unit}"
        number /= 1000
    raise AssertionError
