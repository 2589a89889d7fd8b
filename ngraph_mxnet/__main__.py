"""The command line: `python -m ngraph_mxnet explain|ops|profile|env|cache`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ngraph_mxnet.errors import NGraphError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """A graph compiler for MXNet models."""


def _shape(context: click.Context, parameter: click.Parameter,
           values: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for value in values:
        name, separator, dims = value.partition("=")
        try:
            shapes[name] = tuple(int(dim) for dim in dims.strip("()").split(",") if dim.strip())
        except ValueError:
            shapes[name] = ()
        if not separator or not shapes[name]:
            raise click.BadParameter(f"found {value!r}, expected NAME=D,D,...: for example data=1,3,224,224")
    return shapes


def _dtype(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    dtypes = dict(value.partition("=")[::2] for value in values)
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"found {value!r}, expected NAME=DTYPE: for example data=float32")
    return dtypes


@main.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False), metavar="MODEL-symbol.json")
@click.option("--shape", "shapes", multiple=True, callback=_shape, metavar="NAME=D,D,...",
              help="The shape of a data input; once for each.")
@click.option("--dtype", "dtypes", multiple=True, callback=_dtype, metavar="NAME=DTYPE",
              help="Its element type, float32 if not given.")
@click.option("--backend", help="By default the one of NGRAPH_BACKEND.")
@click.option("--kernels", is_flag=True, help="Compile too, and show how each contraction is computed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(model: str, shapes: dict[str, tuple[int, ...]], dtypes: dict[str, str], backend: str | None,
            kernels: bool, as_json: bool) -> None:
    """Which parts of a model would run on the backend, and why the others would not."""
    from ngraph_mxnet.mxnet_bridge.explain import explain as explain_symbol

    try:
        explanation = explain_symbol(model, shapes, dtypes, backend=backend, kernels=kernels)
    except NGraphError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(explanation.to_dict(), indent=2))
    else:
        Console().print(explanation)


@main.command()
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


@main.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False), metavar="MODEL-symbol.json")
@click.option("--shape", "shapes", multiple=True, callback=_shape, required=True, metavar="NAME=D,D,...",
              help="The shape of a data input; once for each.")
@click.option("--params", type=click.Path(exists=True, dir_okay=False), metavar="MODEL-0000.params",
              help="The weights; random ones if not given.")
@click.option("--threads", type=click.IntRange(1), help="As OMP_NUM_THREADS, which it overrides.")
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True, help="Forward passes to measure.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def profile(model: str, shapes: dict[str, tuple[int, ...]], params: str | None, threads: int | None, rounds: int,
            as_json: bool) -> None:
    """Run a model, and show where its time goes and how near each kernel comes to this machine's peak."""
    os.environ["MXNET_SUBGRAPH_BACKEND"] = "NGRAPH"
    os.environ.pop("NGRAPH_PROFILE", None)  # there is one recorder in a process
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    from ngraph_mxnet.mxnet_bridge.profile import profile_model

    try:
        found = profile_model(model, shapes, params, rounds=rounds)
    except NGraphError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 140).print(found)


@main.command()
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


@main.command()
@click.argument("action", type=click.Choice(["show", "clear"]), default="show")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cache(action: str, as_json: bool) -> None:
    """Show or clear the folder of generated code and measurements (NGRAPH_CACHE_DIR)."""
    from ngraph_mxnet.cache import open_store

    try:
        store = open_store()
    except NGraphError as error:
        raise click.ClickException(str(error)) from None
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


if __name__ == "__main__":
    main(prog_name="python -m ngraph_mxnet")
