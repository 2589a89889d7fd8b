"""Operators with random shapes and attributes on both backends, against ONNX's own definitions in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

import ngraph_mxnet

Draw = Callable[[st.SearchStrategy[Any]], Any]
Case = tuple[list[np.ndarray], dict[str, Any], int]
"""Inputs, attributes, number of outputs."""
OPSET = 22


def _floats(random: np.random.Generator, *shape: int, dtype: str = "float32") -> np.ndarray:
    return random.uniform(-2, 2, shape).astype(dtype)


def _pick(draw: Draw, *choices: Any) -> Any:
    return draw(st.sampled_from(choices))


def _sizes(draw: Draw, count: int, least: int = 1, most: int = 5) -> list[int]:
    return [draw(st.integers(least, most)) for _ in range(count)]


def grid_sample(draw: Draw, random: np.random.Generator) -> Case:
    rank = _pick(draw, 2, 2, 3)
    batch, places = draw(st.integers(1, 2)), _sizes(draw, rank, 1, 3)
    grid = random.uniform(-1.6, 1.6, (batch, *places, rank)).astype(np.float32)
    attributes = {"mode": _pick(draw, "linear", "nearest", *(["cubic"] if rank == 2 else [])),
                  "padding_mode": _pick(draw, "zeros", "border", "reflection"), "align_corners": _pick(draw, 0, 1)}
    return [_floats(random, batch, 2, *_sizes(draw, rank, 2)), grid], attributes, 1


def col2im(draw: Draw, random: np.random.Generator) -> Case:
    rank = _pick(draw, 1, 2)
    image, block = _sizes(draw, rank, 4, 7), _sizes(draw, rank, 1, 3)
    strides, pads = _sizes(draw, rank, 1, 3), _sizes(draw, 2 * rank, 0, 2)
    counts = [(image[i] + pads[i] + pads[i + rank] - block[i]) // strides[i] + 1 for i in range(rank)]
    x = _floats(random, 2, 3 * int(np.prod(block)), int(np.prod(counts)))
    return [x, np.array(image), np.array(block)], {"strides": strides, "pads": pads, "dilations": [1] * rank}, 1


def roi_align(draw: Draw, random: np.random.Generator) -> Case:
    count = draw(st.integers(1, 3))
    corners = np.sort(random.uniform(0, 6, (count, 2, 2)), axis=1).reshape(count, 4).astype(np.float32)
    attributes = {"output_height": draw(st.integers(1, 3)), "output_width": draw(st.integers(1, 3)),
                  "sampling_ratio": _pick(draw, 0, 2), "spatial_scale": _pick(draw, 1.0, 0.5),
                  "coordinate_transformation_mode": _pick(draw, "half_pixel", "output_half_pixel")}
    return [_floats(random, 2, 3, 6, 5), corners, random.integers(0, 2, count)], attributes, 1


def scatter_elements(draw: Draw, random: np.random.Generator) -> Case:
    shape, axis = _sizes(draw, 2), _pick(draw, 0, 1, -1)
    dtype = _pick(draw, "float32", "int32", "float64", "uint64")
    updates = [min(draw(st.integers(1, 4)), size) if i != axis % 2 else draw(st.integers(1, 4))
               for i, size in enumerate(shape)]
    data, new = (random.integers(0, 9, size).astype(dtype) for size in (shape, updates))
    return [data, random.integers(-shape[axis], shape[axis], updates), new], {
        "axis": axis, "reduction": _pick(draw, "add", "mul", "max", "min")}, 1


def scatter_nd(draw: Draw, random: np.random.Generator) -> Case:
    shape = _sizes(draw, 3)
    depth, count = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    indices = np.stack([random.integers(0, size, count) for size in shape[:depth]], -1)
    return [_floats(random, *shape), indices, _floats(random, count, *shape[depth:])], {
        "reduction": _pick(draw, "none", "add", "mul", "max", "min") if len(np.unique(indices, axis=0)) == count
        else _pick(draw, "add", "mul", "max", "min")}, 1


def cumulative(draw: Draw, random: np.random.Generator) -> Case:
    shape = _sizes(draw, 2, 1, 9)
    return [_floats(random, *shape), np.array(_pick(draw, 0, 1, -1))], {
        "exclusive": _pick(draw, 0, 1), "reverse": _pick(draw, 0, 1)}, 1


def determinant(draw: Draw, random: np.random.Generator) -> Case:
    size = draw(st.integers(1, 6))
    return [_floats(random, draw(st.integers(1, 3)), size, size)], {}, 1


def power(draw: Draw, random: np.random.Generator) -> Case:
    dtype = _pick(draw, "int32", "int64")
    return [random.integers(-9, 10, (3, 4)).astype(dtype), random.integers(0, 9, 4).astype(dtype)], {}, 1


def shrink(draw: Draw, random: np.random.Generator) -> Case:
    dtype = _pick(draw, "int32", "uint8", "int64", "float32", "float64")
    return [random.integers(0 if dtype == "uint8" else -5, 6, (3, 4)).astype(dtype)], {
        "bias": _pick(draw, 0.0, 0.5, 1.5), "lambd": _pick(draw, 0.5, 1.5, 2.0)}, 1


def dft(draw: Draw, random: np.random.Generator) -> Case:
    axis, inverse = _pick(draw, 0, 1, -2), _pick(draw, 0, 1)
    onesided = 0 if inverse else _pick(draw, 0, 1)
    parts = _pick(draw, 1, 2) if not onesided and not inverse else 2 if inverse else 1
    return [_floats(random, *_sizes(draw, 2, 2, 8), parts), np.array(draw(st.integers(2, 9))), np.array(axis)], {
        "inverse": inverse, "onesided": onesided}, 1


def stft(draw: Draw, random: np.random.Generator) -> Case:
    length = _pick(draw, 4, 7)
    return [_floats(random, 2, 30, 1), np.array(draw(st.integers(1, 5))), _floats(random, length)], {
        "onesided": _pick(draw, 0, 1)}, 1


def tf_idf(draw: Draw, random: np.random.Generator) -> Case:
    x = random.integers(0, 4, (2, draw(st.integers(1, 9))))
    attributes = {"min_gram_length": _pick(draw, 1, 2), "max_gram_length": 2, "max_skip_count": draw(st.integers(0, 3)),
                  "mode": _pick(draw, "TF", "IDF", "TFIDF"), "ngram_counts": [0, 3], "ngram_indexes": [0, 1, 2, 4, 3],
                  "pool_int64s": [0, 1, 2, 0, 1, 2, 3], "weights": [1.0, 0.5, 2.0, 3.0, 0.25]}
    return [x], attributes, 1


CASES: dict[str, Callable[[Draw, np.random.Generator], Case]] = {
    "GridSample": grid_sample, "Col2Im": col2im, "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd, "CumSum": cumulative, "Det": determinant, "RoiAlign": roi_align, "Pow": power,
    "DFT": dft, "Shrink": shrink, "STFT": stft, "TfIdfVectorizer": tf_idf,
}


@pytest.mark.parametrize("op", CASES)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_operator(op: str, data: st.DataObject, seed: int) -> None:
    arrays, attributes, outputs = CASES[op](data.draw, np.random.default_rng(seed))
    names = [f"i{place}" for place in range(len(arrays))]
    results = [f"y{place}" for place in range(outputs)]
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
             for name, array in zip(names, arrays, strict=True)]
    graph = helper.make_graph([helper.make_node(op, names, results, **attributes)], "g", infos,
                              [onnx.ValueInfoProto(name=name) for name in results])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    wanted = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
    for backend in ("CPU", "INTERPRETER"):
        found = ngraph_mxnet.compile(model, backend)(*arrays)
        for one, other in zip(found, wanted, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4, err_msg=f"{backend} {attributes}")


@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_places_of_maxima(data: st.DataObject, seed: int) -> None:
    """ONNX counts them in the whole tensor; its reference doesn't where windows are higher than a row."""
    kernel, strides, sizes = (_sizes(data.draw, 2, *bounds) for bounds in ((1, 3), (1, 2), (4, 6)))
    x = np.random.default_rng(seed).permutation(6 * sizes[0] * sizes[1]).astype(np.float32).reshape(2, 3, *sizes)
    node = helper.make_node("MaxPool", ["x"], ["y", "places"], kernel_shape=kernel, strides=strides)
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)
    graph = helper.make_graph([node], "g", [info], [onnx.ValueInfoProto(name=name) for name in ("y", "places")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(2, 3))[:, :, :: strides[0], :: strides[1]]
    for backend in ("CPU", "INTERPRETER"):
        maxima, places = ngraph_mxnet.compile(model, backend)(x)
        np.testing.assert_array_equal(maxima, windows.max(axis=(4, 5)))
        np.testing.assert_array_equal(x.ravel()[places], maxima)
