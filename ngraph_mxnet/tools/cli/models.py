"""Commands about a model, of ONNX or MXNet: `explain`, `run`, `profile`, `show`, `report`.

`show` shows a model at each stage of its way from the file to instructions; `report` writes one HTML page about it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from ngraph_mxnet.api import compile as compile_model
from ngraph_mxnet.api import explain as explain_model
from ngraph_mxnet.api import explain_shapes, explain_training
from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.base.rendered import numbered, view
from ngraph_mxnet.frontends import IR_FILE
from ngraph_mxnet.frontends.model import Model
from ngraph_mxnet.ir.graph import Graph, print_graph
from ngraph_mxnet.passes.base import FixedPoint, Pass, PassManager, PassRecord
from ngraph_mxnet.program.backend import Backend, get_backend
from ngraph_mxnet.program.compile import bind_weights
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.program.feeds import draws_of, fitting_inputs, named_shapes
from ngraph_mxnet.tools.cli import options
from ngraph_mxnet.tools.cli.artefact import show_artefact
from ngraph_mxnet.tools.cli.options import Shapes, write_whole
from ngraph_mxnet.tools.debug import Dump, to_dot, to_svg


def compiled_model(model: Model, shapes: Shapes, backend: str | None, settings: Mapping[str, Any]) -> Any:
    """Compile the model, with random weights if it needs some and has none. If it says its shapes, it is compiled for
    those that it is called with. Raises NGraphError: as `ngraph_mxnet.compile`."""
    return compile_model(model.with_random_weights(shapes), backend, shapes=shapes if model.needs_sizes else None,
                         **settings)


@click.command()
@options.model_argument
@options.takes("model")
@click.option("--kernels", is_flag=True, help="Show how each contraction is computed, and the memory.")
@click.option("--simulate", is_flag=True, help="HYBRID: compile for the NNP, and simulate each of its regions.")
@click.option("--throughput", is_flag=True,
              help="HYBRID: simulate requests that follow each other: how many a second, and who is the bottleneck.")
@click.option("--train", is_flag=True, help="Of a symbol: where each node and update runs in training, on the CPU.")
@click.option("--shapes", "axes", callback=options.axes, metavar="NAME:AXIS,...[;...]",
              help="Which sizes of the inputs change, as data:0,2,3: what is compiled once for all of them, what that "
                   "assumes, and what is compiled for each set of shapes, with the reason.")
@click.option("--svg", type=options.NEW_FILE,
              help="HYBRID: draw the placed graph there, of further regions in FILE-2 ...")
@click.option("--timeline", type=options.NEW_FILE, help="HYBRID: draw the predicted schedule there.")
@options.json_option
@options.one_model
def explain(model: Model, shapes: Shapes, backend: str | None, kernels: bool, simulate: bool, throughput: bool,
            train: bool, axes: dict[str, tuple[int, ...]] | None, settings: dict[str, str], svg: Path | None,
            timeline: Path | None, as_json: bool) -> None:
    """Which parts of a model run on the backend, and why the others do not.

    An ONNX model runs as a whole or not at all: then the node that can't be compiled is named. The backend HYBRID also
    says where each node goes and why, and what that would take. The exit status is 1 when nothing runs on the backend.
    """
    explanation: Any
    options.set_variables(settings)
    if simulate:
        settings["simulate"] = "1"
    if throughput:
        settings["throughput"] = "1"
    if train:
        if backend or kernels or settings or svg or timeline:
            raise click.UsageError("--train goes with --shape, --dtype and --json only: the CPU trains")
        explanation = explain_training(model, shapes)
    elif axes is not None:
        if kernels or settings or svg or timeline:
            raise click.UsageError("--shapes goes with --shape, --dtype, --backend and --json only")
        explanation = explain_shapes(model, shapes, axes, backend=backend)
    else:
        explanation = explain_model(model, shapes, backend=backend, kernels=kernels, options=settings)
        _draw(explanation.plans, svg, "svg")
        _draw(explanation.plans, timeline, "timeline_svg")
    options.tell(as_json, explanation)
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
@options.takes("input", *options.OF_A_MODEL[1:])
@click.option("--output", type=options.NEW_FILE, metavar="FILE.npz", help="Write the results there, by name.")
@options.json_option
@options.one_model
def run(model: Model, arrays: dict[str, np.ndarray], backend: str | None, settings: dict[str, Any],
        output: Path | None, as_json: bool) -> None:
    """Run a model once on inputs from files, and show its results in figures.

    A file MODEL.ngraph is a compiled one, or holds a graph's text.
    """
    model, shapes = model.fed(arrays), named_shapes(arrays)
    model.require_sizes(shapes, "--input data=FILE.npy")
    model.require_weights(shapes)
    exe = compiled_model(model, shapes, backend, settings)
    outputs = exe(fitting_inputs(exe.inputs, arrays, None))
    named = dict(zip((port.name for port in exe.outputs), outputs, strict=True))
    if output is not None:
        try:
            with output.open("wb") as file:
                np.savez(file, **named)
        except OSError as error:
            raise options.file_error(error, output) from None
    rows = [_figures_of(name, result) for name, result in named.items()]
    options.tell(as_json, {"outputs": rows, **({} if output is None else {"file": str(output)})}, view(
        rows, "output {name}", "dtype {dtype}", "shape {shape}", "min {min:.6g}", "mean {mean:.6g}", "max {max:.6g}",
        "not finite {not_finite}"), None if output is None else f"{output}: {numbered(len(rows), 'array')}")


def _figures_of(name: str, array: np.ndarray) -> dict[str, Any]:
    """What is printed of an array: the figures are those of its finite elements, None where there is none."""
    finite = array[np.isfinite(array)]
    low, mean, high = (float(f(finite)) if finite.size else None for f in (np.min, np.mean, np.max))
    return {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "min": low, "mean": mean,
            "max": high, "not_finite": array.size - finite.size}


@click.command()
@options.model_argument
@options.takes("input", "model")
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True, help="Forward passes to measure.")
@options.json_option
@options.one_model
def profile(model: Model, arrays: dict[str, np.ndarray], shapes: Shapes, backend: str | None,
            settings: dict[str, Any], rounds: int, as_json: bool) -> None:
    """Run a model, and show where its time goes and how near each kernel comes to this machine's peak.

    A symbol runs in MXNet, with random weights without --params.
    """
    os.environ.pop("NGRAPH_PROFILE", None)  # there is one recorder in a process
    options.set_variables(settings)
    options.tell(as_json, model.fed(arrays).profile(shapes, arrays, rounds, backend, settings))


STAGES = {
    "imported": "the IR as the bridge makes it",
    "optimised": "the IR after the backend's passes",
    "lowered": "the instructions: the CPU's by level, or the NNP's",
    "placed": "where HYBRID runs each node, and why",
}
_USUAL_BACKEND = {"placed": "HYBRID"}
"""The backends of stages that only one has. NGRAPH_BACKEND tells that of the others."""


@click.command(short_help="Show a model at a stage of its compilation, as text or as a picture.",
               help="Show a model at a stage of its compilation: " +
               "; ".join(f"{name}: {text}" for name, text in STAGES.items()) +
               ".\n\nThe whole model is compiled, as by `run`; of a symbol in parts, `explain` tells. A file "
               f"{IR_FILE} holds IR, such as this command prints with --constants. Of what `compile` has written "
               "the programs are shown.")
@options.graph_argument
@click.option("--stage", type=click.Choice(list(STAGES)), help="By default optimised.")
@click.option("--after", metavar="PASS", help="The IR right after this pass, at its last run that changed anything.")
@options.takes("model")
@click.option("--text", is_flag=True, help="Print it; so it is if no file is named.")
@click.option("--constants", is_flag=True, help="Print constants whole, so that the IR can be read again.")
@click.option("--svg", type=options.NEW_FILE, metavar="FILE",
              help="Draw it there; a graph as FILE.dot in the language of Graphviz.")
@click.option("--trace", type=options.NEW_FILE, metavar="FILE",
              help="Of what is lowered for a simulated device: write a call there as a Chrome trace.")
@click.option("--dump", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
              help="Write the IR after each pass that changed it there, with a FILE.dot each.")
@options.one_model
def show(model: Model, stage: str | None, after: str | None, shapes: Shapes, backend: str | None,
         settings: dict[str, Any], text: bool, constants: bool, svg: Path | None, trace: Path | None,
         dump: Path | None) -> None:
    for option, given in (("--after asks for the IR after a pass", after), ("--dump writes what passes make", dump)):
        if given is not None and stage not in (None, "optimised"):
            raise click.UsageError(f"{option}, so the stage is optimised")
    if trace is not None and stage != "lowered":
        raise click.UsageError("--trace shows what was lowered: --stage lowered")
    summary = model.summary()
    if summary is not None:
        file = Path(str(model.path))
        show_artefact(summary, file, file.stat().st_size, as_json=False)
        return
    stage = stage or "optimised"
    if svg is not None and stage == "lowered":
        raise click.UsageError("--svg draws graphs and plans; of what is lowered there is text alone")
    chosen = get_backend(backend or _USUAL_BACKEND.get(stage))
    passes = _wanted_passes(chosen, after)
    graph, weights, ends_before = model.first_part(shapes)
    if ends_before:
        click.echo(f"the graph ends before {ends_before}", err=True)
    if stage in ("imported", "optimised"):
        if stage == "optimised":
            graph = _optimised(bind_weights(graph, weights), chosen, passes, after, dump)
        if svg is not None:
            write_whole(svg, to_dot(graph) if svg.suffix == ".dot" else to_svg(graph))
        if text or svg is None:
            click.echo(print_graph(graph, elide=not constants), nl=False)
    elif stage == "lowered":
        chosen.check_options(settings)
        compiled = compile_graph(graph, chosen.name, weights, **settings)
        if trace is not None:
            write_whole(trace, compiled.simulated_trace())
        if text or trace is None:
            click.echo(compiled.listing(), nl=False)
    else:
        plan = chosen.plan(bind_weights(graph, weights), settings)
        if plan is None:
            raise ConfigError(f"the backend {chosen.name} places nothing; such as do: {options.placing_backends()}")
        if svg is not None:
            write_whole(svg, plan.svg())
        if text or svg is None:
            options.say(plan)


def _wanted_passes(backend: Backend, after: str | None) -> list[Pass | FixedPoint]:
    passes = list(backend.pipeline())
    known = sorted({each.name for item in passes
                    for each in (item.passes if isinstance(item, FixedPoint) else (item,))})
    if after is not None and after not in known:
        raise ConfigError(f"no pass of {backend.name} is called {after}; there are {', '.join(known) or 'none'}")
    return passes


def _optimised(graph: Graph, backend: Backend, passes: list[Pass | FixedPoint], after: str | None,
               dump: Path | None) -> Graph:
    """After all passes, or after the last run of one of them that changed it; its first, if none did."""
    backend.require_support(graph)
    write = Dump(dump, dot=True) if dump is not None else None
    found: list[tuple[bool, Graph]] = []

    def observe(record: PassRecord, state: Graph) -> None:
        if write is not None:
            try:
                write(record, state)
            except OSError as error:
                raise options.file_error(error, dump) from None
        if record.name == after and (record.changed or not found):
            found.append((record.changed, state.clone()))

    PassManager(passes, observer=observe).run(graph)
    if after is None:
        return graph
    changed, state = found[-1]
    if not changed:
        click.echo(f"{after} changed nothing", err=True)
    return state


@click.command()
@options.model_argument
@click.option("-o", "--output", type=options.NEW_FILE, required=True, metavar="REPORT.html",
              help="Write the page there.")
@options.takes("input", "model")
@click.option("--rounds", type=click.IntRange(0), default=10, show_default=True,
              help="Calls to measure; with 0 nothing runs.")
@click.option("--verify", "verified", is_flag=True,
              help="Compare the results with the definitions of the ops, which takes long.")
@options.one_model
def report(model: Model, output: Path, shapes: Shapes, arrays: dict[str, np.ndarray], backend: str | None,
           settings: dict[str, Any], rounds: int, verified: bool) -> None:
    """Write one HTML page about a model: its graph, where each node runs and why, what each pass changed, kernels and
    their time, memory, and a timeline.

    The whole model is compiled, as by `run`, and run on random inputs if none are given; a symbol's weights are random
    too without --params. The page needs no network and nothing beside it.
    """
    from ngraph_mxnet.tools.reporting import Subject, collect, page

    chosen = get_backend(backend)
    chosen.check_options(settings)
    graph, weights, ends_before = model.first_part(shapes)
    notes = [f"This is the first part of the model, which ends before {ends_before}."] if ends_before else []
    missing = _random_weights(graph, weights)
    if missing:
        notes.append("The weights are random: the times are real, the results are not. --params gives the model's own.")
    subject = Subject(model.title, graph, {**weights, **missing}, notes=notes)
    draws = draws_of(graph, weights)
    write_whole(output, page(collect(
        subject, chosen, settings, lambda made: fitting_inputs(made.inputs, arrays, shapes, draws=draws),
        rounds=rounds, verified=verified)))
    click.echo(f"{output}: {output.stat().st_size / 1e6:.2f} MB")


def _random_weights(graph: Graph, known: Any) -> dict[str, np.ndarray]:
    """Those of a symbol's that are not known."""
    missing = [value for value in graph.parameters if value.is_weight and value.name not in known]
    if not missing:
        return {}
    from ngraph_mxnet.frontends.mxnet.model import random_weights

    made = random_weights({value.name: value.shape for value in missing})
    return {value.name: made[value.name].astype(value.type.element.numpy) for value in missing}
