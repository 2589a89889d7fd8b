"""Quantised convolutions and matrix products in each instruction set: exact sums, and what is stored as u8."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import PROGRAMS

from ngraph_mxnet import _core, compile
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.targets.cpu.machine.isa import available, has_vnni, kernels_of
from ngraph_mxnet.targets.cpu.planning.layout import plan_activations
from ngraph_mxnet.targets.cpu.planning.precision import Affine, plan_stores

ISAS = available(_core.cpu_features())
SCALE, ZERO_POINT = 0.7, 30


def product_operands(b: Builder, weights: tuple[int, ...], channels: int) -> list[Value]:
    """Weights i8, bias i32, factor and addend."""
    types = [(weights, "i8"), ((channels,), "i32"), ((channels,), "f32"), ((channels,), "f32")]
    return [b.parameter(f"w{len(b.graph.parameters)}", shape, element, Role.WEIGHT) for shape, element in types]


def quantized(b: Builder, x: Value, scale: float = SCALE, zero_point: int = ZERO_POINT) -> Value:
    return b.quantize(x, b.constant(np.float32(scale)), b.constant(np.uint8(zero_point)))


def widened(b: Builder, q: Value, scale: float = SCALE, zero_point: int = ZERO_POINT) -> Value:
    return b.dequantize(q, b.constant(np.float32(scale)), b.constant(np.uint8(zero_point)))


def arrays_of(graph: Graph, seed: int, largest: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)

    def one(value: Value) -> np.ndarray:
        name, shape = value.type.element.name, value.shape
        if name == "f32":
            return rng.normal(0, 0.02 if len(shape) == 1 else 20, shape).astype(np.float32)
        low, high = {"u8": (0, 255), "i8": (-largest, largest), "i32": (-999, 999)}[name]
        return rng.integers(low, high + 1, shape).astype(value.type.element.numpy)

    return [one(value) for value in graph.parameters]


def check(graph: Graph, isa: str, seed: int = 0, largest: int = 127, vnni: bool = True) -> list[str]:
    """Real results equal but for one rounding, u8 equal but where that rounding decides; the kernels' names."""
    arrays = arrays_of(graph, seed, largest)
    executable = compile(graph, "CPU", threads=2, isa=isa)
    for found, wanted in zip(executable(*arrays), compile(graph, "INTERPRETER")(*arrays), strict=True):
        if wanted.dtype == np.uint8:
            assert np.abs(found.astype(int) - wanted.astype(int)).max(initial=0) <= 1
            assert np.mean(found != wanted) <= 0.002
        else:
            np.testing.assert_allclose(found, wanted, 1e-5, 1e-5 * max(1e-6, float(np.abs(wanted).max(initial=0))))
    return [i.name for level in executable.main.levels() for i in level]  # type: ignore[attr-defined]


@st.composite
def convolutions(draw: st.DrawFn, short: bool = False) -> Graph:
    """With or without residual, second output, hard swish and u8 results, in any mixture that occurs."""
    b = Builder()
    kind = draw(st.sampled_from(["dense", "grouped", "depthwise"]))
    groups = {"dense": 1, "grouped": draw(st.sampled_from([2, 4])), "depthwise": draw(st.integers(2, 40))}[kind]
    inputs = 1 if kind == "depthwise" else draw(st.sampled_from([8, 16, 24] if short else [1, 3, 8, 16, 20]))
    outputs = 1 if kind == "depthwise" else draw(st.sampled_from([1, 5, 16, 33]))
    spatial = draw(st.integers(1, 3))
    size = [draw(st.integers(5, 12)) for _ in range(spatial)]
    kernel = [draw(st.integers(1, 3)) for _ in range(spatial)]
    x = b.parameter("x", (draw(st.integers(1, 2)), groups * inputs, *size), "u8")
    if draw(st.booleans()):
        x = quantized(b, widened(b, x, 1.0, 0), 1.5, 3)
    attrs = {"strides": [draw(st.integers(1, 2))] * spatial, "pads_begin": [draw(st.integers(0, 2))] * spatial,
             "pads_end": [draw(st.integers(0, 2))] * spatial, "groups": groups, "short_sums": short,
             "dilations": [draw(st.integers(1, 2)) for _ in range(spatial)],
             "pad_value": draw(st.sampled_from([0, 3, 128])), "lower": draw(st.sampled_from([-np.inf, 0.0]))}
    operands = product_operands(b, (groups * outputs, inputs, *kernel), groups * outputs)
    plain = b.quantized_convolution(x, *operands, **attrs)
    results = [plain]
    residual = draw(st.sampled_from(["none", "real", "u8"]))
    if residual != "none":
        other = b.parameter("r", plain.shape)
        other = widened(b, quantized(b, other)) if residual == "u8" else other
        results = [b.quantized_convolution(x, *operands, other, **attrs)]
        if draw(st.booleans()):
            vectors = [b.weight(name, plain.shape[1:2]) for name in ("s", "t")]
            node = b.node("quantized_convolution", [x, *operands, other, *vectors],
                          {**attrs, "lower2": 0.0})
            results = list(node.outputs)
    elif draw(st.booleans()):
        results = [b.hard_swish(plain, slope=1 / 6, offset=0.5)]
    return b.results(*(quantized(b, value) if draw(st.booleans()) else value for value in results))


