"""NGRAPH_NNP_REPORT: at exit, what the calls of each compiled graph would have taken on the device.

All times and energies are simulated, and so is the report: a call itself runs as fast as the simulator computes.
"""

from __future__ import annotations

import atexit
import sys
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ngraph_mxnet import config
from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.targets.nnp.isa.program import Program
from ngraph_mxnet.targets.nnp.report.report import Report, make_report
from ngraph_mxnet.targets.nnp.simulate.timing import simulate


@dataclass
class Calls:
    """How often a program ran; each call of the graph runs it once on each of `devices`, at once."""

    program: Program
    devices: int
    count: int = 0


_calls: dict[int, Calls] = {}
_lock = ForkSafeLock()


def count_call(program: Program, devices: int = 1) -> None:
    """Count a run of `program` on one of `devices`, if a report is wanted; it is then kept until exit."""
    if not config.get("NGRAPH_NNP_REPORT"):
        return
    with _lock:
        if not _calls:
            atexit.register(_print_at_exit)
        _calls.setdefault(id(program), Calls(program, devices)).count += 1


def summary(calls: list[Calls]) -> Table:
    """A row for each program."""
    table = Table(title="Simulated NNP: what the calls would have taken (simulated, no time was measured)",
                  title_justify="left")
    for name in ("graph", "device", "calls", "ms a call", "ms in all", "of the grids' peak", "mJ a call"):
        table.add_column(name, justify="left" if name in ("graph", "device") else "right")
    for each in calls:
        report: Report = make_report(simulate(each.program))
        device = f"{each.devices} x {report.device}" if each.devices > 1 else report.device
        time, energy = report.seconds * 1e3, report.joules * 1e3 * each.devices
        count = each.count // each.devices
        table.add_row(escape(report.program), device, str(count), f"{time:.3f}", f"{time * count:.3f}",
                      f"{report.peak_part:.1%}", f"{energy:.3f}")
    return table


def _print_at_exit() -> None:
    """What all calls of this process would have taken."""
    Console(stderr=True, width=None if sys.stderr.isatty() else 160).print(summary(list(_calls.values())))
