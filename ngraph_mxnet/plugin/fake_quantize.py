"""Quantisation-aware training of Gluon nets: layers compute with numbers that 8 bits can hold, in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon import HybridBlock, nn
from mxnet.util import is_np_array

from ngraph_mxnet.base.errors import CalibrationError, ConfigError, listed
from ngraph_mxnet.quantisation.apply import LEAST_LARGEST, SHORT, Recipe, Scale
from ngraph_mxnet.quantisation.calibration import BOUNDS, affine
from ngraph_mxnet.quantisation.layers import by_group

_LAYERS = (nn.Conv1D, nn.Conv2D, nn.Dense)
_LEAST, _MOST = BOUNDS["u8"]
_LARGEST = BOUNDS["i8"][1]
_GREATEST = float(np.finfo(np.float32).max)


class FakeQuantization:
    """Layers that are fake-quantised, until `remove`, or the end of a `with` block.

    Attributes:
        scales: of the layers' data, by the layers' names.
    """

    def __init__(self, net: HybridBlock, layers: Mapping[HybridBlock, _Wanted], short_sums: bool) -> None:
        self.scales = {layer.name: wanted.scale for layer, wanted in layers.items()}
        self._net, self._layers = net, list(layers)
        for layer, wanted in layers.items():
            layer.hybrid_forward = _FakeQuantized(layer, wanted, short_sums)
        _forget_traces(net)

    def remove(self) -> None:
        """The net computes in float again, with the weights that it has now. A second call does nothing."""
        layers, self._layers = self._layers, []
        for layer in layers:
            layer.hybrid_forward.forget()
            del layer.hybrid_forward
        _forget_traces(self._net)

    def __enter__(self) -> FakeQuantization:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def fake_quantize(net: HybridBlock, recipe: Recipe | str | Path, *, short_sums: bool = False) -> FakeQuantization:
    """Let the layers of a recipe compute as their products in 8 bits will, so that training takes that into account.

    Data of any shape, f32, is rounded to the recipe's 256 multiples of its scale, and saturates; weights are rounded to
    multiples of a scale for each output channel, of which 127 is the largest weight. Where the recipe divides data, it
    is divided before, and weights are multiplied; where it corrects biases, so do the layers, for the weights that they
    have at the time. Gradients go straight through the rounding: 1 within the range of the data and 0 outside, 1 for
    weights. All is done by MXNet's operators, so the net trains with MXNet alone and compiled. Its parameters stay as
    they are; so what is saved fits the net as it was. (Meanwhile `collect_params` has constants beside them, the
    numbers of corrections.)

    Where a layer is called several times, its data has the range that holds all of the recipe's for it, and the mean
    of its means. Nothing else may call the net meanwhile. A block around `net` that was hybridized and called before
    goes on with what it traced: give the outermost one.

    Args:
        net: initialised, hybridized or not; of both interfaces, mx.nd's and mx.np's.
        recipe: the object, or the path of its file.
        short_sums: weights are rounded as for CPUs with AVX2 and without VNNI: where the input channels are a
            multiple of 8, to larger multiples by which sums of products fit 16 bits.

    Raises:
        CalibrationError: it has products that no Conv1D, Conv2D or Dense of the net computes, or corrections for other
            shapes, or divides the data of a layer that is called several times in several ways; or it can't be read.
        ConfigError: the net is no HybridBlock, a layer is not of float32, has a `hybrid_forward` set on it, as one
            that is fake-quantised already, or, with `short_sums` or corrections, has not been given its shape yet.
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
    found: dict[HybridBlock, list[str]] = {}
    for name in recipe.products:
        for layer in layers[_operator(name)]:
            found.setdefault(layer, []).append(name)
    chosen = {layer: _Wanted.of(layer, names, recipe) for layer, names in found.items()}
    for layer, wanted in chosen.items():
        _check(layer, wanted, short_sums)
    return FakeQuantization(net, chosen, short_sums)