@pytest.mark.parametrize("isa", PROGRAMS)
@given(graph=convolutions(), seed=st.integers(0, 99))
def test_convolutions(isa: str, graph: Graph, seed: int) -> None:
    check(graph, isa, seed)


@pytest.mark.parametrize("isa", PROGRAMS)
@given(graph=convolutions(short=True), seed=st.integers(0, 99))
def test_convolutions_of_short_sums(isa: str, graph: Graph, seed: int) -> None:
    """Weights of 32 at most: four add up to 128."""
    check(graph, isa, seed, largest=32)


@pytest.mark.parametrize("isa", PROGRAMS)
@given(st.lists(st.integers(1, 3), max_size=2), st.integers(1, 40), st.integers(1, 70), st.integers(1, 70),
       st.booleans(), st.booleans(), st.booleans(), st.integers(0, 99))
def test_matrix_products(isa: str, batch: list[int], rows: int, depth: int, channels: int, transpose: bool,
                         short: bool, stored: bool, seed: int) -> None:
    b = Builder()
    x = b.parameter("x", (*batch, rows, depth), "u8")
    operands = product_operands(b, (channels, depth) if transpose else (depth, channels), channels)
    y = b.quantized_matmul(x, *operands, transpose_b=transpose, short_sums=short)
    graph = b.results(quantized(b, y) if stored else y)
    check(graph, isa, seed, largest=32 if short else 127)


def extreme(make: Callable[[Builder], Value]) -> tuple[Graph, list[np.ndarray]]:
    """The largest data times the largest weights of one sign, which sums of 16 bits would not hold."""
    b = Builder()
    graph = b.results(make(b))
    fill = {"u8": 255, "i8": -128, "i32": 5, "f32": 1}
    return graph, [np.full(p.shape, fill[p.type.element.name], p.type.element.numpy) for p in graph.parameters]


@pytest.mark.parametrize("isa", PROGRAMS)
def test_the_largest_sums_are_exact(isa: str) -> None:
    def convolution(b: Builder) -> Value:
        return b.quantized_convolution(b.parameter("x", (1, 64, 5, 5), "u8"),
                                       *product_operands(b, (32, 64, 3, 3), 32))

    graph, arrays = extreme(convolution)
    (found,) = compile(graph, "CPU", threads=1, isa=isa)(*arrays)
    total = np.float32(-255 * 128 * 64 * 9 + 5) + np.float32(1)  # beyond 2^24 a float32 is even
    np.testing.assert_array_equal(found, np.full(found.shape, total))


@pytest.mark.parametrize("isa", PROGRAMS)
def test_short_sums_are_exact_up_to_their_bound(isa: str) -> None:
    b = Builder()
    x = b.parameter("x", (1, 16, 3, 3), "u8")
    graph = b.results(b.quantized_convolution(x, *product_operands(b, (16, 16, 1, 1), 16), short_sums=True))
    weights = np.zeros((16, 16, 1, 1), np.int8)
    weights[:, [0, 1, 4, 5]] = np.array([127, 0, 1, 0]).reshape(4, 1, 1)
    weights[8:, [2, 3, 6, 7]] = np.array([-120, -1, -7, 0]).reshape(4, 1, 1)
    ones = np.ones(16, np.float32)
    (found,) = compile(graph, "CPU", threads=1, isa=isa)(np.full(x.shape, 255, np.uint8), weights,
                                                         np.zeros(16, np.int32), ones, 0 * ones)
    assert found[0, :, 0, 0].tolist() == [255 * 128] * 8 + [0] * 8


