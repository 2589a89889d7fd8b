"""`show`: a model at each stage of its way from the file to instructions, as text or as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import numpy as np

from ngraph_mxnet import config
from ngraph_mxnet.cli import options
from ngraph_mxnet.cli.artefact import show_artefact
from ngraph_mxnet.cli.loading import Shapes
from ngraph_mxnet.cli.models import console, settings_of
from ngraph_mxnet.cli.writing import write_whole
from ngraph_mxnet.debug.dump import Dump, to_dot, to_svg
from ngraph_mxnet.errors import ConfigError, ModelError
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.parser import parse_graph
from ngraph_mxnet.ir.printer import print_graph
from ngraph_mxnet.model_kinds import IR_FILE, SYMBOL_FILE, Kind, kind_of
from ngraph_mxnet.package.artefact_reader import is_artefact
from ngraph_mxnet.package.artefact_reader import load as load_artefact
from ngraph_mxnet.passes.base import FixedPoint, Pass, PassManager, PassRecord
from ngraph_mxnet.runtime.backend import Backend, get_backend
from ngraph_mxnet.runtime.compile import bind_weights
from ngraph_mxnet.runtime.compile import compile as compile_graph

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
@click.argument("model", type=click.Path(exists=True, dir_okay=False),
                metavar=f"MODEL.onnx|MODEL{SYMBOL_FILE}|GRAPH{IR_FILE}")
@click.option("--stage", type=click.Choice(list(STAGES)), help="By default optimised.")
@click.option("--after", metavar="PASS", help="The IR right after this pass, at its last run that changed anything.")
@options.shape_option
@options.dtype_option
@options.params_option
@options.backend_option
@options.threads_option
@options.precision_option
@options.option_option
@click.option("--text", is_flag=True, help="Print it; so it is if no file is named.")
@click.option("--constants", is_flag=True, help="Print constants whole, so that the IR can be read again.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Draw it there; a graph as FILE.dot in the language of Graphviz.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Of what is lowered for a simulated device: write a call there as a Chrome trace.")
@click.option("--dump", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
              help="Write the IR after each pass that changed it there, with a FILE.dot each.")
def show(model: str, stage: str | None, after: str | None, shapes: Shapes, dtypes: dict[str, str], params: str | None,
         backend: str | None, threads: int | None, precision: str | None, settings: dict[str, str], text: bool,
         constants: bool, svg: Path | None, trace: Path | None, dump: Path | None) -> None:
    if after is not None and stage not in (None, "optimised"):
        raise click.UsageError("--after asks for the IR after a pass, so the stage is optimised")
    if dump is not None and stage not in (None, "optimised"):
        raise click.UsageError("--dump writes what passes make, so the stage is optimised")
    if trace is not None and stage != "lowered":
        raise click.UsageError("--trace shows what was lowered: --stage lowered")
    if _is_artefact(model):
        show_artefact(load_artefact(model).summary(), Path(model), Path(model).stat().st_size, as_json=False)
        return
    stage = stage or "optimised"
    if svg is not None and stage == "lowered":
        raise click.UsageError("--svg draws graphs and plans; of what is lowered there is text alone")
    chosen = get_backend(backend or _USUAL_BACKEND.get(stage) or config.get("NGRAPH_BACKEND"))
    passes = _wanted_passes(chosen, after)
    graph, weights, ends_before = load_graph(model, shapes, dtypes, params)
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
        chosen.check_options({**settings_of(threads, precision), **settings})
        compiled = compile_graph(graph, chosen.name, weights, **settings_of(threads, precision), **settings)
        if trace is not None:
            write_whole(trace, compiled.simulated_trace())
        if text or trace is None:
            click.echo(compiled.listing(), nl=False)
    else:
        plan = chosen.plan(bind_weights(graph, weights), {**settings_of(threads, precision), **settings})
        if plan is None:
            raise ConfigError(f"the backend {chosen.name} places nothing; such as do: {options.placing_backends()}")
        if svg is not None:
            write_whole(svg, plan.svg())
        if text or svg is None:
            console().print(plan)


def _is_artefact(model: str) -> bool:
    try:
        return is_artefact(model)
    except OSError as error:
        raise ModelError(f"can't read {model}: {error}") from None


def load_graph(model: str, shapes: Shapes, dtypes: Mapping[str, str],
               params: str | None) -> tuple[Graph, Mapping[str, np.ndarray], str | None]:
    """The graph in a file of any kind, its weights as far as they are known, and of the first part of a model before
    what it ends.

    Raises:
        NGraphError: the file is damaged, or an option is missing or not for a file of its kind.
    """
    kind, found = kind_of(model)
    if kind is Kind.SYMBOL:
        if not shapes:
            raise ModelError("a symbol needs the shapes of its data inputs: --shape NAME=D,D,...")
        from ngraph_mxnet.bridges.mxnet.symbols.weights import load_graph as load_symbol_graph

        return *load_symbol_graph(model, shapes, dtypes, params), None
    if params or dtypes:
        raise ConfigError("--params and --dtype are for symbols; other models hold their weights and types")
    if kind is Kind.TEXT:
        if shapes:
            raise ConfigError("--shape is for models; those of a graph are in its types")
        return parse_graph(found), {}, None
    if kind is not Kind.ONNX:
        raise ConfigError(f"{model} is a {kind.value}, expected a model or a graph")
    from ngraph_mxnet.bridges.onnx.importer import import_model
    from ngraph_mxnet.bridges.onnx.model import read_model

    imported = import_model(read_model(model), shapes, partly=True)
    return imported.graph, imported.weights, None if imported.rest is None else imported.reason


def _wanted_passes(backend: Backend, after: str | None) -> list[Pass | FixedPoint]:
    passes = list(backend.pipeline())
    known = sorted({each.name for each in _each(passes)})
    if after is not None and after not in known:
        raise ConfigError(f"no pass of {backend.name} is called {after}; there are {', '.join(known) or 'none'}")
    return passes


def _each(passes: list[Pass | FixedPoint]) -> Iterator[Pass]:
    for item in passes:
        yield from item.passes if isinstance(item, FixedPoint) else (item,)


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
                raise click.ClickException(f"{dump}: {error.strerror}") from None
        if record.name == after and (record.changed or not found):
            found.append((record.changed, state.clone()))

    PassManager(passes, observer=observe).run(graph)
    if after is None:
        return graph
    changed, state = found[-1]
    if not changed:
        click.echo(f"{after} changed nothing", err=True)
    return state
