"""Quantised models run on products of bytes, and give ONNX's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.frontends.onnx.importer import import_model
from ngraph_mxnet.frontends.onnx.model import read_model
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.targets.cpu.machine.isa import available

BACKENDS = [("INTERPRETER", {}), *(("CPU", {"isa": isa}) for isa in available(_core.cpu_features()))]
TYPES = st.sampled_from([np.uint8, np.int8])
Options = dict[str, str]
Arrays = dict[str, np.ndarray]


def model(nodes: Sequence[onnx.NodeProto], inputs: Arrays, held: Arrays, domain: str = "") -> onnx.ModelProto:
    """Results are y0, y1, ...; as many as there are among the nodes' outputs."""
    given_ = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
              for name, x in inputs.items()]
    results = sorted(name for node in nodes for name in node.output if name.startswith("y"))
    graph = helper.make_graph(nodes, "g", given_, [onnx.ValueInfoProto(name=name) for name in results],
                              [numpy_helper.from_array(np.asarray(x), name) for name, x in held.items()])
    opsets = [helper.make_opsetid("", 21), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets)


def whole(random: np.random.Generator, dtype: Any, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return random.integers(info.min, info.max + 1, shape).astype(dtype)


def kernels(proto: onnx.ModelProto) -> list[str]:
    """Names, in order, of those that the CPU runs."""
    imported = import_model(read_model(proto))
    executable: Any = compile_graph(imported.graph, "CPU", imported.weights)
    return [call.name for level in executable.main.levels() for call in level]


def assert_rounded(found: np.ndarray, sums: np.ndarray, factor: np.ndarray, zero: np.ndarray) -> None:
    """Bit by bit round(float32(sum) * factor) + zero point, saturated, the product being a float32."""
    info = np.iinfo(zero.dtype)
    wanted = np.clip(np.rint(sums.astype(np.float32) * factor.astype(np.float32)) + zero, info.min, info.max)
    np.testing.assert_array_equal(found, wanted.astype(zero.dtype))


def assert_but_for_ties(found: np.ndarray, wanted: np.ndarray) -> None:
    difference = np.abs(found.astype(int) - wanted)
    assert difference.max(initial=0) <= 1 and np.mean(difference > 0) <= 0.02


# ---- operators -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "options"), BACKENDS)
@given(dtype=TYPES, weights=st.sampled_from(["i8", "u8", "u8 of any zero point"]), groups=st.sampled_from([1, 2, 8]),
       channels=st.sampled_from([1, 3, 16]), axes=st.integers(1, 2), pads=st.integers(0, 2), per=st.booleans(),
       biased=st.booleans(), seed=st.integers(0, 999))
def test_convolutions_are_exact(backend: str, options: Options, dtype: Any, weights: str, groups: int, channels: int,
                                axes: int, pads: int, per: bool, biased: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    filters, kernel = groups * 3, (3, 2)[:axes]
    x = whole(random, dtype, 2, groups * channels, *(6, 5)[:axes])
    kind = np.int8 if weights == "i8" else np.uint8
    point = {"i8": 0, "u8": 128, "u8 of any zero point": 117}[weights]
    held = {"xs": np.float32(random.uniform(0.01, 0.1)), "xz": whole(random, dtype)[()],
            "w": whole(random, kind, filters, channels, *kernel),
            "ws": random.uniform(0.001, 0.01, filters if per else ()).astype(np.float32),
            "wz": np.full(filters if per else (), point, kind), "ys": np.float32(random.uniform(0.5, 2)),
            "yz": whole(random, dtype)[()], "b": random.integers(-9999, 9999, filters).astype(np.int32)}
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", *(["b"] if biased else [])]
    attrs = {"pads": [pads] * 2 * axes, "strides": [2] * axes, "group": groups}
    held = {name: held[name] for name in names if name != "x"}
    (found,) = ngraph_mxnet.compile(model([helper.make_node("QLinearConv", names, ["y0"], **attrs)], {"x": x}, held),
                                    backend, **options)(x)
    sums_only = model([helper.make_node("ConvInteger", ["x", "w", "xz", "zero"], ["y0"], **attrs)], {"x": x},
                      {"w": held["w"].astype(np.int8) if kind is np.int8 else held["w"], "xz": held["xz"],
                       "zero": np.full((), point, kind)})
    (sums,) = ReferenceEvaluator(sums_only).run(None, {"x": x})
    (integers,) = ngraph_mxnet.compile(sums_only, backend, **options)(x)
    np.testing.assert_array_equal(integers, sums)
    by_channel = (1, filters, *[1] * axes)
    sums = sums + (held["b"].reshape(by_channel) if biased else 0)
    factor = held["xs"] * held["ws"] / held["ys"]
    assert_rounded(found, sums, factor.reshape(by_channel) if per else factor, held["yz"])


@pytest.mark.parametrize(("backend", "options"), BACKENDS)
@given(dtype=TYPES, weights=st.sampled_from(["i8", "u8", "u8 of any zero point"]),
       batch=st.lists(st.integers(1, 3), max_size=2), rows=st.integers(1, 5),
       depth=st.one_of(st.integers(1, 40), st.sampled_from([700, 5000])), columns=st.integers(1, 20),
       stacked=st.booleans(), seed=st.integers(0, 999))
def test_matrix_products_are_exact(backend: str, options: Options, dtype: Any, weights: str, batch: list[int],
                                   rows: int, depth: int, columns: int, stacked: bool, seed: int) -> None:
    """Sums of any size, of one matrix of weights or one for each of the batch."""
    random = np.random.default_rng(seed)
    kind = np.int8 if weights == "i8" else np.uint8
    zero = kind({"i8": 0, "u8": 128, "u8 of any zero point": 99}[weights])
    a, c = whole(random, dtype, *batch, rows, depth), whole(random, kind, *(batch if stacked else []), depth, columns)
    held = {"c": c, "az": whole(random, dtype)[()], "cz": zero}
    proto = model([helper.make_node("MatMulInteger", ["a", "c", "az", "cz"], ["y0"])], {"a": a}, held)
    (sums,) = ReferenceEvaluator(proto).run(None, {"a": a})
    np.testing.assert_array_equal(ngraph_mxnet.compile(proto, backend, **options)(a)[0], sums)
    if depth > 250 and stacked and batch:
        return  # computed in float32
    held |= {"as": np.float32(0.1), "cs": random.uniform(0.001, 0.01, columns).astype(np.float32),
             "ys": np.float32(random.uniform(0.5, 2)), "yz": whole(random, dtype)[()]}
    names = ["a", "as", "az", "c", "cs", "cz", "ys", "yz"]
    proto = model([helper.make_node("QLinearMatMul", names, ["y0"])], {"a": a}, held)
    (found,) = ngraph_mxnet.compile(proto, backend, **options)(a)
    if backend == "CPU" or depth < 500:
        assert_rounded(found, sums, held["as"] * held["cs"] / held["ys"], held["yz"])
    assert_but_for_ties(found, ReferenceEvaluator(proto).run(None, {"a": a})[0])


@pytest.mark.parametrize(("backend", "options"), BACKENDS)
def test_zero_points_of_rows(backend: str, options: Options) -> None:
    random = np.random.default_rng(0)
    a, c = whole(random, np.uint8, 4, 9), whole(random, np.int8, 9, 5)
    zeros = whole(random, np.uint8, 4), whole(random, np.int8, 5)
    proto = model([helper.make_node("MatMulInteger", ["a", "c", "az", "cz"], ["y0"])], {"a": a, "c": c},
                  {"az": zeros[0], "cz": zeros[1]})
    (found,) = ngraph_mxnet.compile(proto, backend, **options)(a, c)
    np.testing.assert_array_equal(found, (a.astype(int) - zeros[0][:, None]) @ (c.astype(int) - zeros[1]))


def test_a_zero_point_that_comes_with_the_call() -> None:
    """It is part of the bias; padding of it is made in each call."""
    random = np.random.default_rng(0)
    x, w = whole(random, np.int8, 1, 8, 5, 5), whole(random, np.int8, 6, 8, 3, 3)
    for pads in (0, 1):
        proto = model([helper.make_node("ConvInteger", ["x", "w", "z"], ["y0"], pads=[pads] * 4)],
                      {"x": x, "z": np.int8(0)}, {"w": w})
        executable = ngraph_mxnet.compile(proto, "CPU")
        for zero in (np.int8(-7), np.int8(100)):
            np.testing.assert_array_equal(executable(x, zero)[0],
                                          ReferenceEvaluator(proto).run(None, {"x": x, "z": zero})[0])
        assert any("_u8" in name for name in kernels(proto))


@pytest.mark.parametrize(("backend", "options"), BACKENDS[1:])
@pytest.mark.parametrize("kind", ["with the call", "of no two bytes", "in groups"])
def test_quantised_convolutions_that_bytes_cannot_do(backend: str, options: Options, kind: str) -> None:
    """At a size at which real numbers go Winograd's way: the sums are exact all the same."""
    random = np.random.default_rng(0)
    groups, zero = (4, 100) if kind == "in groups" else (1, 0)
    x, w = whole(random, np.uint8, 1, 64, 28, 28), whole(random, np.uint8, 64, 64 // groups, 3, 3)
    w[0, 0, 0, 0] = 255
    attrs = {"pads": [1] * 4, "group": groups}
    held = {"xs": np.float32(0.02), "xz": np.uint8(120), "ws": np.float32(0.003), "wz": np.uint8(zero),
            "ys": np.float32(0.9), "yz": np.uint8(100)}
    data, held = ({"x": x, "w": w}, held) if kind == "with the call" else ({"x": x}, {**held, "w": w})
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    proto = model([helper.make_node("QLinearConv", names, ["y0"], **attrs)], data, held)
    sums = model([helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y0"], **attrs)], {"x": x, "w": w},
                 {"xz": held["xz"], "wz": held["wz"]})
    assert_rounded(ngraph_mxnet.compile(proto, backend, **options)(data)[0],
                   ngraph_mxnet.compile(sums, "INTERPRETER")({"x": x, "w": w})[0],
                   held["xs"] * held["ws"] / held["ys"], held["yz"])


# ---- models --------------------------------------------------------------------------------------------------


class Qdq:
    """A model of `QuantizeLinear` and `DequantizeLinear` around float operators."""

    def __init__(self, dtype: Any, seed: int) -> None:
        self.random, self.dtype = np.random.default_rng(seed), dtype
        self.nodes: list[onnx.NodeProto] = []
        self.held: Arrays = {}

    def add(self, op: str, *inputs: str, name: str = "", **attrs: Any) -> str:
        name = name or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        return name

    def constant(self, array: Any) -> str:
        name = f"c{len(self.held)}"
        self.held[name] = np.asarray(array)
        return name

    def both(self, x: str, scale: float, zero: int) -> str:
        affine = self.constant(np.float32(scale)), self.constant(self.dtype(zero))
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, *affine), *affine)

    def weights(self, shape: Sequence[int], scale: float, bias: float) -> list[str]:
        """With a scale for each filter, and a bias in int32; `bias` is the scale of the data."""
        steps = (scale * self.random.uniform(0.5, 1, shape[0])).astype(np.float32)
        arrays = [(whole(self.random, np.int8, *shape), steps),
                  (self.random.integers(-3000, 3000, shape[0]).astype(np.int32), np.float32(bias) * steps)]
        return [self.add("DequantizeLinear", self.constant(array), self.constant(scales),
                         self.constant(np.zeros(shape[0], array.dtype)), axis=0) for array, scales in arrays]


def residual_block(dtype: Any, channels: int, seed: int, rounded: bool) -> tuple[Qdq, Arrays]:
    """Two convolutions, the sum with what they read, and a depthwise convolution. `rounded`: what is added is quantised
    first."""
    made, size = Qdq(dtype, seed), 6
    middle = -10 if dtype is np.int8 else 118
    x = made.both("x", 0.02, middle)
    y = made.add("Conv", x, *made.weights((channels, channels, 3, 3), 0.001, 0.02), pads=[1] * 4)
    y = made.both(made.add("Relu", y), 0.03, np.iinfo(dtype).min)
    y = made.add("Conv", y, *made.weights((channels, channels, 1, 1), 0.002, 0.03))
    y = made.both(y, 0.03, middle) if rounded else y
    y = made.both(made.add("Relu", made.add("Add", y, x)), 0.025, np.iinfo(dtype).min)
    y = made.both(made.add("Conv", y, *made.weights((channels, 1, 3, 3), 0.004, 0.025), group=channels), 0.02, middle)
    made.add("Identity", y, name="y0")
    return made, {"x": made.random.normal(0, 1, (1, channels, size, size)).astype(np.float32)}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@given(channels=st.sampled_from([3, 16, 32]), rounded=st.booleans(), seed=st.integers(0, 99))
def test_a_residual_block(dtype: Any, channels: int, rounded: bool, seed: int) -> None:
    made, inputs = residual_block(dtype, channels, seed, rounded)
    proto = model(made.nodes, inputs, made.held)
    (wanted,) = ReferenceEvaluator(proto).run(None, inputs)
    for backend, options in BACKENDS:
        (found,) = ngraph_mxnet.compile(proto, backend, **options)(inputs["x"])
        assert_but_for_ties(np.rint(found / np.float32(0.02)), np.rint(wanted / np.float32(0.02)))


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_nothing_is_converted_between_its_convolutions(dtype: Any, rounded: bool) -> None:
    """A sum of two images of bytes is one, too."""
    made, inputs = residual_block(dtype, 32, 0, rounded)
    names = kernels(model(made.nodes, inputs, made.held))
    places = [place for place, name in enumerate(names) if name.startswith("contraction")]
    assert len(places) == 3 + rounded and all(names[place].endswith(("u8", "wide", "short")) for place in places), names
    assert set(names[places[0] : places[-1]]) <= {names[place] for place in places} | {"fill_halo"}, names
    assert len([name for name in names if name.startswith(("quantize", "dequantize"))]) == 2, names


def test_weights_that_the_model_quantises() -> None:
    """They are bytes when it is compiled, however large they are."""
    made = Qdq(np.int8, 0)
    w = made.random.normal(0, 0.02, (512, 1024)).astype(np.float32)
    y = made.both(made.add("MatMul", made.both("x", 0.02, 3), made.both(made.constant(w), 0.001, 0)), 0.05, 1)
    made.add("Identity", y, name="y0")
    x = made.random.normal(0, 1, (4, 512)).astype(np.float32)
    proto = model(made.nodes, {"x": x}, made.held)
    names = kernels(proto)
    assert len(names) <= 5 and sum("contraction" in name for name in names) == 1, names
    (found,), (wanted,) = ngraph_mxnet.compile(proto, "CPU")(x), ReferenceEvaluator(proto).run(None, {"x": x})
    assert_but_for_ties(*(np.rint(y / np.float32(0.05)) for y in (found, wanted)))


def test_a_range_of_sizes() -> None:
    made, inputs = residual_block(np.int8, 32, 0, rounded=True)
    proto = model(made.nodes, inputs, made.held)
    for place, name in ((0, "N"), (2, "H"), (3, "W")):
        proto.graph.input[0].type.tensor_type.shape.dim[place].dim_param = name
    executable = ngraph_mxnet.compile(proto, "CPU", shapes={"x": ("1..4", 32, "H", "W")})
    for shape in ((1, 32, 6, 6), (2, 32, 9, 7), (3, 32, 12, 13)):
        x = made.random.normal(0, 1, shape).astype(np.float32)
        (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
        assert_but_for_ties(*(np.rint(y / np.float32(0.02)) for y in (executable(x)[0], wanted)))


@pytest.mark.parametrize(("backend", "options"), BACKENDS)
@given(dtype=TYPES, groups=st.sampled_from([1, 4, 16]), relu=st.booleans(), seed=st.integers(0, 999))
def test_what_is_quantised_at_once_is_exact(backend: str, options: Options, dtype: Any, groups: int, relu: bool,
                                            seed: int) -> None:
    """The same numbers as those of QLinearConv. (The interpreter computes the model's own, in float32.)"""
    made = Qdq(dtype, seed)
    random = made.random
    x, scales = whole(random, dtype, 1, 16, 5, 6), random.uniform(0.01, 0.9, 2).astype(np.float32)
    zeros = whole(random, dtype, 2)
    pairs = [(made.constant(scale), made.constant(zero)) for scale, zero in zip(scales, zeros, strict=True)]
    weights = made.weights((32, 16 // groups, 3, 3), 0.01, scales[0])
    y = made.add("Conv", made.add("DequantizeLinear", "x", *pairs[0]), *weights, pads=[1] * 4, group=groups)
    made.add("QuantizeLinear", made.add("Relu", y) if relu else y, *pairs[1], name="y0")
    proto = model(made.nodes, {"x": x}, made.held)
    (found,) = ngraph_mxnet.compile(proto, backend, **options)(x)
    if backend == "INTERPRETER":
        assert_but_for_ties(found, ReferenceEvaluator(proto).run(None, {"x": x})[0])
        return
    w, steps, _, bias, _, _ = (made.held[f"c{place}"] for place in range(4, 10))
    sums_only = model([helper.make_node("ConvInteger", ["x", "w", "z"], ["y0"], pads=[1] * 4, group=groups)], {"x": x},
                      {"w": w, "z": zeros[0]})
    sums = ReferenceEvaluator(sums_only).run(None, {"x": x})[0] + bias.reshape(1, -1, 1, 1)
    factor = (scales[0] * steps / scales[1]).reshape(1, -1, 1, 1)
    assert_rounded(found, np.maximum(sums, 0) if relu else sums, factor, zeros[1])