def bounded(most: float, between: str = "nothing") -> tuple[Graph, list[np.ndarray], np.ndarray]:
    """A product of data that are as large as `most` allows, by weights of which four add up to 258, its arrays and its
    sums. 258 * 127 is the largest that 16 bits hold."""
    b = Builder()
    x = b.parameter("x", (1, 8, 2, 2), "u8")
    one, zero = b.constant(np.float32(1)), b.constant(np.uint8(0))
    first = b.quantized_convolution(x, *product_operands(b, (16, 8, 1, 1), 16), lower=0.0, upper=most)
    q = b.quantize(first, one, zero)
    if between == "max_pool":
        q = b.max_pool(q, kernel=(2, 2), pads_end=(1, 1))
    elif between == "concat":
        q = b.concat(q, q, axis=1)
    elif between == "mean":
        q = b.quantize(b.avg_pool(b.dequantize(q, one, zero), kernel=(2, 2)), one, zero)
    weights = np.zeros((16, q.shape[1], 1, 1), np.int8)
    weights[:8, [0, 1, 4]] = np.array([127, 127, 4]).reshape(3, 1, 1)
    weights[8:, [2, 3, 6]] = np.array([-127, -127, -4]).reshape(3, 1, 1)
    bias, ones, zeros = (b.constant(np.full(16, fill, kind)) for fill, kind in ((0, "i4"), (1, "f4"), (0, "f4")))
    pad = {"pads_begin": (1, 1), "pads_end": (1, 1), "pad_value": 200} if between == "border" else {}
    last = b.quantized_convolution(q, b.constant(weights), bias, ones, zeros, **pad)
    arrays = [np.full(p.shape, {"u8": 255, "i8": 9, "i32": 0, "f32": 1}[p.type.element.name], p.type.element.numpy)
              for p in b.graph.parameters]
    wanted = np.full(last.shape, 258 * np.rint(most))
    wanted[:, 8:] *= -1
    return b.results(last), arrays, wanted


def kernels_of_convolutions(graph: Graph, arrays: list[np.ndarray], wanted: np.ndarray | None, isa: str) -> list[str]:
    executable = compile(graph, "CPU", threads=1, isa=isa)
    (found,) = executable(*arrays)
    if wanted is not None:
        np.testing.assert_array_equal(found, wanted)
    names = (i.name for level in executable.main.levels() for i in level)  # type: ignore[attr-defined]
    return [name for name in names if "contraction" in name]


@pytest.mark.skipif("avx2" not in ISAS, reason="the CPU has no AVX2")
@pytest.mark.parametrize("between", ["nothing", "max_pool", "concat", "mean"])
def test_sums_of_smaller_data_are_short(between: str) -> None:
    """Where nothing is known of the weights but their numbers, and of the data that they are 127 at most."""
    for most, kernel in ((127.0, "short"), (127.25, "short"), (127.5, "wide"), (128.0, "wide")):
        names = kernels_of_convolutions(*bounded(most, between), "avx2")
        assert names[-1].endswith(kernel), (most, names)


@pytest.mark.skipif("avx2" not in ISAS, reason="the CPU has no AVX2")
def test_a_larger_border_counts_as_data() -> None:
    graph, arrays, _ = bounded(127.0, "border")
    assert kernels_of_convolutions(graph, arrays, None, "avx2")[-1].endswith("wide")


