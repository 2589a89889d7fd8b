"""All commands; what they import is imported when one of them is asked for."""

from __future__ import annotations

import importlib
from typing import Any

import click

from ngraph_mxnet import config
from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.version import __version__

_COMMANDS = {
    "explain": "models", "show": "show", "run": "models", "bench": "bench", "profile": "models", "report": "report",
    "verify": "verification", "compile": "artefact", "quantize": "quantization", "runs": "runs", "audit": "audit",
    "doctor": "doctor", "ops": "inspection", "env": "inspection", "cache": "inspection",
}
"""The module of each, in the order of the help."""
_TELL_OF_VARIABLES = ("doctor", "env")
_ERROR_STATUS = {"verify": 2}
"""The exit status of an error, where 1 says something else."""
ARGUMENTS = f"{__name__}.arguments"
"""Where a context's `meta` has the command line, without the program's name."""


class _Commands(click.Group):
    """The package's errors end a command with their text alone."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module = importlib.import_module(f"ngraph_mxnet.cli.{_COMMANDS[name]}")
        return getattr(module, name)

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None,
                     **extra: Any) -> click.Context:
        given = list(args)  # parsing takes them
        context = super().make_context(info_name, args, parent, **extra)
        context.meta[ARGUMENTS] = given
        return context

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except NGraphError as error:
            click.echo(f"Error: {error}", err=True)
            context.exit(_ERROR_STATUS.get(str(context.invoked_subcommand), 1))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="ngraph_mxnet %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """A graph compiler for MXNet and ONNX models."""
    if context.invoked_subcommand not in _TELL_OF_VARIABLES:
        for variable in config.VARIABLES.values():
            variable.checked()  # here, once, as an error
