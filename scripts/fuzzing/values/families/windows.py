"""ONNX operators over images: pools, resizing, sampling, normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzzing.values import sizes
from fuzzing.values.closeness import EXACT, Closeness
from fuzzing.values.drawing import chance, integer, pick
from fuzzing.values.nets import Net, Value, normal
from fuzzing.values.operators import NEAR, SUMS, Drawn, allowed, draw_axis, draw_shape, draw_type, elements, operators


def _image(net: Net, op: str, rank: int | None = None, least: int = 1, *, opens: int = 4, most: int = 14,
           types: bool = True) -> Value:
    """`opens`: its sizes are open once in so many times, never for 0."""
    draw = net.draw
    rank = rank or pick(draw, 2, 2, 2, 1, 3)
    dtype = draw_type(draw, allowed(op, net.opset)) if types else np.dtype(np.float32)
    shape = (pick(draw, 1, 2), sizes.draw_channels(draw, 48), *(integer(draw, least, max(least, most // rank + 5))
                                                               for _ in range(rank)))
    axes = {axis: f"S{axis}" for axis in range(2, rank + 2) if chance(draw)} if opens and chance(draw, opens) else {}
    return net.input(shape, elements(dtype, low=-9, high=99 if dtype.kind in "iu" else 9), axes)


@operators("MaxPool", "AveragePool", "LpPool", weight=16)
def pool(net: Net, op: str) -> Drawn:
    """Of any shape; often as in nets that halve their images, whose sizes are open."""
    draw = net.draw
    usual = chance(draw)
    x = _image(net, op, least=3, opens=1 if usual else 4)
    rank = x.rank - 2
    if usual:
        kernel = [pick(draw, 2, 2, 3)] * rank
        attrs = {"kernel_shape": kernel, "strides": [2] * rank, "pads": [pick(draw, 0, 1, 1)] * 2 * rank}
        return _pooled(net, op, x, attrs)
    kernel = [pick(draw, 2, 3, 1, min(5, size)) for size in x.shape[2:]]
    kernel = [min(k, size) for k, size in zip(kernel, x.shape[2:], strict=True)]
    attrs = {"kernel_shape": kernel}
    if chance(draw):
        attrs["strides"] = [pick(draw, 1, 2, 3) for _ in range(rank)]
    if chance(draw, 3):
        attrs["dilations"] = [pick(draw, 1, 2) if (k - 1) * 2 < size else 1
                              for k, size in zip(kernel, x.shape[2:], strict=True)]
    if chance(draw, 6):
        attrs["auto_pad"] = pick(draw, "SAME_UPPER", "SAME_LOWER", "VALID")
        attrs.pop("dilations", None)
    elif chance(draw):
        attrs["pads"] = [integer(draw, 0, k // 2) for _ in range(2) for k in kernel]
    return _pooled(net, op, x, attrs)


def _pooled(net: Net, op: str, x: Value, attrs: dict[str, Any]) -> Drawn:
    draw = net.draw
    if chance(draw):
        attrs["ceil_mode"] = 1
    if op == "AveragePool" and chance(draw):
        attrs["count_include_pad"] = 1
    if op == "LpPool":
        attrs["p"] = pick(draw, 1, 2, 3)
    if op == "MaxPool" and chance(draw, 4):
        if chance(draw):
            attrs["storage_order"] = 1
        return net.several(op, x, outputs=2, **attrs), EXACT
    return [net.node(op, x, **attrs)], EXACT if op == "MaxPool" else SUMS


@operators("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(net: Net, op: str) -> Drawn:
    return [net.node(op, _image(net, op), p=pick(net.draw, 1, 2, 3) if op == "GlobalLpPool" else None)], SUMS


@operators("Resize", weight=16)
def resize(net: Net, op: str) -> Drawn:
    """Every mode; scales or sizes, of some axes. Often as in nets, of images whose sizes are open."""
    draw = net.draw
    if chance(draw, 3):
        x = _image(net, op, 2, least=4, opens=1, types=False)
        scales = [1.0, 1.0, *(pick(draw, 2.0, 0.5, 0.5, 0.25) for _ in range(2))]
        return [net.node(op, x, None, net.constant(scales, np.float32), mode=pick(draw, "linear", "linear", "nearest"),
                         coordinate_transformation_mode=pick(draw, "half_pixel", "pytorch_half_pixel", "asymmetric",
                                                             "align_corners"))], SUMS
    x = _image(net, op, rank=pick(draw, 2, 2, 2, 1), least=1)
    attrs: dict[str, Any] = {
        "mode": pick(draw, "nearest", "linear", "cubic"),
        "coordinate_transformation_mode": pick(draw, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
                                               "half_pixel_symmetric")}
    if attrs["mode"] == "nearest":
        attrs["nearest_mode"] = pick(draw, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if attrs["mode"] == "cubic":
        attrs.update(cubic_coeff_a=pick(draw, -0.75, -0.5), exclude_outside=integer(draw, 0, 1))
    if attrs["mode"] != "nearest" and chance(draw, 6):
        attrs["antialias"] = 1
    axes = list(range(2, x.rank))
    all_axes = chance(draw)
    if chance(draw):
        scales = [pick(draw, 2.0, 0.5, 1.0, 1.5, 3.0, 0.7, 0.6) for _ in axes]
        scales = [max(s, 1.0 / size) for s, size in zip(scales, x.shape[2:], strict=True)]
        operands = [None, net.constant([*([1.0, 1.0] if all_axes else []), *scales], np.float32)]
    else:
        lengths = [integer(draw, 1, 20) for _ in axes]
        if all_axes and any(axes_ for _, _, axes_ in net.inputs.values()):
            pass
        operands = [None, None, net.constant([*(x.shape[:2] if all_axes else []), *lengths], np.int64)]
    if not all_axes:
        attrs["axes"] = axes
        if len(operands) == 3 and chance(draw, 4):
            attrs["keep_aspect_ratio_policy"] = pick(draw, "not_larger", "not_smaller")
    y = net.node(op, x, *operands, **attrs)
    return [y], SUMS if y.dtype.kind == "f" else Closeness(steps=1)


@operators("Upsample")
def upsample(net: Net, op: str) -> Drawn:
    x = _image(net, op, 2, types=False)
    return [net.node(op, x, net.constant([1, 1, pick(net.draw, 2, 3, 1.5), pick(net.draw, 1, 2, 2.5)], np.float32),
                     mode=pick(net.draw, "nearest", "linear"))], SUMS


@operators("GridSample")
def grid_sample(net: Net, op: str) -> Drawn:
    draw = net.draw
    x = _image(net, op, 2, types=False, opens=0)
    size = integer(draw, 1, 6), integer(draw, 1, 6)
    grid = net.input((x.shape[0], *size, 2), elements(np.float32, low=-1.4, high=1.4))
    return [net.node(op, x, grid, mode=pick(draw, "linear", "nearest", "cubic"), align_corners=integer(draw, 0, 1),
                     padding_mode=pick(draw, "zeros", "border", "reflection"))], Closeness(1e-3, 1e-3, share=0.02)


@operators("RoiAlign", "MaxRoiPool")
def regions(net: Net, op: str) -> Drawn:
    draw, count = net.draw, 3
    x = _image(net, op, 2, least=4, types=False, opens=0)

    def boxes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        corners = rng.uniform(0, 4, (count, 2))
        found = np.concatenate([corners, corners + rng.uniform(1, 5, (count, 2))], 1).astype(np.float32)
        return found if shape == (count, 4) else np.zeros(shape, np.float32)

    if op == "MaxRoiPool":
        images = net.rng.integers(0, x.shape[0], (count, 1))
        rois = net.constant(np.concatenate([images, boxes(net.rng, (count, 4))], 1), np.float32)
        return [net.node(op, x, rois, pooled_shape=[2, 3])], SUMS
    batch = net.constant(net.rng.integers(0, x.shape[0], count), np.int64)
    return [net.node(op, x, net.input((count, 4), boxes), batch, mode=pick(draw, "avg", "max"), output_height=2,
                     output_width=3, sampling_ratio=pick(draw, 0, 2, 3), spatial_scale=pick(draw, 1.0, 0.5),
                     coordinate_transformation_mode=pick(draw, "half_pixel", "output_half_pixel"))], SUMS


@operators("MaxUnpool")
def max_unpool(net: Net, op: str) -> Drawn:
    x = net.input((1, pick(net.draw, 1, 3, 16), *(2 * integer(net.draw, 1, 4) for _ in range(2))))
    most, places = net.several("MaxPool", x, outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    operands = [net.constant([*x.shape[:3], x.shape[3] + 1], np.int64)] if chance(net.draw) else []
    return [net.node(op, most, places, *operands, kernel_shape=[2, 2], strides=[2, 2])], EXACT


@operators("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LRN", "MeanVarianceNormalization")
def norm(net: Net, op: str) -> Drawn:
    draw = net.draw
    x = _image(net, op, 2 if op in ("LRN", "MeanVarianceNormalization") else None, types=False, least=2)
    channels = x.shape[1]
    vectors = [net.weight((channels,), normal) for _ in range(3)]
    if op == "LRN":
        numbers = {"alpha": 0.3, "beta": pick(draw, 0.75, 0.5), "bias": pick(draw, 1.0, 2.0)}
        return [net.node(op, x, size=pick(draw, 1, 3, 4, 5), **numbers)], SUMS
    if op == "MeanVarianceNormalization":
        return [net.node(op, x, axes=pick(draw, [0, 2, 3], [1, 2, 3], [2, 3]))], Closeness(2e-3, 2e-3)
    if op == "BatchNormalization":
        variance = net.weight((channels,), elements(np.float32, low=0.5, high=2))
        return [net.node(op, x, *vectors, variance, epsilon=pick(draw, 1e-5, 1e-2))], SUMS
    if op == "GroupNormalization":
        groups = pick(draw, *[g for g in (1, 2, 3, 4, 8, channels) if channels % g == 0])
        return [net.node(op, x, *vectors[:2], num_groups=groups)], Closeness(2e-3, 2e-3)
    return [net.node(op, x, *vectors[:2])], Closeness(2e-3, 2e-3)


@operators("LayerNormalization", "RMSNormalization", "LpNormalization")
def layer_norm(net: Net, op: str) -> Drawn:
    shape = tuple(max(size, 1) for size in draw_shape(net.draw, 1))
    x, axis = net.input(shape, elements(np.float32)), draw_axis(net.draw, len(shape))
    if op == "LpNormalization":
        return [net.node(op, x, axis=axis, p=pick(net.draw, 1, 2))], NEAR
    tail = shape[axis:]
    vectors = [net.weight(tail, normal) for _ in range(2 if op == "LayerNormalization" and chance(net.draw) else 1)]
    return [net.node(op, x, *vectors, axis=axis, epsilon=pick(net.draw, 1e-5, 1e-1))], Closeness(1e-2, 2e-3)


@operators("Col2Im")
def col2im(net: Net, op: str) -> Drawn:
    x = net.input((1, 3 * 4, 12), normal)
    return [net.node(op, x, net.constant([4, 5], np.int64), net.constant([2, 2], np.int64))], SUMS


@operators("DeformConv")
def deform_conv(net: Net, op: str) -> Drawn:
    draw, channels, height = net.draw, pick(net.draw, 2, 4, 16), integer(net.draw, 3, 7)
    x, w = net.input((1, channels, height, height), normal), net.weight((pick(draw, 2, 16), channels, 3, 3))
    offset = net.input((1, 18, height, height), elements(np.float32, low=-1, high=1))
    operands = [x, w, offset]
    if chance(draw):
        operands += [None, net.input((1, 9, height, height), elements(np.float32, low=0, high=1))]
    return [net.node(op, *operands, pads=[1, 1, 1, 1])], Closeness(1e-3, 1e-3)
