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
    """First results, then with other weights and data, then for other shapes, of which the second ones are compiled for
    a range of sizes."""
    try:
        with backend(None):
            symbol.simple_bind(mx.cpu(), grad_req="null", data=shape)
    except RuntimeError:  # of this MXNet itself, which can't infer some shapes, and refuses outputs given twice
        reject()
    with backend("NGRAPH"):
        executor = symbol.simple_bind(mx.cpu(), grad_req="null", data=shape)
    agree(symbol, executor, shape, seed, tolerance)
    agree(symbol, executor, shape, seed + 1, tolerance)
    for number, other in enumerate(others(symbol, shape)):
        with backend("NGRAPH"):
            executor = executor.reshape(data=other, allow_up_sizing=True, partial_shaping=True)
        agree(symbol, executor, other, seed + 2 + number, tolerance)


def others(symbol: mx.sym.Symbol, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Larger and smaller batches; and images of other sizes, if those are the model's with the same weights."""
    batches = [(shape[0] + 1, *shape[1:]), (shape[0] + 4, *shape[1:]), (1, *shape[1:])]
    sizes = [(batch, shape[1], *(size + by for size, by in zip(shape[2:], more, strict=False)))
             for batch, more in ((2, (1, 0, 2)), (1, (4, 7, 3)), (shape[0], (0, 2, 1)))] if len(shape) > 2 else []
    return batches + [each for each in sizes if weights(symbol, each) == weights(symbol, shape)]


def weights(symbol: mx.sym.Symbol, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]] | None:
    """The shapes of all but the data; None where MXNet finds none."""
    try:
        return {name: size for name, size in all_shapes(symbol, {"data": shape}).items() if name != "data"}
    except mx.base.MXNetError:
        return None


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


def test_ranges_of_sizes_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models of this file are bound for sizes that their templates did not have at first."""
    from ngraph_mxnet import _core

    _core.clear_compile_cache()
    run("dex", FEW, monkeypatch)
    assert _core.compile_cache_info()["bound"] >= FEW // 2
