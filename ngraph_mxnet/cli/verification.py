"""`verify`: a model's results against a reference's, and the node where they diverge."""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import click
import numpy as np

from ngraph_mxnet.cli import options
from ngraph_mxnet.cli.loading import Shapes
from ngraph_mxnet.cli.models import console, settings_of
from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.model_kinds import SYMBOL_FILE
from ngraph_mxnet.runtime.feeds import SEED
from ngraph_mxnet.verifying.verified import REFERENCES
from ngraph_mxnet.verifying.verified import verify as verify_model


@click.command()
@options.runnable_argument
@click.option("--against", type=click.Choice(REFERENCES),
              help="The reference: MXNet's own operators, ONNX Runtime, or the definitions of this package's IR. By "
                   "default mxnet for symbols; for ONNX models onnxruntime where it is installed, else interpreter.")
@click.option("--of", type=options.FILE, metavar=f"MODEL.onnx|MODEL{SYMBOL_FILE}",
              help="Of a compiled file the model that it was made of, to which --shape, --params and --dtype belong. "
                   "Without it the file is compared with the results that it holds.")
@options.input_option
@options.shape_option
@options.dtype_option
@click.option("--seed", type=click.IntRange(0), default=SEED, show_default=True,
              help="Of the inputs that are not given: such as the model is made for (positions in its tables, lengths, "
                   "masks), else normal numbers, or integers 0 and 1.")
@options.params_option
@click.option("--reference-params", type=options.FILE, metavar="OTHER-0000.params|OTHER.onnx",
              help="Weights for the reference alone, as of the release before: of an ONNX model those of another one.")
@options.backend_option
@options.threads_option
@options.precision_option
@options.recipe_option
@options.option_option
@click.option("--tolerance", type=click.FloatRange(0, max_open=True, max=float("inf")), metavar="SHARE",
              help="How far a float may be from the reference's, over the largest magnitude of its tensor. By default "
                   "1e-3; in float16, also of models that store values so, 1e-2; with --precision bf16 5e-2, with int8 "
                   "0.2.")
@options.json_option
def verify(model: str, against: str | None, of: str | None, arrays: dict[str, np.ndarray], shapes: Shapes,
           dtypes: dict[str, str], seed: int, params: str | None, reference_params: str | None, backend: str | None,
           threads: int | None, precision: str | None, recipe: str | None, settings: dict[str, str],
           tolerance: float | None, as_json: bool) -> None:
    """Compare a compiled model's outputs with a reference's, and find the first node that differs.

    A symbol's weights are random without --params. Of a compiled file MODEL.ngraph the outputs are compared with those
    of the model that it was made of, --of. The exit status is 0 where all outputs agree, 1 where one differs, 2
    where the command line is wrong or the model can't be run.
    """
    os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")  # MXNet would name our backend when it runs its own operators
    given: dict[str, Any] = {**settings_of(threads, precision), **settings}
    if recipe is not None:
        given["recipe"] = recipe
    try:
        found = verify_model(model, against, of=of, inputs=arrays, shapes=shapes, params=params, seed=seed,
                             backend=backend, reference_params=reference_params, dtypes=dtypes,
                             tolerance=tolerance, **given)
    except NGraphError:
        raise
    except Exception:  # a fault of ours, which is no difference
        traceback.print_exc()
        sys.exit(2)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    else:
        console().print(found)
    sys.exit(0 if found.agrees else 1)
