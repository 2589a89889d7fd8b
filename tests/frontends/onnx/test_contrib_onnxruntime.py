"""Operators of `com.microsoft` give what ONNX Runtime gives, which alone defines them."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

pytest.importorskip("onnxruntime", reason="onnxruntime of the extra bench is not installed")

from one_node import BACKENDS, assert_same, of_one_node, theirs

import ngraph_mxnet
from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx.rules import contrib


def normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("op", "bias"), [("Gelu", False), ("BiasGelu", True), ("FastGelu", False), ("FastGelu", True),
                                          ("QuickGelu", False)])
def test_activations(op: str, bias: bool) -> None:
    random = np.random.default_rng(1)
    attributes = {"alpha": 1.3} if op == "QuickGelu" else {}
    assert_same(op, [3 * normal(random, 2, 3, 8), *([normal(random, 8)] if bias else [])], **attributes)


@given(last=st.tuples(st.booleans(), st.booleans()), batch=st.tuples(st.booleans(), st.booleans()),
       axes=st.integers(1, 2), alpha=st.sampled_from([1.0, 0.25]), seed=st.integers(0, 99))
def test_products_of_transposed_tensors(last: tuple[bool, bool], batch: tuple[bool, bool], axes: int, alpha: float,
                                        seed: int) -> None:
    random, sides = np.random.default_rng(seed), []
    for (rows, columns), turned, first in zip(((4, 5), (5, 6)), last, batch, strict=True):
        rows, columns = (columns, rows) if turned else (rows, columns)
        sides.append(normal(random, *((rows, *(2, 3)[:axes]) if first else (*(2, 3)[:axes], rows)), columns))
    assert_same("FusedMatMul", sides, alpha=alpha, transA=last[0], transB=last[1], transBatchA=batch[0],
                transBatchB=batch[1])


def test_products_of_matrices_and_vectors() -> None:
    random = np.random.default_rng(2)
    assert_same("FusedMatMul", [normal(random, 5, 4), normal(random, 6, 5)], transA=1, transB=1)
    assert_same("FusedMatMul", [normal(random, 5), normal(random, 5, 4)], alpha=2.0)
    proto, _ = of_one_node("FusedMatMul", [normal(random, 5, 4), normal(random, 5, 4)], transBatchA=1)
    with pytest.raises(ModelError, match="expected rank 3 or more with transBatchA"):
        ngraph_mxnet.compile(proto, "INTERPRETER")


ACTIVATIONS: dict[str, list[float]] = {"": [], "Relu": [], "Sigmoid": [], "Tanh": [], "LeakyRelu": [0.2],
                                       "Clip": [-0.5, 0.75], "HardSigmoid": [0.3, 0.4]}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("added", [False, True])
def test_convolutions_with_an_activation(name: str, added: bool) -> None:
    random = np.random.default_rng(3)
    arrays = [normal(random, 2, 4, 6, 5), normal(random, 8, 2, 3, 3), normal(random, 8)]
    words: dict[str, Any] = {"activation": name} if name else {}
    if ACTIVATIONS[name]:
        words["activation_params"] = ACTIVATIONS[name]
    if added:
        arrays.append(normal(random, 2, 8, 3, 3))
    assert_same("FusedConv", arrays, held=(1, 2), group=2, strides=[2, 2], pads=[1, 1, 1, 1], **words)


@pytest.mark.parametrize("name", ["Relu", "Sigmoid", "Tanh", "LeakyRelu"])
def test_gemm_with_an_activation(name: str) -> None:
    random = np.random.default_rng(4)
    words = {"activation_alpha": 0.2} if name == "LeakyRelu" else {}
    for bias in (normal(random, 6), normal(random, 4, 1), None):
        assert_same("FusedGemm", [normal(random, 5, 4), normal(random, 6, 5), bias], activation=name, transA=1,
                    transB=1, alpha=0.5, beta=2.0, **words)
    proto, _ = of_one_node("FusedGemm", [normal(random, 5, 4), normal(random, 4, 5)], activation="Swish")
    with pytest.raises(UnsupportedError, match="activation Swish of 0 parameters; supported: Relu"):
        ngraph_mxnet.compile(proto, "INTERPRETER")


@pytest.mark.parametrize("shape", [(2, 3, 16), (1, 3, 16), (3, 16)])
@pytest.mark.parametrize(("beta", "bias"), [(True, True), (True, False), (False, False)])
def test_sums_that_are_normalised(shape: tuple[int, ...], beta: bool, bias: bool) -> None:
    random = np.random.default_rng(5)
    x, skip, gamma, shift, more = (normal(random, *dims) for dims in ((2, 3, 16), shape, (16,), (16,), (16,)))
    arrays = [x, skip, gamma, shift if beta else None, more if bias else None]
    for outputs in (("y",), ("y", "", "", "sum")):
        assert_same("SkipLayerNormalization", arrays, outputs=outputs, epsilon=1e-5)
        assert_same("SkipSimplifiedLayerNormalization", [x, skip, gamma, arrays[4]], outputs=outputs)
    assert_same("SimplifiedLayerNormalization", [x, gamma], domain="", axis=-1, epsilon=1e-3)


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_embeddings(segments: bool, masked: bool) -> None:
    random = np.random.default_rng(6)
    ids, kinds, mask = (random.integers(0, most, (2, 5)).astype(np.int32) for most in (20, 3, 2))
    places = random.permutation(np.arange(10, dtype=np.int32)).reshape(2, 5)
    tables = [normal(random, 20, 8), normal(random, 12, 8), normal(random, 3, 8) if segments else None]
    arrays = [ids, kinds if segments else None, *tables, normal(random, 8), normal(random, 8)]
    assert_same("EmbedLayerNormalization", [*arrays, mask if masked else None], outputs=("y", "m", "sum"),
                held=(2, 3, 4, 5, 6))
    assert_same("EmbedLayerNormalization", [*arrays, mask if masked else None, places], outputs=("y", "m"),
                held=(2, 3, 4, 5, 6))


# ---- quantised -----------------------------------------------------------------------------------------------


@given(bits=st.sampled_from([2, 4, 8]), rows=st.integers(1, 70), columns=st.integers(1, 9),
       block=st.sampled_from([16, 32]), zeros=st.sampled_from(["none", "packed", "float"]), bias=st.booleans(),
       seed=st.integers(0, 99))
def test_weights_of_few_bits(bits: int, rows: int, columns: int, block: int, zeros: str, bias: bool,
                             seed: int) -> None:
    assume(bits < 8 or zeros != "float")  # which ONNX Runtime refuses
    random, blocks = np.random.default_rng(seed), -(-rows // block)
    packed = random.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8)
    scales = random.uniform(0.01, 0.1, columns * blocks).astype(np.float32)
    zero = {"none": None, "packed": random.integers(0, 256, columns * -(-blocks * bits // 8)).astype(np.uint8),
            "float": random.uniform(0, 1 << bits, columns * blocks).astype(np.float32)}[zeros]
    arrays = [normal(random, 2, 3, rows), packed, scales, zero, None, normal(random, columns) if bias else None]
    assert_same("MatMulNBits", arrays, held=(1, 2, 3, 5), K=rows, N=columns, bits=bits, block_size=block, atol=1e-3)


def rounded(x: np.ndarray) -> np.ndarray:
    """As `DynamicQuantizeLinear` and back."""
    x = x.astype(np.float32)
    least, most = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    step = (most - least) / np.float32(255) or np.float32(1)
    zero = np.round(-least / step)
    return (np.clip(np.round(x / step) + zero, 0, 255) - zero) * np.float64(step)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(arrays: list[np.ndarray | None], backwards: bool, direction: int, *, state: Any) -> list[np.ndarray]:
    """One direction in float64; `state` is what happens to the state before its product."""
    x, w, r, bias, _, hidden, cell, peephole, *parameters = arrays
    weights = []
    for array, scale, zero in ((w, *parameters[:2]), (r, *parameters[2:])):
        weights.append((array[direction].astype(np.float64) - zero[direction]) * scale[direction])
    units = r.shape[1]
    before = np.zeros(4 * units) if bias is None else bias[direction].reshape(2, -1).sum(0)
    into, out, forget = np.zeros((3, units)) if peephole is None else peephole[direction].reshape(3, units)
    h, c = (np.zeros((x.shape[1], units)) if each is None else each[direction] for each in (hidden, cell))
    rows, data = [], rounded(x)
    for step in data[::-1] if backwards else data:
        gates = np.split(step @ weights[0] + state(h) @ weights[1] + before, 4, axis=1)
        c_next = sigmoid(gates[2] + forget * c) * c + sigmoid(gates[0] + into * c) * np.tanh(gates[3])
        h, c = sigmoid(gates[1] + out * c_next) * np.tanh(c_next), c_next
        rows.append(h)
    return [np.stack(rows[::-1] if backwards else rows), h, c]


def lstm_arrays(random: np.random.Generator, steps: int, batch: int, size: int, units: int, count: int, dtype: Any,
                columns: bool, optional: int) -> list[np.ndarray | None]:
    """`optional`: with biases from 1 on, states from 2 on, peepholes from 3 on."""
    info, shape = np.iinfo(dtype), (count, 4 * units) if columns else (count,)
    w, r = (random.integers(info.min, info.max + 1, (count, rows, 4 * units)).astype(dtype) for rows in (size, units))
    parameters = []
    for _ in range(2):
        centre = (info.max + info.min + 1) // 2 + (0 if columns else random.integers(-4, 5, shape))
        parameters += [random.uniform(0.002, 0.006, shape).astype(np.float32), np.full(shape, centre).astype(dtype)]
    bias, hidden, cell, peephole = (normal(random, count, *dims) for dims in
                                    ((8 * units,), (batch, units), (batch, units), (3 * units,)))
    return [normal(random, steps, batch, size), w, r, bias if optional else None, None,
            hidden if optional > 1 else None, cell if optional > 1 else None, peephole if optional > 2 else None,
            *parameters]


@pytest.mark.parametrize("most", [contrib.MOST_ROUNDED_STEPS, 0])
@given(steps=st.integers(1, 6), batch=st.integers(1, 3), size=st.integers(1, 9), units=st.integers(1, 12),
       direction=st.sampled_from(["forward", "reverse", "bidirectional"]), dtype=st.sampled_from([np.int8, np.uint8]),
       columns=st.booleans(), optional=st.integers(0, 3), seed=st.integers(0, 99))
def test_lstm_of_8_bit_weights(most: int, steps: int, batch: int, size: int, units: int, direction: str, dtype: Any,
                               columns: bool, optional: int, seed: int) -> None:
    """To a step of the 8 bits, where the state is near the middle of two; beyond the bound, where it is not rounded,
    without that."""
    random, count = np.random.default_rng(seed), 2 if direction == "bidirectional" else 1
    arrays = lstm_arrays(random, steps, batch, size, units, count, dtype, columns, optional)
    proto, feeds = of_one_node("DynamicQuantizeLSTM", arrays, ("Y", "Yh", "Yc"), (1, 2, 8, 9, 10, 11),
                               direction=direction, hidden_size=units)
    with mock.patch.object(contrib, "MOST_ROUNDED_STEPS", most):
        found = [ngraph_mxnet.compile(proto, backend)(feeds) for backend in BACKENDS]
    reference = theirs(proto, feeds)
    for number in range(count):
        backwards = direction == "reverse" or number == 1
        coarse, exact = (lstm(arrays, backwards, number, state=state) for state in (rounded, np.asarray))
        for place, (rough, wanted) in enumerate(zip(coarse, exact, strict=True)):
            part = (slice(None), number) if place == 0 else (number,)
            np.testing.assert_allclose(reference[place][part], rough, rtol=1e-3, atol=2e-3)
            for results in found:
                if most:
                    np.testing.assert_allclose(results[place][part], rough, rtol=1e-3, atol=2e-3)
                else:
                    np.testing.assert_allclose(results[place][part], wanted, rtol=1e-4, atol=1e-5)


def test_lstm_of_some_size() -> None:
    random = np.random.default_rng(9)
    arrays = lstm_arrays(random, 20, 1, 40, 64, 2, np.int8, False, 1)
    assert_same("DynamicQuantizeLSTM", arrays, outputs=("Y", "Yh", "Yc"), held=(1, 2, 8, 9, 10, 11),
                direction="bidirectional", hidden_size=64)


def test_lstm_with_lengths() -> None:
    """To a few steps of the 8 bits: what ONNX Runtime rounds together depends on the lengths, too."""
    random = np.random.default_rng(8)
    w, r = (random.integers(-127, 128, (2, rows, 48)).astype(np.int8) for rows in (8, 12))
    parameters = [np.array([0.003, 0.004], np.float32), np.zeros(2, np.int8)] * 2
    arrays = [normal(random, 5, 3, 8), w, r, normal(random, 2, 96), np.array([5, 2, 3], np.int32), None, None, None,
              *parameters]
    assert_same("DynamicQuantizeLSTM", arrays, outputs=("Y", "Yh", "Yc"), held=(1, 2, 8, 9, 10, 11),
                direction="bidirectional", hidden_size=12, atol=0.02, rtol=0.02)


def test_lstm_of_wrong_scales() -> None:
    arrays = [np.zeros((2, 1, 3), np.float32), np.zeros((1, 3, 8), np.int8), np.zeros((1, 2, 8), np.int8), None, None,
              None, None, None, np.ones(3, np.float32), np.zeros(1, np.int8), np.ones(1, np.float32),
              np.zeros(1, np.int8)]
    proto, _ = of_one_node("DynamicQuantizeLSTM", arrays, hidden_size=2, held=range(1, 12))
    with pytest.raises(ModelError, match=r"scale or zero point f32\[3\] for weights i8\[1,3,8\], expected"):
        ngraph_mxnet.compile(proto, "INTERPRETER")


def test_zeros_are_quantised() -> None:
    """Silence: there is no range to divide by."""
    assert_same("DynamicQuantizeLinear", [np.zeros(3, np.float32)], outputs=("y", "scale", "zero"), domain="")
    assert_same("DynamicQuantizeMatMul", [np.zeros((2, 3), np.float32), np.ones((3, 4), np.int8),
                                          np.array(0.1, np.float32)], held=(1, 2))