@dataclass(frozen=True)
class _Wanted:
    """The quantisation of a layer. `scale`: of its data. `factors`: the divisors of its data before rounding, or
    None. `means`: the means that correct its bias, or None."""

    scale: Scale
    factors: np.ndarray | None
    means: np.ndarray | None

    @staticmethod
    def of(layer: HybridBlock, names: Sequence[str], recipe: Recipe) -> _Wanted:
        """`names`: of its products. Raises CalibrationError where they divide in several ways."""
        factors = {recipe.factors.get(name) for name in names}
        if len(factors) > 1:
            raise CalibrationError(
                f"layer {layer.name}: found data that is divided by several factors in {listed(names)}, expected the "
                "same ones: quantise with corrections=[], or without smoothing and equalisation")
        means = [recipe.means[name] for name in names if name in recipe.means]
        (divided,) = factors
        return _Wanted(_holding([recipe.scales[name] for name in names]),
                       None if divided is None else np.asarray(divided, np.float32),
                       np.mean(means, axis=0, dtype=np.float32) if means else None)

    @property
    def corrections(self) -> list[np.ndarray]:
        return [each for each in (self.factors, self.means) if each is not None]


def _check(layer: HybridBlock, wanted: _Wanted, short_sums: bool) -> None:
    if np.dtype(layer.weight.dtype) != np.float32:
        raise ConfigError(f"layer {layer.name}: found weights of {np.dtype(layer.weight.dtype)}, expected float32")
    if "hybrid_forward" in layer.__dict__:
        raise ConfigError(f"layer {layer.name}: found a hybrid_forward set on it, expected its class's; if it is "
                          "fake-quantised already, `remove` that first")
    if not (short_sums or wanted.corrections):
        return
    if not all(size > 0 for size in layer.weight.shape):
        raise ConfigError(f"layer {layer.name}: found weights of the shape {layer.weight.shape}, expected a known one: "
                          "call the net once before")
    channels = layer.weight.shape[1] * _groups(layer)
    for numbers in wanted.corrections:
        if len(numbers) != channels:
            raise CalibrationError(f"layer {layer.name}: found corrections for {len(numbers)} input channels in the "
                                   f"recipe, expected {channels}")


def _blocks(net: HybridBlock) -> list[HybridBlock]:
    """The net and all blocks in it, each once."""
    found: list[HybridBlock] = []
    net.apply(found.append)
    return list(dict.fromkeys(found))


def _forget_traces(net: HybridBlock) -> None:
    for block in _blocks(net):
        block._clear_cached_op()


def _operator(product: str) -> str:
    """The name of the operator that computes a product (`quantisation.apply.products`), as symbols have it."""
    return product.removeprefix("mx:").rpartition(" ")[0]


def _holding(scales: list[Scale]) -> Scale:
    """Return the scale of the range that holds the ranges of all these scales."""
    if len(scales) == 1:
        return scales[0]
    low = min((_LEAST - one.zero_point) * one.scale for one in scales)
    high = max((_MOST - one.zero_point) * one.scale for one in scales)
    scale, zero_point = affine(low, high, "u8")
    return Scale(float(scale), zero_point)


def _groups(layer: HybridBlock) -> int:
    return 1 if isinstance(layer, nn.Dense) else int(layer._kwargs["num_group"])


