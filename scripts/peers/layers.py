"""Single layers and small groups of layers, as MXNet symbols with random weights. A process of its own.

    python -m peers.layers layer:NAME BATCH FOLDER

`LAYERS` has each by its name: its input, and what is made of it. The batch is the input's first axis.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from peers.nets import random_inputs, save_inputs

#: Of the command line, in front of a name.
PREFIX = "layer:"
SEED = 7


class Layer(NamedTuple):
    """`make(f, x)` gives the symbol of x, with f as `mxnet.symbol`; `shape` is x's without the batch, `ids` the rows of
    the table that x counts in, 0 where x is numbers."""

    shape: tuple[int, ...]
    make: Callable[[Any, Any], Any]
    ids: int = 0


def _convolution(outputs: int, kernel: Any, **options: Any) -> Callable[[Any, Any], Any]:
    """Padded to keep the size."""
    def make(f: Any, x: Any) -> Any:
        dilate = options.get("dilate", (1,) * len(kernel))
        pad = tuple(d * (k - 1) // 2 for k, d in zip(kernel, dilate, strict=True))
        return f.Convolution(x, num_filter=outputs, kernel=kernel, **{"pad": pad, **options})
    return make


def _normed(f: Any, x: Any, outputs: int, kernel: tuple[int, ...], act: str | None = "relu",
            **options: Any) -> Any:
    x = f.BatchNorm(_convolution(outputs, kernel, no_bias=True, **options)(f, x), fix_gamma=False)
    return x if act is None else f.Activation(x, act_type=act)


def _inverted(f: Any, x: Any, channels: int, expand: int, stride: int) -> Any:
    wide = channels * expand
    y = _normed(f, x, wide, (1, 1))
    y = _normed(f, y, wide, (3, 3), num_group=wide, stride=(stride, stride))
    y = _normed(f, y, channels, (1, 1), None)
    return y + x if stride == 1 else y


def _recurrent(mode: str, hidden: int, layers: int = 1, both: bool = False) -> Callable[[Any, Any], Any]:
    """x is (1, time, 16 samples, inputs); states begin with zeros."""
    def make(f: Any, x: Any) -> Any:
        x = f.reshape(x, (-3, 0, 0))
        states = {name: f.zeros((layers * (1 + both), 16, hidden))
                  for name in ("state", "state_cell")[:2 if mode == "lstm" else 1]}
        return f.RNN(x, f.Variable("rnn_parameters"), state_size=hidden, num_layers=layers, mode=mode,
                     bidirectional=both, **states)
    return make


def _attention(f: Any, x: Any, heads: int) -> Any:
    """x is (tokens, batch, 3 x width), queries, keys and values of each head side by side."""
    scores = f.contrib.interleaved_matmul_selfatt_qk(x, heads=heads)
    return f.contrib.interleaved_matmul_selfatt_valatt(x, f.softmax(scores), heads=heads)


def _squeezed(f: Any, x: Any, channels: int, ratio: int) -> Any:
    y = f.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1))
    y = f.Activation(f.Convolution(y, num_filter=channels // ratio, kernel=(1, 1)), act_type="relu")
    return f.broadcast_mul(x, f.sigmoid(f.Convolution(y, num_filter=channels, kernel=(1, 1))))


LAYERS: dict[str, Layer] = {
    "conv_3x3_64_56": Layer((64, 56, 56), _convolution(64, (3, 3))),
    "conv_3x3_128_28": Layer((128, 28, 28), _convolution(128, (3, 3))),
    "conv_3x3_256_14": Layer((256, 14, 14), _convolution(256, (3, 3))),
    "conv_3x3_512_7": Layer((512, 7, 7), _convolution(512, (3, 3))),
    "conv_1x1_256_64_56": Layer((256, 56, 56), _convolution(64, (1, 1))),
    "conv_1x1_1024_256_14": Layer((1024, 14, 14), _convolution(256, (1, 1))),
    "conv_1x1_2048_512_7": Layer((2048, 7, 7), _convolution(512, (1, 1))),
    "conv_first_7x7_224": Layer((3, 224, 224), _convolution(64, (7, 7), stride=(2, 2))),
    "conv_first_3x3_800x1216": Layer((3, 800, 1216), _convolution(32, (3, 3), stride=(2, 2))),
    "conv_first_7x7_800x1216": Layer((3, 800, 1216), _convolution(64, (7, 7), stride=(2, 2))),
    "conv_5x5_48_27": Layer((48, 27, 27), _convolution(128, (5, 5))),
    "conv_1x7_128_17": Layer((128, 17, 17), _convolution(160, (1, 7))),
    "conv_7x1_160_17": Layer((160, 17, 17), _convolution(192, (7, 1))),
    "conv_stride2_128_56": Layer((128, 56, 56), _convolution(128, (3, 3), stride=(2, 2))),
    "conv_dilated_2_256_28": Layer((256, 28, 28), _convolution(256, (3, 3), dilate=(2, 2))),
    "conv_dilated_12_256_33": Layer((256, 33, 33), _convolution(128, (3, 3), dilate=(12, 12))),
    "conv_groups_32_256_28": Layer((256, 28, 28), _convolution(256, (3, 3), num_group=32)),
    "conv_depthwise_3x3_144_56": Layer((144, 56, 56), _convolution(144, (3, 3), num_group=144)),
    "conv_depthwise_5x5_240_28": Layer((240, 28, 28), _convolution(240, (5, 5), num_group=240)),
    "conv_1d_128_400": Layer((128, 400), _convolution(128, (9,))),
    "conv_3d_32_16x28": Layer((32, 16, 28, 28), _convolution(64, (3, 3, 3))),
    "conv_3d_first_16x112": Layer((3, 16, 112, 112), _convolution(32, (3, 3, 3), stride=(1, 2, 2))),
    "deconv_4x4_128_28": Layer((128, 28, 28), lambda f, x: f.Deconvolution(
        x, num_filter=64, kernel=(4, 4), stride=(2, 2), pad=(1, 1))),
    "deconv_2x2_256_16": Layer((256, 16, 16), lambda f, x: f.Deconvolution(
        x, num_filter=128, kernel=(2, 2), stride=(2, 2))),
    "deconv_3x3x3_32_8": Layer((32, 8, 16, 16), lambda f, x: f.Deconvolution(
        x, num_filter=16, kernel=(2, 2, 2), stride=(2, 2, 2))),
    "deformable_64_40": Layer((64, 40, 40), lambda f, x: f.contrib.DeformableConvolution(
        x, f.Convolution(x, num_filter=18, kernel=(3, 3), pad=(1, 1)) * 0.1, num_filter=64, kernel=(3, 3), pad=(1, 1))),
    "block_residual_64_56": Layer((64, 56, 56), lambda f, x: f.Activation(
        _normed(f, _normed(f, x, 64, (3, 3)), 64, (3, 3), None) + x, act_type="relu")),
    "block_bottleneck_1024_14": Layer((1024, 14, 14), lambda f, x: f.Activation(
        _normed(f, _normed(f, _normed(f, x, 256, (1, 1)), 256, (3, 3)), 1024, (1, 1), None) + x, act_type="relu")),
    "block_inverted_24_56": Layer((24, 56, 56), lambda f, x: _inverted(f, x, 24, 6, 1)),
    "block_inverted_96_14": Layer((96, 14, 14), lambda f, x: _inverted(f, x, 96, 6, 1)),
    "block_dense_128_28": Layer((128, 28, 28), lambda f, x: f.concat(
        x, _convolution(32, (3, 3))(f, _normed(f, x, 128, (1, 1))), dim=1)),
    "block_squeezed_128_28": Layer((128, 28, 28), lambda f, x: _squeezed(
        f, _normed(f, x, 128, (3, 3)), 128, 16)),
    "block_swish_96_28": Layer((96, 28, 28), lambda f, x: (lambda y: y * f.sigmoid(y))(
        _normed(f, x, 96, (3, 3), None))),
    "block_prelu_64_56": Layer((64, 56, 56), lambda f, x: f.LeakyReLU(
        _normed(f, x, 64, (3, 3), None), act_type="prelu")),
    "batch_norm_256_28": Layer((256, 28, 28), lambda f, x: f.BatchNorm(x, fix_gamma=False)),
    "instance_norm_64_56": Layer((64, 56, 56), lambda f, x: f.InstanceNorm(x)),
    "group_norm_64_56": Layer((64, 56, 56), lambda f, x: f.GroupNorm(
        x, f.Variable("gn_gamma", shape=(32,)), f.Variable("gn_beta", shape=(32,)), num_groups=32)),
    "layer_norm_128x768": Layer((128, 768), lambda f, x: f.LayerNorm(x)),
    "l2_norm_512_38": Layer((512, 38, 38), lambda f, x: f.L2Normalization(x, mode="channel")),
    "lrn_96_55": Layer((96, 55, 55), lambda f, x: f.LRN(x, nsize=5)),
    "max_pool_3x3_64_112": Layer((64, 112, 112), lambda f, x: f.Pooling(
        x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")),
    "avg_pool_3x3_192_35": Layer((192, 35, 35), lambda f, x: f.Pooling(
        x, kernel=(3, 3), pad=(1, 1), pool_type="avg")),
    "global_pool_2048_7": Layer((2048, 7, 7), lambda f, x: f.Pooling(
        x, global_pool=True, pool_type="avg", kernel=(1, 1))),
    "upsampling_128_28": Layer((128, 28, 28), lambda f, x: f.UpSampling(x, scale=2, sample_type="nearest")),
    "bilinear_64_40": Layer((64, 40, 40), lambda f, x: f.contrib.BilinearResize2D(x, height=120, width=120)),
    "fully_connected_2048_1000": Layer((2048,), lambda f, x: f.FullyConnected(x, num_hidden=1000)),
    "fully_connected_768_3072": Layer((128, 768), lambda f, x: f.FullyConnected(x, num_hidden=3072, flatten=False)),
    "mlp_64_256_256_10": Layer((64,), lambda f, x: f.FullyConnected(f.Activation(f.FullyConnected(
        f.Activation(f.FullyConnected(x, num_hidden=256), act_type="relu"), num_hidden=256), act_type="relu"),
        num_hidden=10)),
    "batch_dot_12x128x64": Layer((12, 128, 64), lambda f, x: f.batch_dot(
        f.reshape(x, (-3, 0, 0)), f.reshape(x, (-3, 0, 0)), transpose_b=True)),
    "attention_128_768": Layer((128, 3 * 768), lambda f, x: _attention(f, f.swapaxes(x, 0, 1), 12)),
    "lstm_128_35": Layer((35, 16, 64), _recurrent("lstm", 128)),
    "gru_200_35": Layer((35, 16, 80), _recurrent("gru", 200)),
    "lstm_96_both_35": Layer((35, 16, 64), _recurrent("lstm", 96, 2, True)),
    "embedding_10000x300": Layer((64,), lambda f, x: f.mean(
        f.Embedding(x, input_dim=10000, output_dim=300), axis=1), 10000),
    "softmax_64x10000": Layer((64, 10000), lambda f, x: f.softmax(x)),
    "log_softmax_35x10000": Layer((35, 10000), lambda f, x: f.log_softmax(x)),
    "gelu_128x3072": Layer((128, 3072), lambda f, x: f.LeakyReLU(x, act_type="gelu")),
    "sigmoid_1m": Layer((1024, 1024), lambda f, x: f.sigmoid(x)),
    "tanh_exp_1m": Layer((1024, 1024), lambda f, x: f.tanh(f.exp(-f.abs(x)) + x)),
    "transpose_128x12x64": Layer((128, 12, 64), lambda f, x: f.transpose(x, (0, 2, 1, 3)) * 0.125),
    "shuffle_240_28": Layer((240, 28, 28), lambda f, x: f.reshape(f.swapaxes(f.reshape(
        _normed(f, x, 240, (1, 1), num_group=4), (0, -4, 4, -1, -2)), 1, 2), (0, -3, -2))),
    "concat_slices_256_28": Layer((256, 28, 28), lambda f, x: f.relu(f.concat(
        f.slice_axis(x, axis=1, begin=128, end=256), f.slice_axis(x, axis=1, begin=0, end=128), dim=1))),
    "sum_axes_64x128x56": Layer((64, 128, 56), lambda f, x: f.sum(x, axis=(1, 3))),
    "mean_last_4096x256": Layer((4096, 256), lambda f, x: f.mean(x, axis=-1)),
    "topk_32x5000": Layer((32, 5000), lambda f, x: f.topk(x, k=10, ret_typ="value")),
    "sort_32x5000": Layer((32, 5000), lambda f, x: f.sort(x)),
    "argmax_64x10000": Layer((64, 10000), lambda f, x: f.argmax(x, axis=-1)),
    "box_nms_2000": Layer((2000, 6), lambda f, x: f.contrib.box_nms(
        f.abs(x), overlap_thresh=0.5, topk=400, coord_start=2, score_index=1, id_index=-1)),
    "roi_align_100": Layer((256, 50, 50), lambda f, x: f.contrib.ROIAlign(
        x, f.Variable("rois_weight", shape=(100, 5)), pooled_size=(7, 7), spatial_scale=0.0625, sample_ratio=2)),
}


def layer_of(model: str) -> Layer | None:
    """The layer of that name, if it is one of these."""
    return LAYERS.get(model.removeprefix(PREFIX)) if model.startswith(PREFIX) else None


def _parameter(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Normal numbers, such that a sum over all axes but the first keeps its size; of statistics and boxes, such as
    they are in a trained net."""
    if name.endswith(("gamma", "moving_var")):
        return random.uniform(0.8, 1.2, shape)
    if name.startswith("rois"):
        corner = random.uniform(0, 500, (shape[0], 2))
        return np.concatenate([np.zeros((shape[0], 1)), corner, corner + random.uniform(20, 300, corner.shape)], 1)
    return random.standard_normal(shape) * (sqrt(1 / max(prod(shape[1:]), 1)) if len(shape) > 1 else 0.1)


def write_model(model: str, batch: int, folder: Path) -> None:
    """Write `NAME-symbol.json`, `NAME-0000.params` and `NAME-bN.npy`, the inputs last: where they exist, all do.

    Raises:
        KeyError: there is no such layer.
    """
    import ngraph_mxnet  # noqa: F401  # isort: skip  # mxnet 1.9.1 then imports on current NumPy
    import mxnet as mx

    name = model.removeprefix(PREFIX)
    layer, random = LAYERS[name], np.random.default_rng(SEED)
    shape = batch, *layer.shape
    symbol = layer.make(mx.sym, mx.sym.Variable("data"))
    arguments, _, states = symbol.infer_shape(data=shape)
    drawn = {
        kind: {key: mx.nd.array(_parameter(random, key, size)) for key, size in zip(names, sizes, strict=True)
               if key != "data"}
        for kind, names, sizes in (("arg", symbol.list_arguments(), arguments),
                                   ("aux", symbol.list_auxiliary_states(), states))}
    mx.model.save_checkpoint(str(folder / name), 0, symbol, drawn["arg"], drawn["aux"])
    save_inputs(folder / f"{name}-b{batch}", random_inputs(layer, batch).astype(np.float32))


if __name__ == "__main__":
    write_model(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
