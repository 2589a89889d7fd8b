"""Random models give MXNet's own results, in each mode, for other inputs, weights and batches too."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st
from mxnet_helpers import backend, mx, needs_library
from native_runs import all_shapes, run_one_by_one
from random_models import models, values_for

pytestmark = needs_library

MODES: dict[str, dict[str, str]] = {
    "dex": {}, "codegen": {"NGRAPH_CODEGEN": "1"}, "interpreter": {"NGRAPH_BACKEND": "INTERPRETER"},
    "baseline": {"NGRAPH_CPU_ISA": "baseline"}, "no-winograd": {"NGRAPH_CPU_WINOGRAD": "0"},
    "hybrid": {"NGRAPH_BACKEND": "HYBRID"},
}
TOLERANCES = {"hybrid": 2e-2}
"""The simulated NNP's 16-bit numbers."""
FEW, MANY = 6, int(os.environ.get("RANDOM_MODELS", "300"))


def agree(symbol: mx.sym.Symbol, executor: mx.executor.Executor, shape: tuple[int, ...], seed: int,
          tolerance: float) -> None:
    arrays = {name: values_for(name, size, seed) for name, size in all_shapes(symbol, {"data": shape}).items()}
    for name, array in {**executor.arg_dict, **executor.aux_dict}.items():
        array[:] = arrays[name]
    found = [output.asnumpy() for output in executor.forward(is_train=False)]
    for one, other in zip(found, run_one_by_one(symbol, arrays), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, tolerance, tolerance * max(0.1, float(np.abs(other).max())))


def check(symbol: mx.sym.Symbol, shape: tuple[int, ...], seed: int, tolerance: float) -> None:
    """First results, then with other weights and data, then for a larger batch."""
    try:
        with backend(None):
            symbol.simple_bind(mx.cpu(), grad_req="null", data=shape)
    except RuntimeError:  # of this MXNet itself, which can't infer some shapes, and refuses outputs given twice
        reject()
    with backend("NGRAPH"):
        executor = symbol.simple_bind(mx.cpu(), grad_req="null", data=shape)
    agree(symbol, executor, shape, seed, tolerance)
    agree(symbol, executor, shape, seed + 1, tolerance)
    larger = (shape[0] + 1, *shape[1:])
    with backend("NGRAPH"):
        executor = executor.reshape(data=larger, allow_up_sizing=True)
    agree(symbol, executor, larger, seed + 2, tolerance)


def run(mode: str, draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in MODES[mode].items():
        monkeypatch.setenv(name, value)

    @settings(max_examples=draws)
    @given(models(), st.integers(0, 2**16))
    def random_models(model: tuple[mx.sym.Symbol, tuple[int, ...]], seed: int) -> None:
        note(model[0].debug_str())
        check(*model, seed, TOLERANCES.get(mode, 1e-4))

    random_models()


@pytest.mark.parametrize("mode", MODES)
def test_a_few_models(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(mode, FEW, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_many_models(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(mode, MANY, monkeypatch)
