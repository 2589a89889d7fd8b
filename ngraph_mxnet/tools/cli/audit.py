"""`audit`: what NGRAPH_AUDIT recorded, and where two runs part."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ngraph_mxnet.base.errors import AuditError
from ngraph_mxnet.base.rendered import table, view
from ngraph_mxnet.program.recorder import Reader, location
from ngraph_mxnet.tools.audits import Checkpoint, Recorded, Run, difference, open_run
from ngraph_mxnet.tools.cli import options

if TYPE_CHECKING:
    from rich.table import Table

_WHERE = "FILE|FOLDER[@RUN]"
_FAILED = 2
"""The exit code where nothing could be compared."""


@click.group()
def audit() -> None:
    """What NGRAPH_AUDIT recorded of runs (docs/audit.md)."""


@audit.command()
@click.argument("where", metavar=_WHERE)
@click.option("--call", "number", type=click.IntRange(0),
              help="The tensors of the call of this number of each graph; by default those of the last one.")
@options.json_option
def show(where: str, number: int | None, as_json: bool) -> None:
    """The runs of a file; and of the last one, or of RUN, its checkpoints and the statistics of a call."""
    run = open_run(where)
    runs = Reader(location(where if "@" not in where else where.rpartition("@")[0])).runs()
    shown = _calls(run, number)
    found = {"runs": runs, "run": run.columns["id"], "lost_calls": run.lost,
             "checkpoints": [_checkpoint(each) for each in run.checkpoints],
             "calls": [{"graph": call.graph.name, "number": call.number, "seconds": call.seconds,
                        "tensors": call.tensors} for call in shown]}
    options.tell(
        as_json, found, _runs_table(runs, int(run.columns["id"])),
        f"{run.lost} calls were lost: they came faster than they were written" if run.lost else None,
        _checkpoints_table(run),
        *(_tensors_table(f"call {call.number} of graph {call.graph.name}, {call.seconds * 1e3:.3f} ms", call.tensors)
          for call in shown))


def _calls(run: Run, number: int | None) -> list[Any]:
    """One of each graph. Raises AuditError: no graph has a call of this number."""
    found = {call.graph.key: call for call in run.calls if number is None or call.number == number}
    if not found:
        numbers = [call.number for call in run.calls]
        raise AuditError(f"no call {number} was recorded; there are {min(numbers)} to {max(numbers)}" if numbers
                         else "no call was recorded")
    return list(found.values())


def _checkpoint(of: Checkpoint) -> dict[str, Any]:
    return {**{name: of.columns[name] for name in ("digest", "bytes", "resident", "peak")}, "tensors": of.tensors}


def _runs_table(runs: Sequence[dict[str, Any]], shown: int) -> Table | None:
    rows = ({**run, "number": f"{run['id']}{' *' * (run['id'] == shown)}", "started": datetime.datetime.fromtimestamp(
        run["started"]).isoformat(" ", "seconds"), "command": " ".join(json.loads(run["command"]))} for run in runs)
    return view(rows, "run {number}", "started {started}", "process {process}", "command {command}",
                *(f"{name} {{settings[{name}]}}" for name in ("calls", "tensors", "guard")))


def _checkpoints_table(run: Run) -> Table | None:
    graphs = {graph.columns["id"]: graph.columns for graph in run.graphs}
    return view(({**each.columns, "of": graphs[each.columns["graph"]]} for each in run.checkpoints),
                "weights of {of[name]}", "graph hash {of[digest]:.12}", "weights {tensors}", "MiB {bytes:mib}",
                "their hash {digest:.12}", "prepared {of[prepared]}", "MiB {of[prepared_bytes]:mib}",
                "peak before, MiB {of[peak_before]:mib}", "peak, MiB {peak:mib}")


def _tensors_table(title: str, tensors: Sequence[Recorded]) -> Table:
    return table("kind", "name", "node", "statistics", "hash", title=title, rows=(
        (of.kind, of.name, "" if of.name == of.node else of.node, each.statistics, each.hash[:12])
        for each in tensors for of in [each.tensor]))


@audit.command()
@click.argument("a", metavar=_WHERE)
@click.argument("b", metavar=_WHERE)
@click.option("--tolerance", type=click.FloatRange(0.0, 1.0), default=0.0, show_default=True,
              help="Tensors whose contents differ count as equal if their statistics differ by at most this share of "
                   "the largest magnitude.")
@options.json_option
def diff(a: str, b: str, tolerance: float, as_json: bool) -> None:
    """The first tensor, in the order of execution, in which two runs part, with the node that made it.

    The exit code is 1 where they part, 2 where they can't be compared.
    """
    try:
        found = difference(open_run(a), open_run(b), tolerance)
    except AuditError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(_FAILED)
    options.tell(as_json, found)
    sys.exit(int(found.differs))
