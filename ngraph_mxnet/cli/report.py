"""`report`: one HTML page about a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from ngraph_mxnet import config
from ngraph_mxnet.cli import options
from ngraph_mxnet.cli.loading import Shapes
from ngraph_mxnet.cli.models import settings_of
from ngraph_mxnet.cli.show import load_graph
from ngraph_mxnet.cli.writing import write_whole
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.reporting.collect import Subject, collect, page
from ngraph_mxnet.runtime.backend import get_backend
from ngraph_mxnet.runtime.draws import draws_of
from ngraph_mxnet.runtime.feeds import fitting_inputs


@click.command()
@options.model_argument
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True,
              metavar="REPORT.html", help="Write the page there.")
@options.shape_option
@options.dtype_option
@options.input_option
@options.params_option
@options.backend_option
@options.threads_option
@options.precision_option
@options.option_option
@click.option("--rounds", type=click.IntRange(0), default=10, show_default=True,
              help="Calls to measure; with 0 nothing runs.")
@click.option("--verify", "verified", is_flag=True,
              help="Compare the results with the definitions of the ops, which takes long.")
def report(model: str, output: Path, shapes: Shapes, dtypes: dict[str, str], arrays: dict[str, np.ndarray],
           params: str | None, backend: str | None, threads: int | None, precision: str | None,
           settings: dict[str, str], rounds: int, verified: bool) -> None:
    """Write one HTML page about a model: its graph, where each node runs and why, what each pass changed, kernels and
    their time, memory, and a timeline.

    The whole model is compiled, as by `run`, and run on random inputs if none are given; a symbol's weights are random
    too without --params. The page needs no network and nothing beside it.
    """
    chosen = get_backend(backend or config.get("NGRAPH_BACKEND"))
    passed: dict[str, Any] = {**settings_of(threads, precision), **settings}
    chosen.check_options(passed)
    graph, weights, ends_before = load_graph(model, shapes, dtypes, params)
    notes = [f"This is the first part of the model, which ends before {ends_before}."] if ends_before else []
    missing = _random_weights(graph, weights)
    if missing:
        notes.append("The weights are random: the times are real, the results are not. --params gives the model's own.")
    subject = Subject(Path(model).name, graph, {**weights, **missing}, notes=notes)
    draws = draws_of(graph, weights)
    write_whole(output, page(collect(
        subject, chosen, passed, lambda made: fitting_inputs(made.inputs, arrays, shapes, draws=draws),
        rounds=rounds, verified=verified)))


def _random_weights(graph: Graph, known: Any) -> dict[str, np.ndarray]:
    """Those of a symbol's that are not known."""
    missing = [value for value in graph.parameters if value.is_weight and value.name not in known]
    if not missing:
        return {}
    from ngraph_mxnet.bridges.mxnet.symbols.weights import random_weights

    made = random_weights({value.name: value.shape for value in missing})
    return {value.name: made[value.name].astype(value.type.element.numpy) for value in missing}
