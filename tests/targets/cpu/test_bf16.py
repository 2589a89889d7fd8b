"""bf16 in whole graphs: close to float32, stored where it may be, and never silently something else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import starmap

import numpy as np
import pytest
from bf16_machine import allow_bf16, amx
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernel_library import NATIVE_AVX512_BF16, widened
from op_records import array_of
from packing_references import round_bf16_reference
from random_graphs import graphs
from test_backend import arrays_for, attention_graphs, convolution_graphs, dense_block

from ngraph_mxnet import _core, compile
from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.ops.recurrent import GATES, gru_cell, lstm_cell
from ngraph_mxnet.passes.pipelines import optimize
from ngraph_mxnet.program.backend import load
from ngraph_mxnet.program.package import Package
from ngraph_mxnet.targets.cpu import options
from ngraph_mxnet.targets.cpu.machine.isa import NEEDS, supported
from ngraph_mxnet.targets.cpu.pipeline import pipeline
from ngraph_mxnet.targets.cpu.planning.precision import plan_narrow, precision_notice

TOLERANCE = 2e-2
HAS_BF16 = dict.fromkeys((*NEEDS["avx512"], "avx512bf16"), True)


@pytest.fixture(params=["avx2", pytest.param("amx", marks=pytest.mark.skipif(
    not NATIVE_AVX512_BF16, reason="the CPU has no AVX512_BF16"))])
def _bf16(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if "avx2" not in supported(_core.cpu_features()):
        pytest.skip("the CPU has no AVX2")
    monkeypatch.setenv("NGRAPH_PRECISION", "bf16")
    if request.param == "amx":
        with amx(monkeypatch):
            yield
    else:
        allow_bf16(monkeypatch)
        yield


def kernels_of(graph: Graph) -> list[str]:
    executable = compile(graph, "CPU", threads=2)
    return [i.kernel for level in executable.main.levels() for i in level]  # type: ignore[attr-defined]


def assert_near(graph: Graph, tolerance: float = TOLERANCE) -> None:
    inputs = arrays_for(graph)
    expected = compile(graph, "INTERPRETER")(*inputs)
    for found, wanted in zip(compile(graph, "CPU", threads=2)(*inputs), expected, strict=True):
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype
        assert np.linalg.norm(found - wanted) <= tolerance * max(np.linalg.norm(wanted), 1e-6)


def residual_block() -> Graph:
    """ResNet's: stem, max pool, two convolutions and a sum, strided shortcut, global pool, classifier."""
    b = Builder()

    def convolve(x: Value, channels: int, size: int, stride: int = 1, groups: int = 1) -> Value:
        name = f"w{len(b.graph.parameters)}"
        w = b.weight(name, (channels, x.shape[1] // groups, size, size))
        pads = (size // 2, size // 2)
        return b.convolution(x, w, strides=(stride, stride), pads_begin=pads, pads_end=pads, groups=groups)

    x = b.relu(convolve(b.parameter("x", (2, 3, 20, 20)), 32, 5, stride=2))
    x = b.max_pool(x, kernel=(3, 3), strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1))
    y = b.relu(b.add(convolve(b.relu(convolve(x, 32, 3)), 32, 1), x))
    y = b.clamp(convolve(y, 32, 3, groups=32), lower=0, upper=6)
    z = b.relu(b.add(convolve(y, 48, 3, stride=2), convolve(y, 48, 1, stride=2)))
    z = b.reshape(b.reduce_mean(z, axes=(2, 3)), shape=(2, 48))
    return b.results(b.softmax(b.matmul(z, b.weight("dense", (10, 48)), transpose_b=True)))


CELLS = {"lstm": lstm_cell, "gru": gru_cell}


def recurrent(cell: str, rows: int, *, training: bool) -> Graph:
    """A layer of three steps."""
    b, units = Builder(), 40
    state = 20 if cell == "projected" else units
    name = {"projected": "lstm", "reset first": "gru"}.get(cell, cell)
    gates = GATES[name] * units
    x, h = b.parameter("x", (3, rows, gates)), b.parameter("h", (rows, state))
    if cell == "reset first":
        shapes = {"w": (2 * units, units), "b": (2 * units,), "own": (units, units), "own_b": (units,)}
        return b.results(*b.node("gru_reset_first", [x, *starmap(b.weight, shapes.items()), h], {}).outputs)
    operands = [x, b.weight("w", (gates, state)), b.weight("b", (gates,)), h]
    if name == "lstm":
        operands.append(b.parameter("c", (rows, units)))
    if state != units:
        operands.append(b.weight("p", (state, units)))
    return b.results(*b.node("rnn_training" if training else "rnn", operands, {"cell": name}).outputs)


def rounded(values: np.ndarray) -> np.ndarray:
    return widened(round_bf16_reference(values))


@pytest.mark.usefixtures("_bf16")
class TestGraphs:
    @pytest.mark.parametrize("graph", [residual_block, dense_block])
    def test_networks(self, graph) -> None:
        assert_near(graph())

    @settings(max_examples=60)
    @given(convolution_graphs())
    def test_convolutions(self, graph: Graph) -> None:
        assert_near(graph)

    @settings(max_examples=20)
    @given(attention_graphs())
    def test_attention(self, graph: Graph) -> None:
        assert_near(graph)

    @pytest.mark.parametrize("transpose", [(False, False), (True, False), (False, True), (True, True)])
    @pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
    def test_matrix_products(self, transpose: tuple[bool, bool], batch: tuple[int, ...]) -> None:
        for m, k, n in ((1, 16, 32), (5, 7, 9), (6, 33, 16), (1, 784, 10), (40, 64, 48)):
            b = Builder()
            a = b.parameter("a", (*batch, k, m) if transpose[0] else (*batch, m, k))
            c = b.parameter("c", (*batch, n, k) if transpose[1] else (*batch, k, n))
            assert_near(b.results(b.matmul(a, c, transpose_a=transpose[0], transpose_b=transpose[1])))

    @settings(max_examples=40)
    @given(graphs(), st.integers(0, 1000))
    def test_random_graphs(self, graph: Graph, seed: int) -> None:
        """Every mixture of readers; jumps (floor, argmax) may turn a rounding into a step."""
        jumps = {"floor", "argmax", "select", "greater"}
        assume(not any(node.op.name in jumps for node in graph.nodes))
        arrays = [array_of(p.type, np.random.default_rng(seed)) for p in graph.parameters]
        expected = compile(graph, "INTERPRETER")(*arrays)
        for found, wanted in zip(compile(graph, "CPU")(*arrays), expected, strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, 5e-2, 5e-2 * max(1.0, float(np.abs(wanted).max(initial=0))))

    def test_calls_give_the_same(self) -> None:
        graph = residual_block()
        executable, one = compile(graph, "CPU", threads=2), compile(graph, "CPU", threads=1)
        inputs = arrays_for(graph)
        first = executable(*inputs)
        executable(*arrays_for(graph, 1))  # the halos stay zero
        for other in (executable, one):
            np.testing.assert_array_equal(other(*inputs)[0], first[0])

    def test_contractions_run_in_bf16_and_nothing_is_converted_between_them(self) -> None:
        kernels = kernels_of(residual_block())
        assert all("_bf16" in kernel for kernel in kernels if "contraction" in kernel)
        assert sum("convert" in kernel for kernel in kernels) == 1  # what the classifier reads, after the mean
        assert any("max_pool_blocked_bf16_" in kernel for kernel in kernels)

    def test_the_option_wins_over_the_environment(self) -> None:
        executable = compile(residual_block(), "CPU", precision="f32")
        kernels = [i.kernel for level in executable.main.levels() for i in level]  # type: ignore[attr-defined]
        assert not any("bf16" in kernel for kernel in kernels)

    @pytest.mark.parametrize("option", ["codegen", pytest.param("autotune", marks=pytest.mark.slow)])
    def test_with_other_modes(self, option: str) -> None:
        for graph in (residual_block(), dense_block()):
            inputs = arrays_for(graph)
            expected = compile(graph, "CPU")(*inputs)
            found = compile(graph, "CPU", **{option: 1})(*inputs)
            for one, other in zip(found, expected, strict=True):
                assert np.linalg.norm(one - other) <= 1e-2 * np.linalg.norm(other)

    def test_products_share_their_operands_copy(self) -> None:
        b = Builder()
        x = b.parameter("x", (2, 5, 40))
        weights = [b.weight(f"w{i}", (16, 40)) for i in range(3)]
        graph = b.results(*(b.matmul(x, w, transpose_b=True) for w in weights))
        assert sum("convert" in kernel for kernel in kernels_of(graph)) == 1
        assert_near(graph)

    @pytest.mark.parametrize("rows", [1, 7, 40])
    @pytest.mark.parametrize("cell", ["lstm", "gru", "tanh", "projected", "reset first"])
    def test_recurrent_layers(self, cell: str, rows: int) -> None:
        """The product of a step rounds the state and the weights; all else is float32."""
        graph = recurrent(cell, rows, training=False)
        kernels = [kernel for kernel in kernels_of(graph) if "contraction" in kernel and "pack" not in kernel]
        assert kernels and all("_bf16" in kernel for kernel in kernels)
        assert_near(graph, 5e-3)
        if cell not in CELLS:
            return
        x, h, weights, bias, *c = arrays = arrays_for(graph)
        weights = rounded(weights)
        for inputs in x:
            h, *c = CELLS[cell].evaluate([inputs, rounded(h) @ weights.T + bias, *(c or [h])], {})
        np.testing.assert_allclose(compile(graph, "CPU")(*arrays)[1], h, 2e-4, 2e-4)

    @pytest.mark.parametrize("cell", ["lstm", "gru"])
    def test_the_steps_of_training_stay_float32(self, cell: str) -> None:
        assert not any("bf16" in kernel for kernel in kernels_of(recurrent(cell, 7, training=True)))

    def test_concat_in_place(self) -> None:
        kernels = kernels_of(dense_block())
        assert not any("copy_2" in kernel for kernel in kernels)


def narrow_names(graph: Graph) -> set[str]:
    optimize(graph, pipeline())
    return {value.node.op.name for value in plan_narrow(graph) if value.node is not None}


def test_results_and_what_others_read_stay_float32() -> None:
    b = Builder()
    x = b.max_pool(b.parameter("x", (1, 16, 8, 8)), kernel=(1, 1))
    weights = [b.weight(f"w{i}", (16, 16, 1, 1)) for i in range(4)]
    first = b.convolution(x, weights[0])
    second = b.convolution(first, weights[1])
    third = b.convolution(second, weights[2])
    graph = b.results(third, b.tanh(second))
    assert set(plan_narrow(graph)) == {first}


def test_a_concat_is_stored_as_all_its_readers_want() -> None:
    graph = dense_block()
    assert narrow_names(graph) == {"convolution", "concat"}


def test_bytes_and_what_their_products_give_are_not_narrow() -> None:
    b = Builder()
    x = b.parameter("x", (1, 16, 8, 8), "u8")
    joined = b.concat(x, x, axis=1)
    operands = [b.weight("w", (16, 32, 1, 1), "i8"), b.weight("bias", (16,), "i32"), b.weight("f", (16,)),
                b.weight("a", (16,))]
    first = b.quantized_convolution(joined, *operands)
    graph = b.results(b.max_pool(joined, kernel=(2, 2)), b.convolution(first, b.weight("v", (16, 16, 1, 1))))
    assert not plan_narrow(graph)


def test_without_bf16_there_is_float32_and_a_warning_once(caplog: pytest.LogCaptureFixture,
                                                          on_cpu: Callable[..., None],
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu(dict.fromkeys(NEEDS["avx2"], True))
    monkeypatch.setenv("NGRAPH_CPU_ISA", "baseline")
    options.tell_once.cache_clear()
    with caplog.at_level(logging.WARNING, "ngraph_mxnet"):
        executables = [compile(residual_block(), "CPU", precision="bf16") for _ in range(2)]
    said = [record.message for record in caplog.records]
    assert said == [
        "NGRAPH_PRECISION=bf16: this CPU lacks AVX512_BF16, without which bf16 is no faster than float32. "
        "Everything runs in float32."
    ]
    inputs = arrays_for(residual_block())
    expected = compile(residual_block(), "CPU")(*inputs)
    np.testing.assert_array_equal(executables[0](*inputs), expected)

    caplog.clear()
    options.tell_once.cache_clear()  # as in the next process, which finds the program on disk
    with caplog.at_level(logging.WARNING, "ngraph_mxnet"):
        load(Package.from_bytes(executables[0].package().to_bytes()))
    assert [record.message for record in caplog.records] == said


def test_where_there_is_bf16() -> None:
    assert precision_notice("bf16", "avx512", HAS_BF16) is None
    assert precision_notice("f32", "baseline", {}) is None
    assert "NGRAPH_CPU_ISA" in str(precision_notice("bf16", "avx2", HAS_BF16))


@pytest.mark.parametrize(("has", "isa", "wanted"), [
    (("sse4a",), None, "bf16"), ((), None, "f32"), (("sse4a",), "avx2", "f32"), (NEEDS["amx"], None, "bf16"),
    (NEEDS["amx"], "avx512", "f32"),
])
def test_auto_is_bf16_where_it_is_fast(has: tuple[str, ...], isa: str | None, wanted: str,
                                       monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """And says so once."""
    features = {**dict.fromkeys((*NEEDS["amx"], "sse4a"), False), **HAS_BF16, **dict.fromkeys(has, True)}
    monkeypatch.setattr(_core, "cpu_features", lambda: features)
    options.tell_once.cache_clear()
    with caplog.at_level(logging.WARNING, "ngraph_mxnet"):
        for _ in range(2):
            assert options.read_options({"precision": "auto", "isa": isa}).precision == wanted
    assert len(caplog.records) == (wanted == "bf16")
    assert all("which this CPU multiplies at its full rate" in record.message for record in caplog.records)


def test_no_other_precision() -> None:
    with pytest.raises(ConfigError, match="option precision: found 'f8', expected f32 or bf16"):
        compile(residual_block(), "CPU", precision="f8")
