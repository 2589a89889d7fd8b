"""A profile as tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from ngraph_mxnet.targets.cpu.report.kernel_table import memory_table, titled
from ngraph_mxnet.targets.cpu.report.profile_data import ProfileData, Row


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
