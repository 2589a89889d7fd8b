"""Concats of channel blocks: each part is in its place, whoever made it, with the border that readers want."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from bf16_machine import allow_bf16
from hypothesis import given
from hypothesis import strategies as st
from test_quantized_products import ISAS, arrays_of, check, product_operands, quantized, widened

from ngraph_mxnet import _core, compile
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.targets.cpu.machine.isa import supported

Maker = Callable[[Builder, Value], Value]


def weight(b: Builder, *shape: int) -> Value:
    return b.weight(f"w{len(b.graph.parameters)}", shape)


def moved(b: Builder, x: Value) -> Value:
    """Of the same shape, its elements in another order."""
    images, channels, height, width = x.shape
    flat = b.reshape(x, shape=(images, channels, height * width))
    return b.reshape(b.transpose(flat, order=(0, 2, 1)), shape=x.shape)


def by_scale_of_call(b: Builder, x: Value) -> Value:
    """Of u8, by a scale that comes with each call."""
    scale = b.parameter(f"p{len(b.graph.parameters)}", ())
    return b.quantize(x, b.add(b.abs(scale), b.constant(np.float32(0.2))), b.constant(np.uint8(30)))


def product_of_bytes(b: Builder, x: Value) -> Value:
    columns = x.shape[-1]
    return quantized(b, b.quantized_matmul(quantized(b, x), *product_operands(b, (columns, columns), columns)), 50.0)


def convolution_of_bytes(b: Builder, x: Value, pad_value: int = 30) -> Value:
    q = quantized(b, x)
    return quantized(b, b.quantized_convolution(q, *product_operands(b, (16, q.shape[1], 3, 3), 16), pads_begin=(1, 1),
                                                pads_end=(1, 1), pad_value=pad_value), 50.0)


FLOATS: dict[str, Maker] = {
    "parameter": lambda b, x: x,
    "convolution": lambda b, x: b.convolution(x, weight(b, 32, x.shape[1], 1, 1)),
    "padded": lambda b, x: b.convolution(x, weight(b, 16, x.shape[1], 3, 3), pads_begin=(1, 1), pads_end=(1, 1)),
    "pool": lambda b, x: b.avg_pool(x, kernel=(1, 1)),
    "elementwise": lambda b, x: b.tanh(x),
    "of a pool": lambda b, x: b.tanh(b.max_pool(x, kernel=(1, 1))),
    "softmax": lambda b, x: b.softmax(x, axis=-1),
    "matmul": lambda b, x: b.matmul(x, weight(b, x.shape[-1], x.shape[-1])),
    "moved": lambda b, x: moved(b, x),
    "hard swish": lambda b, x: b.hard_swish(b.convolution(x, weight(b, 16, x.shape[1], 1, 1))),
    "scale": lambda b, x: b.scale_shift(x, weight(b, x.shape[1]), weight(b, x.shape[1])),
    "resize": lambda b, x: b.resize(x, sizes=x.shape[2:]),
    "of bytes": lambda b, x: widened(b, quantized(b, x)),
    "of bytes' product": lambda b, x: widened(b, convolution_of_bytes(b, x)),
    "constant": lambda b, x: b.constant(np.arange(np.prod(x.shape)).reshape(x.shape).astype(np.float32)),
}
BYTES: dict[str, Maker] = {
    "quantize": quantized,
    "scale of call": by_scale_of_call,
    "product": product_of_bytes,
    "convolution": convolution_of_bytes,
    "another border": lambda b, x: convolution_of_bytes(b, x, 77),
    "pool": lambda b, x: b.max_pool(quantized(b, x), kernel=(1, 1)),
    "mean": lambda b, x: quantized(b, b.avg_pool(x, kernel=(3, 3), pads_begin=(1, 1), pads_end=(1, 1))),
    "constant": lambda b, x: b.constant((np.arange(np.prod(x.shape)).reshape(x.shape) % 256).astype(np.uint8)),
    "parameter": lambda b, x: b.parameter(f"p{len(b.graph.parameters)}", x.shape, "u8"),
    "moved": lambda b, x: moved(b, quantized(b, x)),
}


def read_floats(b: Builder, c: Value, readers: list[str]) -> list[Value]:
    made = {
        "result": lambda: c,
        "border": lambda: b.convolution(c, weight(b, 16, c.shape[1], 3, 3), pads_begin=(1, 1), pads_end=(1, 1)),
        "wide border": lambda: b.convolution(c, weight(b, 16, c.shape[1], 5, 3), pads_begin=(2, 1), pads_end=(2, 1)),
        "one": lambda: b.convolution(c, weight(b, 16, c.shape[1], 1, 1)),
        "mean": lambda: b.reduce_mean(c, axes=(2, 3)),
        "softmax": lambda: b.softmax(c),
        "bytes": lambda: quantized(b, c),
    }
    return [made[reader]() for reader in readers]


def read_bytes(b: Builder, c: Value, readers: list[str]) -> list[Value]:
    def convolved(pad_value: int) -> Value:
        return b.quantized_convolution(c, *product_operands(b, (16, c.shape[1], 3, 3), 16), pads_begin=(1, 1),
                                       pads_end=(1, 1), pad_value=pad_value)

    made = {
        "result": lambda: c,
        "border": lambda: convolved(30),
        "other border": lambda: convolved(9),
        "zeros": lambda: convolved(0),
        "pool": lambda: b.max_pool(c, kernel=(2, 2)),
        "floats": lambda: b.tanh(widened(b, c)),
    }
    return [made[reader]() for reader in readers]


@st.composite
def joined(draw: st.DrawFn) -> Graph:
    """A concat, or two, of what several makers make; parts have readers of their own, too, with borders or not."""
    b = Builder()
    makers, read, readers = draw(st.sampled_from([
        (FLOATS, read_floats, ["border", "wide border", "one", "result", "mean", "softmax", "bytes"]),
        (BYTES, read_bytes, ["border", "other border", "pool", "zeros", "result", "floats"])]))
    height, width = draw(st.integers(2, 5)), draw(st.integers(2, 5))
    x = b.parameter("x", (draw(st.integers(1, 2)), 16, height, width))
    parts = [makers[kind](b, x) for kind in draw(st.lists(st.sampled_from(sorted(makers)), min_size=1, max_size=4))]
    if draw(st.booleans()):
        parts.append(parts[0])
    alone = draw(st.integers(0, len(parts) - 1))
    results = read(b, parts[alone], draw(st.lists(st.sampled_from(readers[:3]), max_size=2)))
    whole = b.concat(*parts, axis=1)
    if draw(st.booleans()):
        whole = b.concat(parts[0], whole, parts[-1], axis=1)
    found = draw(st.lists(st.sampled_from(readers), min_size=1, max_size=3))
    return b.results(*results, *read(b, whole, found))


@pytest.mark.parametrize("isa", ISAS)
@given(graph=joined(), seed=st.integers(0, 99))
def test_parts_are_where_the_concat_reads_them(isa: str, graph: Graph, seed: int) -> None:
    near(graph, seed, 1e-4, isa=isa)


@given(graph=joined(), seed=st.integers(0, 99))
def test_bf16_beside_bytes(graph: Graph, seed: int) -> None:
    if "avx2" not in supported(_core.cpu_features()):
        pytest.skip("the CPU has no AVX2")
    with pytest.MonkeyPatch.context() as patch:
        allow_bf16(patch)
        near(graph, seed, 5e-2, precision="bf16")


def near(graph: Graph, seed: int, tolerance: float, **options: str) -> None:
    """The CPU gives what the interpreter does, on one thread and on two, in the first call and in the next."""
    arrays = arrays_of(graph, seed, 127)
    wanted = compile(graph.clone(), "INTERPRETER")(*arrays)
    for threads in (1, 2):
        executable = compile(graph.clone(), "CPU", threads=threads, **options)
        for _ in range(2):
            for found, exact in zip(executable(*arrays), wanted, strict=True):
                assert found.dtype == exact.dtype
                off = np.abs(found.astype(np.float64) - exact)
                if exact.dtype == np.uint8:  # one apart where a rounding decides; what is rounded is of bf16 here
                    assert off.max(initial=0) <= 1 if tolerance < 1e-3 else (off > 2).mean() < 0.2
                else:
                    assert np.linalg.norm(off) <= tolerance * max(float(np.linalg.norm(exact)), 1e-3) + 4e-2 * len(off)


def test_who_reads_a_part_waits_for_the_border_of_the_whole() -> None:
    b = Builder()
    q = quantized(b, b.parameter("x", (1, 16, 6, 6)))
    y = quantized(b, b.quantized_convolution(q, *product_operands(b, (16, 16, 3, 3), 16), pads_begin=(1, 1),
                                             pads_end=(1, 1), pad_value=30))
    inner = b.concat(q, y, axis=1)
    z = quantized(b, b.quantized_convolution(inner, *product_operands(b, (16, 32, 3, 3), 16), pads_begin=(1, 1),
                                             pads_end=(1, 1), pad_value=30))
    graph = b.results(b.concat(inner, z, axis=1))
    levels = [[i.name for i in level] for level in compile(graph.clone(), "CPU").main.levels()]
    filled = next(place for place, names in enumerate(levels) if "fill_halo" in names)
    assert filled < next(place for place, names in enumerate(levels) if any("contraction" in name for name in names))
    assert sum(names.count("fill_halo") for names in levels) == 1
    for isa in ISAS:
        check(graph.clone(), isa)


def test_what_was_plain_is_made_in_its_place() -> None:
    """One conversion, and no copy behind it."""
    b = Builder()
    x = b.parameter("x", (1, 16, 6, 6))
    graph = b.results(b.convolution(b.concat(x, b.max_pool(x, kernel=(1, 1)), axis=1), weight(b, 16, 32, 1, 1)))
    names = [i.name for level in compile(graph, "CPU").main.levels() for i in level]
    assert names.count("to_blocked") == 1 and not any(name.startswith("copy") for name in names), names
