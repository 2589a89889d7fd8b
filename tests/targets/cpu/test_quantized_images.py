"""Images in u8: stems of few channels, pools, concatenations, and what scale and shift store."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_quantized_products import ISAS, arrays_of, check, product_operands, quantized, widened

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.passes.quantize_early import quantize_early
from ngraph_mxnet.targets.cpu.planning.layout import plan_gates
from ngraph_mxnet.targets.cpu.planning.quantized import plan_fours, plan_stores


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


@pytest.mark.parametrize("isa", ISAS)
@given(graph=stems(), seed=st.integers(0, 99))
def test_stems(isa: str, graph: Graph, seed: int) -> None:
    few = graph.nodes[-1].inputs[0].shape[1] <= 4
    assert len(plan_fours(graph)) == few
    names = check(graph, isa, seed)
    assert not any("to_blocked" in name for name in names) or not few


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


@pytest.mark.parametrize("isa", ISAS)
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


@pytest.mark.parametrize("isa", ISAS)
@given(st.sampled_from([16, 20, 48]), st.booleans(), st.integers(0, 99))
def test_scale_and_shift_store_bytes(isa: str, channels: int, clamped: bool, seed: int) -> None:
    b = Builder()
    x = b.parameter("x", (2, channels, 5, 6))
    lower = 0.0 if clamped else -np.inf
    scaled = b.scale_shift(x, b.weight("s", (channels,)), b.weight("t", (channels,)), lower=lower)
    graph = b.results(convolved(b, quantized(b, scaled, 0.01), 32))
    assert len(plan_stores(graph, plan_gates(graph))) == 1
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
@pytest.mark.parametrize("isa", ISAS)
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
    y = b.quantized_convolution_add(x, *operands, widened(b, x))
    for isa in ISAS:
        assert not any(name.startswith("dequantize") for name in check(b.results(y), isa))
