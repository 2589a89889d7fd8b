"""Fourier transforms, as products with matrices of cosines and sines, and filters of spectra."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.bridges.onnx.rules.common import normal_axis
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.bridges.onnx.tensors import element_of
from ngraph_mxnet.compositions.tensors import reshaped, slice_axis
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value

MOST_POINTS = 4096
"""The most points of a transform: its matrices have the square of that many elements."""


@rule("DFT")
def dft(b: Builder, call: Call) -> Value:
    """[..., n, ..., 1 or 2] along an axis, real or complex; inverse and one-sided ones too."""
    x = call.input(0)
    rank = x.type.rank
    inverse, onesided = call.attrs.bool("inverse"), call.attrs.bool("onesided")
    if call.opset >= 20:
        axis = call.static_ints(2, "axis")[0] if call.optional(2) is not None else -2
    else:
        axis = call.attrs.int("axis", 1)
    axis = normal_axis(axis, rank)
    if axis == rank - 1 or x.shape[-1] not in (1, 2):
        raise ModelError(f"axis={axis} of {x.type}, expected one before a last axis of 1 or 2")
    to_real = inverse and onesided
    size = x.shape[axis]
    points = 2 * (size - 1) if to_real else size
    if call.optional(1) is not None:
        points = call.static_ints(1, "dft_length")[0]
    wanted = points // 2 + 1 if to_real else points
    if size > wanted:
        x = slice_axis(b, x, axis, 0, wanted)
    elif size < wanted:
        x = b.pad(x, pads_end=[wanted - size if i == axis else 0 for i in range(rank)])
    order = [i for i in range(rank) if i != axis]
    order.insert(rank - 2, axis)
    moved = b.transpose(x, order=order)
    out = transformed(b, moved, points, inverse=inverse, onesided=onesided)
    back = [order.index(i) for i in range(rank)]
    return b.transpose(out, order=back)


def transformed(b: Builder, x: Value, points: int, *, inverse: bool, onesided: bool) -> Value:
    """[..., n, 1 or 2] -> [..., m, 2], or [..., points, 1] of half a spectrum."""
    if not 0 < points <= MOST_POINTS:
        raise UnsupportedError(f"a transform of {points} points; supported: 1 to {MOST_POINTS}")
    real_result, parts = inverse and onesided, x.shape[-1]
    count = points // 2 + 1 if onesided and not inverse else points
    angle = 2 * np.pi / points * (np.outer(np.arange(x.shape[-2]), np.arange(count)) % points)
    cosine, sine = np.cos(angle), np.sin(angle) * (1 if inverse else -1)
    if inverse:
        cosine, sine = cosine / points, sine / points
    if real_result:  # the half that is not there would add the conjugates
        weight = np.full((x.shape[-2], 1), 2.0)
        weight[0] = 1
        if points % 2 == 0:
            weight[-1] = 1
        matrix = np.stack([cosine * weight, -sine * weight], axis=1)[:, :parts, :, None]
    else:
        matrix = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], axis=1)[:, :parts]
    results = matrix.shape[-1]
    rows = reshaped(b, x, (*x.shape[:-2], x.shape[-2] * parts))
    flat = b.constant(matrix.reshape(rows.shape[-1], -1), x.type.element)
    whole = b.matmul(reshaped(b, rows, (rows.type.size // rows.shape[-1], rows.shape[-1])), flat)
    return reshaped(b, whole, (*x.shape[:-2], count, results))


@rule("STFT")
def short_time_dft(b: Builder, call: Call) -> Value:
    """[N, samples, 1 or 2] -> [N, frames, m, 2]: the transforms of frames, times a window."""
    x, step, window = call.input(0), call.static_ints(1, "frame_step")[0], call.optional(2)
    if call.optional(3) is not None:
        length = call.static_ints(3, "frame_length")[0]
    elif window is not None:
        length = window.shape[0]
    else:
        raise ModelError("neither a window nor frame_length")
    if x.type.rank == 2:
        x = b.reshape(x, shape=(*x.shape, 1))
    samples = x.shape[1]
    frames = (samples - length) // step + 1 if step > 0 else 0
    if frames < 1:
        raise ModelError(f"frame_step={step}, frame_length={length} of {samples} samples")
    cut = b.gather(x, b.constant(np.arange(frames)[:, None] * step + np.arange(length)), axis=1)
    if window is not None:
        cut = b.multiply(cut, b.reshape(window, shape=(1, 1, length, 1)))
    return transformed(b, cut, length, inverse=False, onesided=call.attrs.bool("onesided", True))


@rule("MelWeightMatrix")
def mel_weight_matrix(b: Builder, call: Call) -> Value:
    """A constant: triangles over the bins of a spectrum, at equal distances in mel."""
    bins, length, rate = (call.static_ints(i, name)[0] for i, name in
                          enumerate(("num_mel_bins", "dft_length", "sample_rate")))
    low, high = (float(call.static(i, name).reshape(())) for i, name in
                 ((3, "lower_edge_hertz"), (4, "upper_edge_hertz")))
    spectrum = length // 2 + 1
    if not (0 < bins <= MOST_POINTS and 0 < length <= MOST_POINTS and rate > 0):
        raise UnsupportedError(f"{bins} bins of {length} points at {rate} Hz; supported: 1 to {MOST_POINTS}")
    mels = [2595 * np.log10(1 + hertz / 700) for hertz in (low, high)]
    places = np.arange(bins + 2) * (mels[1] - mels[0]) / (bins + 2) + mels[0]
    edges = ((length + 1) * (700 * (10 ** (places / 2595) - 1)) // rate).astype(int)
    if edges.min() < 0 or edges.max() >= spectrum:
        raise ModelError(f"edges from {low} to {high} Hz lie outside a spectrum of {spectrum} bins at {rate} Hz")
    at = np.arange(spectrum)[:, None]
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = np.where(centre > left, (at - left) / np.maximum(centre - left, 1), 1.0)
    falling = (right - at) / np.maximum(right - centre, 1)
    matrix = np.where((at >= left) & (at <= centre), rising, 0.0)
    matrix = np.where((at >= centre) & (at < right) & (right > centre), falling, matrix)
    return b.constant(matrix, element_of(call.attrs.int("output_datatype", 1)))
