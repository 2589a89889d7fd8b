"""Programs of ONNX models on disk."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import F32, I64, model, network, value

import ngraph_mxnet
from ngraph_mxnet.program.cache import open_store
from ngraph_mxnet.targets.interpreter import InterpreterBackend

WIDE = 64 * 48 * 9 * 4
"""Bytes of the wide network's weights."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "program"


def wide(seed: int = 0) -> onnx.ModelProto:
    random = np.random.default_rng(seed)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])]
    return model(nodes, [value("x", ["n", 48, 6, 6])], [value("y", ["n", 64, 6, 6])],
                 {"w": random.standard_normal((64, 48, 3, 3)).astype(np.float32)})


def images(batch: int, channels: int = 48, size: int = 6) -> np.ndarray:
    return np.random.default_rng(batch).standard_normal((batch, channels, size, size)).astype(np.float32)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def test_the_next_one_neither_imports_nor_compiles(folder: Path, imports: list[str]) -> None:
    first = ngraph_mxnet.compile(wide(), "CPU")(images(2))
    assert len(imports) == len(entries(folder)) == 1
    exe = ngraph_mxnet.compile(wide(), "CPU")
    for x in (images(2), images(2) + 1):
        np.testing.assert_array_equal(exe(x)[0], ngraph_mxnet.compile(wide(), "CPU")(x)[0])
    np.testing.assert_array_equal(exe(images(2))[0], first[0])
    assert len(imports) == 1


def test_weights_are_not_kept_twice(folder: Path) -> None:
    ngraph_mxnet.compile(wide(), "CPU")(images(1))
    (entry,) = entries(folder)
    assert entry.stat().st_size < WIDE / 4


