"""Sums of integers at the sizes at which algorithms are chosen: exact, whatever computes them, against int64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import PROGRAMS
from numpy.lib.stride_tricks import sliding_window_view

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.quantisation.byte_fusion import MOST_TERMS
from ngraph_mxnet.targets.cpu.machine.isa import kernels_of
from ngraph_mxnet.targets.cpu.planning.algorithm import Layer, choose_tile

RANGES = ("any", "least", "greatest", "ends")
"""Of the bytes: drawn from all, all the same, or drawn from the two ends."""


def drawn(random: np.random.Generator, element: str, shape: Any, values: str) -> np.ndarray:
    kind = {"u8": np.uint8, "i8": np.int8}[element]
    info = np.iinfo(kind)
    if values == "any":
        return random.integers(info.min, info.max + 1, shape).astype(kind)
    ends = {"least": [info.min], "greatest": [info.max], "ends": [info.min, info.max]}[values]
    return random.choice(ends, shape).astype(kind)


def convolved(data: np.ndarray, weights: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    """The convolution of int64 in two dimensions, of numbers less their zero points."""
    pads = [(0, 0), (0, 0), *zip(attrs["pads_begin"], attrs["pads_end"], strict=True)]
    (down, right), (low, wide) = attrs["strides"], attrs["dilations"]
    span = [(size - 1) * step + 1 for size, step in zip(weights.shape[2:], (low, wide), strict=True)]
    windows = sliding_window_view(np.pad(data, pads), span, axis=(2, 3))[:, :, ::down, ::right, ::low, ::wide]
    groups = attrs["groups"]
    parts = zip(np.split(windows, groups, 1), np.split(weights, groups), strict=True)
    return np.concatenate([np.einsum("nchwkl,ockl->nohw", x, w, optimize=True) for x, w in parts], 1)


def operand(b: Builder, arrays: list[np.ndarray], array: np.ndarray, role: str) -> Value:
    """The array as a constant, a weight, or data."""
    if role == "constant":
        return b.constant(array)
    arrays.append(array)
    element = {np.dtype(np.uint8): "u8", np.dtype(np.int8): "i8"}[array.dtype]
    return b.parameter(f"p{len(arrays)}", array.shape, element, Role.WEIGHT if role == "weight" else Role.INPUT)


def check(b: Builder, result: Value, arrays: list[np.ndarray], wanted: np.ndarray, isa: str, threads: int,
          cast: bool) -> list[str]:
    """The kernels' names. `cast`: the sums are read in float32, and as they are."""
    graph = b.results(b.convert(result, element="f32"), *([] if cast else [result]))
    executable = compile(graph, "CPU", threads=threads, isa=isa)
    found, *whole = executable(*arrays)
    np.testing.assert_array_equal(found, wanted.astype(np.float32))
    for each in whole:
        np.testing.assert_array_equal(each, wanted)
    return [i.name for level in executable.main.levels() for i in level]  # type: ignore[attr-defined]


