"""All commands, and those about the package: `ops`, `env`, `cache`, `doctor`.

What the other commands import is imported when one of them is asked for.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError, NGraphError
from ngraph_mxnet.base.rendered import facts_table, jsonable, notice, plainly, table, view
from ngraph_mxnet.base.version import __version__
from ngraph_mxnet.tools.cli import options

if TYPE_CHECKING:
    from ngraph_mxnet.tools.doctor import Finding


_COMMANDS = {
    "explain": "models", "show": "models", "run": "models", "bench": "runs", "profile": "models", "report": "models",
    "verify": "artefact", "compile": "artefact", "to-onnx": "artefact", "quantize": "quantization", "runs": "runs",
    "audit": "audit", "doctor": "commands", "ops": "commands", "env": "commands", "cache": "commands",
}
"""The module of each, in the order of the help."""
_TELL_OF_VARIABLES = ("doctor", "env")
_ERROR_STATUS = {"verify": 2}
"""The exit status of an error, where 1 says something else."""
ARGUMENTS = f"{__name__}.arguments"
"""Where a context's `meta` has the command line, without the program's name."""


class _Commands(click.Group):
    """The package's errors end a command with their text alone, as a lack of memory and a full disk below stdout do."""

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            try:
                return super().main(*args, **extra)
            finally:
                sys.stdout.flush()
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its exit
            click.echo(f"Error: {options.file_error(error, 'standard output').message}", err=True)
            sys.exit(1)

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module = importlib.import_module(f"ngraph_mxnet.tools.cli.{_COMMANDS[name]}")
        return getattr(module, name.replace("-", "_"))

    def resolve_command(self, context: click.Context,
                        args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        near = difflib.get_close_matches(args[0], _COMMANDS, 1)
        if near and args[0] not in _COMMANDS:
            context.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(context, args)

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None,
                     **extra: Any) -> click.Context:
        given = list(args)  # parsing takes them
        context = super().make_context(info_name, args, parent, **extra)
        context.meta[ARGUMENTS] = given
        return context

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except click.NoSuchOption as error:
            hidden = {name for each in (error.ctx.command.params if error.ctx else ()) if getattr(each, "hidden", False)
                      for name in each.opts}
            near = [name for name in error.possibilities or () if name not in hidden]
            raise click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx) from None
        except (NGraphError, MemoryError) as error:
            what = "there is not enough memory: " if isinstance(error, MemoryError) else ""
            click.echo(f"Error: {what}{error}", err=True)
            context.exit(_ERROR_STATUS.get(str(context.invoked_subcommand), 1))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="ngraph_mxnet %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """A graph compiler for MXNet and ONNX models."""
    if context.invoked_subcommand not in _TELL_OF_VARIABLES:
        for problem in config.not_allowed():
            raise ConfigError(problem)
        config.warn_of_misspelt()


@click.command()
@click.argument("name", required=False)
@options.json_option
def ops(name: str | None, as_json: bool) -> None:
    """What is registered for an op of the IR or for an MXNet operator; without NAME, all ops."""
    if name is None:
        found: Any = _all_ops()
        tables = [view(found, "|op {op}", "|definition {definition}", "reference {reference:plain}",
                       "CPU kernel {CPU kernel:plain}")]
    else:
        found = {kind: facts for kind, facts in (("IR op", _op(name)), ("MXNet operator", _mxnet_rule(name))) if facts}
        tables = [facts_table(((fact, plainly(value)) for fact, value in facts.items()), f"{kind} {name}")
                  for kind, facts in found.items()]
    if not found:
        raise click.ClickException(f"no op of the IR and no MXNet operator with a rule is called {name!r}; "
                                   "`python -m ngraph_mxnet ops` lists the ops")
    options.tell(as_json, found, *tables)


def _all_ops() -> list[dict[str, Any]]:
    from ngraph_mxnet.ir import all_ops

    cpu = _cpu()
    return [{"op": name, "definition": op.doc.splitlines()[0] if op.doc else "", "reference": op.has_reference,
             "CPU kernel": cpu.implements(op)} for name, op in all_ops().items()]


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
    from ngraph_mxnet.frontends.mxnet.rules.registry import find_rule

    rule = find_rule(name)
    if rule is None:
        return None
    facts = {"names": list(rule.names), "lowered by": f"{rule.lower.__module__}.{rule.lower.__qualname__}",
             "cases": rule.doc, "inputs that hold weights": sorted(rule.parameters),
             "ignored attributes": list(rule.ignored)}
    return {fact: value for fact, value in facts.items() if value}


def _cpu() -> Any:
    from ngraph_mxnet.program.backend import get_backend

    return get_backend("CPU")


@click.command()
@options.json_option
def env(as_json: bool) -> None:
    """Every environment variable that the package reads, with its value now."""
    from ngraph_mxnet.tools.doctor import notices

    rows = []
    for variable in config.VARIABLES.values():
        row = {"variable": variable.name, "value": None, "default": variable.default, "allowed": variable.allowed,
               "meaning": variable.help}
        try:
            row["value"] = variable.checked()
        except NGraphError as error:
            row["error"] = str(error)
        rows.append(row)
    def cells(row: Mapping[str, Any]) -> Iterator[str]:
        value = f"not allowed: {row['error']}" if "error" in row else row["value"]
        return map(str, map(config.as_written, (row["variable"], value, *list(row.values())[2:5])))

    options.tell(as_json, {"variables": rows, "notices": notices()}, table(
        "variable", "value", "default", "allowed", "meaning", rows=map(cells, rows)), *map(notice, notices()))


@click.command()
@click.argument("action", type=click.Choice(["show", "clear"]), default="show")
@options.json_option
def cache(action: str, as_json: bool) -> None:
    """Show or clear the folder of generated code and measurements (NGRAPH_CACHE_DIR)."""
    from ngraph_mxnet.program.cache import open_store

    store = open_store()
    if store is None:
        raise click.ClickException("the cache is off: see NGRAPH_CACHE_DIR in `python -m ngraph_mxnet env`")
    if action == "clear":
        removed = store.clear()
        click.echo(json.dumps({"removed": removed}) if as_json else f"{removed} entries removed from {store.root}")
        return
    entries = store.entries()
    kinds = {kind: {"entries": len(sizes), "bytes": sum(sizes)} for kind in sorted({entry.kind for entry in entries})
             for sizes in [[entry.bytes for entry in entries if entry.kind == kind]]}
    options.tell(as_json, {"folder": str(store.root), "limit": store.limit, "kinds": kinds},
                 f"{store.root}, at most {store.limit >> 20} MiB", view(
                     ({"kind": kind, **sums} for kind, sums in kinds.items()), "kind {kind}", "entries {entries}",
                     "size {bytes:binary}"))


_INDENT = " " * 4


@click.command()
@click.option("--import", "imports", multiple=True, metavar="MODULE",
              help="A module that the self-test imports first, as your script does: what it brings may be at fault. "
                   "Once for each.")
@options.json_option
def doctor(imports: tuple[str, ...], as_json: bool) -> None:
    """Check this installation on this machine, and print what a bug report needs.

    A small net runs on the interpreter, the CPU backend and MXNet, and the results are compared, which takes some
    seconds. Only environment variables of NGRAPH, MXNet, OpenMP, oneDNN, OpenVINO and ONNX Runtime are shown: NGRAPH_*,
    MXNET_*, OMP_*, GOMP_*, KMP_*, MKLDNN_*, DNNL_*, ONEDNN_*, OV_* and ORT_*. Your home folder is shown as ~. The exit
    status is 1 when something is wrong.
    """
    from ngraph_mxnet.tools.doctor import examine

    findings = examine(imports)
    wrong = sum(1 for finding in findings if finding.problems)
    if as_json:
        text = json.dumps({"version": __version__, "fine": not wrong, "checks": jsonable(findings)}, indent=2)
    else:
        text = "\n".join(_lines(findings, wrong))
    click.echo(without_home(text, Path.home()))
    sys.exit(1 if wrong else 0)


def without_home(text: str, home: Path) -> str:
    """A user's name is nobody's business."""
    return text if home == Path("/") else re.sub(rf"{re.escape(str(home))}(?![\w.-])", "~", text)


def _lines(findings: Sequence[Finding], wrong: int) -> Iterator[str]:
    for finding in findings:
        yield f"[{finding.status}] {finding.check}"
        for name, value in finding.facts.items():
            yield f"{_INDENT}{name}: {plainly(value)}"
        for kind, texts in (("wrong", finding.problems), ("note", finding.notes)):
            yield from (f"{_INDENT}{kind}: {text}" for text in texts)
    yield ""
    yield (f"ngraph_mxnet {__version__}: {len(findings)} checks, "
           f"{f'something is wrong in {wrong}' if wrong else 'nothing is wrong'}. "
           "Send all of this with a bug report.")
