"""Programs for AMX: which kernels they call, and that their tiles are left as they were found."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from bf16_machine import amx
from kernel_library import NATIVE_AVX512_BF16
from op_records import array_of
from test_quantized_products import arrays_of as arrays_of_bytes
from test_quantized_products import product_operands, quantized
from tile_counts import Heads, Layer, count
from tile_machine import configured_threads, emulated_tiles, runs_natively

from ngraph_mxnet import _core, compile
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.backend import get_backend, load_file
from ngraph_mxnet.targets.cpu.machine import isa
from ngraph_mxnet.targets.cpu.machine.isa import available, choose_instruction_set, kernels_of
from ngraph_mxnet.targets.cpu.microkernels.params import contraction_params
from ngraph_mxnet.targets.cpu.microkernels.tiles import ContractionSize, Wanted, choose_tiles, loop_nest

pytestmark = pytest.mark.skipif(not NATIVE_AVX512_BF16, reason="the CPU has no AVX512_BF16")


@pytest.fixture(autouse=True)
def _amx(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NGRAPH_PRECISION", "bf16")
    with amx(monkeypatch):
        yield


def product(rows: int, depth: int, columns: int) -> Graph:
    b = Builder()
    return b.results(b.matmul(b.parameter("x", (rows, depth)), b.weight("w", (depth, columns))))


def convolution(channels: int, size: int, outputs: int, kernel: int, **attrs: object) -> Graph:
    b = Builder()
    x = b.relu(b.parameter("x", (2, channels, size, size)))
    pads = (kernel // 2,) * 2
    y = b.convolution(x, b.weight("w", (outputs, channels, kernel, kernel)), pads_begin=pads, pads_end=pads, **attrs)
    return b.results(b.relu(y))


def recurrent(rows: int, units: int) -> Graph:
    """Two steps of an LSTM."""
    b = Builder()
    x, states = b.parameter("x", (2, rows, 4 * units)), [b.parameter(name, (rows, units)) for name in "hc"]
    return b.results(b.node("rnn", [x, b.weight("w", (4 * units, units)), b.weight("b", (4 * units,)), *states],
                            {"cell": "lstm"}).outputs[0])


GRAPHS: dict[str, Callable[[], Graph]] = {
    "product": lambda: product(40, 96, 80),
    "product read in place": lambda: product(64, 96, 80),
    "product of many steps": lambda: product(40, 9008, 80),
    "product of many steps read in place": lambda: product(64, 9024, 40),
    "product of a row": lambda: product(1, 130, 1000),
    "product of one block": lambda: product(5, 16, 7),
    "recurrent layer": lambda: recurrent(20, 72),
    "recurrent layer of a row": lambda: recurrent(1, 96),
    "1x1": lambda: convolution(64, 14, 256, 1),
    "3x3": lambda: convolution(64, 14, 64, 3),
    "3x3 of 7 pixels": lambda: convolution(160, 7, 80, 3),
    "3x3 of many steps": lambda: convolution(560, 7, 40, 3),
    "1x1 of a block": lambda: convolution(16, 20, 40, 1),
    "3x3 with strides": lambda: convolution(32, 15, 48, 3, strides=(2, 2)),
    "3x3 with gaps": lambda: convolution(32, 15, 16, 3, dilations=(2, 2)),
    "of few outputs": lambda: convolution(48, 20, 10, 5),
    "of few outputs of many steps": lambda: convolution(240, 20, 10, 5),
    "in parts": lambda: convolution(128, 20, 80, 1),
}


def arrays_of(graph: Graph) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [array_of(value.type, random) for value in graph.parameters]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("threads", [1, 2])
def test_graphs(name: str, threads: int) -> None:
    """Products of bf16 are exact in float32; sums round, in another order."""
    graph = GRAPHS[name]()
    arrays = arrays_of(graph)
    with emulated_tiles() as ran:
        executable = compile(graph, "CPU", threads=threads)
        (found,) = executable(*arrays)
        assert runs_natively() or ran()["tdpbf16ps"] > 0
        assert runs_natively() or not configured_threads()
    names = [each.kernel for level in executable.main.levels() for each in level]  # type: ignore[attr-defined]
    assert any(name.endswith("_amx__avx512") for name in names)
    (wanted,) = compile(graph, "CPU", threads=threads, isa="avx512")(*arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    (exact,) = compile(graph, "INTERPRETER")(*arrays)
    assert np.linalg.norm(found - exact) <= 1e-2 * np.linalg.norm(exact)


def of_bytes(kind: str) -> Graph:
    b = Builder()
    if kind.startswith("product"):
        rows, depth = (32, 256) if kind.endswith("in place") else (20, 200)
        x = b.parameter("x", (rows, depth), "u8")
        return b.results(b.quantized_matmul(x, *product_operands(b, (70, depth), 70), transpose_b=True))
    channels, kernel = {"1x1": (64, 1), "3x3": (64, 3), "7x7 of three": (3, 7), "5x5": (40, 5),
                        "5x5 of many": (720, 5)}[kind]
    x = b.parameter("x", (1, channels, 15, 15))
    data = quantized(b, x)
    return b.results(b.quantized_convolution(data, *product_operands(b, (70, channels, kernel, kernel), 70),
                                             pads_begin=[kernel // 2] * 2, pads_end=[kernel // 2] * 2))


@pytest.mark.parametrize("kind", ["product", "product in place", "1x1", "3x3", "7x7 of three", "5x5", "5x5 of many"])
def test_products_of_bytes_are_exact(kind: str) -> None:
    graph = of_bytes(kind)
    arrays = arrays_of_bytes(graph, 5, 127)
    with emulated_tiles() as ran:
        (found,) = compile(graph, "CPU", threads=2, precision="f32")(*arrays)
        assert runs_natively() or (ran()["tdpbusd"] > 0 and not ran()["tdpbf16ps"])
    (wanted,) = compile(graph, "CPU", threads=2, precision="f32", isa="avx512")(*arrays)
    np.testing.assert_array_equal(found, wanted)


def test_a_file_for_both_takes_what_the_cpu_has(tmp_path: Path) -> None:
    """The reader asks the CPU itself, which knows nothing of emulated tiles."""
    path, graph = tmp_path / "net.ngraph", GRAPHS["3x3"]()
    (x, w) = arrays_of(graph)
    bound = compile(graph, "CPU", threads=1, weights={"w": w})
    bound.save(path, isas=["amx", "avx512"])
    file = load_file("CPU", path, {})
    assert file.instruction_set == ("amx" if runs_natively() else "avx512")
    (found,), (wanted,) = file(x), bound(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


def test_the_loops_of_a_kernel_are_told() -> None:
    size = ContractionSize(1, 28, 28, 4, 36)
    choice = choose_tiles(Wanted("avx512", bf16=True, amx=True), "k16", size)
    text = loop_nest(choice.variant, "avx512", contraction_params(**choice.fields(), steps=36, output=(0, 64)).ints())
    assert "sums[2][2] = 0  # 4 tiles of 16 pixels and 16 outputs" in text
    assert "for product in 18:  # of 2 steps" in text
    assert "sums[part][block] += x * weights[product][block]  # a tile of weights" in text
    assert "sums += bias  # as all that follows, while the next tile's products are under way" in text


@pytest.mark.skipif(runs_natively(), reason="the CPU executes tiles itself, which nobody counts")
@pytest.mark.parametrize(("layer", "precision", "batch", "most"), [
    (Layer(64, 256, 1, 28), "bf16", 1, 1.0), (Layer(64, 256, 1, 28), "int8", 1, 1.0),
    (Layer(256, 64, 1, 14), "bf16", 1, 1.07), (Layer(256, 64, 1, 14, 2), "bf16", 8, 1.07),
    (Layer(64, 64, 3, 28), "bf16", 1, 1.03), (Layer(64, 64, 3, 7), "int8", 1, 1.31),
    (Layer(768, 64, 0, 128), "bf16", 1, 1.0), (Layer(768, 64, 0, 128), "int8", 1, 1.0),
    (Heads(2, 64, 64), "bf16", 1, 1.0), (Heads(2, 64, 40), "bf16", 1, 1.4), (Heads(2, 64, 80), "bf16", 1, 1.1),
    (Heads(2, 64, 16), "bf16", 1, 1.5),
], ids=str)
def test_products_are_full(layer: Layer | Heads, precision: str, batch: int, most: float) -> None:
    """Of 49 pixels there are four tiles for three. Queries and keys have zeros up to a multiple of 32, values up to one
    of 16."""
    found = count(layer, precision, batch)
    assert 1 <= found.products / found.ideal <= most


def test_float32_takes_no_tiles() -> None:
    graph = GRAPHS["3x3"]()
    with emulated_tiles() as ran:
        executable = compile(graph, "CPU", precision="f32")
        (found,) = executable(*arrays_of(graph))
        assert not ran()
    (wanted,) = compile(graph, "CPU", precision="f32", isa="avx512")(*arrays_of(graph))
    np.testing.assert_array_equal(found, wanted)


def test_threads_and_children_of_a_fork() -> None:
    graph = GRAPHS["3x3"]()
    arrays, executable = arrays_of(graph), compile(graph, "CPU", threads=2)
    (wanted,) = executable(*arrays)
    found: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: found.extend(executable(*arrays))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(np.array_equal(each, wanted) for each in found)
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(executable(*arrays)[0], wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0


BESIDE = """
import faulthandler, os, signal, threading
import pytest
from bf16_machine import amx
from test_amx import GRAPHS, arrays_of
from tile_machine import configured_threads, runs_natively
from ngraph_mxnet import compile

