"""The command line: `python -m ngraph_mxnet explain|run|bench|profile|ops|env|cache`."""

from __future__ import annotations

import click

from ngraph_mxnet.cli import inspection, models


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """A graph compiler for MXNet and ONNX models."""


for command in (models.explain, models.run, models.bench, models.profile, inspection.ops, inspection.env,
                inspection.cache):
    main.add_command(command)

if __name__ == "__main__":
    main(prog_name="python -m ngraph_mxnet")
