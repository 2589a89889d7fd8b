"""What the package has and how it is set: `ops`, `env`, `cache`."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ngraph_mxnet.cli import options
from ngraph_mxnet.errors import NGraphError


@click.command()
@click.argument("name", required=False)
def ops(name: str | None) -> None:
    """What is registered for an op of the IR or for an MXNet operator; without NAME, all ops."""
    from ngraph_mxnet.ir import all_ops
    from ngraph_mxnet.mxnet_bridge.rules.registry import find_rule

    console = Console()
    if name is None:
        console.print(_all_ops())
        return
    found = False
    if name in all_ops():
        console.print(_op(name))
        found = True
    rule = find_rule(name)
    if rule is not None:
        console.print(_mxnet_rule(name))
        found = True
    if not found:
        raise click.ClickException(f"no op of the IR and no MXNet operator with a rule is called {name!r}; "
                                   "`python -m ngraph_mxnet ops` lists the ops")


def _all_ops() -> Table:
    from ngraph_mxnet.ir import all_ops

    table = Table("op", "definition", "reference", "CPU kernel")
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    kernels = _cpu_rules()
    for name, op in all_ops().items():
        table.add_row(name, escape(op.doc.splitlines()[0] if op.doc else ""), _mark(op.has_reference),
                      _mark(name in kernels))
    return table


def _op(name: str) -> Table:
    from ngraph_mxnet.ir import get_op

    op = get_op(name)
    table = Table(title=f"IR op {name}", title_justify="left", show_header=False)
    table.add_row("definition", escape(op.doc))
    for key, kind in op.schema.items():
        table.add_row(f"attribute {key}", escape(f"{kind.expects}; default {kind.default!r}"))
    table.add_row("reference", _mark(op.has_reference))
    table.add_row("CPU kernel", _mark(name in _cpu_rules()))
    return table


def _mxnet_rule(name: str) -> Table:
    from ngraph_mxnet.mxnet_bridge.rules.registry import find_rule

    rule = find_rule(name)
    assert rule is not None
    table = Table(title=f"MXNet operator {name}", title_justify="left", show_header=False)
    table.add_row("names", ", ".join(rule.names))
    table.add_row("lowered by", f"{rule.lower.__module__}.{rule.lower.__qualname__}")
    if rule.doc:
        table.add_row("cases", escape(rule.doc))
    if rule.parameters:
        table.add_row("weights", "inputs " + ", ".join(map(str, sorted(rule.parameters))))
    if rule.ignored:
        table.add_row("ignored attributes", ", ".join(rule.ignored))
    return table


def _cpu_rules() -> Any:
    from ngraph_mxnet.cpu.lower import RULES

    return RULES


def _mark(present: bool) -> str:
    return "yes" if present else "no"


@click.command()
def env() -> None:
    """Every environment variable that the package reads, with its value now."""
    from ngraph_mxnet import config

    table = Table("variable", "value", "default", "allowed", "meaning")
    for variable in config.VARIABLES.values():
        try:
            value = str(variable.get())
        except NGraphError as error:
            value = f"not allowed: {error}"
        table.add_row(variable.name, escape(value), str(variable.default), escape(variable.allowed),
                      escape(variable.help))
    console = Console()
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

    with options.errors_told():
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
    Console().print(table)