faulthandler.enable()
with pytest.MonkeyPatch.context() as patch, amx(patch), open(os.devnull, "w") as nowhere:
    graph = GRAPHS["3x3"]()
    arrays, executable = arrays_of(graph), compile(graph, "CPU", threads=2, precision="bf16")
    (wanted,) = executable(*arrays)
    done, beside = threading.Event(), lambda: None
    {beside}
    thread = threading.Thread(target=beside)
    thread.start()
    for _ in range(20):
        assert (executable(*arrays)[0] == wanted).all()
    done.set()
    thread.join()
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert runs_natively() or not configured_threads()
print("the same")
"""
"""A process that runs a graph in emulated tiles beside something else."""


@pytest.mark.parametrize("beside", [
    "signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-3)",
    "faulthandler.register(signal.SIGALRM, nowhere, chain=False); signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-3)",
    "faulthandler.dump_traceback_later(2e-2, repeat=True, file=nowhere)",
    "beside = lambda: [run_in_another_interpreter() for _ in iter(done.is_set, True)]",
], ids=["signals", "signals on a stack of their own", "tracebacks", "interpreters"])
def test_what_else_a_process_does(beside: str) -> None:
    """Signal handlers, those of faulthandler on an alternate stack, and other interpreters leave the results alone."""
    other = """
