"""Images in u8: stems of few channels, pools, concatenations, and what scale and shift store."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import PROGRAMS
from test_quantized_products import ISAS, SCALE, ZERO_POINT, arrays_of, check, product_operands, quantized, widened

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.quantisation.byte_products import quantize_early
from ngraph_mxnet.targets.cpu.planning.layout import plan_activations
from ngraph_mxnet.targets.cpu.planning.precision import plan_fours, plan_stores


def convolved(b: Builder, x: Value, outputs: int, kernel: tuple[int, int] = (1, 1), **attrs: object) -> Value:
    groups = int(attrs.get("groups", 1))  # type: ignore[call-overload]
    operands = product_operands(b, (outputs, x.shape[1] // groups, *kernel), outputs)
    return b.quantized_convolution(x, *operands, **attrs)


@st.composite
def stems(draw: st.DrawFn) -> Graph:
    b = Builder()
    channels, batch = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    kernel = (draw(st.integers(1, 7)), draw(st.integers(1, 9)))
    x = quantized(b, b.parameter("x", (batch, channels, draw(st.integers(9, 14)), draw(st.integers(9, 14)))))
    pads = {f"pads_{end}": [draw(st.integers(0, 4)), draw(st.integers(0, 4))] for end in ("begin", "end")}
    return b.results(convolved(b, x, draw(st.sampled_from([1, 16, 40])), kernel, **pads,
                               strides=[draw(st.integers(1, 3)) for _ in range(2)],
                               dilations=[draw(st.sampled_from([1, 1, 2])) if kernel[0] < 5 else 1, 1],
                               pad_value=draw(st.sampled_from([0, 30]))))


@pytest.mark.parametrize("isa", PROGRAMS)
@given(graph=stems(), seed=st.integers(0, 99))
def test_stems(isa: str, graph: Graph, seed: int) -> None:
    few = graph.nodes[-1].inputs[0].shape[1] <= 4
    assert len(plan_fours(graph)) == few
    names = check(graph, isa, seed)
    assert not any("to_blocked" in name for name in names) or not few


@pytest.mark.parametrize("isa", PROGRAMS)
@pytest.mark.parametrize("outputs", [48, 80])
def test_stems_in_parts_of_the_outputs(isa: str, outputs: int) -> None:
    """At sizes of real images a part of the outputs has tiles of its own width, and its weights."""
    b = Builder()
    x = quantized(b, b.parameter("x", (1, 3, 112, 112)))
    check(b.results(convolved(b, x, outputs, (7, 7), strides=[1, 1])), isa)


def test_stems_that_others_read_are_not_in_fours() -> None:
    for other in ("result", "depthwise", "dilated"):
        b = Builder()
        x = quantized(b, b.parameter("x", (1, 3, 9, 9)))
        results = [convolved(b, x, 16, (3, 3))]
        if other == "depthwise":
            results.append(convolved(b, x, 3, (3, 3), groups=3))
        elif other == "dilated":
            results.append(convolved(b, x, 16, (3, 3), dilations=(1, 2)))
        else:
            results.append(x)
        graph = b.results(*results)
        assert not plan_fours(graph)
        check(graph, ISAS[0])


@pytest.mark.parametrize("isa", PROGRAMS)
@given(channels=st.sampled_from([16, 20, 48]), kernel=st.integers(1, 3), stride=st.integers(1, 2),
       pad=st.integers(0, 1), seed=st.integers(0, 99))
def test_max_pools_of_bytes(isa: str, channels: int, kernel: int, stride: int, pad: int, seed: int) -> None:
    b = Builder()
    x = quantized(b, b.parameter("x", (2, channels, 9, 8)))
    pad = min(pad, kernel - 1)
    pooled = b.max_pool(x, kernel=(kernel, kernel), strides=(stride, stride), pads_begin=(pad, pad),
                        pads_end=(pad, pad))
    names = check(b.results(convolved(b, pooled, 32), pooled), isa, seed)
    assert "max_pool_blocked_u8" in names


@st.composite
def windows(draw: st.DrawFn, rank: int, sizes: list[int]) -> dict[str, object]:
    """The attributes of an average pool over images of these sizes."""
    kernel = [draw(st.integers(1, 4)) for _ in range(rank)]
    pads = {f"pads_{end}": [draw(st.integers(0, taps - 1)) for taps in kernel] for end in ("begin", "end")}
    if draw(st.booleans()):  # all of the image
        kernel, pads = list(sizes), {}
    return {"kernel": kernel, "strides": [draw(st.integers(1, 3)) for _ in range(rank)], **pads,
            "include_pad": draw(st.booleans())}


def mean_of(b: Builder, x: Value, window: dict[str, object] | None, keep_dims: bool = True) -> Value:
    """A pool, or the mean of all pixels."""
    if window is None:
        return b.reduce_mean(x, axes=tuple(range(2, x.type.rank)), keep_dims=keep_dims)
    return b.avg_pool(x, **window)


def check_mean(x: Value, make: Callable[[Builder, Value], Value], b: Builder, isa: str,
               stored: tuple[float, int] | None, seed: int) -> list[str]:
    """The kernels' names. In float32 the mean is the interpreter's; as u8 it is one of those next to its mean, for a
    half may fall to either side."""
    scale, zero_point = stored or (1.0, 0)
    mean = make(b, x)
    real = b.results(mean)
    arrays = arrays_of(real, seed, 127)
    (wanted,) = compile(real.clone(), "INTERPRETER")(*arrays)
    graph = b.results(quantized(b, mean, *stored)) if stored else real
    executable = compile(graph, "CPU", threads=2, isa=isa)
    (found,) = executable(*arrays)
    if stored is None:
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5 * max(1e-6, float(np.abs(wanted).max(initial=0))))
    else:
        ideal = np.clip(wanted.astype(np.float64) / scale + zero_point, 0, 255)
        assert found.dtype == np.uint8 and np.abs(found - ideal).max(initial=0) <= 0.5 + 1e-4
    return [i.name for level in executable.main.levels() for i in level]  # type: ignore[attr-defined]


STORED = st.sampled_from([None, (SCALE, ZERO_POINT), (0.31, 0), (1.9, 255)])


@pytest.mark.parametrize("isa", PROGRAMS)
@given(st.data(), st.integers(1, 3), st.sampled_from([1, 16, 20, 48]), STORED, st.booleans(), st.integers(0, 99))
def test_average_pools_of_bytes(isa: str, data: st.DataObject, rank: int, channels: int,
                                stored: tuple[float, int] | None, whole: bool, seed: int) -> None:
    """The producer stores u8; nothing is widened, and nothing narrowed, behind it."""
    b = Builder()
    sizes = [data.draw(st.integers(4, 9)) for _ in range(rank)]
    first = b.parameter("x", (2, channels, *sizes))
    x = b.max_pool(quantized(b, first), kernel=[1] * rank, strides=[1] * rank)
    window = None if whole else data.draw(windows(rank, sizes))
    keep_dims = data.draw(st.booleans())
    names = check_mean(widened(b, x), lambda b, x: mean_of(b, x, window, keep_dims), b, isa, stored, seed)
    assert ("avg_pool_blocked_u8" if stored else "avg_pool_blocked_u8_f32") in names
    assert sum("quantize" in name for name in names) == 1, names


@pytest.mark.parametrize("isa", PROGRAMS)
@given(st.data(), st.sampled_from([16, 20]), STORED.filter(bool), st.booleans(), st.integers(0, 99))
def test_averages_of_real_numbers_store_bytes(isa: str, data: st.DataObject, channels: int, stored: tuple[float, int],
                                              whole: bool, seed: int) -> None:
    b = Builder()
    x = b.max_pool(b.parameter("x", (2, channels, 7, 6)), kernel=(2, 2), strides=(1, 1))
    window = None if whole else data.draw(windows(2, [6, 5]))
    names = check_mean(x, lambda b, x: mean_of(b, x, window), b, isa, stored, seed)
    assert "avg_pool_blocked_f32_u8" in names and not any("quantize" in name for name in names)


@pytest.mark.parametrize("isa", PROGRAMS)
@given(st.data(), st.integers(0, 99))
def test_means_of_whole_numbers_are_rounded_to_even(isa: str, data: st.DataObject, seed: int) -> None:
    """Where the scale is 1, as in MXNet's quantised pools, all is exact: bit by bit the interpreter's."""
    b = Builder()
    x = b.max_pool(quantized(b, b.parameter("x", (2, 20, 7, 6)), 1.0, 30), kernel=(1, 1))
    window = data.draw(st.one_of(st.none(), windows(2, [7, 6])))
    graph = b.results(quantized(b, mean_of(b, widened(b, x, 1.0, 30), window), 1.0, 30))
    arrays = arrays_of(graph, seed, 127)
    (wanted,) = compile(graph.clone(), "INTERPRETER")(*arrays)
    np.testing.assert_array_equal(compile(graph, "CPU", threads=2, isa=isa)(*arrays)[0], wanted)


@pytest.mark.parametrize("isa", PROGRAMS)
@pytest.mark.parametrize("keep_dims", [False, True])
def test_a_global_mean_between_products(isa: str, keep_dims: bool) -> None:
    """From the convolution's u8 to the next product's, which may have a border."""
    b = Builder()
    x = quantized(b, b.parameter("x", (2, 32, 6, 6)))
    q = quantized(b, convolved(b, x, 48), 0.5, 9)
    mean = quantized(b, b.reduce_mean(widened(b, q, 0.5, 9), axes=(2, 3), keep_dims=keep_dims), 0.4, 8)
    if keep_dims:
        last = convolved(b, mean, 16, (3, 3), pads_begin=(1, 1), pads_end=(1, 1), pad_value=8)
    else:
        last = b.quantized_matmul(mean, *product_operands(b, (48, 10), 10))
    graph = b.results(mean, last)
    arrays = arrays_of(graph, 0, 127)
    executable = compile(graph, "CPU", threads=2, isa=isa)
    found = executable(*arrays)
    names = [i.name for level in executable.main.levels() for i in level]
    assert "avg_pool_blocked_u8" in names and sum("quantize" in name for name in names) == 1
    # What follows the mean is exact of the mean that was found.
    parts = Builder()
    product = graph.nodes[-1]
    operands = [parts.parameter(f"p{at}", value.shape, value.type.element.name)
                for at, value in enumerate(product.inputs)]
    behind = parts.results(parts.apply(product.op.name, *operands, **product.attrs))
    known = dict(zip(graph.parameters, arrays, strict=True))
    (wanted,) = compile(behind, "INTERPRETER")(found[0], *(known[value] for value in product.inputs[1:]))
    np.testing.assert_allclose(found[1], wanted, 1e-5, 1e-5 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("isa", PROGRAMS)
@given(st.sampled_from([16, 20, 48]), st.booleans(), st.integers(0, 99))
def test_scale_and_shift_store_bytes(isa: str, channels: int, clamped: bool, seed: int) -> None:
    b = Builder()
    x = b.parameter("x", (2, channels, 5, 6))
    lower = 0.0 if clamped else -np.inf
    scaled = b.scale_shift(x, b.weight("s", (channels,)), b.weight("t", (channels,)), lower=lower)
    graph = b.results(convolved(b, quantized(b, scaled, 0.01), 32))
    assert len(plan_stores(graph, plan_activations(graph))) == 1
    names = check(graph, isa, seed)
    assert "scale_shift_blocked_f32_u8" in names
    assert not any(name.startswith("quantize") for name in names)


def branches(selection: str) -> Graph:
    """Two convolutions whose results are chosen from, then quantised and convolved."""
    b = Builder()
    x = quantized(b, b.parameter("x", (1, 16, 8, 8)))
    parts = [convolved(b, x, outputs, (3, 3), pads_begin=(1, 1), pads_end=(1, 1), pad_value=30) for outputs in (32, 16)]
    joined = b.concat(*parts, axis=1) if selection != "pool" else parts[0]
    if selection != "concat":
        joined = b.max_pool(joined, kernel=(2, 2), strides=(2, 2))
    last = convolved(b, quantized(b, joined, 0.5, 9), 16, (3, 3), pads_begin=(1, 1), pads_end=(1, 1), pad_value=9)
    return b.results(last, *([b.relu(joined)] if selection == "read" else []))


@pytest.mark.parametrize("selection", ["concat", "pool", "both"])
@pytest.mark.parametrize("isa", PROGRAMS)
def test_what_is_chosen_from_is_quantised_before(isa: str, selection: str) -> None:
    """The bits are the same, and each convolution stores its part as u8."""
    graph = branches(selection)
    early = graph.clone()
    assert quantize_early().run(early)
    arrays = arrays_of(graph, 0, 127)
    for backend, options in (("INTERPRETER", {}), ("CPU", {"threads": 2, "isa": isa})):
        (one,), (other,) = (compile(each, backend, **options)(*arrays) for each in (graph, early))
        np.testing.assert_array_equal(one, other)
    names = check(early, isa)
    assert sum(name.startswith("quantize") for name in names) == 1
    assert not any(name.startswith("copy") for name in names)


def test_what_is_read_elsewhere_is_quantised_behind() -> None:
    assert not quantize_early().run(branches("read"))


def test_a_residual_of_bytes_is_not_widened() -> None:
    b = Builder()
    x = quantized(b, b.parameter("x", (1, 32, 6, 6)))
    operands = product_operands(b, (32, 32, 1, 1), 32)
    y = b.quantized_convolution(x, *operands, widened(b, x))
    for isa in ISAS:
        assert not any(name.startswith("dequantize") for name in check(b.results(y), isa))