def test_which_kernel_multiplies() -> None:
    """Of the fastest instructions that there are: short sums only where they are promised."""
    features = _core.cpu_features()
    for isa in ISAS:
        for short in (False, True):
            b = Builder()
            x = b.parameter("x", (1, 16, 4, 4), "u8")
            graph = b.results(b.quantized_convolution(x, *product_operands(b, (16, 16, 1, 1), 16), short_sums=short))
            (kernel,) = [name for name in check(graph, isa, largest=32) if "contraction" in name]
            vnni = has_vnni(isa, features)
            kernel = kernel.removesuffix("_amx")
            assert kernel.endswith("u8" if vnni else "short" if short and isa == "avx2" else "wide"), (isa, kernel)
            assert {i.kernel.rpartition("__")[2] for i in compile(graph, "CPU", isa=isa).main.instructions} == {
                kernels_of(isa)}


def chain(read_twice: bool = False) -> Graph:
    """Two convolutions with a residual sum, all in u8."""
    b = Builder()
    x = quantized(b, b.parameter("x", (1, 32, 8, 8)))
    first = b.quantized_convolution(x, *product_operands(b, (32, 32, 3, 3), 32), pads_begin=(1, 1), pads_end=(1, 1),
                                    pad_value=ZERO_POINT)
    q = quantized(b, first)
    last = b.quantized_convolution(q, *product_operands(b, (32, 32, 3, 3), 32), widened(b, x), pads_begin=(1, 1),
                                       pads_end=(1, 1), pad_value=ZERO_POINT)
    return b.results(quantized(b, last), *([b.relu(first)] if read_twice else []))


@pytest.mark.parametrize("isa", PROGRAMS)
def test_nothing_is_converted_between_products(isa: str) -> None:
    names = check(chain(), isa)
    assert sum(name.startswith("quantize") for name in names) == 1, names
    assert not [name for name in names if name.startswith("dequantize")], names


def test_what_others_read_is_stored_in_float32_too() -> None:
    graph = chain(read_twice=True)
    assert len(plan_stores(graph, plan_activations(graph))) == len(plan_stores(chain(), {})) - 1
    assert {each for _, each in plan_stores(chain(), {}).values()} == {Affine(float(np.float32(SCALE)), ZERO_POINT)}
    names = check(graph, ISAS[0])
    assert sum(name.startswith("quantize") for name in names) == 2


@pytest.mark.parametrize("isa", PROGRAMS)
def test_calls_give_the_same(isa: str) -> None:
    """The border keeps its value."""
    graph = chain()
    executable = compile(graph, "CPU", threads=2, isa=isa)
    inputs = arrays_of(graph, 0, 127)
    first = executable(*inputs)[0].copy()
    executable(*arrays_of(graph, 1, 127))
    np.testing.assert_array_equal(executable(*inputs)[0], first)


@given(st.sampled_from([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.5, 1.5, 2.5, -0.5, 254.5, 255.5]))
def test_rounding_and_saturation(number: float) -> None:
    for element in ("u8", "i8"):
        b = Builder()
        x = b.parameter("x", (40,))
        zero_point = b.constant(np.array(3, element.replace("u8", "uint8").replace("i8", "int8")))
        graph = b.results(b.quantize(x, b.constant(np.float32(1)), zero_point))
        array = np.full(40, number, np.float32)
        np.testing.assert_array_equal(compile(graph, "CPU")(array)[0], compile(graph, "INTERPRETER")(array)[0])


@pytest.mark.parametrize("isa", PROGRAMS)
@pytest.mark.parametrize("channels", [3, 16])
@pytest.mark.parametrize("pads", [(30, 30, None), (30, None, None), (30, 7, None), (None, 30, 7)])
def test_borders_of_one_image(isa: str, channels: int, pads: tuple[int | None, ...]) -> None:
    """Each reader has the padding that it asks for, or none, also of a part of a concatenation."""
    b = Builder()
    x = quantized(b, b.parameter("x", (1, channels, 6, 6)))
    joined = b.concat(x, quantized(b, b.parameter("y", (1, channels, 6, 6))), axis=1)
    results = []
    for data, pad in zip((x, x, joined), pads, strict=True):
        size = 1 if pad is None else 3
        operands = product_operands(b, (8, data.shape[1], size, size), 8)
        results.append(b.quantized_convolution(data, *operands, pads_begin=[size // 2] * 2, pads_end=[size // 2] * 2,
                                               pad_value=pad or 0))
    check(b.results(*results), isa)