def run_in_another_interpreter():
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        import _interpreters as interpreters
    other = interpreters.create()
    interpreters.run_string(other, "sum(x * 0.5 for x in range(999))")
    interpreters.destroy(other)
"""
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run([sys.executable, "-c", other + BESIDE.replace("{beside}", beside)], check=False, timeout=300,
                          env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr


def test_the_instruction_set_of_programs() -> None:
    features = _core.cpu_features()
    assert available(features)[:2] == ["amx", "avx512"]
    assert kernels_of("amx") == "avx512"
    assert choose_instruction_set(features) == "amx"
    for missing in ("amx-tile", "amx-bf16", "avx512bf16"):
        assert available({**features, missing: False})[0] == "avx512"


@pytest.mark.parametrize(("channels", "steps", "width"), [
    (10, 8, 16), (24, 8, 32), (48, 8, 48), (64, 8, 64), (80, 8, 16), (256, 8, 64), (256, 40, 32), (256, 20_000, 64)])
def test_the_width_of_tiles(channels: int, steps: int, width: int) -> None:
    """Four tiles of sums: of fewer outputs where the others would be zeros, and of more pixels where weights come from
    L2; of more outputs where each copies the input."""
    size = ContractionSize(1, 1, 64, -(-channels // 16), steps, flat_input=True, channels=channels)
    choice = choose_tiles(Wanted("avx512", bf16=True, amx=True), "k16", size)
    assert choice.variant.amx and choice.oc_tile == width
    assert not choose_tiles(Wanted("avx512", bf16=True), "k16", size).variant.amx


def test_a_system_that_refuses_the_tiles_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    flags = tmp_path / "cpuinfo"
    flags.write_text("flags : avx512f amx_tile amx_bf16 amx_int8\n")
    monkeypatch.setattr(isa, "CPU_FLAGS", flags)
    features = _core.cpu_features()
    assert isa.amx_refused(features) is None
    assert "the system refuses its tiles" in (isa.amx_refused({**features, "amx-tile": False}) or "")
    monkeypatch.setattr(_core, "cpu_features", lambda: {**features, "amx-tile": False})
    assert any("refuses its tiles" in each for each in get_backend("CPU").notices())
    flags.write_text("flags : avx512f\n")
    assert isa.amx_refused({**features, "amx-tile": False}) is None