def test_a_second_process_loads_no_compiler(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(wide(), str(path))
    code = ("import sys, numpy as np, ngraph_mxnet\n"
            f"exe = ngraph_mxnet.compile({str(path)!r}, 'CPU', shapes={{'x': (1, 48, 6, 6)}})\n"
            "print(repr(exe(np.ones((1, 48, 6, 6), np.float32))[0].sum()))\n"
            "print(sorted(name for name in sys.modules if name in (\n"
            "    'ngraph_mxnet.targets.cpu.backend', 'llvmlite', 'mxnet',\n"
            "    'ngraph_mxnet.frontends.onnx.importer', 'ngraph_mxnet.passes', 'ngraph_mxnet.ops')))\n")
    first, second = (subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
                     .splitlines() for _ in range(2))
    assert first[0] == second[0]
    assert "ngraph_mxnet.targets.cpu.backend" in first[1] and second[1] == "[]"


def test_what_it_depends_on(folder: Path, imports: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, shapes, options and settings each make another program."""
    def run(seed: int = 0, batch: int = 1, **options: Any) -> np.ndarray:
        return ngraph_mxnet.compile(wide(seed), "CPU", **options)(images(batch))[0]

    one = run()
    assert not np.array_equal(one, run(seed=1))
    np.testing.assert_allclose(run(batch=2)[:1].shape, one.shape)
    np.testing.assert_allclose(run(threads=1), one, rtol=1e-3, atol=1e-4)  # threads decide about Winograd's algorithm
    monkeypatch.setenv("NGRAPH_CPU_WINOGRAD", "0")
    np.testing.assert_allclose(run(), one, rtol=1e-3, atol=1e-4)
    assert len(imports) == len(entries(folder)) == 5


def test_open_shapes_are_kept_one_by_one(folder: Path, imports: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_DYNAMIC", "off")
    for _ in range(2):
        exe = ngraph_mxnet.compile(network(), "CPU")
        for batch in (1, 3):
            assert exe(images(batch, 3, 8))[0].shape == (batch, 10)
    assert len(imports) == len(entries(folder)) == 2


def test_what_depends_on_data_is_not_kept(folder: Path) -> None:
    reshape = model([helper.make_node("Reshape", ["x", "shape"], ["y"])],
                    [value("x", [6]), value("shape", [2], I64)], [value("y", ["a", "b"])])
    found = model([helper.make_node("NonZero", ["x"], ["y"])], [value("x", [6])], [value("y", [1, "n"], I64)])
    x = np.array([0, 1, 0, 2, 3, 0], np.float32)
    for _ in range(2):
        exe = ngraph_mxnet.compile(reshape, "CPU")
        assert exe(x, np.array([2, 3]))[0].shape == (2, 3) and exe(x, np.array([3, 2]))[0].shape == (3, 2)
        exe = ngraph_mxnet.compile(found, "CPU")
        assert exe(x)[0].tolist() == [[1, 3, 4]] and exe(1 - x)[0].tolist() == [[0, 2, 3, 4, 5]]
    assert not entries(folder)


def test_external_data_may_change(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(wide(), str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    for seed in (0, 1):
        weights = wide(seed).graph.initializer[0].raw_data
        (tmp_path / "w.bin").write_bytes(weights)
        np.testing.assert_array_equal(ngraph_mxnet.compile(path, "CPU")(images(1))[0],
                                      ngraph_mxnet.compile(wide(seed), "CPU")(images(1))[0])
    assert len(entries(folder)) == 2  # of the models that hold their weights


@pytest.mark.parametrize("error", [KeyError("ng_gone__avx2"), RuntimeError("Unable to cast Python instance")])
def test_one_that_does_not_load_is_compiled(error: Exception, folder: Path, imports: list[str],
                                            own_backend: Callable[..., None],
                                            caplog: pytest.LogCaptureFixture) -> None:
    loads = mock.Mock(side_effect=error)
    own_backend(InterpreterBackend, load=loads)
    expected = ngraph_mxnet.compile(wide(), "OWN")(images(1))[0]
    assert not loads.called
    np.testing.assert_array_equal(ngraph_mxnet.compile(wide(), "OWN")(images(1))[0], expected)
    assert loads.called
    assert "does not load, it is compiled anew" in caplog.text and len(imports) == 2


@pytest.mark.parametrize("backend", ["INTERPRETER", "NNP", "HYBRID"])
def test_other_backends_keep_programs_too(backend: str, folder: Path, imports: list[str]) -> None:
    x = images(1, 48, 6)
    first, second = (ngraph_mxnet.compile(wide(), backend)(x)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    (entry,) = entries(folder)
    assert len(imports) == 1 and entry.stat().st_size < WIDE / 2


def test_options_that_no_text_tells_are_not_kept(folder: Path) -> None:
    """Of long arrays, and of objects, their texts are alike."""
    for seed in (1, 2):
        sample = [images(seed)[:1]]
        ngraph_mxnet.compile(wide(), "NNP", precision="int8", calibration=sample, shapes={"x": (1, 48, 6, 6)})
    assert not entries(folder)


def normalised() -> onnx.ModelProto:
    """A convolution whose weights are in the model, and a batch norm that compiling folds into them."""
    random = np.random.default_rng(7)
    weights = {"w": (64, 48, 3, 3), "scale": (64,), "bias": (64,), "mean": (64,), "var": (64,)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
             helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["y"])]
    return model(nodes, [value("x", ["n", 48, 6, 6])], [value("y", ["n", 64, 6, 6])],
                 {name: random.uniform(0.5, 2, shape).astype(np.float32) for name, shape in weights.items()})


def kept_bytes() -> dict[str, list[int]]:
    """Sizes of the entries by their kind."""
    store, found = open_store(), {}
    assert store is not None
    for entry in store.entries():
        found.setdefault(entry.kind, []).append(entry.bytes)
    return found


def test_what_is_made_of_weights_is_kept_once_for_all_shapes(folder: Path, imports: list[str],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """The folded weights were in each program: 63 MB a shape of ResNet-50."""
    monkeypatch.setenv("NGRAPH_DYNAMIC", "off")
    first = {}
    for batch in (1, 2, 5):
        first[batch] = ngraph_mxnet.compile(normalised(), "CPU")(images(batch))[0]
        sizes = kept_bytes()
        assert max(sizes["program"]) < WIDE / 4 and [size >= WIDE for size in sizes["constant"]] == [True]
    exe = ngraph_mxnet.compile(normalised(), "CPU")
    for batch, expected in first.items():
        np.testing.assert_array_equal(exe(images(batch))[0], expected)
    assert len(imports) == 3


def test_made_arrays_that_went_are_made_again(folder: Path, imports: list[str],
                                             caplog: pytest.LogCaptureFixture) -> None:
    expected = ngraph_mxnet.compile(normalised(), "CPU")(images(1))[0]
    for path in (folder.parent / "constant").iterdir():
        path.unlink()
    for _ in range(2):
        np.testing.assert_array_equal(ngraph_mxnet.compile(normalised(), "CPU")(images(1))[0], expected)
        assert len(imports) == 2 and len(kept_bytes()["constant"]) == 1
    assert "does not load" not in caplog.text


def test_profile_of_a_kept_program(folder: Path) -> None:
    for _ in range(2):
        exe = ngraph_mxnet.compile(wide(), "CPU", shapes={"x": (1, 48, 6, 6)}, threads=1)
        assert exe.profile(images(1), rounds=2).rows
    assert exe.outputs[0].dtype == "float32" and len(entries(folder)) == 1


def test_weights_that_a_pass_changed(folder: Path) -> None:
    """What is folded at compile time is no initialiser of the model."""
    random = np.random.default_rng(3)
    weights = {name: random.uniform(0.5, 2, shape).astype(np.float32) for name, shape in
               {"w": (40, 64), "s": (64,), "t": (64,)}.items()}
    nodes = [helper.make_node("Transpose", ["w"], ["v"], perm=[1, 0]),
             helper.make_node("MatMul", ["x", "v"], ["p"]), helper.make_node("Mul", ["x", "s"], ["q"]),
             helper.make_node("Add", ["q", "t"], ["z"]), helper.make_node("Concat", ["p", "z"], ["y"], axis=1)]
    proto = model(nodes, [value("x", [5, 64])], [value("y", [5, 104], F32)], weights)
    x = random.uniform(-1, 1, (5, 64)).astype(np.float32)
    first, second = (ngraph_mxnet.compile(proto, "CPU")(x)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, np.concatenate([x @ weights["w"].T, x * weights["s"] + weights["t"]], 1), 1e-4)
