"""Commands about a model, of ONNX or MXNet: `explain`, `run`, `profile`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from ngraph_mxnet import config
from ngraph_mxnet.cli import options
from ngraph_mxnet.cli.loading import Shapes, draws_for, load_model
from ngraph_mxnet.cli.writing import write_whole
from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.explaining.explain import explain as explain_model
from ngraph_mxnet.explaining.explain import explain_shapes, explain_training
from ngraph_mxnet.model_kinds import is_symbol_file
from ngraph_mxnet.runtime.backend import get_backend
from ngraph_mxnet.runtime.feeds import fitting_inputs, named_shapes

_WIDTH = 180
_PICTURE = click.Path(dir_okay=False, path_type=Path)


def console() -> Console:
    """A console as wide as the terminal; in a pipe each row of a table is one line. NO_COLOR is respected."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH)


def _show(found: Any, console: Console, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        console.print(found)


def settings_of(threads: int | None, precision: str | None) -> dict[str, Any]:
    """Options of the backend; the interpreter has none."""
    return {name: value for name, value in (("threads", threads), ("precision", precision)) if value is not None}


@click.command()
@options.model_argument
@options.shape_option
@options.dtype_option
@options.backend_option
@click.option("--kernels", is_flag=True, help="Show how each contraction is computed, and the memory.")
@click.option("--simulate", is_flag=True, help="HYBRID: compile for the NNP, and simulate each of its regions.")
@click.option("--train", is_flag=True, help="Of a symbol: where each node and update runs in training, on the CPU.")
@click.option("--shapes", "axes", callback=options.axes, metavar="NAME:AXIS,...[;...]",
              help="Which sizes of the inputs change, as data:0,2,3: what is compiled once for all of them, what that "
                   "assumes, and what is compiled for each set of shapes, with the reason.")
@options.option_option
@click.option("--svg", type=_PICTURE, help="HYBRID: draw the placed graph there, of further regions in FILE-2 ...")
@click.option("--timeline", type=_PICTURE, help="HYBRID: draw the predicted schedule there.")
@options.json_option
def explain(model: str, shapes: Shapes, dtypes: dict[str, str], backend: str | None, kernels: bool,
            simulate: bool, train: bool, axes: dict[str, tuple[int, ...]] | None, settings: dict[str, str],
            svg: Path | None, timeline: Path | None, as_json: bool) -> None:
    """Which parts of a model run on the backend, and why the others do not.

    An ONNX model runs as a whole or not at all: then the node that can't be compiled is named. The backend HYBRID also
    says where each node goes and why, and what that would take. The exit status is 1 when nothing runs on the backend.
    """
    explanation: Any
    if simulate:
        settings["simulate"] = "1"
    if dtypes and not is_symbol_file(model):
        raise click.UsageError("--dtype is for symbols; an ONNX model says its inputs' types")
    if train:
        if not is_symbol_file(model):
            raise click.UsageError("--train is for symbols: an ONNX model is not trained")
        if backend or kernels or settings or svg or timeline:
            raise click.UsageError("--train goes with --shape, --dtype and --json only: the CPU trains")
        explanation = explain_training(model, shapes, dtypes)
    elif axes is not None:
        if kernels or settings or svg or timeline:
            raise click.UsageError("--shapes goes with --shape, --dtype, --backend and --json only")
        explanation = explain_shapes(model, shapes, axes, dtypes, backend=backend)
    else:
        explanation = explain_model(model, shapes, dtypes, backend=backend, kernels=kernels, options=settings)
        _draw(explanation.plans, svg, "svg")
        _draw(explanation.plans, timeline, "timeline_svg")
    _show(explanation, console(), as_json)
    if not explanation.compiles:
        sys.exit(1)


def _draw(plans: Sequence[Any], path: Path | None, picture: str) -> None:
    """Draw the first plan into `path`, and further ones into files beside it."""
    if path is None:
        return
    if not plans:
        raise ConfigError(f"{path} is not drawn: the backend has no plan to draw; such as have: "
                          f"{options.placing_backends()}")
    for number, plan in enumerate(plans, 1):
        file = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        write_whole(file, getattr(plan, picture)())


@click.command()
@options.runnable_argument
@options.input_option
@options.params_option
@options.backend_option
@options.threads_option
@options.precision_option
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.npz",
              help="Write the results there, by name.")
@options.json_option
def run(model: str, arrays: dict[str, np.ndarray], params: str | None, backend: str | None, threads: int | None,
        precision: str | None, output: Path | None, as_json: bool) -> None:
    """Run a model once on inputs from files, and show its results in figures.

    A file MODEL.ngraph is a compiled one, or holds a graph's text.
    """
    exe = load_model(model, named_shapes(arrays), params, backend, settings_of(threads, precision),
                     needs_weights=True)
    results = exe(fitting_inputs(exe.inputs, arrays, None))
    names = [port.name for port in exe.outputs]
    if output is not None:
        try:
            with output.open("wb") as file:
                np.savez(file, **dict(zip(names, results, strict=True)))
        except OSError as error:
            raise click.ClickException(f"{output}: {error.strerror}") from None
    rows = [_figures(name, result) for name, result in zip(names, results, strict=True)]
    if as_json:
        click.echo(json.dumps({"outputs": rows}, indent=2))
        return
    table = Table("output", "dtype", "shape", "min", "mean", "max", "not finite")
    for row in rows:
        numbers = ("-" if row[key] is None else f"{row[key]:.6g}" for key in ("min", "mean", "max"))
        table.add_row(row["name"], row["dtype"], str(tuple(row["shape"])), *numbers, str(row["not_finite"]))
    console().print(table)


def _figures(name: str, array: np.ndarray) -> dict[str, Any]:
    """What is printed of an array: the figures are those of its finite elements, None where there is none."""
    finite = array[np.isfinite(array)]
    low, mean, high = (float(f(finite)) if finite.size else None for f in (np.min, np.mean, np.max))
    return {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "min": low, "mean": mean,
            "max": high, "not_finite": array.size - finite.size}


@click.command()
@options.model_argument
@options.shape_option
@options.input_option
@options.params_option
@options.threads_option
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True, help="Forward passes to measure.")
@options.json_option
def profile(model: str, shapes: Shapes, arrays: dict[str, np.ndarray], params: str | None, threads: int | None,
            rounds: int, as_json: bool) -> None:
    """Run a model, and show where its time goes and how near each kernel comes to this machine's peak.

    A symbol runs in MXNet, with random inputs, and random weights without --params.
    """
    os.environ.pop("NGRAPH_PROFILE", None)  # there is one recorder in a process
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    if is_symbol_file(model):
        if not shapes:
            raise click.UsageError("--shape NAME=D,D,... is missing: a symbol needs those of its data inputs")
        if arrays:
            raise click.UsageError("--input is for ONNX models; a symbol is profiled on random inputs")
        os.environ["MXNET_SUBGRAPH_BACKEND"] = "NGRAPH"
        get_backend(config.get("NGRAPH_BACKEND"))  # MXNet would run the model alone if there were none
        from ngraph_mxnet.bridges.mxnet.profile import profile_model

        found = profile_model(model, shapes, params, rounds=rounds)
    else:
        exe = load_model(model, shapes, params, None, {})
        draws = draws_for(model, {**named_shapes(arrays), **shapes})
        inputs = fitting_inputs(exe.inputs, arrays, shapes, draws=draws)
        found = exe.profile(inputs, rounds=rounds)
    _show(found, console(), as_json)
