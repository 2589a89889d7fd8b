"""`audit`: what NGRAPH_AUDIT recorded, and where two runs part."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from ngraph_mxnet.auditing.recorder import Reader, location, phrase
from ngraph_mxnet.auditing.runs import Checkpoint, Difference, Recorded, Run, difference, open_run
from ngraph_mxnet.cli import options
from ngraph_mxnet.cli.options import console
from ngraph_mxnet.errors import AuditError

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
    if as_json:
        found = {"runs": runs, "run": run.columns["id"], "lost_calls": run.lost,
                 "checkpoints": [_checkpoint(each) for each in run.checkpoints],
                 "calls": [{"graph": call.graph.name, "number": call.number, "seconds": call.seconds,
                            "tensors": [each.to_dict() for each in call.tensors]} for call in shown]}
        click.echo(json.dumps(found, indent=2))
        return
    console().print(_runs_table(runs, int(run.columns["id"])))
    if run.lost:
        click.echo(f"{run.lost} calls were lost: they came faster than they were written")
    console().print(_checkpoints_table(run))
    for call in shown:
        console().print(_tensors_table(f"call {call.number} of graph {call.graph.name}, {call.seconds * 1e3:.3f} ms",
                                       call.tensors))


def _calls(run: Run, number: int | None) -> list[Any]:
    """One of each graph. Raises AuditError: no graph has a call of this number."""
    found = {call.graph.key: call for call in run.calls if number is None or call.number == number}
    if not found:
        numbers = [call.number for call in run.calls]
        raise AuditError(f"no call {number} was recorded; there are {min(numbers)} to {max(numbers)}" if numbers
                         else "no call was recorded")
    return list(found.values())


def _checkpoint(of: Checkpoint) -> dict[str, Any]:
    columns = {name: of.columns[name] for name in ("digest", "bytes", "resident", "peak")}
    return {**columns, "tensors": [each.to_dict() for each in of.tensors]}


def _runs_table(runs: Sequence[dict[str, Any]], shown: int) -> Table:
    table = Table("run", "started", "process", "command", "calls", "tensors", "guard")
    for run in runs:
        started = datetime.datetime.fromtimestamp(run["started"]).isoformat(" ", "seconds")
        settings = run["settings"]
        command = " ".join(json.loads(run["command"]))
        table.add_row(f"{run['id']}{' *' if run['id'] == shown else ''}", started, str(run["process"]), escape(command),
                      settings["calls"], settings["tensors"], settings["guard"])
    return table


def _checkpoints_table(run: Run) -> Table:
    graphs = {graph.columns["id"]: graph for graph in run.graphs}
    table = Table("weights of", "graph hash", "weights", "MiB", "their hash", "prepared", "MiB", "peak before, MiB",
                  "peak, MiB")
    for each in run.checkpoints:
        columns, graph = each.columns, graphs[each.columns["graph"]].columns
        table.add_row(escape(graph["name"]), graph["digest"][:12], str(columns["tensors"]), _mib(columns["bytes"]),
                      columns["digest"][:12], str(graph["prepared"]), _mib(graph["prepared_bytes"]),
                      _mib(graph["peak_before"]), _mib(columns["peak"]))
    return table


def _mib(count: int) -> str:
    return f"{count / 2**20:.1f}"


def _tensors_table(title: str, tensors: Sequence[Recorded]) -> Table:
    table = Table("kind", "name", "node", "statistics", "hash", title=escape(title), title_justify="left")
    for each in tensors:
        tensor = each.tensor
        table.add_row(tensor.kind, escape(tensor.name), "" if tensor.name == tensor.node else escape(tensor.node),
                      escape(str(each.statistics)), each.hash.hex()[:12])
    return table


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
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        _print(found)
    sys.exit(int(found.differs))


def _print(found: Difference) -> None:
    for sentence in found.unmatched:
        click.echo(f"Note: {sentence}.")
    tensors, calls = found.compared
    if found.call is None:
        click.echo(f"No difference in {tensors} tensors of {calls} calls.")
        return
    graph, number = found.call
    click.echo(f"The runs part at {found.node}, in call {number} of graph {graph}.")
    for pair in found.weights:
        _print_pair(pair.a, pair.b)
    if found.first is not None:
        _print_pair(found.first.a, found.first.b)


def _print_pair(a: Recorded, b: Recorded) -> None:
    click.echo(f"  {phrase(a.tensor).rstrip(',')}:")
    for name, each in (("first", a), ("second", b)):
        click.echo(f"    {name:6} {each.statistics}, hash {each.hash.hex()[:12]}")
