"""`com.microsoft`'s quantised operators, against what they mean in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import ngraph_mxnet

BACKENDS = ["CPU", "INTERPRETER"]
RANDOM = np.random.default_rng(3)


def run(backend: str, op: str, arrays: list[Any], **attributes: Any) -> np.ndarray:
    """The first array is the model's input, the others are initialisers; None is left out."""
    names = ["" if array is None else f"i{place}" for place, array in enumerate(arrays)]
    held = [numpy_helper.from_array(np.asarray(array), name) for array, name in zip(arrays, names, strict=True)
            if array is not None and name != "i0"]
    x = np.asarray(arrays[0])
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], domain="com.microsoft", **attributes)], "g",
        [helper.make_tensor_value_info("i0", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [onnx.ValueInfoProto(name="y")], held)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    (y,) = ngraph_mxnet.compile(helper.make_model(graph, opset_imports=opsets), backend)(x)
    return y


def scale(number: float) -> np.ndarray:
    return np.array(number, np.float32)


def drawn(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    info = np.iinfo(dtype)
    return RANDOM.integers(info.min, info.max + 1, shape).astype(dtype)


def real(x: np.ndarray, factor: Any, zero: Any = 0) -> np.ndarray:
    return (x.astype(np.float64) - np.asarray(zero, np.float64)) * np.asarray(factor, np.float64)


def assert_quantized(found: np.ndarray, wanted: np.ndarray, factor: float, zero: int) -> None:
    """To within one where the quotient is near a half."""
    info = np.iinfo(found.dtype)
    exact = np.clip(wanted / factor + zero, info.min, info.max)
    assert np.abs(found - exact).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_arithmetic(backend: str, dtype: type) -> None:
    a, c = drawn(2, 3, 5, dtype=dtype), drawn(3, 5, dtype=dtype)
    zeros = [dtype(number) for number in (3, 100, 7)]
    for op, combine, step in (("QLinearAdd", np.add, 0.25), ("QLinearMul", np.multiply, 2.5)):
        y = run(backend, op, [a, scale(0.1), zeros[0], c, scale(0.2), zeros[1], scale(step), zeros[2]])
        assert y.dtype == dtype
        assert_quantized(y, combine(real(a, 0.1, 3), real(c, 0.2, 100)), step, 7)


@pytest.mark.parametrize("backend", BACKENDS)
def test_functions(backend: str) -> None:
    x = drawn(3, 20)
    given = [x, scale(0.05), np.uint8(128)]
    values = real(x, 0.05, 128)
    y = run(backend, "QLinearSigmoid", [*given, scale(1 / 256), np.uint8(0)])
    assert_quantized(y, 1 / (1 + np.exp(-values)), 1 / 256, 0)
    y = run(backend, "QLinearLeakyRelu", [*given, scale(0.05), np.uint8(20)], alpha=0.2)
    assert_quantized(y, np.where(values < 0, 0.2 * values, values), 0.05, 20)
    y = run(backend, "QLinearSoftmax", [*given, scale(1 / 256), np.uint8(0)], axis=-1, opset=13)
    powers = np.exp(values)
    assert_quantized(y, powers / powers.sum(-1, keepdims=True), 1 / 256, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_concat(backend: str) -> None:
    # Its first input is the result's scale, so that is the model's input here.
    a, c = drawn(2, 3), drawn(2, 5)
    y = run(backend, "QLinearConcat", [scale(0.1), np.uint8(4), a, scale(0.1), np.uint8(4), c, scale(0.3), np.uint8(9)],
            axis=1)
    assert_quantized(y, np.concatenate([real(a, 0.1, 4), real(c, 0.3, 9)], 1), 0.1, 4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("last", [0, 1])
def test_pools(backend: str, last: int) -> None:
    x = drawn(2, 3, 6, 4)
    given = [np.moveaxis(x, 1, -1).copy() if last else x, scale(0.1), np.uint8(4), scale(0.08), np.uint8(9)]
    values = real(x, 0.1, 4)
    y = run(backend, "QLinearGlobalAveragePool", given, channels_last=last)
    assert_quantized(np.moveaxis(y, -1, 1) if last else y, values.mean((2, 3), keepdims=True), 0.08, 9)
    y = run(backend, "QLinearAveragePool", given, channels_last=last, kernel_shape=[3, 2], strides=[3, 2])
    blocks = values.reshape(2, 3, 2, 3, 2, 2).mean((3, 5))
    assert_quantized(np.moveaxis(y, -1, 1) if last else y, blocks, 0.08, 9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_products(backend: str) -> None:
    """The integer part is exact for any number of terms."""
    a, c, bias = drawn(4, 5000), drawn(5000, 9, dtype=np.int8), RANDOM.normal(size=9).astype(np.float32)
    steps, zeros = RANDOM.uniform(0.01, 0.02, 9).astype(np.float32), drawn(9, dtype=np.int8)
    y = run(backend, "MatMulIntegerToFloat", [a, c, scale(0.02), steps, np.uint8(77), zeros, bias])
    exact = (a.astype(np.int64) - 77) @ (c.astype(np.int64) - zeros)
    np.testing.assert_allclose(y, exact * 0.02 * steps + bias, rtol=1e-5)
    whole = RANDOM.integers(-500, 500, 9).astype(np.int32)
    y = run(backend, "QGemm", [a, scale(0.02), np.uint8(77), c.T.copy(), steps, zeros, whole], transB=1, alpha=1.5)
    np.testing.assert_allclose(y, (exact + whole) * 1.5 * 0.02 * steps, rtol=1e-5)
    y = run(backend, "QGemm", [a, scale(0.02), np.uint8(77), c, steps, zeros, whole, scale(9.0), np.uint8(128)])
    assert_quantized(y, (exact + whole) * 0.02 * steps, 9.0, 128)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_product_that_quantises_its_operand(backend: str) -> None:
    a, c = RANDOM.normal(size=(4, 70)).astype(np.float32), drawn(70, 9, dtype=np.int8)
    step = (a.max() - a.min()) / np.float32(255)
    zero = np.round(-a.min() / step)
    whole = np.clip(np.round(a / step) + zero, 0, 255)
    y = run(backend, "DynamicQuantizeMatMul", [a, c, scale(0.02)])
    np.testing.assert_allclose(y, (whole - zero) @ c.astype(np.float64) * step * 0.02, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_scales_of_blocks(backend: str) -> None:
    """The operator of the default domain; the last block is cut off."""
    x, steps, zeros = drawn(3, 10, dtype=np.int8), RANDOM.uniform(0.1, 1, (3, 3)).astype(np.float32), \
        drawn(3, 3, dtype=np.int8)
    wide = [np.repeat(part, 4, axis=1)[:, :10] for part in (steps, zeros)]
    wanted = real(x, wide[0], wide[1]).astype(np.float32)
    held = [numpy_helper.from_array(steps, "s"), numpy_helper.from_array(zeros, "z")]
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=1, block_size=4),
             helper.make_node("QuantizeLinear", ["y", "s", "z"], ["again"], axis=1, block_size=4)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", onnx.TensorProto.INT8, x.shape)],
                              [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="again")], held)
    y, again = ngraph_mxnet.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), backend)(x)
    np.testing.assert_allclose(y, wanted, rtol=1e-6)
    np.testing.assert_array_equal(again, x)
