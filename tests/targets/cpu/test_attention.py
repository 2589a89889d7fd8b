"""Attention on the CPU: blocks of queries, packed keys, heads read where the projections left them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from bf16_machine import amx
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_library import NATIVE_AVX512_BF16
from tile_machine import configured_threads, emulated_tiles, runs_natively

from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.targets.cpu.lower.sequences import FEW, MOST_KEYS, block_of, task_rows

MASKS = ("none", "bool", "lengths", "added")


def heads(b: Builder, name: str, batch: int, length: int, count: int, width: int, order: tuple[int, ...]) -> Value:
    """[batch, count, length, width], a view of the projection of all heads."""
    shape = [0] * 4
    for axis, size in zip(order, (batch, count, length, width), strict=True):
        shape[axis] = size
    return b.transpose(b.parameter(name, tuple(shape)), order=order)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Everything between the projections: masked scores, softmax, values, heads joined again."""
    batch, count = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    queries = draw(st.one_of(st.integers(1, FEW), st.integers(1, 80)))
    keys = draw(st.one_of(st.just(queries), st.integers(1, 300), st.integers(300, 800)))
    depth, width = (draw(st.sampled_from([1, 3, 16, 20, 64])) for _ in range(2))
    orders = st.sampled_from([(0, 2, 1, 3), (1, 2, 0, 3), (0, 1, 2, 3)])
    b = Builder()
    q = heads(b, "q", batch, queries, count, depth, draw(orders))
    k = heads(b, "k", batch, keys, count, depth, draw(orders))
    v = heads(b, "v", batch, keys, count, width, draw(orders))
    scores = b.multiply(b.matmul(q, k, transpose_b=True), b.constant(1 / math.sqrt(depth)))
    mask = draw(st.sampled_from(MASKS))
    if mask == "added":
        shape = draw(st.sampled_from([(batch, 1, 1, keys), (queries, keys), (batch, count, queries, keys)]))
        weights = b.softmax(b.add(scores, b.parameter("mask", shape)))
    elif mask == "none":
        weights = b.softmax(scores)
    else:
        if mask == "bool":  # any pattern; the fill keeps a row without a key defined
            shape = draw(st.sampled_from([(batch, 1, queries, keys), (batch, count, queries, keys), (queries, 1)]))
            kept, fill = b.greater(b.parameter("mask", shape), b.constant(0.0)), -1e4
        else:  # some may be 0
            rng = np.random.default_rng(draw(st.integers(0, 99)))
            lengths = rng.integers(0, keys + 1, (batch, 1, 1, 1)).astype(np.float32)
            kept, fill = b.less(b.constant(np.arange(keys, dtype=np.float32)), b.constant(lengths)), -math.inf
        kept = b.broadcast(kept, shape=scores.shape)
        weights = b.softmax(b.select(kept, scores, b.constant(np.float32(fill))))
        if mask == "lengths" or draw(st.booleans()):
            weights = b.select(kept, weights, b.constant(np.float32(0)))
    result = b.matmul(weights, v)
    if draw(st.booleans()):
        result = b.reshape(b.transpose(result, order=(0, 2, 1, 3)), shape=(batch * queries, count * width))
    return b.results(result)


