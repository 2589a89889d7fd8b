"""Images to another size."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.bridges.mxnet.rules.linear import transposed_convolution
from ngraph_mxnet.bridges.mxnet.rules.registry import image_shape, positive, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import scaled


@rule("UpSampling", ignored=["workspace"])
def upsampling(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """By repeating pixels (`nearest`), of several inputs too, which get the size that the first one gets; or by a
    grouped transposed convolution with the weights that are the second input (`bilinear`)."""
    scale = positive(attrs.int("scale"), "scale")
    filters, together = attrs.int("num_filter", 0), attrs.choice("multi_input_mode", "concat", ("concat", "sum"))
    if attrs.int("num_args", 1) != len(inputs):
        raise UnsupportedError(f"num_args={attrs.int('num_args', 1)} for {len(inputs)} inputs")
    height, width = image_shape(inputs[0])[2:]
    if attrs.choice("sample_type", "nearest", ("nearest", "bilinear")) == "bilinear":
        return _by_convolution(b, inputs, scale, filters)
    parts = []
    for place, x in enumerate(inputs):
        factor = int(height * scale // image_shape(x)[2]) if place else scale
        if (x.shape[2] * factor, x.shape[3] * factor) != (height * scale, width * scale):
            raise UnsupportedError(f"input {x.type} does not grow to {height * scale} x {width * scale}")
        parts.append(_nearest(b, x, factor))
    if len(parts) == 1:
        return parts[0]
    if together == "concat":
        return b.concat(*parts, axis=1)
    total = parts[0]
    for part in parts[1:]:
        total = b.add(total, part)
    return total


def _nearest(b: Builder, x: Value, factor: int) -> Value:
    return b.resize(x, sizes=tuple(size * factor for size in x.shape[2:]), mode="nearest")


def _by_convolution(b: Builder, inputs: list[Value], scale: int, filters: int) -> Value:
    """Upsampling by a transposed convolution, as in MXNet's src/operator/nn/upsampling.cc."""
    if len(inputs) != 2 or inputs[0].shape[1] != filters:
        raise UnsupportedError(f"bilinear upsampling of {len(inputs)} inputs to num_filter={filters}")
    kernel, pad = 2 * scale - scale % 2, scale // 2
    x, weight = inputs
    return transposed_convolution(b, x, weight, groups=filters, stride=(scale,) * 2, dilate=(1, 1), pad=(pad,) * 2,
                                  adjust=(2 * pad + scale - kernel,) * 2)


