"""Profiles of MXNet models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.error_texts import brief
from ngraph_mxnet.bridges.mxnet.explain import explain, load_symbol
from ngraph_mxnet.bridges.mxnet.symbols.symbol_inputs import check_inputs
from ngraph_mxnet.bridges.mxnet.symbols.weights import random_weights, read_weights
from ngraph_mxnet.bridges.mxnet.whole import draws_of_symbol
from ngraph_mxnet.errors import ModelError
from ngraph_mxnet.runtime.backend import get_backend
from ngraph_mxnet.runtime.feeds import SEED, random_array

if TYPE_CHECKING:
    from mxnet.executor import Executor


def profile_model(model: str | Path, shapes: Mapping[str, Sequence[int]], params: str | Path | None = None, *,
                  rounds: int = 20) -> Any:
    """Bind the model for the backend NGRAPH, with the weights in `params` or random ones, and run it `rounds` times.

    MXNET_SUBGRAPH_BACKEND must name NGRAPH.

    Returns:
        What `Backend.profile` gives.

    Raises:
        ConfigError: the backend has no kernels to tell of.
        ModelError: the files are corrupt, don't fit, or MXNet can't infer the model's shapes.
    """
    executor = _bind(Path(model), shapes, None if params is None else Path(params))

    def forward() -> None:
        for output in executor.forward(is_train=False):
            output.wait_to_read()

    details = explain(model, shapes, kernels=True).details  # the bind may have compiled nothing
    return get_backend(config.get("NGRAPH_BACKEND")).profile(forward, rounds, details)


def _bind(model: Path, shapes: Mapping[str, Sequence[int]], params: Path | None) -> Executor:
    import mxnet as mx

    symbol = load_symbol(model)
    check_inputs(symbol, shapes)
    try:
        executor = symbol.simple_bind(ctx=mx.cpu(), grad_req="null", **{k: tuple(v) for k, v in shapes.items()})
    except (mx.base.MXNetError, RuntimeError, ValueError) as error:
        raise ModelError(f"MXNet can't bind {model} with {dict(shapes)}: {brief(error)}") from None
    arrays = {**executor.arg_dict, **executor.aux_dict}
    for name, values in random_weights({name: array.shape for name, array in arrays.items()}).items():
        arrays[name][:] = values
    random, draws = np.random.default_rng(SEED), draws_of_symbol(symbol, shapes, {}, config.get("NGRAPH_BACKEND"))
    for name in shapes:
        arrays[name][:] = random_array(random, arrays[name].shape, arrays[name].dtype, draws.get(name))
    if params is not None:
        wanted = {name: array.shape for name, array in arrays.items() if name not in shapes}
        for name, array in read_weights(params, wanted).items():
            array.copyto(arrays[name])
    return executor
