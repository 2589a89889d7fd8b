"""Gradients through `quantize` and `dequantize`: as if nothing were rounded, and 0 where numbers saturate."""

from __future__ import annotations

import numpy as np
import pytest

from ngraph_mxnet.autodiff import differentiate
from ngraph_mxnet.autodiff.reverse import described
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, all_ops
from ngraph_mxnet.program.compile import compile as compile_graph

SHAPE = (2, 3, 4, 6)


def there_and_back(element: str, channels: int = 0, move: str = "") -> Graph:
    """x -> integers, moved perhaps -> y."""
    b = Builder()
    vector = (channels,) if channels else ()
    x, scale = b.parameter("x", SHAPE), b.parameter("scale", vector)
    zero_point = b.parameter("zero_point", vector, element)
    q = b.quantize(x, scale, zero_point)
    if move == "transpose":
        q = b.transpose(q, order=(0, 1, 3, 2))
    elif move == "concat":
        q = b.concat(q, b.slice(q, begin=(0, 0, 1, 0), end=(2, 3, 3, 6)), axis=2)
    elif move == "none of it":
        q = b.slice(q, begin=(0, 0, 1, 0), end=(2, 3, 1, 6))
    elif move == "max_pool":
        q = b.max_pool(q, kernel=(2, 2), strides=(2, 2))
    return b.results(b.dequantize(q, scale, zero_point))


def drawn(element: str, channels: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (channels,) if channels else ()
    scale = np.asarray(rng.uniform(0.005, 0.02, shape), np.float32)
    low, high = (50, 200) if element == "u8" else (-60, 60)
    zero_point = np.asarray(rng.integers(low, high, shape), "uint8" if element == "u8" else "int8")
    return [rng.standard_normal(SHAPE).astype(np.float32), scale, zero_point]


@pytest.mark.parametrize("backend", ["INTERPRETER", "CPU"])
@pytest.mark.parametrize("channels", [0, 3])
@pytest.mark.parametrize("element", ["u8", "i8"])
def test_gradients_by_data_and_scale(element: str, channels: int, backend: str) -> None:
    """By the scale: that of round(x / s) s where it is held constant how x / s is rounded, and of the end it saturates
    to (Esser et al., Learned Step Size Quantization, equation 3)."""
    x, scale, zero_point = drawn(element, channels, 1)
    head = np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32)
    joint = differentiate(there_and_back(element, channels), ["x", "scale"])
    y, by_x, by_scale = compile_graph(joint.graph, backend)(x, scale, zero_point, head)
    wide = scale.reshape(-1, 1, 1) if channels else scale
    zero = zero_point.astype(np.float32).reshape(-1, 1, 1) if channels else np.float32(zero_point)
    bounds = np.iinfo(zero_point.dtype)
    inside = (x / wide >= bounds.min - zero) & (x / wide <= bounds.max - zero)
    assert 0.1 < inside.mean() < 0.95
    np.testing.assert_allclose(by_x, head * inside, rtol=1e-5, atol=1e-6)
    each = head * (y / wide - np.where(inside, x / wide, 0))
    np.testing.assert_allclose(by_scale, each.sum((0, 2, 3) if channels else None), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("move", ["transpose", "concat", "none of it", "max_pool"])
def test_integers_that_are_moved_carry_gradients(move: str) -> None:
    """They are those of the same moves of floats, where no number saturates."""
    x, _, zero_point = drawn("u8", 0, 3)
    scale, zero_point = np.float32(0.05), np.uint8(128)
    rounded = (np.rint(x / scale) * scale).astype(np.float32)
    assert np.abs(rounded / scale).max() < 127
    graph = there_and_back("u8", move=move)
    joint = differentiate(graph, ["x"])
    head = np.random.default_rng(4).standard_normal(graph.results[0].shape).astype(np.float32)
    (found,) = compile_graph(joint.graph, "INTERPRETER")(x, scale, zero_point, head)[1:]
    plain = there_and_back("u8", move=move)
    source = next(node for node in plain.nodes if node.op.name == "quantize")
    b = Builder()
    moved = b.parameter("x", SHAPE)
    values = {source.outputs[0]: moved}
    for node in plain.nodes[plain.nodes.index(source) + 1:-1]:
        values[node.outputs[0]] = b.apply(node.op.name, *(values[value] for value in node.inputs), **node.attrs)
    wanted = differentiate(b.results(values[plain.nodes[-1].inputs[0]]), ["x"])
    (expected,) = compile_graph(wanted.graph, "INTERPRETER")(rounded, head)[1:]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_other_readers_of_the_integers_are_refused() -> None:
    b = Builder()
    x, scale, zero_point = b.parameter("x", (4,)), b.parameter("scale", ()), b.parameter("zero", (), "u8")
    q = b.quantize(x, scale, zero_point)
    wide = b.convert(b.convert(q, element="i32"), element="f32")
    graph = b.results(wide, b.dequantize(q, scale, zero_point))
    with pytest.raises(UnsupportedError, match=r"(?s)convert.*integers that `quantize` made.*from `dequantize` only"):
        differentiate(graph, ["x"])
    assert differentiate(graph, ["x"], heads=[1]).gradients[0].type == x.type
    compared = b.results(b.dequantize(q, scale, zero_point), b.equal(q, q))
    differentiate(compared, ["x"])


def test_it_is_said_where_the_adjoint_is() -> None:
    assert described(all_ops()["quantize"]) == "in ngraph_mxnet.autodiff.images"
    assert "passes make it" in described(all_ops()["quantized_matmul"])
