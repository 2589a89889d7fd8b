"""Autotuning: other ways give the same results, and what was measured is kept."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.targets.cpu.machine import tuning
from ngraph_mxnet.targets.cpu.program.instruction import Instruction


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    return tmp_path


def network() -> Graph:
    b = Builder()
    x = b.max_pool(b.parameter("x", (2, 48, 9, 11)), kernel=(1, 1))
    w = b.weight("w", (48, 48, 3, 3))
    y = b.relu(b.add(b.convolution(x, w, pads_begin=(1, 1), pads_end=(1, 1)), x))
    y = b.convolution(y, b.weight("d", (48, 1, 3, 3)), groups=48)
    return b.results(b.matmul(b.reduce_mean(y, axes=(2, 3)), b.weight("f", (48, 20))))


def arrays_for(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(p.shape).astype(np.float32) for p in graph.parameters]


def contractions(executable) -> list[Instruction]:
    return [i for level in executable.main.levels() for i in level if i.kernel.startswith("ng_contraction")]


def test_every_candidate_computes_the_same(monkeypatch: pytest.MonkeyPatch):
    """The last, the first and so on of all candidates, for every contraction."""
    graph = network()
    arrays = arrays_for(graph)
    expected = compile(graph, "INTERPRETER")(*arrays)
    most = max(len(tuning.contraction_candidates(i)) for i in contractions(compile(graph, "CPU")))
    assert most > 3
    for number in range(most):
        def pick(builder, instruction, threads, number=number):
            ways = tuning.contraction_candidates(instruction) or [instruction.ints]
            return ways[number % len(ways)]

        monkeypatch.setattr(tuning, "_fastest", pick)
        monkeypatch.setenv("NGRAPH_CACHE_DIR", "off")
        executable = compile(graph, "CPU", autotune=1, threads=2)
        np.testing.assert_allclose(executable(*arrays)[0], expected[0], 1e-4, 1e-4)


def test_results_are_kept(own_cache: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NGRAPH_AUTOTUNE", "1")
    with caplog.at_level(logging.INFO, "ngraph_mxnet"):
        first = compile(network(), "CPU", threads=2)
        layers = len({tuple(one.ints) for one in contractions(first)})  # some CPUs run a layer as two
        assert layers >= 2 and f"autotuning: {layers} layers measured, 0 known" in caplog.text
        second = compile(network(), "CPU", threads=2)
    assert f"autotuning: 0 layers measured, {layers} known" in caplog.text
    assert [i.ints for i in contractions(first)] == [i.ints for i in contractions(second)]
    assert len(list(own_cache.glob("tuning/*"))) == layers


def test_a_faster_way_is_taken_and_noise_is_not(monkeypatch: pytest.MonkeyPatch):
    executable = compile(network(), "CPU", threads=2)
    (first, *_) = contractions(executable)
    ways = tuning.contraction_candidates(first)
    times = {tuple(first.ints): 1.0, **{tuple(way): 0.97 for way in ways}}
    monkeypatch.setattr(tuning, "_runner", lambda builder, twins, threads: lambda: times[tuple(twins[0].ints)])
    assert tuning._fastest(executable.main, first, 2) == first.ints  # type: ignore[attr-defined]
    times[tuple(ways[-1])] = 0.8
    assert tuning._fastest(executable.main, first, 2) == ways[-1]  # type: ignore[attr-defined]


def test_a_sequence_is_measured():
    executable = compile(network(), "CPU", threads=1)
    found = contractions(executable)
    assert tuning.measure(executable.main, found[:2], 1) > 0  # type: ignore[attr-defined]
