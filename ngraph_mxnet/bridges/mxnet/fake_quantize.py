"""Quantisation-aware training of Gluon nets: layers compute with numbers that 8 bits can hold, in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from mxnet.gluon import HybridBlock, nn
from mxnet.util import is_np_array

from ngraph_mxnet.errors import CalibrationError, ConfigError, listed
from ngraph_mxnet.quantise.products import SHORT
from ngraph_mxnet.quantise.recipe import Recipe, Scale
from ngraph_mxnet.quantise.scales import BOUNDS, affine

_LAYERS = (nn.Conv1D, nn.Conv2D, nn.Dense)
_LEAST, _MOST = BOUNDS["u8"]
_LARGEST = BOUNDS["i8"][1]
_TINY, _GREATEST = 1e-30, float(np.finfo(np.float32).max)
"""Within these is the largest weight of a channel, be it one of zeros: as of a product in 8 bits."""


class FakeQuantization:
    """Layers that are fake-quantised, until `remove`, or the end of a `with` block.

    Attributes:
        scales: of the layers' data, by the layers' names.
    """

    def __init__(self, net: HybridBlock, layers: Mapping[HybridBlock, Scale], short_sums: bool) -> None:
        self.scales = {layer.name: scale for layer, scale in layers.items()}
        self._net, self._layers = net, list(layers)
        for layer, scale in layers.items():
            layer.hybrid_forward = _FakeQuantized(layer, scale, short_sums)
        _forget_traces(net)

    def remove(self) -> None:
        """The net computes in float again, with the weights that it has now. A second call does nothing."""
        layers, self._layers = self._layers, []
        for layer in layers:
            del layer.hybrid_forward
        _forget_traces(self._net)

    def __enter__(self) -> FakeQuantization:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def fake_quantize(net: HybridBlock, recipe: Recipe | str | Path, *, short_sums: bool = False) -> FakeQuantization:
    """Let the layers of a recipe compute as their products in 8 bits will, so that training takes that into account.

    Data of any shape, f32, is rounded to the recipe's 256 multiples of its scale, and saturates; weights are rounded to
    multiples of a scale for each output channel, of which 127 is the largest weight. Gradients go straight through the
    rounding: 1 within the range of the data and 0 outside, 1 for weights. All is done by MXNet's operators, so the net
    trains with MXNet alone and compiled. Its parameters stay as they are; so what is saved fits the net as it was.

    Where a layer is called several times, its data has the range that holds all of the recipe's for it. Nothing else
    may call the net meanwhile. A block around `net` that was hybridized and called before goes on with what it traced:
    give the outermost one.

    Args:
        net: initialised, hybridized or not; of both interfaces, mx.nd's and mx.np's.
        recipe: the object, or the path of its file.
        short_sums: weights are rounded as for CPUs with AVX2 and without AVX-512: where the input channels are a
            multiple of 8, to larger multiples by which sums of products fit 16 bits.

    Raises:
        CalibrationError: it has products that no Conv1D, Conv2D or Dense of the net computes; or it can't be read.
        ConfigError: the net is no HybridBlock, a layer is not of float32, has a `hybrid_forward` set on it, as one
            that is fake-quantised already, or, with `short_sums`, has not been given its shape yet.
        OSError: the file can't be read.
    """
    if not isinstance(net, HybridBlock):
        raise ConfigError(f"found a {type(net).__name__} to fake-quantise, expected a Gluon HybridBlock")
    recipe = recipe if isinstance(recipe, Recipe) else Recipe.load(recipe)
    layers: dict[str, list[HybridBlock]] = {}
    for block in _blocks(net):
        if isinstance(block, _LAYERS):
            layers.setdefault(f"{block.prefix}fwd", []).append(block)
    unknown = [name for name in recipe.products if _operator(name) not in layers]
    if unknown:
        raise CalibrationError(
            f"found products in the recipe that no Conv1D, Conv2D or Dense of {net.name} computes: {listed(unknown)}; "
            f"it has {listed(layers, unknown[0]) or 'none'}. `recipe.keeping` leaves products in float")
    found: dict[HybridBlock, list[Scale]] = {}
    for name in recipe.products:
        for layer in layers[_operator(name)]:
            found.setdefault(layer, []).append(recipe.scales[name])
    chosen = {layer: _holding(own) for layer, own in found.items()}
    for layer in chosen:
        _check(layer, short_sums)
    return FakeQuantization(net, chosen, short_sums)


def _check(layer: HybridBlock, short_sums: bool) -> None:
    if np.dtype(layer.weight.dtype) != np.float32:
        raise ConfigError(f"layer {layer.name}: found weights of {np.dtype(layer.weight.dtype)}, expected float32")
    if "hybrid_forward" in layer.__dict__:
        raise ConfigError(f"layer {layer.name}: found a hybrid_forward set on it, expected its class's; if it is "
                          "fake-quantised already, `remove` that first")
    if short_sums and not all(size > 0 for size in layer.weight.shape):
        raise ConfigError(f"layer {layer.name}: found weights of the shape {layer.weight.shape}, expected a known one: "
                          "call the net once before")


def _blocks(net: HybridBlock) -> list[HybridBlock]:
    """The net and all blocks in it, each once."""
    found: list[HybridBlock] = []
    net.apply(found.append)
    return list(dict.fromkeys(found))


def _forget_traces(net: HybridBlock) -> None:
    for block in _blocks(net):
        block._clear_cached_op()


def _operator(product: str) -> str:
    """The name of the operator that computes a product (`quantise.products.products`), as symbols have it."""
    return product.removeprefix("mx:").rpartition(" ")[0]


def _holding(scales: list[Scale]) -> Scale:
    """Of the range that holds those of all these."""
    if len(scales) == 1:
        return scales[0]
    low = min((_LEAST - one.zero_point) * one.scale for one in scales)
    high = max((_MOST - one.zero_point) * one.scale for one in scales)
    scale, zero_point = affine(low, high, "u8")
    return Scale(float(scale), zero_point)


class _FakeQuantized:
    """Stands for a layer's `hybrid_forward`. `operators` is what Gluon calls F: mx.nd or mx.sym."""

    def __init__(self, layer: HybridBlock, scale: Scale, short_sums: bool) -> None:
        self._layer, self._scale = layer, scale
        self._fours = _fours(layer.weight.shape) if short_sums else None

    def __call__(self, operators: Any, x: Any, weight: Any, **others: Any) -> Any:
        numpy_like = is_np_array()
        if numpy_like:  # mx.np has no rounding with a gradient
            x, weight = x.as_nd_ndarray(), weight.as_nd_ndarray()
        x, weight = self._rounded_data(operators, x), self._rounded_weights(operators, weight)
        if numpy_like:
            x, weight = x.as_np_ndarray(), weight.as_np_ndarray()
        return type(self._layer).hybrid_forward(self._layer, operators, x, weight, **others)

    def _rounded_data(self, operators: Any, x: Any) -> Any:
        scale, zero_point = self._scale.scale, self._scale.zero_point
        multiples = operators.clip(x / scale, _LEAST - zero_point, _MOST - zero_point)
        return operators.contrib.round_ste(multiples) * scale

    def _rounded_weights(self, operators: Any, weight: Any) -> Any:
        """The sum is what it begins with, for the rest is 0 and only carries the gradient. (MXNet infers shapes that
        are open back through it, and not through `broadcast_div`.)"""
        largest = operators.max(operators.abs(weight), axis=0, exclude=True, keepdims=True)
        scales = operators.clip(largest, _TINY, _GREATEST) * (1 / _LARGEST)
        if self._fours is not None:
            scales = operators.broadcast_maximum(scales, self._short_scales(operators, weight))
        rounded = operators.broadcast_mul(operators.round(operators.broadcast_div(weight, scales)), scales)
        return operators.BlockGrad(rounded) + (weight - operators.BlockGrad(weight))

    def _short_scales(self, operators: Any, weight: Any) -> Any:
        """As `quantise.products` has them for short sums."""
        sums = [operators.sum(operators.reshape(operators.relu(one), shape=self._fours), axis=(2, 4), keepdims=True)
                for one in (weight, -weight)]
        most = operators.max(operators.maximum(*sums), axis=0, exclude=True)
        return operators.reshape(most, shape=(-1, *[1] * (len(self._layer.weight.shape) - 1))) * (1 / SHORT)


def _fours(shape: Sequence[int]) -> tuple[int, ...] | None:
    """[outputs][eights][four][pair][channel][taps], where the input channels are a multiple of 8."""
    outputs, inputs, *taps = shape
    return None if inputs % 8 else (outputs, inputs // 8, 2, 2, 2, prod(taps))
