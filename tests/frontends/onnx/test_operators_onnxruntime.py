"""Operators where other definitions come to mind, as ONNX Runtime has them: NaN in order, ties of bytes, unpooling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime of the extra bench is not installed")

from one_node import BACKENDS, assert_same, of_one_node, theirs

import ngraph_mxnet

NAN = np.nan


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("count", [0, 1, 3, 8])
@pytest.mark.parametrize("largest", [0, 1])
def test_nan_is_the_greatest(largest: int, count: int, dtype: str) -> None:
    x = np.array([[1, NAN, 3, -np.inf, np.inf, NAN, 2, 0]], dtype)
    assert_same("TopK", [x, np.array([count])], outputs=("values", "places"), held=(1,), domain="", largest=largest)


def test_nan_is_one_element() -> None:
    """As in NumPy, which ONNX's definition is written in; ONNX Runtime loses others beside it."""
    x = np.array([NAN, 2, NAN, 1, 2, NAN], np.float32)
    proto, feeds = of_one_node("Unique", [x], ("y", "first", "inverse", "counts"), domain="")
    for backend in BACKENDS:
        found = ngraph_mxnet.compile(proto, backend)(feeds)
        for one, wanted in zip(found, ([1, 2, NAN], [3, 1, 0], [2, 1, 2, 0, 1, 2], [1, 2, 3]), strict=True):
            np.testing.assert_array_equal(one, wanted)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [0, 3, 4, 77])
@pytest.mark.parametrize("held", [(), (1, 2, 4, 5, 6, 7)])
def test_halves_are_rounded_with_the_zero_point(op: str, dtype: str, zero: int, held: Any) -> None:
    info = np.iinfo(dtype)
    every = np.arange(info.min, info.max + 1).astype(dtype)
    a, b = (each.ravel() for each in np.meshgrid(every, every[::5]))
    scales = [np.float32(scale) for scale in (0.5, 0.25, 2)]
    zeros = [np.array(number, dtype) for number in (11, 7, zero)]
    assert_same(op, [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]], held=held)


@pytest.mark.parametrize("last", [0, 1])
def test_windows_beyond_the_end_count_in_averages_of_bytes(last: int) -> None:
    x = np.random.default_rng(1).integers(0, 256, (1, 7, 9, 8)).astype(np.uint8)
    parameters = [np.float32(1.25), np.array(1, np.uint8), np.float32(1.0), np.array(0, np.uint8)]
    assert_same("QLinearAveragePool", [x, *parameters], held=(1, 2, 3, 4), kernel_shape=[2, 2], strides=[2, 2],
                ceil_mode=1, count_include_pad=1, channels_last=last)


@pytest.mark.parametrize("sizes", [(7, 7), (6, 7), (5,), (4, 5, 5)])
def test_unpooling_goes_back_to_the_shape_that_was_pooled(sizes: tuple[int, ...]) -> None:
    shape = (2, 3, *sizes)
    x = np.random.default_rng(2).permutation(np.prod(shape)).astype(np.float32).reshape(shape)
    window = {"kernel_shape": [2] * len(sizes), "strides": [2] * len(sizes)}
    proto, feeds = of_one_node("MaxPool", [x], ("y", "at"), domain="", **window)
    values, places = theirs(proto, feeds)
    assert_same("MaxUnpool", [values, places, np.array(shape)], held=(2,), domain="", **window)


def test_scales_of_float16_are_multiplied_in_float32() -> None:
    a, b = np.array([[208, 236, 0], [3, 214, 255]], np.uint8), np.array([[152, 51], [60, 26], [0, 127]], np.uint8)
    scales = [np.array([scale], np.float16) for scale in (0.0066, 0.00705, 0.0107)]
    zeros = [np.array([number], np.uint8) for number in (113, 114, 118)]
    arrays = [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]]
    assert_same("QLinearMatMul", arrays, domain="", opset=21)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1",
                                "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 3, 5)])
def test_reductions_of_integers_and_of_nothing(op: str, dtype: str, shape: tuple[int, ...]) -> None:
    signed = op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL1")
    x = np.random.default_rng(4).integers(-50 if signed else 1, 50, shape).astype(dtype)
    types = ("int32", "int64") if op == "ReduceProd" else ()
    assert_same(op, [x % 5 if dtype in types else x, np.array([1])], held=(1,), domain="", opset=20, keepdims=0)


@pytest.mark.parametrize(("left", "right"), [((3, 0), (0, 4)), ((0, 3), (3, 4)), ((2, 3, 0), (2, 0, 4)), ((0,), (0,)),
                                             ((2, 1, 0), (1, 0, 2)), ((3, 4), (4, 0))])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_products_over_nothing_are_0(left: tuple[int, ...], right: tuple[int, ...], dtype: str) -> None:
    arrays = [np.zeros(left, dtype), np.zeros(right, dtype)]
    assert_same("MatMul", arrays, domain="")
    if len(left) == len(right) == 2 and dtype != "int32":
        assert_same("Gemm", [*arrays, np.ones((1, right[1]), dtype)], domain="", alpha=0.5, beta=2.0)


@pytest.mark.parametrize("is_open", [False, True])
def test_whole_numbers_over_nothing_are_0(is_open: bool) -> None:
    """ONNX Runtime leaves these as they were in memory."""
    arrays = [np.zeros((3, 0), np.uint8), np.zeros((0, 4), np.uint8)]
    proto, feeds = of_one_node("MatMulInteger", arrays, domain="", is_open=is_open)
    for backend in BACKENDS:
        np.testing.assert_array_equal(ngraph_mxnet.compile(proto, backend)(feeds)[0], np.zeros((3, 4), np.int32))


def test_nothing_is_written_and_nothing_is_unique() -> None:
    nothing = np.zeros((0, 4), np.float32)
    assert_same("ScatterND", [nothing, np.zeros((0, 1), np.int64), nothing], domain="")
    assert_same("Unique", [nothing], outputs=("y", "first", "inverse", "counts"), domain="")


@pytest.mark.parametrize("size", [5, 1, 0])
@pytest.mark.parametrize("step", [-3, -1, 1, 2])
def test_slices_begin_within_the_data(step: int, size: int) -> None:
    """Backward, too: by ONNX's text a start before the first element is the first one; NumPy takes none."""
    x = np.arange(size, dtype=np.float32)
    for start in (-9, -6, -5, -1, 0, 4, 5, 9):
        for end in (-2**31, -9, -6, -5, -1, 0, 3, 9):
            if size or step > 0:  # ONNX Runtime clamps a start to the element before the first of none
                assert_same("Slice", [x, *(np.array([number]) for number in (start, end, 0, step))], held=(1, 2, 3, 4),
                            domain="")
