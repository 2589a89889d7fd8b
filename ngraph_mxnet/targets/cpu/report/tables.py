"""Profiles and kernels as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ngraph_mxnet.rendered import Rendered, common_prefix
from ngraph_mxnet.targets.cpu.program.builder import MemoryUse
from ngraph_mxnet.targets.cpu.report.facts import Contraction, ProfileData, Row, contractions


@dataclass(frozen=True, repr=False)
class Explained(Rendered):
    """The facts about what each of some graphs compiles to. `threads`: as many as a call asks for before experience
    says otherwise."""

    kernels: list[list[Contraction]]
    memory: list[MemoryUse]
    threads: list[int]

    @classmethod
    def of(cls, compiled: Sequence[Any]) -> Explained:
        """Collect the facts about these `targets.cpu.backend.CPUExecutable`s."""
        return cls([contractions(each.main.instructions) for each in compiled], [each.memory for each in compiled],
                   [each.threads for each in compiled])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __rich__(self) -> Group:
        return Group(kernel_table(self.kernels), memory_table(self.memory),
                     "Threads of a call, at most: " + ", ".join(str(count) for count in self.threads))


def kernel_table(regions: Sequence[Sequence[Contraction]]) -> Table:
    """One row for each contraction of each region."""
    title, nodes = titled("Contractions", [c.node for region in regions for c in region])
    shown = iter(nodes)
    table = Table(title=title, title_justify="left")
    table.add_column("#")
    table.add_column("node", overflow="fold", ratio=1)
    for name in ("algorithm", "kernel", "tile"):
        table.add_column(name, no_wrap=True)
    for name in ("tasks by", "chunk", "tasks", "calls"):
        table.add_column(name, justify="right", no_wrap=True)
    for number, region in enumerate(regions, 1):
        for c in region:
            table.add_row(str(number), next(shown), c.algorithm, c.kernel, c.tile, c.order, str(c.chunk),
                          str(c.tasks), str(c.calls))
    return table


def memory_table(regions: Sequence[MemoryUse]) -> Table:
    """One row for each region."""
    table = Table(title="Memory beside inputs and outputs, MB", title_justify="left")
    table.add_column("#")
    for name in ("all intermediates", "all buffers", "least possible", "planned", "prepared weights"):
        table.add_column(name, justify="right")
    for number, use in enumerate(regions, 1):
        sizes = (use.intermediates, use.separate, use.least, use.planned, use.prepared)
        table.add_row(str(number), *(f"{size / 1e6:.2f}" for size in sizes))
    return table


def titled(title: str, nodes: Sequence[str]) -> tuple[str, list[str]]:
    """Markup for a table with a column of nodes: its title, and the nodes by their framework's names. What all of these
    begin with stands in the title alone, and what those of one row begin with in front of it: `stage1_{conv0 + relu0}`.
    """
    names = [_framework_names(node) for node in nodes]
    prefix = common_prefix([name for row in names for name in row])
    cells = [_joined([name.removeprefix(prefix) for name in row]) or node
             for row, node in zip(names, nodes, strict=True)]
    return title + (f" of {escape(prefix)}" if prefix else ""), [escape(cell) for cell in cells]


def _framework_names(node: str) -> list[str]:
    """`conv0` and `relu0` of `convolution_bias (mx:conv0 Convolution + mx:relu0 Activation)`."""
    inside = node.partition("(")[2].removesuffix(")")
    return [part.partition(":")[2].split(" ")[0] or part for part in inside.split(" + ") if part]


def _joined(names: Sequence[str]) -> str:
    prefix = common_prefix(names)
    rest = " + ".join(name.removeprefix(prefix) for name in names)
    return f"{prefix}{{{rest}}}" if prefix else rest


def render(profile: ProfileData) -> RenderableType:
    """Kernels by node, totals by kernel, and what is not in kernels."""
    peak = profile.peak
    parts: list[RenderableType] = [
        _rows("Kernels by node", profile, profile.rows, with_origin=True),
        _rows("Totals by kernel", profile, profile.kinds(), with_origin=False),
        _whole(profile),
        memory_table(profile.memory),
        f"Peak measured on {peak.threads} threads, {profile.isa}: {peak.gflops:.1f} GFLOP/s of multiply-adds in "
        f"registers, {peak.gigabytes:.1f} GB/s copying memory. Tensors in a cache move faster than that.",
    ]
    if profile.dropped:
        parts.append(f"[bold]{profile.dropped} spans were dropped: use fewer rounds.[/bold]")
    return Group(*parts)


def _rows(title: str, profile: ProfileData, rows: Sequence[Row], *, with_origin: bool) -> Table:
    cells = [str(row.calls) for row in rows]
    if with_origin:
        title, cells = titled(title, [row.origin for row in rows])
    table = Table(title=title, title_justify="left")
    table.add_column("kernel", no_wrap=True)
    if with_origin:
        table.add_column("node", overflow="fold", ratio=1)
    else:
        table.add_column("calls", justify="right")
    for name in ("ms", "share", "GFLOP/s", "of peak", "GB/s", "of copy"):
        table.add_column(name, justify="right", no_wrap=True)
    for row, cell in zip(rows, cells, strict=True):
        rates = [f"{row.gflops:.1f}", _percent(row.gflops / profile.peak.gflops)] if row.gflop else ["", ""]
        rates += [f"{row.gigabytes:.1f}", _percent(row.gigabytes / profile.peak.gigabytes)]
        table.add_row(row.kernel, cell, f"{row.ms:.3f}", _percent(row.ms / profile.total_ms), *rates)
    return table


def _whole(profile: ProfileData) -> Table:
    table = Table(title=f"A forward pass (medians of {profile.rounds})", title_justify="left", show_header=False)
    in_kernels = sum(row.ms for row in profile.rows)
    operations = sum(row.gflop for row in profile.rows)
    for name, ms in (("in kernels", in_kernels), ("in calls, threads waiting", profile.waiting_ms),
                     ("outside: framework, Python", profile.outside_ms)):
        table.add_row(name, f"{ms:.3f} ms", _percent(ms / profile.total_ms))
    table.add_row("whole", f"{profile.wall_ms:.3f} ms",
                  f"{operations / profile.wall_ms * 1e3:.1f} GFLOP/s, "
                  f"{_percent(operations / profile.wall_ms * 1e3 / profile.peak.gflops)} of the peak")
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
