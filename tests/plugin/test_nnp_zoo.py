"""Gluon's vision zoo on the simulated NNP, bound by MXNet: outputs within the format's error of native MXNet's."""

from __future__ import annotations

import numpy as np
import pytest
from mxnet_helpers import needs_library
from test_zoo import LARGE, SMALL, native_and_ours, zoo_symbol

pytestmark = needs_library

# Norm-wise, by the element of real numbers. Random weights let MobileNetV2 amplify roundings (see test_zoo).
ERROR = {"f16": 1e-2, "bf16": 5e-2, "int8": 0.25}
AMPLIFIED = {"f16": 2e-2, "bf16": 2e-1, "int8": 1.0}


def check(name: str, size: int, device: str = "NNP", precision: str = "f16", batch: int = 1) -> None:
    symbol = zoo_symbol(name)
    data = np.random.default_rng(batch).uniform(-1, 1, (batch, 3, size, size)).astype(np.float32)

    def settings(patch: pytest.MonkeyPatch) -> None:
        patch.setenv("NGRAPH_BACKEND", device)
        patch.setenv("NGRAPH_PRECISION", precision)

    native, ours = native_and_ours(symbol, data, settings)
    difference = np.linalg.norm(ours - native) / np.linalg.norm(native)
    assert 0 < difference <= (AMPLIFIED if name.startswith("mobilenetv2") else ERROR)[precision]
    if precision == "f16":
        assert all(one in order[-5:] for one, order in zip(ours.argmax(1), native.argsort(1), strict=True))


@pytest.mark.parametrize(("device", "precision"), [("NNP", "f16"), ("NNP:nnp-t-1300", "bf16"), ("NNP", "int8")])
def test_a_small_model(device: str, precision: str):
    check("mobilenet0.25", 64, device, precision, batch=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_the_zoo(name: str):
    # Random weights let activations of the deepest sums grow beyond f16.
    deep = name.startswith(("resnet101", "resnet152"))
    check(name, 299 if name == "inceptionv3" else 224, *(("NNP:nnp-t-1400", "bf16") if deep else ()))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "int8"])
@pytest.mark.parametrize("name", SMALL)
def test_small_models_in_other_formats(name: str, precision: str):
    check(name, 224, "NNP:nnp-t-1400" if precision == "bf16" else "NNP", precision)
