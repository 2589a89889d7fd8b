"""Small nets of the kinds that people run, as ONNX files of opset 17 with random weights. A process of its own.

    python -m peers.nets net:NAME BATCH FOLDER

`NETS` has each by its name: a builder of `net_builders`, and its sizes. The batch is the input's first axis.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

#: Of the command line, in front of a name.
PREFIX = "net:"
SEED, INPUTS = 7, 8


class Net(NamedTuple):
    """A builder's name and arguments; `shape` is the input's, without the batch, `ids` the rows of the table that it
    counts in, 0 where it is numbers."""

    builder: str
    shape: tuple[int, ...]
    sizes: Mapping[str, Any] = {}
    ids: int = 0


NETS: dict[str, Net] = {
    **{f"unet_{size}": Net("unet", (3, size, size), {"width": width}) for size, width in ((96, 32), (160, 16))},
    **{f"generator_{width}": Net("generator", (100, 1, 1), {"width": width}) for width in (32, 64)},
    "video_8x64": Net("video", (3, 8, 64, 64), {"widths": (32, 64, 128)}),
    "volume_32": Net("video", (1, 32, 32, 32), {"widths": (16, 32, 64)}),
    "dilated_branches_48": Net("dilated_branches", (192, 48, 48), {"width": 96, "steps": (4, 8, 12)}),
    "dense_super_resolution_64": Net("dense_super_resolution", (3, 64, 64), {"width": 48, "growth": 24}),
    "pixel_shuffle_120x200": Net("pixel_shuffle", (1, 120, 200), {"width": 56, "factor": 3}),
    "style_160": Net("style", (3, 160, 160), {"width": 32}),
    "group_norm_48": Net("group_norm", (96, 48, 48), {"blocks": 2}),
    "wavenet_3000": Net("wavenet", (1, 3000), {"width": 48, "layers": 6}),
    "speech_40x900": Net("speech", (40, 900), {"width": 192, "taps": 9}),
    "separable_speech_400": Net("separable_speech", (192, 400), {"taps": 25, "blocks": 3}),
    **{f"{kind.lower()}_{hidden}_{steps}": Net("recurrent", (steps, inputs), {
        "kind": kind, "hidden": hidden, "layers": layers, "both": both})
       for kind, hidden, steps, inputs, layers, both in (
           ("LSTM", 48, 30, 24, 2, False), ("LSTM", 128, 60, 64, 1, True), ("LSTM", 384, 40, 96, 1, False),
           ("GRU", 64, 50, 32, 1, True), ("GRU", 200, 80, 80, 2, False), ("RNN", 96, 40, 48, 1, False))},
    **{f"transformer_{width}_{tokens}": Net("transformer", (tokens, width), {"heads": heads, "layers": layers})
       for width, tokens, heads, layers in ((256, 12, 4, 3), (512, 96, 8, 2), (320, 300, 5, 2), (128, 768, 4, 2),
                                            (768, 48, 12, 2))},
    "causal_256_200": Net("transformer", (200, 256), {"heads": 8, "layers": 2, "causal": True}),
    "patches_160": Net("patches", (3, 160, 160), {"patch": 16, "width": 192, "heads": 3, "layers": 3}),
    "windows_56": Net("windows", (56, 56, 96), {"window": 7, "heads": 3}),
    "cross_attention_384": Net("cross_attention", (24, 384), {"heads": 6, "memory": 320}),
    "mixer_196": Net("mixer", (196, 256), {"blocks": 2}),
    **{f"mlp_{'_'.join(map(str, widths))}": Net("mlp", widths[:1], {"widths": widths[1:]})
       for widths in ((64, 128, 64, 8), (784, 512, 512, 10), (2048, 2048, 2048, 500))},
    "wide_and_deep_20": Net("wide_and_deep", (20,), {"rows": 5000, "width": 12}, 5000),
    "factorisation_30": Net("factorisation", (30,), {"rows": 8000, "width": 24}, 8000),
    "classes_30000": Net("classes", (96,), {"classes": 30000}),
    "best_of_20000": Net("classes", (64,), {"classes": 20000, "best": 10}),
    "text_convolutions_80": Net("text_convolutions", (80,), {"rows": 9000, "width": 96, "outputs": 80}, 9000),
    "text_recurrent_60": Net("text_recurrent", (60,), {"rows": 6000, "width": 64, "hidden": 96}, 6000),
    "grouped_28": Net("grouped", (512, 28, 28), {"width": 256, "groups": 32, "blocks": 2}),
    "shuffled_28": Net("shuffled", (116, 28, 28), {"blocks": 3}),
    "shuffled_groups_14": Net("shuffled_groups", (384, 14, 14), {"groups": 4, "blocks": 3}),
    **{f"inverted_{act.lower()}_{channels}_{size}": Net("inverted", (channels, size, size), {
        "expand": expand, "kernel": kernel, "act": act, "squeeze": squeeze, "blocks": blocks})
       for act, channels, size, expand, kernel, squeeze, blocks in (
           ("HardSwish", 80, 14, 3, 3, 4, 3), ("HardSwish", 24, 56, 4, 5, 4, 2), ("Silu", 40, 40, 6, 5, 24, 2),
           ("Silu", 112, 14, 6, 3, 24, 3), ("Relu6", 32, 48, 6, 3, 0, 3))},
    "factorised_35": Net("factorised", (96, 35, 35), {"taps": 5, "blocks": 3}),
    "residual_28": Net("residual", (128, 28, 28), {"blocks": 3}),
    "small_images_32": Net("small_images", (3, 32, 32), {"width": 24}),
    "bottleneck_14": Net("bottleneck", (1024, 14, 14), {"width": 256, "blocks": 2}),
    "fire_54": Net("fire", (64, 54, 54), {"blocks": 3}),
    "convnext_28": Net("convnext", (192, 28, 28), {"blocks": 2}),
    "ghost_28": Net("ghost", (80, 28, 28), {"blocks": 3}),
    "face_96": Net("face", (3, 96, 96), {"width": 48}),
    "face_residual_56": Net("face_residual", (64, 56, 56), {"blocks": 2}),
    "pyramid_40": Net("pyramid", (128, 40, 40), {"width": 64, "outputs": 255}),
    "text_line_32x128": Net("text_line", (1, 32, 128), {"width": 48, "hidden": 96}),
    "points_800": Net("points", (800, 3), {"widths": (64, 96, 512)}),
    "graph_1200": Net("graph", (1200, 64), {"width": 16}),
    "chain_1m": Net("chain", (32, 192, 192)),
    "moments_96x64": Net("moments", (96, 64, 64)),
    "large_image_512x640": Net("large_image", (3, 512, 640), {"width": 32}),
    "one_convolution_112": Net("one_convolution", (64, 112, 112), {"outputs": 64}),
    "autoencoder_784": Net("mlp", (784,), {"widths": (256, 32, 256, 784)}),
}


def net_of(model: str) -> Net | None:
    """The net of that name, if it is one of these."""
    return NETS.get(model.removeprefix(PREFIX)) if model.startswith(PREFIX) else None


def save_inputs(prefix: str | Path, arrays: np.ndarray) -> None:
    """Write `<prefix>.npy`, which appears whole: that it is there says that the model is."""
    partial = Path(f"{prefix}.partial.npy")
    np.save(partial, arrays)
    os.replace(partial, f"{prefix}.npy")


def random_inputs(net: Any, batch: int) -> np.ndarray:
    """`INPUTS` batches of what has a `shape` and `ids`, stacked: normal numbers, or rows of its table."""
    random, shape = np.random.default_rng(SEED), (INPUTS, batch, *net.shape)
    return random.integers(0, net.ids, shape) if net.ids else random.standard_normal(shape, dtype=np.float32)


def write_model(model: str, batch: int, folder: Path) -> None:
    """Write `NAME-bN.onnx` and `NAME-bN.npy`, the inputs last: where they exist, both do.

    Raises:
        KeyError: there is no such net.
    """
    import onnx

    from peers import net_builders

    name = model.removeprefix(PREFIX)
    net = NETS[name]
    build: Callable[..., Any] = getattr(net_builders, net.builder)
    b = net_builders.Layers((batch, *net.shape), bool(net.ids))
    prefix = folder / f"{name}-b{batch}"
    onnx.save(b.model(build(b, **net.sizes)), f"{prefix}.onnx")
    save_inputs(prefix, random_inputs(net, batch))


if __name__ == "__main__":
    write_model(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
