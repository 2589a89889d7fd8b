"""Corrections of biases, weights and data, so that quantising costs less, and the maker of the nodes that apply them.
`division.py` chooses which layers' data is divided, and by what, and applies it.

* Nagel et al. 2019, "Data-free quantization through weight equalization and bias correction", arXiv:1906.04721.
* Xiao et al. 2022, "SmoothQuant: accurate and efficient post-training quantization for large language models",
  arXiv:2211.10438.
"""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.errors import CalibrationError, ConfigError
from ngraph_mxnet.ir.graph import Node, Value, make_folded
from ngraph_mxnet.quantisation.choose import LEAST_SCALE
from ngraph_mxnet.quantisation.layers import by_input, weight_axes


class Maker:
    """Makes nodes that stand for `node`, at the end of `nodes`; what is known is computed at once."""

    def __init__(self, node: Node, nodes: list[Node]) -> None:
        self._node, self._nodes = node, nodes

    def __call__(self, op: str, *inputs: Value, **attrs: object) -> Value:
        made = make_folded(op, inputs, attrs, self._node.origin)
        self._nodes.append(made)
        return made.outputs[0]

    def constant(self, array: np.ndarray | np.generic) -> Value:
        return self("constant", value=np.asarray(array))


BIAS, EQUALISATION, SMOOTHING = "bias", "equalisation", "smoothing"
DIVIDING = (SMOOTHING, EQUALISATION)
"""The corrections that divide data by factors."""
CORRECTIONS = (*DIVIDING, BIAS)
"""In the order in which they are tried."""
_MOST_SCALE = float(np.finfo(np.float32).max)
_PARTS = 1 << 10
"""Parts of a step, in which errors of rounding are counted: half of them at most."""
_MOST_SUM = 2 ** 31 // (_PARTS // 2) - 1
"""The largest sum of means: times the largest error it fits i32."""


def bias_correction(made: Maker, node: Node, whole: Value, steps: Value, means: np.ndarray) -> Value:
    """f32[O], what is added to the bias so that results have the mean that they have with float weights: nodes that
    depend on the weights, or the constant that they give.

    Nagel et al., section 4.2: with weights W and W' = W + e the results' means differ by e E[x], which is taken off
    again. Of a convolution e is summed over the kernel; so pixels of padding count as if they had the mean, too.

    Sums are of integers, and so the same in any order: e in 1/1024 of a step, means in parts of what the largest sum
    allows.

    Args:
        node: the product, whose operand 1 is W.
        whole: i8, as W, what they are rounded to.
        steps: f32[O], of each output channel: W' is whole * steps.
        means: float [I], of each input channel over samples, and pixels: finite.

    Raises:
        CalibrationError: the number of means is another.
    """
    weights, axes = node.inputs[1], weight_axes(node)
    channels = weights.shape[axes[1]] * node.attrs.get("groups", 1)
    if means.shape != (channels,):
        raise CalibrationError(f"recipe: found {means.size} means of the data of {node}, expected {channels}: it is of "
                               "another model")
    others = tuple(at for at in range(weights.type.rank) if at != axes[0])
    each = by_input(node, means.astype(np.float64))
    kernel = weights.type.size // (weights.shape[axes[0]] * weights.shape[axes[1]])
    largest = np.abs(each).sum(axis=others).max(initial=0) * kernel
    unit = max(largest / _MOST_SUM, LEAST_SCALE)
    rows = made("reshape", steps, shape=tuple(size if at == axes[0] else 1 for at, size in enumerate(weights.shape)))
    rest = made("subtract", made("convert", whole, element="f32"), made("divide", weights, rows))
    parts = made("convert", made("round", made("multiply", rest, made.constant(np.float32(_PARTS)))), element="i32")
    weighted = made("multiply", parts, made.constant(np.trunc(each / unit).astype(np.int32)))
    sums = made("convert", made("reduce_sum", weighted, axes=others), element="f32")
    return made("multiply", made("multiply", sums, made.constant(np.float32(-unit / _PARTS))), steps)


def equalisation_scales(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """float32[C], the scales s by which two layers, one behind the other, have equal ranges per channel.

    Nagel et al., section 4.1: s = sqrt(r1 r2) / r2. The first layer's output channels, weights and bias, are divided by
    s, the second layer's input channels multiplied, which changes no result where what is between the two commutes with
    a positive factor (ReLU, PReLU, max and mean pooling, nothing). Both ranges are sqrt(r1 r2) then.

    Where the first layer's weights have one scale for all channels, r1 is their range, as in the paper. Where they have
    a scale for each, which takes s up, r1 is the range of its results, which have one scale for all.

    A channel is dead where either range is 0: no weights make it, or none read it. Its scale is 1.

    Args:
        first: float [C], r1, the largest magnitude of the first layer's weights, or results, by output channel.
        second: float [C], r2, that of the second layer's weights by input channel.

    Raises:
        ConfigError: the shapes differ, or a range is negative or not finite.
    """
    _check("ranges", first, second)
    r1, r2 = first.astype(np.float64), second.astype(np.float64)
    alive = (r1 > 0) & (r2 > 0)
    return _positive(np.sqrt(r1, where=alive, out=np.ones_like(r1)) / np.sqrt(r2, where=alive, out=np.ones_like(r2)))


def smoothing_factors(activations: np.ndarray, weights: np.ndarray, alpha: float = 0.5) -> np.ndarray:
    """float32[I], the factors s by which outliers of activations move into the weights of a product.

    Xiao et al., equation 4: s_j = max|X_j|**alpha / max|W_j|**(1 - alpha). Activations are divided by s, by input
    channel, and the weights that they are multiplied with multiplied, which changes no result. With alpha 1 all of it
    moves to the weights, with 0 all to the activations; the paper takes 0.5, and 0.75 where outliers are larger.

    A channel is dead where either magnitude is 0. Its factor is 1.

    Args:
        activations: float [I], the largest magnitude of each input channel over samples.
        weights: float [I], that of the weights by input channel.

    Raises:
        ConfigError: the shapes differ, a magnitude is negative or not finite, or alpha is not from 0 to 1.
    """
    if not 0 <= alpha <= 1:
        raise ConfigError(f"found alpha {alpha} to smooth with, expected one from 0 to 1")
    _check("magnitudes of activations and weights", activations, weights)
    x, w = activations.astype(np.float64), weights.astype(np.float64)
    alive = (x > 0) & (w > 0)
    return _positive(np.where(alive, x, 1.0) ** alpha / np.where(alive, w, 1.0) ** (1 - alpha))


def _check(what: str, first: np.ndarray, second: np.ndarray) -> None:
    if first.ndim != 1 or first.shape != second.shape:
        raise ConfigError(f"found {what} of shapes {list(first.shape)} and {list(second.shape)}, expected one number "
                          "for each channel in both")
    for array in (first, second):
        bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
        if bad.size:
            raise ConfigError(f"found {what} of {array[bad[0]]} in channel {bad[0]}, expected finite ones from 0 on")


def _positive(scales: np.ndarray) -> np.ndarray:
    """Clip the scales to positive normal numbers of float32, by which one can divide."""
    return np.clip(scales, LEAST_SCALE, _MOST_SCALE).astype(np.float32)