_MODES = ("size", "odd_scale", "like", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up")


@rule("_contrib_BilinearResize2D", operands=(1, 2))
def bilinear_resize(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Linear between pixels, with any `mode` of saying what the new size is."""
    mode = attrs.choice("mode", "size", _MODES)
    corners = attrs.bool("align_corners", True)
    sizes = attrs.int("height", 1), attrs.int("width", 1)
    scales = attrs.float("scale_height", None), attrs.float("scale_width", None)
    own = image_shape(inputs[0])[2:]
    if len(inputs) != (2 if mode == "like" else 1):
        raise UnsupportedError(f"mode={mode} with {len(inputs)} inputs")
    if mode == "like":
        sizes = image_shape(inputs[1])[2], inputs[1].shape[3]
    elif mode in ("size", "odd_scale"):
        given = [scale for scale in scales if scale is not None]
        if len(given) == 1 or (mode == "odd_scale" and not given):
            raise UnsupportedError(f"mode={mode} with scale_height={scales[0]}, scale_width={scales[1]}")
        if given:
            sizes = _scaled(own[0], given[0], mode), _scaled(own[1], given[1], mode)
    else:
        # Sizes of the other parity become the next smaller or larger.
        odd, step = "odd" in mode, 1 if mode.endswith("up") else -1
        sizes = own[0] + step * (own[0] % 2 != odd), own[1] + step * (own[1] % 2 != odd)
    return b.resize(inputs[0], sizes=tuple(positive(size, "a size") for size in sizes), mode="bilinear",
                    corners=corners)


def _scaled(size: int, scale: float, mode: str) -> int:
    """The new size, computed in float32 as MXNet does."""
    if mode == "odd_scale" and size % 2:
        return _times(size - 1, scale) + 1
    return _times(size, scale)


def _times(size: int, scale: float) -> int:
    exact = scaled(size, scale)
    return exact if exact is not None else int(np.float32(scale) * np.float32(size))


@rule("_contrib_AdaptiveAvgPooling2D", operands=1)
def adaptive_pooling(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Means over bins, as many as `output_size` says: one number stands for both sides."""
    (x,), sizes = inputs, attrs.ints("output_size", ())
    if len(sizes) > 2:
        raise UnsupportedError(f"output_size={sizes}, expected two numbers")
    height, width = image_shape(x)[2:]
    rows, columns = (positive(size, "output_size") for size in (*sizes, *sizes, 1, 1)[:2])
    if (rows, columns) == (1, 1):
        return b.reduce_mean(x, axes=(2, 3), keep_dims=True)
    if height % rows == 0 and width % columns == 0:
        window = (height // rows, width // columns)
        return b.avg_pool(x, kernel=window, strides=window)
    return b.adaptive_avg_pool(x, sizes=(rows, columns))


@rule("BilinearSampler", operands=2, ignored=["cudnn_off"])
def bilinear_sampler(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The image at the places of a grid, linear between pixels; 0 outside the image."""
    return b.bilinear_sample(*inputs)


@rule("GridGenerator", operands=1)
def grid_generator(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """From an affine map of the target's grid, or from the distance that each pixel moves (`warp`)."""
    (x,) = inputs
    kind, target = attrs.choice("transform_type", None, ("affine", "warp")), attrs.ints("target_shape", (0, 0))
    if kind == "affine":
        return _affine_grid(b, x, target)
    if image_shape(x)[1] != 2:
        raise UnsupportedError(f"found {x.type}, expected two channels: x and y")
    height, width = map(int, x.shape[2:])
    if min(height, width) < 2:
        raise UnsupportedError(f"found {x.type}: a grid of one pixel divides by 0")
    rows, columns = np.mgrid[:height, :width]
    halves = np.array([(width - 1) / 2, (height - 1) / 2], np.float32).reshape(1, 2, 1, 1)
    moved = b.add(x, b.constant(np.stack([columns, rows])[None].astype(np.float32)))
    return b.subtract(b.divide(moved, b.constant(halves)), scalar(b, 1, x))


def _affine_grid(b: Builder, theta: Value, target: tuple[int, ...]) -> Value:
    """[N, 6] times the homogeneous places (x, y, 1) of the target, from -1 to 1: [N, 2, H, W]."""
    if len(target) != 2 or min(target) < 1:
        raise UnsupportedError(f"target_shape={target}, expected height and width")
    if len(theta.shape) != 2 or theta.shape[1] != 6:
        raise UnsupportedError(f"found {theta.type}, expected six numbers of an affine map")
    height, width = target
    if min(height, width) < 2:
        raise UnsupportedError(f"target_shape={target}: a grid of one pixel divides by 0")
    rows, columns = np.mgrid[:height, :width].reshape(2, -1).astype(np.float32)
    places = np.stack([-1 + columns * np.float32(2 / (width - 1)), -1 + rows * np.float32(2 / (height - 1)),
                       np.ones_like(rows)])
    batch = theta.shape[0]
    grid = b.matmul(b.reshape(theta, shape=(batch * 2, 3)), b.constant(places.astype(np.float32)))
    return b.reshape(grid, shape=(batch, 2, height, width))


@rule("SpatialTransformer", operands=2, ignored=["cudnn_off"])
def spatial_transformer(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The image at the places of an affine grid."""
    attrs.choice("transform_type", None, ("affine",))
    attrs.choice("sampler_type", None, ("bilinear",))
    x, theta = inputs
    target = attrs.ints("target_shape", (0, 0))
    return b.bilinear_sample(x, _affine_grid(b, theta, target if any(target) else image_shape(x)[2:]))
