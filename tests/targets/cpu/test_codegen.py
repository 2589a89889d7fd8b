"""Generated kernels against the interpreter, on every instruction set that runs here; where their code is kept."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cluster_graphs import cluster_graphs
from hypothesis import given, settings

from ngraph_mxnet import _core, compile
from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.ir import Builder, Graph, print_graph
from ngraph_mxnet.targets.cpu.codegen import generator
from ngraph_mxnet.targets.cpu.codegen.clusters import describe
from ngraph_mxnet.targets.cpu.kernels import ALL_KERNELS
from ngraph_mxnet.targets.cpu.kernels.compiler import expression_module
from ngraph_mxnet.targets.cpu.machine.isa import supported
from ngraph_mxnet.targets.cpu.microkernels.target import target_machine

ISAS = supported(_core.cpu_features())


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    generator._loaded.clear()
    return tmp_path / "cache"


def arrays_for(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.asarray(np.round(rng.standard_normal(p.shape) * 64) / 64, np.float32) for p in graph.parameters]


def assert_agree(graph: Graph, threads: int = 2) -> None:
    arrays = arrays_for(graph)
    expected = compile(graph, "INTERPRETER")(*arrays)
    executable = compile(graph, "CPU", threads=threads, codegen=1)
    for _ in range(2):
        for found, wanted in zip(executable(*arrays), expected, strict=True):
            scale = max(1.0, float(np.abs(wanted).max(initial=0)))
            np.testing.assert_allclose(found, wanted, 2e-5, 2e-5 * scale, err_msg=print_graph(graph))


def kernels_of(graph: Graph) -> list[str]:
    executable = compile(graph, "CPU", codegen=1)
    kernels = [i.kernel for level in executable.main.levels() for i in level]  # type: ignore[attr-defined]
    return [kernel.removeprefix("ng_").rpartition("__")[0] for kernel in kernels]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("images", [False, True])
def test_random_graphs_agree(isa: str, images: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NGRAPH_CPU_ISA", isa)

    @settings(max_examples=14)
    @given(cluster_graphs(images))
    def check(graph: Graph):
        assert_agree(graph)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("images", [False, True])
def test_many_random_graphs_agree(isa: str, images: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NGRAPH_CPU_ISA", isa)

    @settings(max_examples=300)
    @given(cluster_graphs(images))
    def check(graph: Graph):
        assert_agree(graph)

    check()


def long_rows() -> Graph:
    b = Builder()
    x = b.parameter("x", (3, 5000))
    return b.results(b.softmax(b.add(x, x), axis=-1), b.multiply(x, b.sigmoid(x)))


def transformer() -> Graph:
    b = Builder()
    x, r, g = b.parameter("x", (2, 9, 64)), b.parameter("r", (2, 9, 64)), b.parameter("g", (64,))
    y = b.layer_norm(b.add(x, r), g, g, axis=-1, epsilon=1e-5)
    z = b.matmul(y, b.weight("w", (64, 40)))
    return b.results(b.gelu(b.add(z, b.parameter("bias", (2, 1, 40)))))


def squeeze_excite(channels: int = 32) -> Graph:
    """Swish and a gate per image and channel between padded convolutions: blocked, with halos."""
    b = Builder()
    x = b.parameter("x", (2, 16, 7, 7))
    y = b.convolution(x, b.weight("w", (channels, 16, 3, 3)), pads_begin=(1, 1), pads_end=(1, 1))
    y = b.multiply(y, b.sigmoid(y))
    gate = b.sigmoid(b.reduce_mean(y, axes=(2, 3), keep_dims=True))
    y = b.clamp(b.multiply(y, gate), lower=-1, upper=1)
    weights = b.weight("v", (16, channels, 3, 3))
    return b.results(b.convolution(y, weights, pads_begin=(1, 1), pads_end=(1, 1)))


def masks() -> Graph:
    b = Builder()
    x = b.parameter("x", (4, 33))
    mask = b.greater(x, b.constant(0.0))
    return b.results(b.logical_not(mask), b.select(mask, x, b.constant(-1.0)), b.reduce_max(b.abs(x), axes=(1,)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("graph", [long_rows(), transformer(), squeeze_excite(), squeeze_excite(24), masks()],
                         ids=["long rows", "transformer", "squeeze-excite", "24 channels", "masks"])
def test_models_agree(isa: str, graph: Graph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NGRAPH_CPU_ISA", isa)
    assert_agree(graph)


def test_what_runs():
    assert kernels_of(transformer()).count("generated_0") == 1
    blocked = kernels_of(squeeze_excite())
    assert [k for k in blocked if "blocked" in k] == ["to_blocked", "avg_pool_blocked", "from_blocked"]
    assert sum(k.startswith("generated") for k in blocked) == 1


def test_threads_and_splits_agree_bit_for_bit():
    graph = transformer()
    arrays = arrays_for(graph)
    results = [compile(graph, "CPU", threads=t, codegen=1)(*arrays)[0].tobytes() for t in (1, 2, 3)]
    assert len(set(results)) == 1


def test_every_expression_is_generated():
    """Whatever it takes: elements of one operand to three, and up to four numbers."""
    records = {name: record for name, record in ALL_KERNELS.items() if record.expression is not None}
    arguments = {len(record.inputs) + record.parameters for record in records.values()}
    assert arguments >= {1, 2, 3, 5}
    machine = target_machine("baseline", jit=True)
    for count in arguments:
        name = min(name for name, record in records.items() if len(record.inputs) + record.parameters == count)
        assert expression_module(records[name], "expression", machine).get_function("expression")


def test_numbers_of_an_expression_reach_it():
    b = Builder()
    x = b.parameter("x", (1, 16, 5, 5))
    y = b.hard_swish(x, slope=0.3, offset=0.6, scale=1.5, shift=-0.25)
    graph = b.results(b.sigmoid(b.elu(b.clamp(y, lower=-0.5, upper=2), alpha=0.7)))
    assert_agree(graph)


def test_nan_passes_through_rows_and_activations():
    b = Builder()
    x = b.parameter("x", (3, 40))
    run = compile(b.results(b.reduce_max(b.relu(b.negative(x)), axes=(1,)), b.softmax(b.negative(x))), "CPU", codegen=1)
    data = np.zeros((3, 40), np.float32)
    data[1, 37] = np.nan
    for result in run(data):
        assert np.isnan(result[1]).all() and not np.isnan(result[[0, 2]]).any()


@pytest.mark.parametrize("keep_dims", [False, True])
def test_a_value_of_one_element_a_row_from_elsewhere(keep_dims: bool):
    """Without the axes of the rows it must not be read along them."""
    b = Builder()
    x = b.parameter("x", (3, 5))
    other = b.parameter("other", (3, 1) if keep_dims else (3,))
    graph = b.results(b.subtract(other, b.reduce_sum(b.tanh(x), axes=(1,), keep_dims=keep_dims)))
    assert kernels_of(graph)[0].startswith("generated")
    assert_agree(graph)


def test_a_body_of_any_ops_runs_in_both_modes():
    inner = Builder()
    x, w = inner.parameter("x", (1, 16, 5, 5)), inner.parameter("w", (16, 16, 3, 3))
    body = inner.results(inner.relu(inner.convolution(x, w, pads_begin=(1, 1), pads_end=(1, 1))), x)
    assert describe(body) is None
    b = Builder()
    operands = [b.parameter("x", (1, 16, 5, 5)), b.weight("w", (16, 16, 3, 3))]
    graph = b.results(*b.node("fused", operands, {"body": body}).outputs)
    assert_agree(graph)
    arrays = arrays_for(graph)
    expected = compile(graph, "INTERPRETER")(*arrays)
    for found, wanted in zip(compile(graph, "CPU")(*arrays), expected, strict=True):
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-4)


def test_the_option_is_checked(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match="option codegen: found 'yes', expected 0 or 1"):
        compile(masks(), "CPU", codegen="yes")
    monkeypatch.setenv("NGRAPH_CODEGEN", "1")
    executable = compile(masks(), "CPU")
    assert any("generated" in i.kernel for level in executable.main.levels() for i in level)  # type: ignore[attr-defined]


# ---- where code is kept ---------------------------------------------------------------------------------


def test_code_comes_from_memory_then_from_disk(own_cache: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, "ngraph_mxnet"):
        assert_agree(masks())
        assert_agree(masks())
        assert caplog.text.count("compiled for") == 1 and "from disk" not in caplog.text
        generator._loaded.clear()
        assert_agree(masks())
    assert "from disk" in caplog.text and caplog.text.count("generated kernels compiled") == 1


def test_damaged_code_is_made_anew(own_cache: Path, caplog: pytest.LogCaptureFixture):
    assert_agree(masks())
    (entry,) = own_cache.glob("code/*")
    entry.write_bytes(entry.read_bytes()[:-100])
    generator._loaded.clear()
    with caplog.at_level(logging.INFO, "ngraph_mxnet"):
        assert_agree(masks())
    assert "damaged" in caplog.text and "compiled for" in caplog.text


def test_another_instruction_set_is_another_entry(own_cache: Path, monkeypatch: pytest.MonkeyPatch):
    for isa in ISAS:
        monkeypatch.setenv("NGRAPH_CPU_ISA", isa)
        assert_agree(masks())
    assert len(list(own_cache.glob("code/*"))) == len(ISAS)


_COMPILE = """
import sys
from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder
b = Builder()
x = b.parameter("x", (4, 16, 8, 8))
y = b.convolution(x, b.weight("w", (16, 16, 3, 3)))
graph = b.results(b.softmax(b.multiply(b.exp(y), b.sigmoid(y))))
compile(graph, "CPU", codegen={codegen})
print(sorted({{name.split(".")[0] for name in sys.modules}} & {{"numba", "llvmlite"}}))
"""


def _modules_after(codegen: int, cache: Path) -> str:
    environment = {**os.environ, "NGRAPH_CACHE_DIR": str(cache), "NGRAPH_CODEGEN": "0"}
    run = subprocess.run([sys.executable, "-c", _COMPILE.format(codegen=codegen)], env=environment, check=True,
                         capture_output=True, text=True)
    return run.stdout.strip()


def test_direct_execution_loads_no_compiler(tmp_path: Path):
    assert _modules_after(0, tmp_path) == "[]"


def test_kept_code_needs_no_front_end(tmp_path: Path):
    assert _modules_after(1, tmp_path) == "['llvmlite', 'numba']"
    assert _modules_after(1, tmp_path) == "['llvmlite']"
