"""`compile`: a model as one file, which runs without MXNet, ONNX and Python; `to-onnx`: as a file of ONNX; `verify`: a
model against a reference."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

import click
import numpy as np

from ngraph_mxnet.api import export_sets
from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.base.rendered import progress, view
from ngraph_mxnet.frontends import SYMBOL_FILE
from ngraph_mxnet.frontends.model import Model
from ngraph_mxnet.frontends.onnx.writer import DEFAULT_OPSET, OPSETS
from ngraph_mxnet.program.artefact import ISAS, Summary
from ngraph_mxnet.program.export import default_isas
from ngraph_mxnet.program.feeds import SEED
from ngraph_mxnet.program.program import SetSummary
from ngraph_mxnet.tools.cli import options
from ngraph_mxnet.tools.verifying.verified import REFERENCES
from ngraph_mxnet.tools.verifying.verified import verify as verify_model

_Sets = list[dict[str, tuple[int | str, ...]]]


def _sets(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> _Sets:
    """A name that the set has already begins a further one."""
    sets: _Sets = [{}]
    for value in values:
        name, shape = options.read_range(value)
        if name in sets[-1]:
            sets.append({})
        sets[-1][name] = shape
    for number, one in enumerate(sets):
        if one.keys() != sets[0].keys():
            lacking = ", ".join(sorted(sets[0].keys() ^ one.keys()))
            raise click.BadParameter(f"set {number} of shapes and the first one differ in {lacking}: give all inputs "
                                     "of one set, then all of the next")
    return sets


def _isas(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str]:
    found = [name.strip().lower() for name in (value or "").split(",") if name.strip()]
    unknown = sorted(set(found) - set(ISAS))
    if unknown:
        raise click.BadParameter(f"found {', '.join(unknown)}, expected some of {','.join(ISAS)}")
    return found


@click.command()
@options.graph_argument
@click.option("-o", "--output", type=options.NEW_FILE, required=True, metavar="FILE",
              help="The file to write, usually model.ngraph.")
@options.params_option
@click.option("--shape", "sets", multiple=True, callback=_sets, metavar="NAME=D,D,...",
              help="The shape of an input; once for each whose shape the model leaves open. To name an input again "
                   "begins a further set of shapes, for which the model is compiled, too. A size may be a range, as "
                   "1..32, H or H:8..640: then it is compiled for all sizes within.")
@options.takes("dtype", "result", "threads", "precision", "recipe")
@click.option("--isa", "isas", callback=_isas, metavar="ISA,...",
              help="Instruction sets, of amx, avx512, avx_vnni, avx2 and baseline: by default all but amx and "
                   "avx_vnni, so that every x86-64 CPU runs it; of int8 without baseline.")
@click.option("--meta", "metadata", multiple=True, callback=options.pairs("KEY=VALUE", "version=3"),
              metavar="KEY=VALUE", help="A text that the file carries; once for each.")
@click.option("--with-references", "--with-reference", is_flag=True,
              help="Add random inputs and what this machine computes of them, to verify other machines with.")
@options.json_option
@options.one_model
def compile(model: Model, output: Path, sets: _Sets, settings: dict[str, Any], isas: list[str], as_json: bool,
            **given: Any) -> None:
    """Compile a model as a whole into one file, which runs without MXNet, ONNX and Python.

    A symbol needs --params and the shapes of its inputs; an ONNX model the shapes that it leaves open.
    """
    wanted = settings.get("precision") or config.get("NGRAPH_PRECISION")
    try:
        with progress("compiling", len(sets) * len(isas or default_isas(wanted))) as advance:
            summary = export_sets(model, output, sets, isas=isas, options=settings, on_program=advance, **given)
        size = output.stat().st_size
    except OSError as error:  # of the output, or of whatever else it names
        raise options.file_error(error) from None
    show_artefact(summary, output, size, as_json)


def described(summary: Summary, path: Path, size: int) -> dict[str, Any]:
    """What is told of an artefact: of `memory`, the arena belongs to one call, the constants to all."""
    meta = summary.meta
    sets, ranges = ([one for one in summary.sets if bool(one.symbols) is symbolic] for symbolic in (False, True))
    first_range = 1 + max((one.number for one in sets), default=-1)
    return {
        "file": str(path), "bytes": size, "name": meta.name, "made_by": meta.made_by,
        "precision": meta.precision, "metadata": dict(meta.metadata), "references": summary.references,
        "programs": [{"shapes": one.number, "isa": one.isa, **_ports(one), "instructions": program.instructions,
                      "levels": program.levels, "arena_bytes": program.arena_bytes,
                      "constant_bytes": program.constant_bytes}
                     for one in sets for program in one.programs],
        "ranges": [{"range": one.number - first_range, "isa": one.isa, **_ports(one), "symbols": one.bounds,
                    "programs": [{"guards": list(program.guards), "instructions": program.instructions,
                                  "constant_bytes": program.constant_bytes} for program in one.programs]}
                   for one in ranges],
    }


def _ports(of: SetSummary) -> dict[str, dict[str, str]]:
    return {"inputs": {name: str(type_) for name, type_ in of.inputs},
            "outputs": {name: str(type_) for name, type_ in of.outputs}}


def show_artefact(summary: Summary, path: Path, size: int, as_json: bool) -> None:
    found = described(summary, path, size)
    ports = ("inputs {inputs:pairs}", "outputs {outputs:pairs}")
    sets = view(found["programs"], "set {shapes}", *ports, "instructions for {isa}", "number {instructions}",
                "levels {levels}", "arena MB {arena_bytes:MB}", "constants MB {constant_bytes:MB}")
    # The first program whose guards hold runs; what all have is told of the first.
    ranges = view(({**(one if number == 0 else dict.fromkeys(one)), **program} for one in found["ranges"]
                   for number, program in enumerate(one["programs"])),
                  "range {range:text}", *ports, "sizes {symbols:pairs}", "instructions for {isa:text}",
                  "guards {guards:lines}", "number {instructions}", "constants MB {constant_bytes:MB}")
    options.tell(as_json, found, sets, ranges,
                 f"{path}: {size / 1e6:.2f} MB, {found['precision']}, made by {found['made_by']}",
                 *(f"{key}: {value}" for key, value in summary.meta.metadata.items()))


@click.command()
@options.runnable_argument
@click.option("--against", type=click.Choice(REFERENCES),
              help="The reference: MXNet's own operators, ONNX Runtime, or the definitions of this package's IR. By "
                   "default mxnet for symbols; for ONNX models onnxruntime where it is installed, else interpreter.")
@click.option("--of", type=options.FILE, metavar=f"MODEL.onnx|MODEL{SYMBOL_FILE}",
              help="Of a compiled file the model that it was made of, to which --shape, --params and --dtype belong. "
                   "Without it the file is compared with the results that it holds.")
@options.takes("input", "shape", "dtype")
@click.option("--seed", type=click.IntRange(0), default=SEED, show_default=True,
              help="Of the inputs that are not given: such as the model is made for (positions in its tables, lengths, "
                   "masks), else normal numbers, or integers 0 and 1.")
@options.params_option
@click.option("--reference-params", type=options.FILE, metavar="OTHER-0000.params|OTHER.onnx",
              help="Weights for the reference alone, as of the release before: of an ONNX model those of another one.")
@options.takes("result", "backend", "threads", "precision", "recipe", "option")
@click.option("--tolerance", type=click.FloatRange(0, max_open=True, max=float("inf")), metavar="SHARE",
              help="How far a float may be from the reference's, over the largest magnitude of its tensor. By default "
                   "1e-3; in float16, also of models that store values so, 1e-2; with --precision bf16 5e-2, with int8 "
                   "0.2.")
@options.json_option
def verify(model: str, arrays: dict[str, np.ndarray], settings: dict[str, Any], as_json: bool, **given: Any) -> None:
    """Compare a compiled model's outputs with a reference's, and find the first node that differs.

    A symbol's weights are random without --params. Of a compiled file MODEL.ngraph the outputs are compared with those
    of the model that it was made of, --of. The exit status is 0 where all outputs agree, 1 where one differs, 2
    where the command line is wrong or the model can't be run.
    """
    os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")  # MXNet would name our backend when it runs its own operators
    try:
        found = verify_model(model, inputs=arrays, **given, **settings)
    except NGraphError:
        raise
    except Exception:  # a fault of ours, which is no difference
        traceback.print_exc()
        sys.exit(2)
    options.tell(as_json, found)
    sys.exit(0 if found.agrees else 1)


@click.command()
@options.graph_argument
@click.option("-o", "--output", type=options.NEW_FILE, required=True, metavar="FILE",
              help="The file to write, usually model.onnx.")
@options.params_option
@click.option("--shape", "sets", multiple=True, callback=_sets, metavar="NAME=D,D,...",
              help="The shape of an input; once for each whose shape the model leaves open. A size may be a range, as "
                   "1..32, H or H:8..640: it stays a symbol in the file.")
@options.takes("dtype", "result")
@click.option("--opset", type=click.IntRange(OPSETS[0], OPSETS[-1]), default=DEFAULT_OPSET, show_default=True,
              help="The version of ONNX's operators.")
@click.option("--optimise", is_flag=True, help="Fold batch normalizations and arithmetic by channel into weights.")
@click.option("--recipe", type=options.FILE, metavar="RECIPE.json",
              help="What `quantize --recipe` wrote: its layers are written in 8 bits, between QuantizeLinear and "
                   "DequantizeLinear.")
@click.option("--external-data", is_flag=True,
              help="Put weights into a file of their own, FILE.data. Those of 2 GB and more always are.")
@click.option("--no-compare", "compare", is_flag=True, flag_value=False, default=True,
              help="Write the file without comparing its outputs, which takes minutes of large models.")
@click.option("--meta", "metadata", multiple=True, callback=options.pairs("KEY=VALUE", "version=3"),
              metavar="KEY=VALUE", help="A text that the file carries; once for each.")
@options.json_option
@options.one_model
def to_onnx(model: Model, output: Path, sets: _Sets, as_json: bool, **given: Any) -> None:
    """Write a model as ONNX, which needs neither MXNet nor this package.

    The file is there only once ONNX's checker took it and its outputs were right: read back by this package, and by
    ONNX Runtime where that is installed. A symbol needs --params and the shapes of its inputs.
    """
    from ngraph_mxnet.frontends.onnx.writer.file import STEPS, write_file

    if len(sets) > 1:
        raise click.BadParameter("an input is named twice; a file of ONNX has one set of shapes", param_hint="--shape")
    try:
        with progress("writing", STEPS) as advance:
            found = write_file(model, output, sets[0], advance=advance, **given)
    except OSError as error:
        raise options.file_error(error) from None
    options.tell(as_json, found)
