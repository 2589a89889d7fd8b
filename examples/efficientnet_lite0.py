"""EfficientNet-Lite0 as a plain MXNet symbol, with the trained weights of a PyTorch checkpoint.

The network was trained in TensorFlow, which sets three details: "same" padding that puts the odd pixel at
the bottom and right of a stride-2 convolution, a batch-norm epsilon of 1e-3, and ReLU6.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import mxnet as mx
import numpy as np

IMAGE_SIZE = 224
STEM_CHANNELS = 32
HEAD_CHANNELS = 1280
CLASSES = 1000
BATCH_NORM_EPSILON = 1e-3


class Stage(NamedTuple):
    """A run of inverted residual blocks; the stride is the first block's."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    channels: int


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)

# MXNet's name of a batch norm's tensor -> PyTorch's.
BATCH_NORM_TENSORS = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_var": "running_var",
}


class _Builder:
    """Adds layers under the checkpoint's names; keeps the extent of the image, which padding depends on."""

    def __init__(self) -> None:
        self.extent = IMAGE_SIZE

    def convolution(
        self, x: mx.sym.Symbol, name: str, channels: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> mx.sym.Symbol:
        out = -(-self.extent // stride)
        total = max((out - 1) * stride + kernel - self.extent, 0)
        before, after = total // 2, total - total // 2
        if before != after:
            x = mx.sym.pad(
                x,
                mode="constant",
                constant_value=0,
                name=f"{name}_pad",
                pad_width=(0, 0, 0, 0, before, after, before, after),
            )
            before = 0
        self.extent = out
        return mx.sym.Convolution(
            x,
            name=name,
            num_filter=channels,
            kernel=(kernel, kernel),
            stride=(stride, stride),
            pad=(before, before),
            num_group=groups,
            no_bias=True,
        )

    def batch_norm(self, x: mx.sym.Symbol, name: str, relu6: bool) -> mx.sym.Symbol:
        x = mx.sym.BatchNorm(x, name=name, eps=BATCH_NORM_EPSILON, fix_gamma=False, use_global_stats=True)
        return mx.sym.clip(x, a_min=0, a_max=6, name=f"{name}_relu6") if relu6 else x

    def block(self, x: mx.sym.Symbol, name: str, inputs: int, stage: Stage, stride: int) -> mx.sym.Symbol:
        """Expand, convolve each channel apart, project; add the input where the shapes agree."""
        shortcut = x
        width = inputs * stage.expansion
        if stage.expansion != 1:
            x = self.convolution(x, f"{name}._expand_conv", width, 1)
            x = self.batch_norm(x, f"{name}._bn0", relu6=True)
        x = self.convolution(x, f"{name}._depthwise_conv", width, stage.kernel, stride, groups=width)
        x = self.batch_norm(x, f"{name}._bn1", relu6=True)
        x = self.convolution(x, f"{name}._project_conv", stage.channels, 1)
        x = self.batch_norm(x, f"{name}._bn2", relu6=False)
        return x + shortcut if stride == 1 and inputs == stage.channels else x


def symbol() -> mx.sym.Symbol:
    """The network from `data` (N, 3, 224, 224) to class probabilities (N, 1000)."""
    build = _Builder()
    x = build.convolution(mx.sym.var("data"), "_conv_stem", STEM_CHANNELS, 3, stride=2)
    x = build.batch_norm(x, "_bn0", relu6=True)
    channels, index = STEM_CHANNELS, 0
    for stage in STAGES:
        for repeat in range(stage.repeats):
            x = build.block(x, f"_blocks.{index}", channels, stage, stage.stride if repeat == 0 else 1)
            channels, index = stage.channels, index + 1
    x = build.convolution(x, "_conv_head", HEAD_CHANNELS, 1)
    x = build.batch_norm(x, "_bn1", relu6=True)
    x = mx.sym.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1), name="pool")
    x = mx.sym.FullyConnected(x, num_hidden=CLASSES, name="_fc")
    return mx.sym.softmax(x, name="probabilities")


def _checkpoint_name(name: str) -> str:
    """The checkpoint's name of an MXNet argument: `_bn0_moving_mean` is `_bn0.running_mean`."""
    for ours, theirs in BATCH_NORM_TENSORS.items():
        if name.endswith(f"_{ours}"):
            return f"{name.removesuffix(f'_{ours}')}.{theirs}"
    layer, _, tensor = name.rpartition("_")
    return f"{layer}.{tensor}"


def parameters(
    net: mx.sym.Symbol, weights: dict[str, np.ndarray[Any, Any]]
) -> tuple[dict[str, mx.nd.NDArray], dict[str, mx.nd.NDArray]]:
    """The checkpoint's tensors as `net`'s arguments and auxiliary states; each is used exactly once."""
    names = [name for name in net.list_arguments() if name != "data"]
    wanted = {name: _checkpoint_name(name) for name in names + net.list_auxiliary_states()}
    present = {name for name in weights if not name.endswith(".num_batches_tracked")}
    if set(wanted.values()) != present:
        raise ValueError(
            f"the checkpoint does not fit EfficientNet-Lite0: {sorted(set(wanted.values()) ^ present)[:5]}"
        )
    tensors = {ours: mx.nd.array(weights[theirs], dtype="float32") for ours, theirs in wanted.items()}
    return {name: tensors[name] for name in names}, {
        name: tensors[name] for name in net.list_auxiliary_states()
    }
