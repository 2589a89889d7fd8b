"""Profiles of MXNet models: see `ngraph_mxnet.cpu.profile`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ngraph_mxnet import _core, config
from ngraph_mxnet.cpu.isa import choose_isa
from ngraph_mxnet.cpu.peak import measure_peak
from ngraph_mxnet.cpu.profile import Profile, measure
from ngraph_mxnet.errors import ModelError
from ngraph_mxnet.mxnet_bridge.explain import explain, load_symbol

if TYPE_CHECKING:
    from mxnet.executor import Executor
    from mxnet.ndarray import NDArray

_SEED = 7


def profile_model(model: str | Path, shapes: Mapping[str, Sequence[int]], params: str | Path | None = None, *,
                  rounds: int = 20) -> Profile:
    """Bind the model for the backend NGRAPH, with the weights in `params` or random ones, and run it `rounds` times.

    MXNET_SUBGRAPH_BACKEND must name NGRAPH.

    Raises:
        ModelError: the files are corrupt, don't fit, or MXNet can't infer the model's shapes.
    """
    executor = _bind(Path(model), shapes, None if params is None else Path(params))

    def forward() -> None:
        for output in executor.forward(is_train=False):
            output.wait_to_read()

    isa, threads = choose_isa(_core.cpu_features()), config.threads()
    peak = measure_peak(isa, threads)
    measured = measure(forward, threads, rounds)
    memory = explain(model, shapes, backend="CPU", kernels=True).memory  # the bind may have compiled nothing
    return replace(measured, isa=isa, peak=peak, memory=tuple(memory or ()))


def _bind(model: Path, shapes: Mapping[str, Sequence[int]], params: Path | None) -> Executor:
    import mxnet as mx

    symbol = load_symbol(model)
    try:
        executor = symbol.simple_bind(ctx=mx.cpu(), grad_req="null", **{k: tuple(v) for k, v in shapes.items()})
    except (mx.base.MXNetError, RuntimeError, ValueError) as error:
        raise ModelError(f"MXNet can't bind {model} with {dict(shapes)}: {error}") from None
    arrays = {**executor.arg_dict, **executor.aux_dict}
    rng = np.random.default_rng(_SEED)
    for name, array in arrays.items():
        array[:] = _random(rng, name, array.shape)
    if params is not None:
        _load_params(params, {name: array for name, array in arrays.items() if name not in shapes})
    return executor


def _random(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Of a scale that keeps activations near one: a value that overflows or dies out may take other time."""
    if name.endswith(("gamma", "var")):
        return rng.uniform(0.8, 1.2, shape)
    if name.endswith(("beta", "mean", "bias")):
        return rng.uniform(-0.2, 0.2, shape)
    return rng.standard_normal(shape) * (sqrt(2 / prod(shape[1:])) if name.endswith("weight") else 1.0)


def _load_params(path: Path, wanted: Mapping[str, NDArray]) -> None:
    import mxnet as mx

    try:
        found = {name.split(":")[-1]: array for name, array in mx.nd.load(str(path)).items()}
    except (mx.base.MXNetError, AttributeError) as error:
        raise ModelError(f"can't read parameters by name from {path}: {error}") from None
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise ModelError(f"{path} has no {', '.join(missing[:8])}{', ...' if len(missing) > 8 else ''}")
    for name, array in wanted.items():
        if found[name].shape != array.shape:
            raise ModelError(f"{path}: {name} is {found[name].shape}, the model expects {array.shape}")
        found[name].copyto(array)
