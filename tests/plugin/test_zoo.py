"""Every model of Gluon's vision zoo is one node, and gives native MXNet's outputs."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from bf16_machine import allow_bf16
from mxnet_helpers import backend, mx, needs_library

pytestmark = needs_library

SMALL = ("resnet18_v1", "resnet18_v2", "mobilenet0.25", "mobilenetv2_0.25", "squeezenet1.1")
LARGE = (
    *(f"resnet{depth}_v{version}" for version in (1, 2) for depth in (34, 50, 101, 152)),
    *(f"vgg{depth}{suffix}" for suffix in ("", "_bn") for depth in (11, 13, 16, 19)),
    *(f"densenet{depth}" for depth in (121, 161, 169, 201)),
    *(f"mobilenet{width}" for width in ("0.5", "0.75", "1.0")),
    *(f"mobilenetv2_{width}" for width in ("0.5", "0.75", "1.0")),
    "alexnet", "inceptionv3", "squeezenet1.0",
)


def zoo_symbol(name: str) -> mx.sym.Symbol:
    return mx.gluon.model_zoo.vision.get_model(name)(mx.sym.Variable("data"))


def weights_of(executor: mx.executor.Executor) -> None:
    """Weights of the scale that keeps activations alive, moving variances positive; equal for equal places.

    Not by name: Gluon counts the models of a process in their names.
    """
    for arrays in (executor.arg_dict, executor.aux_dict):
        for place, (name, array) in enumerate(arrays.items()):
            rng = np.random.default_rng([place, array.size])
            fan_in = max(int(np.prod(array.shape[1:])), 1)
            values = rng.standard_normal(array.shape) * np.sqrt(2 / fan_in)
            if array.ndim == 1:
                values = rng.uniform(0.5, 1.5, array.shape) if "gamma" in name or "var" in name else values * 0.1
            array[:] = values.astype(np.float32)


def output(executor: mx.executor.Executor, data: np.ndarray) -> np.ndarray:
    return executor.forward(is_train=False, data=mx.nd.array(data))[0].asnumpy()


def native_and_ours(symbol: mx.sym.Symbol, data: np.ndarray,
                    settings: Callable[[pytest.MonkeyPatch], None]) -> tuple[np.ndarray, np.ndarray]:
    """The outputs of MXNet alone and of ours, one region, in the environment that `settings` makes."""
    results = []
    for value in ("NONE", "NGRAPH"):
        with backend(value), pytest.MonkeyPatch.context() as patch:
            settings(patch)
            executor = symbol.simple_bind(mx.cpu(), grad_req="null", data=data.shape)
            weights_of(executor)
            results.append(output(executor, data))
            if value == "NGRAPH":
                ops = re.findall(r"^Op:(\w+)", executor.debug_str(), re.MULTILINE)
                assert ops == ["NGraphSubgraphOp"]
    native, ours = results
    return native, ours


def check(name: str, batch: int, compiler: str = "CPU", bf16: bool = False) -> None:
    symbol, size = zoo_symbol(name), 299 if name == "inceptionv3" else 224
    data = np.random.default_rng(batch).uniform(-1, 1, (batch, 3, size, size)).astype(np.float32)

    def settings(patch: pytest.MonkeyPatch) -> None:
        patch.setenv("NGRAPH_BACKEND", compiler)
        if bf16:
            allow_bf16(patch)
            patch.setenv("NGRAPH_PRECISION", "bf16")

    native, ours = native_and_ours(symbol, data, settings)
    difference = np.linalg.norm(ours - native) / np.linalg.norm(native)
    if compiler.startswith("HYBRID"):  # f16, or bf16 on NNP-T
        assert difference <= (1e-1 if name.startswith("mobilenetv2") else 1e-2 if compiler == "HYBRID" else 5e-2)
        assert set(ours.argmax(1)) <= set(native.argsort(1)[0, -5:])
        return
    if not bf16:
        assert difference <= 1e-4
        return
    # Random weights let MobileNetV2 amplify roundings, to 3.6 to 8.5 %, nearly all from those of data and weights.
    # Classes nearly tie then; with trained weights they do not (tests/examples).
    assert 1e-4 < difference <= (1e-1 if name.startswith("mobilenetv2") else 2e-2)
    assert set(ours.argmax(1)) <= set(native.argsort(1)[0, -5:])


@pytest.mark.parametrize("name", SMALL)
def test_small_model(name: str) -> None:
    check(name, batch=1)


def test_a_batch_of_three() -> None:
    check("mobilenetv2_0.25", batch=3)


def test_the_interpreter_agrees() -> None:
    check("mobilenet0.25", batch=1, compiler="INTERPRETER")


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_every_model(name: str, batch: int) -> None:
    check(name, batch)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_every_model_in_bf16(name: str) -> None:
    check(name, batch=1, bf16=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_every_model_with_the_interpreter(name: str) -> None:
    check(name, batch=1, compiler="INTERPRETER")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_every_model_on_two_devices(name: str) -> None:
    """Mostly on the simulated NNP, in f16; with random weights the deepest sums are beyond it, and need bf16."""
    deep = name.startswith(("resnet101", "resnet152"))
    check(name, batch=1, compiler="HYBRID:nnp-t-1400" if deep else "HYBRID")
