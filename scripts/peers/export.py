"""Writes a model and its inputs: MXNet's two files, the ONNX file, random images or tokens. A process of its own.

    python -m peers.export MODEL BATCH FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ngraph_mxnet  # isort: skip  # mxnet 1.9.1 then imports on current NumPy
import mxnet as mx
import numpy as np

from peers import bert
from peers.nets import save_inputs
from peers.spec import bert_length, input_shape

SEED = 7
INPUTS = 8
#: Images that the batch-norm statistics are taken from.
CALIBRATION = 4


class UselessOutputsError(ValueError):
    """Outputs that are not finite, or equal for different inputs, can't show whether peers agree."""


def network(model: str, shape: tuple[int, ...]) -> Any:
    """The hybridized network with the weights of `SEED`.

    Each batch norm's statistics are those of its own input, so that activations neither vanish nor explode however
    deep the network is; scale and shift are drawn, as folding the initial ones and zeros would hide an error.
    """
    mx.random.seed(SEED)
    np.random.seed(SEED)
    length = bert_length(model)
    if length is not None:
        return bert.network(length)
    net = mx.gluon.model_zoo.vision.get_model(model)
    net.initialize(mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2))
    net.apply(_forget_statistics)
    net.hybridize()
    images = mx.nd.random.normal(shape=(CALIBRATION, *shape[1:]))
    with mx.autograd.predict_mode():
        net(images).wait_to_read()  # shapes are known from here on
    parameters = net.collect_params()
    if not any(name.endswith("running_mean") for name in parameters):
        return net
    for name, parameter in parameters.items():
        if name.endswith("gamma"):
            parameter.set_data(mx.nd.random.uniform(0.8, 1.2, parameter.shape))
        elif name.endswith("beta"):
            parameter.set_data(mx.nd.random.uniform(-0.2, 0.2, parameter.shape))
    with mx.autograd.record():
        outputs = net(images)
    outputs.backward()  # MXNet updates the statistics here
    mx.nd.waitall()
    return net


def _forget_statistics(block: Any) -> None:
    """Let one training pass replace a batch norm's statistics instead of moving them a little."""
    if isinstance(block, mx.gluon.nn.BatchNorm):
        block._kwargs["momentum"] = 0.0


def random_inputs(model: str, shape: tuple[int, ...]) -> np.ndarray:
    """`INPUTS` batches, stacked: normal images, or numbers of tokens as MXNet reads them, in float32."""
    rng = np.random.default_rng(SEED)
    if bert_length(model) is not None:
        return rng.integers(0, bert.VOCABULARY, (INPUTS, *shape)).astype(np.float32)
    return rng.standard_normal((INPUTS, *shape), dtype=np.float32)


def check_outputs(outputs: np.ndarray) -> None:
    """Outputs of different inputs, stacked, must be finite and differ by far more than rounding.

    Raises:
        UselessOutputsError: they are not.
    """
    if not np.isfinite(outputs).all():
        raise UselessOutputsError("the network's outputs are not all finite: its weights grow them too much")
    spread = np.ptp(outputs, axis=0).max() / np.abs(outputs).max()
    if spread < 1e-2:
        raise UselessOutputsError(f"the outputs differ by {spread:.1e} relative only, expected 1e-2 or more")


def write_model(model: str, batch: int, folder: Path) -> None:
    """Write `MODEL-symbol.json`, `MODEL-0000.params`, and for the batch `MODEL-bN.onnx` by MXNet's exporter,
    `MODEL-bN-ours.onnx` by ours, and `MODEL-bN.npy`.

    The inputs file is written last: where it exists, all do.
    """
    shape = input_shape(model, batch)
    net = network(model, shape)
    inputs = random_inputs(model, shape)
    check_outputs(np.stack([net(mx.nd.array(image)).asnumpy() for image in inputs[:2]]))
    prefix = folder / model
    net.export(str(prefix))
    onnx_file = Path(f"{prefix}-b{batch}.onnx")
    mx.onnx.export_model(f"{prefix}-symbol.json", f"{prefix}-0000.params", [shape], np.float32, str(onnx_file))
    ngraph_mxnet.to_onnx(f"{prefix}-symbol.json", f"{prefix}-b{batch}-ours.onnx", params=f"{prefix}-0000.params",
                         data=shape, optimise=True)
    save_inputs(f"{prefix}-b{batch}", inputs)


if __name__ == "__main__":
    write_model(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
