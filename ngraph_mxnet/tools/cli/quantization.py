"""`quantize`: which layers of a model are in 8 bits, within a bound on what that costs: a report, a recipe, a file."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from ngraph_mxnet.base.files import require_writable
from ngraph_mxnet.base.rendered import check_figure
from ngraph_mxnet.quantisation.calibration import METHODS
from ngraph_mxnet.quantisation.layers import CORRECTIONS
from ngraph_mxnet.quantisation.session.quantized import Quantized
from ngraph_mxnet.quantisation.session.quantized import quantize as quantize_model
from ngraph_mxnet.quantisation.session.report import MOST_EVALUATIONS, Report
from ngraph_mxnet.tools.cli import options
from ngraph_mxnet.tools.cli.runs import own_command, recorded_store
from ngraph_mxnet.tools.experiments.store import Run, add_runs, collect, now

_ENDINGS = (".npy", ".npz")


def _metric(context: click.Context, parameter: click.Parameter, value: str | None) -> str | Callable[..., Any] | None:
    """`top1`, or what `module:callable` names; modules of the current folder are found."""
    if value is None or ":" not in value:
        if value not in (None, "top1"):
            raise click.BadParameter(f"found {value!r}, expected top1 or MODULE:CALLABLE")
        return value
    module, _, name = value.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.BadParameter(f"{value} can't be imported: {error}") from None
    finally:
        sys.path.remove("")
    if not callable(found):
        raise click.BadParameter(f"{value} is {type(found).__name__}, expected a function of outputs and labels")
    metric: Callable[..., Any] = found
    return metric


def _corrections(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """Which there are, `quantize` checks."""
    if value is None:
        return None
    return [] if value == "none" else value.split(",")


def _shapes(context: click.Context, parameter: click.Parameter,
            values: tuple[str, ...]) -> dict[str, tuple[int | str, ...]]:
    found: dict[str, tuple[int | str, ...]] = {}
    for value in values:
        name, shape = options.read_range(value)
        if name in found:
            raise click.BadParameter(f"found two shapes of {name}, expected one: a model is measured for one set")
        found[name] = shape
    return found


@click.command()
@options.model_argument
@click.option("--calibration", "samples", type=click.Path(exists=True, path_type=Path), required=True,
              metavar="DATA.npz|FOLDER",
              help="Samples: DATA.npz has an array for each input, by name, with the samples along the first axis, and "
                   "may have `labels`; FOLDER has .npy or .npz files, each of one sample or a batch.")
@options.params_option
@click.option("--shape", "shapes", multiple=True, callback=_shapes, metavar="NAME=D,D,...",
              help="The shape of an input to measure and compile for; once for each. Sizes may be ranges, which OUT is "
                   "compiled for. By default that of one sample, or of a file in FOLDER.")
@options.takes("dtype", "result")
@click.option("--max-drop", type=click.FloatRange(0), metavar="NUMBER",
              help="How much less than in float the metric may be: layers stay in float until it holds.")
@click.option("--metric", callback=_metric, metavar="top1|MODULE:CALLABLE",
              help="top1 needs labels; a function gets the list of outputs for all samples, and the labels. By default "
                   "top1 if there are labels; else the share of samples with the same class as in float, or, of other "
                   "outputs than scores of classes, as a detector's, how near they are.")
@click.option("--method", type=click.Choice(list(METHODS)),
              help="How ranges are chosen; by default the best of minmax, mse and percentile_99.99 on samples.")
@click.option("--corrections", callback=_corrections, metavar="NAME,NAME,...|none",
              help=f"Of {', '.join(CORRECTIONS)} those that are made wherever they can be; by default each with which "
                   "the outputs' error is less.")
@click.option("--keep", multiple=True, metavar="LAYER", help="A layer that stays in float; once for each.")
@click.option("--evaluations", type=click.IntRange(1), default=MOST_EVALUATIONS, show_default=True,
              help="How often the metric is computed at most, for --max-drop.")
@click.option("--even-if-slower", is_flag=True,
              help="Layers, and models, that are not faster in 8 bits on this machine do not stay in float for that.")
@click.option("-o", "--output", type=options.NEW_FILE, metavar="OUT",
              help="The compiled file to write, usually model.ngraph, for ngraph-run and NGRAPH_PACKAGE.")
@click.option("--recipe", type=options.NEW_FILE, metavar="RECIPE.json",
              help="The recipe to write, for NGRAPH_CALIBRATION and `compile --recipe`.")
@click.option("--report", is_flag=True, help="Print the report beside what is written, too; without -o and --recipe it "
                                             "is printed anyway.")
@click.option("--plot", type=options.NEW_FILE, metavar="FILE",
              help="Draw damages and times of the layers there, with matplotlib.")
@options.takes("threads", "record", "json")
@click.pass_context
def quantize(context: click.Context, model: str, samples: Path, params: str | None, even_if_slower: bool,
             output: Path | None, recipe: Path | None, report: bool, plot: Path | None, settings: dict[str, Any],
             record: bool | None, as_json: bool, **given: Any) -> None:
    """Choose which layers of a model compute in 8 bits on this CPU, so that it is faster and its metric holds.

    A symbol needs --params. Without -o and --recipe nothing is written.
    """
    wanted = (output, "save"), (recipe, "save_recipe"), (plot, "plot")  # the model first, which takes longest to make
    outputs = [(path, write) for path, write in wanted if path is not None]
    _check(outputs)
    started, start = now(), time.perf_counter()
    found = quantize_model(model, read_samples(samples), params=params, only_faster=not even_if_slower, **given,
                           **settings)
    failed = _failed(found, outputs)
    store = recorded_store(record)
    if store is not None:
        asked = {name: value for name, value in context.params.items() if name not in ("record", "as_json")}
        add_runs(store, [Run("quantize", Path(model).name, started=started, seconds=time.perf_counter() - start,
                             settings=asked, metrics=_metrics(found.report), facts=collect(own_command(context)))])
    written = {str(path): path.stat().st_size for path, _ in outputs if str(path) not in failed}
    whole = [found.report] if report or (output is None and recipe is None) else [
        found.report.decision, found.report.doubt]
    options.tell(as_json, {**found.report.to_dict(), "files": written}, *whole,
                 *(f"{path}: {size / 1e6:.3f} MB" for path, size in written.items()))
    if failed:
        raise click.ClickException("; ".join(failed.values()))


def _metrics(report: Report) -> dict[str, list[tuple[int, float]]]:
    """For the store of runs."""
    single = {"float_metric": report.float_metric, "quantised_metric": report.quantised_metric,
              "float_ms": report.float_totals.ms, "quantised_ms": report.quantised_totals.ms,
              "float_weight_bytes": report.float_totals.weight_bytes,
              "quantised_weight_bytes": report.quantised_totals.weight_bytes,
              "layers_in_8_bits": sum(row.kept is None for row in report.layers)}
    return {name: [(0, float(value))] for name, value in single.items()}


def _check(outputs: Sequence[tuple[Path, str]]) -> None:
    """Refuse files that could not be written, before there is work that would be lost; each with what writes it."""
    for number, (path, write) in enumerate(outputs):
        if path.resolve() in [other.resolve() for other, _ in outputs[:number]]:
            raise click.ClickException(f"{path}: found two outputs for one file, expected another for each")
        try:
            require_writable(path)
        except OSError as error:
            raise options.file_error(error) from None
        if write == "plot":
            check_figure(path)


def _failed(found: Quantized, outputs: Sequence[tuple[Path, str]]) -> dict[str, str]:
    """Write the files; by path why some could not be written."""
    failed = {}
    for path, write in outputs:
        try:
            getattr(found, write)(path)
        except OSError as error:
            failed[str(path)] = options.file_error(error).message
    return failed


def read_samples(path: Path) -> Any:
    """What `ngraph_mxnet.quantize` takes: a dict of all samples, or an iterator of those of a folder's files. Raises
    BadParameter: there are none, or a file is not of NumPy's."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in _ENDINGS)
        if not files:
            others = ", ".join(sorted({file.suffix or file.name for file in path.iterdir()})[:8]) or "nothing"
            raise click.BadParameter(f"--calibration: found {others} in {path}, expected .npy or .npz files: "
                                     "numpy.save writes them")
        return map(partial(options.read_arrays, option="--calibration: "), files)
    if path.suffix not in _ENDINGS:
        raise click.BadParameter(f"--calibration: found {path.name}, expected a .npz file or a folder: numpy.savez "
                                 "writes one, as numpy.savez('data.npz', data=images, labels=labels)")
    return options.read_arrays(path, "--calibration: ")