@pytest.mark.parametrize("codegen", [0, 1])
@settings(max_examples=40)
@given(graph=graphs(), seed=st.integers(0, 99))
def test_agrees_with_the_interpreter(codegen: int, graph: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(p.shape).astype(np.float32) for p in graph.parameters]
    with np.errstate(invalid="ignore"):  # a row without keys: NaN before its weights are zeroed
        (expected,) = compile(graph, "INTERPRETER")(*arrays)
    executable = compile(graph, "CPU", threads=2, codegen=codegen)
    kernels = [i.kernel for level in executable.main.levels() for i in level]  # type: ignore[attr-defined]
    assert sum("attention" in kernel for kernel in kernels) == 1
    (found,) = executable(*arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    (alone,) = compile(graph, "CPU", threads=1, codegen=codegen)(*arrays)
    np.testing.assert_array_equal(found, alone)


@pytest.mark.parametrize("queries", [1, FEW, FEW + 1])
def test_few_queries_read_keys_where_they_lie(queries: int) -> None:
    b = Builder()
    q = b.parameter("q", (6, queries, 5))
    k, v = (b.reshape(heads(b, name, 2, 9, 3, 5, (0, 2, 1, 3)), shape=(6, 9, 5)) for name in "kv")
    executable = compile(b.results(b.matmul(b.softmax(b.matmul(q, k, transpose_b=True)), v)), "CPU")
    levels = executable.main.levels()  # type: ignore[attr-defined]
    kernels = [i.kernel.removeprefix("ng_").partition("__")[0] for level in levels for i in level]
    if queries == 1:  # else queries, whose heads are merged already, are copied
        assert kernels == ["attention_few"]
    assert ("attention_few" in kernels) == (queries <= FEW)
    assert ({"pack_contraction", "attention"} <= set(kernels)) == (queries > FEW)


@pytest.fixture(params=["avx512", "amx"])
def bf16_isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if not NATIVE_AVX512_BF16:
        pytest.skip("the CPU has no AVX512_BF16")
    monkeypatch.setenv("NGRAPH_PRECISION", "bf16")
    with amx(monkeypatch):
        monkeypatch.setenv("NGRAPH_CPU_ISA", request.param)
        yield request.param


@pytest.mark.usefixtures("bf16_isa")
@settings(max_examples=40)
@given(graph=graphs(), seed=st.integers(0, 99))
def test_bf16_is_near(graph: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(p.shape).astype(np.float32) for p in graph.parameters]
    with np.errstate(invalid="ignore"):
        (expected,) = compile(graph, "INTERPRETER")(*arrays)
    (found,) = compile(graph, "CPU", threads=2)(*arrays)
    assert np.linalg.norm(found - expected) <= 1e-2 * np.linalg.norm(expected)
    np.testing.assert_array_equal(found, compile(graph, "CPU", threads=1)(*arrays)[0])


@pytest.mark.parametrize(("depth", "on_avx512", "on_amx"), [
    (64, "attention_bf16", "attention_bf16_amx"), (20, "attention_bf16", "attention_bf16_amx"),
    (40, "attention_bf16", "attention_bf16_amx"), (16, "attention_bf16", "attention_bf16_amx"),
    (2048, "attention_bf16", "attention"), (4096, "attention", "attention"),
])
def test_tiles_are_for_heads_that_fit(bf16_isa: str, depth: int, on_avx512: str, on_amx: str) -> None:
    """Where the CPU has AMX, its other products of bf16 are slower than float32's."""
    b = Builder()
    q, k = (b.parameter(name, (2, 50, depth)) for name in "qk")
    executable = compile(b.results(b.attention(q, k, b.parameter("v", (2, 50, 24)))), "CPU")
    arrays = [np.zeros(value.type.shape, np.float32) for value in executable.inputs]
    with emulated_tiles() as ran:
        executable(*arrays)
        uses_tiles = ran()["tdpbf16ps"] > 0
        assert runs_natively() or not configured_threads()
    levels = executable.main.levels()  # type: ignore[attr-defined]
    kernels = [i.kernel.removeprefix("ng_").partition("__")[0] for level in levels for i in level]
    wanted = on_amx if bf16_isa == "amx" else on_avx512
    assert [kernel for kernel in kernels if "attention" in kernel] == [wanted]
    assert runs_natively() or uses_tiles == (wanted == "attention_bf16_amx")


def encoder(length: int, units: int, count: int) -> Graph:
    """Two layers as BERT has them."""
    b = Builder()
    x = b.parameter("x", (length, units))

    def dense(data: Value, outputs: int) -> Value:
        w = b.weight(f"w{len(b.graph.parameters)}", (outputs, data.shape[-1]))
        return b.matmul(data, w, transpose_b=True)

    def normed(data: Value) -> Value:
        return b.layer_norm(data, *(b.constant(np.full(units, number, np.float32)) for number in (1, 0)))

    for _ in range(2):
        q, k, v = (b.transpose(b.reshape(dense(x, units), shape=(length, count, units // count)), order=(1, 0, 2))
                   for _ in range(3))
        scores = b.multiply(b.matmul(q, k, transpose_b=True), b.constant((units / count) ** -0.5))
        context = b.transpose(b.matmul(b.softmax(scores), v), order=(1, 0, 2))
        x = normed(b.add(x, dense(b.reshape(context, shape=(length, units)), units)))
        x = normed(b.add(x, dense(b.gelu(dense(x, 4 * units)), units)))
    return b.results(x)


def test_an_encoder_in_bf16_is_as_near_as_its_dense_layers_allow(bf16_isa: str) -> None:
    """Of 12 layers the norm of what is off is 4.1e-3 of the result's, with attention in float32 too."""
    graph, rng = encoder(70, 128, 2), np.random.default_rng(0)
    arrays = [rng.standard_normal(p.shape).astype(np.float32) * (1 if p.name == "x" else p.shape[-1] ** -0.5)
              for p in graph.parameters]
    (expected,) = compile(graph, "INTERPRETER")(*arrays)
    executable = compile(graph, "CPU", threads=2)
    kernels = [i.kernel for level in executable.main.levels() for i in level]  # type: ignore[attr-defined]
    assert sum("attention_bf16" in kernel for kernel in kernels) == 2
    (found,) = executable(*arrays)
    assert np.linalg.norm(found - expected) <= 6e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize(("tiled", "row_unit", "key_unit"), [(False, 6, 16), (True, 16, 32)])
@given(st.integers(1, 10**4), st.integers(1, MOST_KEYS), st.integers(1, 1024))
def test_scores_of_a_task_fit_its_stack(tiled: bool, row_unit: int, key_unit: int, queries: int, keys: int,
                                        width: int) -> None:
    assert min(task_rows(queries, keys), -(-queries // 6) * 6) * -(-keys // 16) * 16 <= 12_288
    rows, key_rows = block_of(queries, keys, width, tiled=tiled)
    assert rows % row_unit == 0
    assert key_rows % key_unit == 0
    assert rows * key_rows <= 12_288
    assert rows * -(-width // 16) * 16 <= 16_384
    assert rows <= 96
    assert key_rows <= 1024


def test_more_keys_stay_apart() -> None:
    b = Builder()
    q, k, v = (b.parameter(name, (1, n, 8)) for name, n in (("q", 7), ("k", MOST_KEYS + 1), ("v", MOST_KEYS + 1)))
    executable = compile(b.results(b.matmul(b.softmax(b.matmul(q, k, transpose_b=True)), v)), "CPU")
    assert not any("attention" in i.kernel for level in executable.main.levels() for i in level)  # type: ignore[attr-defined]


@pytest.mark.parametrize("queries", [1, 7])
def test_most_keys(queries: int) -> None:
    b = Builder()
    q, k, v = (b.parameter(name, (1, n, 8)) for name, n in (("q", queries), ("k", MOST_KEYS), ("v", MOST_KEYS)))
    graph = b.results(b.matmul(b.softmax(b.matmul(q, k, transpose_b=True)), v))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(p.shape).astype(np.float32) for p in graph.parameters]
    expected = compile(graph, "INTERPRETER")(*arrays)[0]
    np.testing.assert_allclose(compile(graph, "CPU")(*arrays)[0], expected, rtol=1e-5, atol=1e-5)