class _FakeQuantized:
    """Stands for a layer's `hybrid_forward`. `operators` is what Gluon calls F: mx.nd or mx.sym."""

    def __init__(self, layer: HybridBlock, wanted: _Wanted, short_sums: bool) -> None:
        self._layer, self._scale = layer, wanted.scale
        self._fours = _fours(layer.weight.shape) if short_sums else None
        self._constants: dict[str, Any] = {}
        self._had_no_bias = False
        if wanted.factors is not None:
            self._add("factors_of_data", wanted.factors.reshape(1, -1, *self._taps()))
            self._add("factors", self._by_weight(wanted.factors))
        if wanted.means is not None:
            self._add("means", self._by_weight(wanted.means))
            if not isinstance(layer, nn.Dense):  # which looks at the bias itself
                self._had_no_bias, layer._kwargs["no_bias"] = layer._kwargs["no_bias"], False

    def forget(self) -> None:
        """The layer is as before."""
        for constant in self._constants.values():
            del self._layer.params._params[constant.name]
        if self._had_no_bias:
            self._layer._kwargs["no_bias"] = True

    def __call__(self, operators: Any, x: Any, weight: Any, **others: Any) -> Any:
        numpy_like = is_np_array()
        if numpy_like:  # mx.np has no rounding with a gradient
            x, weight = x.as_nd_ndarray(), weight.as_nd_ndarray()
        constants = {name: _as_operand(constant, operators, x) for name, constant in self._constants.items()}
        if "factors" in constants:
            x = self._divided(operators, x, constants["factors_of_data"])
            weight = operators.broadcast_mul(weight, constants["factors"])
        x, rounded = self._rounded_data(operators, x), self._rounded_weights(operators, weight)
        if "means" in constants:
            bias = self._corrected_bias(operators, rounded - weight, constants["means"], others.get("bias"))
            others["bias"] = bias.as_np_ndarray() if numpy_like else bias
        if numpy_like:
            x, rounded = x.as_np_ndarray(), rounded.as_np_ndarray()
        return type(self._layer).hybrid_forward(self._layer, operators, x, rounded, **others)

    def _taps(self) -> list[int]:
        """A 1 for each axis of the kernel."""
        return [1] * (len(self._layer.weight.shape) - 2)

    def _by_weight(self, numbers: np.ndarray) -> np.ndarray:
        """Arrange the numbers of the input channels in a shape that broadcasts against the weights."""
        rows = by_group(numbers, self._layer.weight.shape[0], _groups(self._layer))
        return rows.reshape(*rows.shape, *self._taps())

    def _add(self, name: str, array: np.ndarray) -> None:
        """Numbers that traced nets read as well: MXNet's graphs have no arrays in them but parameters."""
        constant = self._layer.params.get_constant(name, (mx.np if is_np_array() else mx.nd).array(array))
        constant.initialize(ctx=self._layer.weight.list_ctx())
        self._constants[name] = constant

    def _divided(self, operators: Any, x: Any, factors: Any) -> Any:
        if not isinstance(self._layer, nn.Dense):
            return operators.broadcast_div(x, factors)
        rows = operators.reshape(x, shape=(-1, self._layer.weight.shape[1]))
        return operators.reshape_like(operators.broadcast_div(rows, factors), x)

    def _corrected_bias(self, operators: Any, errors: Any, means: Any, bias: Any) -> Any:
        """Correct the bias as `quantisation.corrections.bias_correction` does. The correction has no gradient."""
        mean = operators.sum(operators.broadcast_mul(errors, means), axis=0, exclude=True)
        correction = operators.BlockGrad(-mean)
        if bias is None:
            return correction
        return (bias.as_nd_ndarray() if is_np_array() else bias) + correction

    def _rounded_data(self, operators: Any, x: Any) -> Any:
        scale, zero_point = self._scale.scale, self._scale.zero_point
        multiples = operators.clip(x / scale, _LEAST - zero_point, _MOST - zero_point)
        return operators.contrib.round_ste(multiples) * scale

    def _rounded_weights(self, operators: Any, weight: Any) -> Any:
        """The sum is what it begins with, for the rest is 0 and only carries the gradient. (MXNet infers shapes that
        are open back through it, and not through `broadcast_div`.)"""
        largest = operators.max(operators.abs(weight), axis=0, exclude=True, keepdims=True)
        scales = operators.clip(largest, LEAST_LARGEST, _GREATEST) * (1 / _LARGEST)
        if self._fours is not None:
            scales = operators.broadcast_maximum(scales, self._short_scales(operators, weight))
        rounded = operators.broadcast_mul(operators.round(operators.broadcast_div(weight, scales)), scales)
        return operators.BlockGrad(rounded) + (weight - operators.BlockGrad(weight))

    def _short_scales(self, operators: Any, weight: Any) -> Any:
        """Return the scales that `quantisation.apply` has for short sums."""
        sums = [operators.sum(operators.reshape(operators.relu(one), shape=self._fours), axis=(2, 4), keepdims=True)
                for one in (weight, -weight)]
        most = operators.max(operators.maximum(*sums), axis=0, exclude=True)
        return operators.reshape(most, shape=(-1, *[1] * (len(self._layer.weight.shape) - 1))) * (1 / SHORT)


def _as_operand(constant: Any, operators: Any, beside: Any) -> Any:
    """For mx.nd or mx.sym."""
    found = constant.var() if operators is mx.sym else constant.data(beside.ctx)
    return found.as_nd_ndarray() if is_np_array() else found


def _fours(shape: Sequence[int]) -> tuple[int, ...] | None:
    """[outputs][eights][four][pair][channel][taps], where the input channels are a multiple of 8."""
    outputs, inputs, *taps = shape
    return None if inputs % 8 else (outputs, inputs // 8, 2, 2, 2, prod(taps))
