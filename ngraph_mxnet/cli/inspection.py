"""What the package has and how it is set: `ops`, `env`, `cache`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ngraph_mxnet.cli import options
from ngraph_mxnet.errors import NGraphError

_UNLIMITED = 10_000


def _console() -> Console:
    """A console as wide as the terminal; in a pipe each row is one line, so that it can be searched."""
    return Console(width=None if sys.stdout.isatty() else _UNLIMITED)


@click.command()
@click.argument("name", required=False)
@options.json_option
def ops(name: str | None, as_json: bool) -> None:
    """What is registered for an op of the IR or for an MXNet operator; without NAME, all ops."""
    if name is None:
        rows = _all_ops()
        if as_json:
            click.echo(json.dumps(rows, indent=2))
        else:
            _console().print(_ops_table(rows))
        return
    found = {kind: facts for kind, facts in (("IR op", _op(name)), ("MXNet operator", _mxnet_rule(name))) if facts}
    if not found:
        raise click.ClickException(f"no op of the IR and no MXNet operator with a rule is called {name!r}; "
                                   "`python -m ngraph_mxnet ops` lists the ops")
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for kind, facts in found.items():
        table = Table(title=f"{kind} {name}", title_justify="left", show_header=False)
        for fact, value in facts.items():
            table.add_row(fact, escape(_text(value)))
        _console().print(table)


def _all_ops() -> list[dict[str, Any]]:
    from ngraph_mxnet.ir import all_ops

    cpu = _cpu()
    return [{"op": name, "definition": op.doc.splitlines()[0] if op.doc else "", "reference": op.has_reference,
             "CPU kernel": cpu.implements(op)} for name, op in all_ops().items()]


def _ops_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(*rows[0])
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for row in rows:
        table.add_row(*(escape(_text(value)) for value in row.values()))
    return table


def _op(name: str) -> dict[str, Any] | None:
    from ngraph_mxnet.autodiff.reverse import described
    from ngraph_mxnet.ir import all_ops

    op = all_ops().get(name)
    if op is None:
        return None
    attributes = {f"attribute {key}": f"{kind.expects}; default {kind.default!r}" for key, kind in op.schema.items()}
    return {"definition": op.doc, **attributes, "reference": op.has_reference, "CPU kernel": _cpu().implements(op),
            "adjoint": described(op)}


def _mxnet_rule(name: str) -> dict[str, Any] | None:
    from ngraph_mxnet.bridges.mxnet.rules.registry import find_rule

    rule = find_rule(name)
    if rule is None:
        return None
    facts = {"names": list(rule.names), "lowered by": f"{rule.lower.__module__}.{rule.lower.__qualname__}",
             "cases": rule.doc, "inputs that hold weights": sorted(rule.parameters),
             "ignored attributes": list(rule.ignored)}
    return {fact: value for fact, value in facts.items() if value}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _cpu() -> Any:
    from ngraph_mxnet.runtime.backend import get_backend

    return get_backend("CPU")


@click.command()
@options.json_option
def env(as_json: bool) -> None:
    """Every environment variable that the package reads, with its value now."""
    from ngraph_mxnet import config

    rows = []
    for variable in config.VARIABLES.values():
        row = {"variable": variable.name, "value": None, "default": variable.default, "allowed": variable.allowed,
               "meaning": variable.help}
        try:
            row["value"] = variable.checked()
        except NGraphError as error:
            row["error"] = str(error)
        rows.append(row)
    if as_json:
        click.echo(json.dumps({"variables": rows, "notices": _notices()}, indent=2))
        return
    table = Table("variable", "value", "default", "allowed", "meaning")
    for row in rows:
        value = f"not allowed: {row['error']}" if "error" in row else row["value"]
        cells = (row["variable"], value, *list(row.values())[2:5])
        table.add_row(*(escape(str(config.as_written(cell))) for cell in cells))
    console = _console()
    console.print(table)
    for notice in _notices():
        console.print(notice, style="yellow")


def _notices() -> list[str]:
    """Settings that this machine can't follow."""
    from ngraph_mxnet import config
    from ngraph_mxnet.runtime.backend import get_backend

    try:
        return get_backend(config.get("NGRAPH_BACKEND")).notices()
    except NGraphError:
        return []  # a value that is not allowed stands in the table


@click.command()
@click.argument("action", type=click.Choice(["show", "clear"]), default="show")
@options.json_option
def cache(action: str, as_json: bool) -> None:
    """Show or clear the folder of generated code and measurements (NGRAPH_CACHE_DIR)."""
    from ngraph_mxnet.cache import open_store

    store = open_store()
    if store is None:
        raise click.ClickException("the cache is off: see NGRAPH_CACHE_DIR in `python -m ngraph_mxnet env`")
    if action == "clear":
        removed = store.clear()
        click.echo(json.dumps({"removed": removed}) if as_json else f"{removed} entries removed from {store.root}")
        return
    entries = store.entries()
    kinds = {
        kind: {"entries": len(sizes), "bytes": sum(sizes)}
        for kind in sorted({entry.kind for entry in entries})
        for sizes in [[entry.bytes for entry in entries if entry.kind == kind]]
    }
    if as_json:
        click.echo(json.dumps({"folder": str(store.root), "limit": store.limit, "kinds": kinds}, indent=2))
        return
    click.echo(f"{store.root}, at most {store.limit >> 20} MiB")
    table = Table("kind", "entries", "KiB")
    for kind, sums in kinds.items():
        table.add_row(kind, str(sums["entries"]), f"{sums['bytes'] / 1024:.0f}")
    _console().print(table)
