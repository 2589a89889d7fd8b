"""What is done to weights and biases so that quantising costs less: functions of arrays, no graphs.

* Nagel et al. 2019, "Data-free quantization through weight equalization and bias correction", arXiv:1906.04721.
* Xiao et al. 2022, "SmoothQuant: accurate and efficient post-training quantization for large language models",
  arXiv:2211.10438.
"""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.errors import ConfigError

_LEAST, _MOST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def bias_correction(
    weights: np.ndarray, dequantised: np.ndarray, means: np.ndarray, *, groups: int = 1
) -> np.ndarray:
    """float32[O], what is added to the bias so that results have the mean that they have with float weights.

    Nagel et al., section 4.2: with weights W and W' = W + e the results' means differ by e E[x], which is taken off
    again. Of a convolution e is summed over the kernel; so pixels of padding count as if they had the mean, too.

    Args:
        weights: float [O, I / groups, ...], output channels first: of a convolution with its kernel, of a matrix
            product [O, I].
        dequantised: of the same shape, what the integers stand for.
        means: float [I], of each input channel over samples, and pixels.

    Raises:
        ConfigError: the shapes don't fit each other, or a mean or weight is not finite.
    """
    if weights.ndim < 2 or weights.shape != dequantised.shape:
        raise ConfigError(f"found weights of shape {list(weights.shape)} and dequantised ones of shape "
                          f"{list(dequantised.shape)}, expected the same shape of rank 2 or more")
    outputs, inputs = weights.shape[:2]
    if groups < 1 or outputs % groups or means.shape != (groups * inputs,):
        raise ConfigError(f"found means of shape {list(means.shape)} for weights of shape {list(weights.shape)} in "
                          f"{groups} groups, expected [{groups * inputs}] and channels that the groups divide")
    with np.errstate(invalid="ignore"):  # inf - inf is found below
        errors = (dequantised.astype(np.float64) - weights).reshape(groups, outputs // groups, inputs, -1).sum(axis=3)
        addend = -(errors @ means.astype(np.float64).reshape(groups, inputs, 1)).reshape(outputs)
    if not np.isfinite(addend).all():
        raise ConfigError("found weights or means that are not finite, expected finite ones")
    return addend.astype(np.float32)


def equalisation_scales(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """float32[C], the scales s by which two layers, one behind the other, have equal ranges of weights per channel.

    Nagel et al., section 4.1: s = sqrt(r1 r2) / r2. The first layer's output channels, weights and bias, are divided by
    s, the second layer's input channels multiplied, which changes no result where what is between the two commutes with
    a positive factor (ReLU, PReLU, max and mean pooling, nothing). Both ranges are sqrt(r1 r2) then.

    A channel is dead where either range is 0: no weights make it, or none read it. Its scale is 1.

    Args:
        first: float [C], r1, the largest magnitude of the first layer's weights by output channel.
        second: float [C], r2, that of the second layer's weights by input channel.

    Raises:
        ConfigError: the shapes differ, or a range is negative or not finite.
    """
    _check("ranges of weights", first, second)
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
    """As normal numbers of float32, by which one can divide."""
    return np.clip(scales, _LEAST, _MOST).astype(np.float32)