def check_convolution(seed: int, isa: str, *, shape: tuple[int, ...], outputs: int, kernel: tuple[int, int],
                      roles: tuple[str, str, str] = ("constant", "constant", "constant"),
                      elements: tuple[str, str] = ("u8", "i8"), values: tuple[str, str] = ("any", "any"),
                      zero: int = 0, per_channel: bool = False, threads: int = 1, cast: bool = False,
                      **attrs: Any) -> list[str]:
    """`roles`: of the weights, of the data's zero point, of the weights'. `zero`: the weights' as i8."""
    random, b, arrays = np.random.default_rng(seed), Builder(), []  # type: ignore[var-annotated]
    filled = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (0, 0), "pads_end": (0, 0), "groups": 1, **attrs}
    x = drawn(random, elements[0], shape, values[0])
    w = drawn(random, elements[1], (outputs, shape[1] // filled["groups"], *kernel), values[1])
    data_zero = drawn(random, elements[0], (), "any")
    points = np.full(outputs if per_channel else (), zero + (128 if elements[1] == "u8" else 0), w.dtype)
    if per_channel:
        points[::2] += 1
    operands = [operand(b, arrays, array, role) for array, role in zip((x, w, data_zero, points), ("data", *roles),
                                                                       strict=True)]
    result = b.integer_convolution(*operands, **filled)
    by_filter = points.astype(np.int64).reshape(-1, 1, 1, 1) if per_channel else points.astype(np.int64)
    wanted = convolved(x.astype(np.int64) - data_zero, w.astype(np.int64) - by_filter, filled)
    return check(b, result, arrays, wanted.astype(np.int32), isa, threads, cast)


ROLES = st.tuples(st.sampled_from(["constant", "weight", "data"]), st.sampled_from(["constant", "data"]),
                  st.sampled_from(["constant", "data"]))
ELEMENTS = st.tuples(*[st.sampled_from(["u8", "i8"])] * 2)
VALUES = st.tuples(*[st.sampled_from(RANGES)] * 2)


@pytest.mark.parametrize("isa", PROGRAMS)
@given(data=st.data(), seed=st.integers(0, 999), roles=ROLES, elements=ELEMENTS, values=VALUES,
       zero=st.sampled_from([0, 0, 5, -100]), per_channel=st.booleans(), threads=st.integers(1, 2), cast=st.booleans())
def test_convolutions(isa: str, data: st.DataObject, seed: int, **options: Any) -> None:
    """Dense, grouped, depthwise and pointwise ones, strided and dilated, with padding or without."""
    kind = data.draw(st.sampled_from(["dense", "grouped", "depthwise", "pointwise"]))
    groups = 1 if kind in ("dense", "pointwise") else data.draw(st.sampled_from([2, 3, 16, 20]))
    each = 1 if kind == "depthwise" else data.draw(st.sampled_from([1, 3, 8, 16, 33, 64]))
    per_group = 1 if kind == "depthwise" else data.draw(st.sampled_from([1, 8, 16, 20]))
    kernel = (1, 1) if kind == "pointwise" else data.draw(st.sampled_from([(3, 3), (3, 3), (1, 5), (2, 2), (5, 5)]))
    pairs = {name: tuple(data.draw(st.integers(low, high)) for _ in range(2))
             for name, (low, high) in {"strides": (1, 2), "dilations": (1, 2), "pads_begin": (0, 2),
                                       "pads_end": (0, 2)}.items()}
    size = data.draw(st.integers(9, 14)), data.draw(st.integers(9, 14))
    check_convolution(seed, isa, shape=(data.draw(st.integers(1, 2)), each * groups, *size),
                      outputs=per_group * groups, kernel=kernel, groups=groups, **pairs, **options)


def winograd_size(channels: int, isa: Any, threads: int) -> int:
    """The least image at which the planner takes Winograd's algorithm for real numbers; else 28."""
    return next((size for size in range(4, 64, 2)
                 if choose_tile(Layer(1, channels, channels, size, size), isa, threads)), 28)


@pytest.mark.parametrize("isa", PROGRAMS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("channels", [16, 32, 64, 128])
@pytest.mark.parametrize("operands", ["weights of u8", "weights with the call", "zero point with the call", "plain"])
def test_no_algorithm_that_rounds(isa: str, threads: int, channels: int, operands: str) -> None:
    roles = {"weights with the call": ("data", "constant", "constant"),
             "zero point with the call": ("constant", "data", "constant")}
    elements = ("u8", "u8") if operands == "weights of u8" else ("u8", "i8")
    size = winograd_size(channels, kernels_of(isa), threads)
    names = check_convolution(
        channels, isa, shape=(1, channels, size, size), outputs=channels, kernel=(3, 3), elements=elements,
        roles=roles.get(operands, ("constant", "constant", "constant")), zero=-110 if elements[1] == "u8" else 0,
        threads=threads, pads_begin=(1, 1), pads_end=(1, 1))
    assert not any("winograd" in name for name in names)


@pytest.mark.parametrize("isa", PROGRAMS)
@pytest.mark.parametrize("elements", [("u8", "i8"), ("i8", "u8")])
@pytest.mark.parametrize(("channels", "groups", "kernel"), [
    (514, 1, (1, 1)), (20, 20, (23, 23)), (1, 1, (23, 23)), (40, 1, (5, 5)), (128, 1, (7, 7)), (64, 2, (16, 16)),
    (560, 1, (8, 8)), (1120, 2, (8, 8))])
def test_long_sums(isa: str, elements: tuple[str, str], channels: int, groups: int, kernel: tuple[int, int]) -> None:
    """On either side of what float32 holds with 8, 4, 2 bits and one of the weights, and beyond all."""
    for values in (("greatest", "greatest"), ("greatest", "least"), ("ends", "ends")):
        for role, cast in (("constant", False), ("data", False), ("constant", True)):
            outputs = groups if groups == channels else 3 * groups
            check_convolution(1, isa, shape=(1, channels, *kernel), outputs=outputs, kernel=kernel, groups=groups,
                              cast=cast, elements=elements, values=values, roles=(role, "constant", "constant"),
                              zero=-3 if role == "data" else 0)


def test_more_terms_than_bits_can_help() -> None:
    assert 560 * 64 > MOST_TERMS > 64 * 16 * 16


@pytest.mark.parametrize("isa", PROGRAMS)
@given(depth=st.sampled_from([1, 7, 16, 33, 128, 257, 258, 700, 4113, MOST_TERMS, MOST_TERMS + 1]),
       rows=st.integers(1, 20), columns=st.sampled_from([1, 5, 16, 33]), batch=st.lists(st.integers(1, 3), max_size=1),
       transposed=st.tuples(st.booleans(), st.booleans()), role=st.sampled_from(["constant", "weight", "data"]),
       zero_role=st.sampled_from(["constant", "data"]), elements=ELEMENTS, values=VALUES, per_channel=st.booleans(),
       cast=st.booleans(), seed=st.integers(0, 999))
def test_matrix_products(isa: str, depth: int, rows: int, columns: int, batch: list[int],
                         transposed: tuple[bool, bool], role: str, zero_role: str, elements: tuple[str, str],
                         values: tuple[str, str], per_channel: bool, cast: bool, seed: int) -> None:
    random, b, arrays = np.random.default_rng(seed), Builder(), []  # type: ignore[var-annotated]
    x = drawn(random, elements[0], (*batch, rows, depth), values[0])
    w = drawn(random, elements[1], (depth, columns), values[1])
    x_zero, w_zero = drawn(random, elements[0], (), "any"), drawn(
        random, elements[1], (columns,) if per_channel else (), "any")
    wanted = (x.astype(np.int64) - x_zero) @ (w.astype(np.int64) - w_zero)
    given_ = [array.swapaxes(-1, -2).copy() if turned else array
              for array, turned in zip((x, w), transposed, strict=True)]
    roles = "data", role, zero_role, "constant"
    operands = [operand(b, arrays, array, each) for array, each in zip((*given_, x_zero, w_zero), roles, strict=True)]
    result = b.integer_matmul(*operands, transpose_a=transposed[0], transpose_b=transposed[1])
    check(b, result, arrays, wanted.astype(np.int32), isa, 2, cast)
