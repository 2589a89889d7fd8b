"""Models of servers: rows of any number, folders whose model is compiled once."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import ngraph_runtime
from ngraph_runtime import InputError, ModelError
from ngraph_runtime.serving import ServedModel, load

COMPILER = """
import sys, time
from pathlib import Path
words = sys.argv[1:]
kept = Path(words[words.index("-o") + 1])
if "fail" in words:
    sys.exit("node conv0 can't be compiled")
time.sleep(0.3)
with kept.with_suffix(".calls").open("a") as file:
    print(*words[:-4], file=file)
part = kept.with_suffix(f".{time.time_ns()}")
part.write_text("twice")
part.rename(kept)
"""
SHAPES = [{"name": "data", "shape": [32, 3]}]


@pytest.fixture
def compiler(fake, tmp_path, monkeypatch):
    """A command that writes a model of the fake library."""
    script = tmp_path / "compiler.py"
    script.write_text(COMPILER)
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}"
    monkeypatch.setenv("NGRAPH_RUNTIME_COMPILER", command)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for name in ("NGRAPH_RUNTIME_CACHE", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return command


@pytest.fixture
def folder(tmp_path):
    """As SageMaker unpacks it."""
    made = tmp_path / "model"
    made.mkdir()
    for name, content in (("model-symbol.json", "{}"), ("model-0000.params", "weights"),
                          ("model-shapes.json", json.dumps(SHAPES))):
        (made / name).write_text(content)
    return made


def calls(folder):
    return (folder / "model.calls").read_text().splitlines()


def rows(count):
    return np.arange(3 * count, dtype=np.float32).reshape(count, 3)


def test_the_seed_is_an_integer(fake, monkeypatch):
    path = fake("single")
    monkeypatch.setenv("NGRAPH_RUNTIME_SEED", "-12")
    load(path)
    monkeypatch.setenv("NGRAPH_RUNTIME_SEED", "a")
    with pytest.raises(ModelError, match="NGRAPH_RUNTIME_SEED: found 'a', expected an integer"):
        load(path)


# ---- rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["single", "ranged", "range"])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 100, 203])
def test_any_number_of_rows(fake, word, count):
    served = ServedModel(ngraph_runtime.load(fake(word)), rows=True)
    (found,) = served.run([rows(count)])
    assert np.array_equal(found, 2 * rows(count))
    assert served.shape(served.inputs[0]) == served.shape(served.outputs[0]) == (-1, 3)


def test_rows_are_cut_and_padded_to_what_was_compiled(fake):
    assert ServedModel(ngraph_runtime.load(fake("single")), rows=True).most_rows == 2
    assert ServedModel(ngraph_runtime.load(fake("ranged")), rows=True).most_rows == 100


def test_a_first_axis_that_holds_no_rows_is_left_alone(fake):
    served = ServedModel(ngraph_runtime.load(fake("single")), rows=False)
    assert served.most_rows == 0 and served.shape(served.inputs[0]) == (2, 3)
    with pytest.raises(InputError, match=r"input data: found shape \[4,3\], expected \[2,3\]"):
        served.run([rows(4)])


def test_results_that_are_no_rows_keep_the_model_whole(fake):
    """Its second output is a sum over the rows: two calls would give two sums."""
    served = ServedModel(ngraph_runtime.load(fake("twice")), rows=True)
    assert served.most_rows == 0
    with pytest.raises(InputError, match="expected"):
        served.run([rows(6)])


@pytest.mark.parametrize(("arrays", "text"), [
    ([np.zeros((4, 2), np.float32)], r"found shape \[4,2\], expected \[2,3\]"),
    ([np.zeros((0, 3), np.float32)], r"found shape \[0,3\], expected \[2,3\]"),
    ([np.float32(1)], r"found shape \[\], expected \[2,3\]"),
    ([np.zeros((4, 3))], "found float64"), ([], "found 0 inputs, expected 1"), ([rows(2)] * 2, "found 2 inputs"),
])
def test_what_fits_nothing_is_told_as_the_model_tells_it(fake, arrays, text):
    served = ServedModel(ngraph_runtime.load(fake("single")), rows=True)
    with pytest.raises(InputError, match=text):
        served.run([np.asarray(array) for array in arrays])


# ---- folders ---------------------------------------------------------------------------------------------------


def test_a_folder_is_compiled_once(compiler, folder):
    for _ in range(2):
        served = load(folder)
        assert np.array_equal(served.run([rows(2)])[0], 2 * rows(2))
    names = [str(folder / name) for name in ("model-symbol.json", "model-0000.params")]
    assert calls(folder) == [f"{names[0]} --params {names[1]} --shape data=1,3"]


@pytest.mark.parametrize(("options", "shape"), [
    ({"batch": 8}, "data=1..8,3"), ({"rows": False}, "data=32,3"),
    ({"shapes": {"x": (1, "H:8..64"), "y": (1,)}, "batch": 2}, "x=1..2,H:8..64 --shape y=1..2")])
def test_the_shapes_that_are_compiled(compiler, folder, options, shape):
    load(folder, **options)
    assert calls(folder)[0].endswith(f"--shape {shape}")


@pytest.mark.parametrize("content", [
    {"inputs": [{"data_name": "data", "data_shape": [0, 3, 0, 5]}], "input_type": "image/jpeg"},
    [{"name": "data", "shape": [7, 3, 1, 5], "dtype": "float16"}]])
def test_files_that_tell_the_shapes(compiler, folder, content):
    (folder / "model-shapes.json").unlink()
    signature = isinstance(content, dict)
    (folder / ("signature.json" if signature else "model-shapes.json")).write_text(json.dumps(content))
    load(folder)
    assert calls(folder)[0].endswith("data=1,3,1,5" + ("" if signature else " --dtype data=float16"))


@pytest.mark.parametrize(("told", "shape"), [("300", "1,3,300,300"), (512, "1,3,512,512"), ("1,28,28", "1,1,28,28")])
def test_parameters_of_sagemakers_built_in_algorithms_tell_the_shape(compiler, folder, told, shape):
    (folder / "model-shapes.json").unlink()
    (folder / "hyperparams.json").write_text(json.dumps({"image_shape": told, "num_classes": "20"}))
    load(folder)
    (line,) = calls(folder)
    assert f"--shape data={shape}" in line and "--result" not in line


def test_an_ssd_as_training_leaves_it_gives_its_detections(compiler, folder):
    nodes = [{"op": "null", "name": "data"}, {"op": "_contrib_MultiBoxTarget", "name": "targets"},
             {"op": "_contrib_MultiBoxDetection", "name": "detection"}]
    (folder / "model-symbol.json").write_text(json.dumps({"nodes": nodes}))
    load(folder)
    (line,) = calls(folder)
    assert "--result detection_output" in line


def test_the_latest_weights_and_names_of_its_own(compiler, folder):
    (folder / "model-0012.params").write_text("later")
    load(folder)
    assert "--params " + str(folder / "model-0012.params") in calls(folder)[0]


def test_processes_that_start_at_once_compile_once(compiler, folder):
    code = "import sys; from ngraph_runtime.serving import load; print(load(sys.argv[1]).model.name)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def process(_):
        return subprocess.run([sys.executable, "-c", code, str(folder)], env=environment, stdout=subprocess.PIPE,
                              check=True).stdout.split()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(process, range(4))) == [[b"fake"]] * 4
    assert len(calls(folder)) == 1
    assert sorted(path.name for path in folder.iterdir() if path.suffix == ".ngraph") == ["model.ngraph"]


@pytest.mark.parametrize("chosen", [True, False])
def test_files_that_are_not_kept_beside_the_model(compiler, folder, tmp_path, monkeypatch, chosen):
    """Because somebody said where, or because nobody may write there."""
    cache = tmp_path / "cache" if chosen else tmp_path / "home" / "ngraph_runtime"
    if chosen:
        monkeypatch.setenv("NGRAPH_RUNTIME_CACHE", str(cache))
    else:
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder)
    load(folder)
    load(folder)
    assert len(list(cache.glob("*.ngraph"))) == 1 and not (folder / "model.ngraph").exists()
    (told,) = cache.glob("*.calls")
    assert len(told.read_text().splitlines()) == 1


def test_a_compiled_file_needs_no_compiler(fake, folder, monkeypatch):
    monkeypatch.setenv("NGRAPH_RUNTIME_COMPILER", "/nowhere/ngraph-mxnet compile")
    (folder / "model.ngraph").write_text("single")
    assert load(folder).model.path == str(folder / "model.ngraph")
    alone = folder / "alone"
    alone.mkdir()
    (folder / "model.ngraph").rename(alone / "any.ngraph")
    assert load(alone).model.path == load(alone / "any.ngraph").model.path == str(alone / "any.ngraph")


def test_threads_are_those_of_openmp(compiler, folder, monkeypatch):
    assert load(folder).model.threads == 0
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert load(folder).model.threads == 3 and load(folder, threads=1).model.threads == 1


def test_what_to_do_without_a_compiler(fake, folder, monkeypatch):
    monkeypatch.delenv("NGRAPH_RUNTIME_COMPILER", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="set NGRAPH_RUNTIME_COMPILER to .* or run on any machine: ngraph-mxnet "
                                         rf"compile {folder}/model-symbol.json .*=1,3 -o {folder}/model.ngraph"):
        load(folder)


def test_what_a_compiler_says_is_told(compiler, folder):
    with pytest.raises(ModelError, match=r"(?s)model-symbol\.json: compiling ended with status 1: .*node conv0"):
        load(folder, compiler=f"{compiler} fail")
    with pytest.raises(ModelError, match="its compiler can't be started, see NGRAPH_RUNTIME_COMPILER"):
        load(folder, compiler="/nowhere/ngraph-mxnet compile")
    assert not list(folder.glob("*.ngraph"))


@pytest.mark.parametrize(("change", "text"), [
    (lambda folder: (folder / "model-0000.params").unlink(), "has no weights: expected model-0000.params"),
    (lambda folder: (folder / "other-symbol.json").write_text("{}"), "expected one model: name its file"),
    (lambda folder: [path.unlink() for path in folder.iterdir()], "found 0 compiled files, expected one"),
    (lambda folder: (folder / "model-shapes.json").write_text('{"data": [1]}'), "expected a list of inputs such as"),
    (lambda folder: (folder / "model-shapes.json").write_text("["), "expected a list of inputs such as"),
])
def test_folders_that_hold_no_model(compiler, folder, change, text):
    change(folder)
    with pytest.raises(ModelError, match=text):
        load(folder)
    with pytest.raises(ModelError, match="no such file or folder"):
        load(folder / "nothing-symbol.json")


@pytest.fixture
def real_folder(real_library, folder):
    """A layer of MXNet's, whose files the package compiles."""
    if not hasattr(sys, "stdlib_module_names"):  # the package needs Python 3.10, which has them
        pytest.skip("the other Pythons have the runtime alone")
    mx = pytest.importorskip("mxnet", reason="the other Pythons have the runtime alone")

    def write(seed):
        mx.random.seed(seed)
        net = mx.gluon.nn.Dense(5, in_units=3)
        net.initialize(mx.init.Xavier())
        net.hybridize()
        net(mx.nd.zeros((1, 3)))
        net.export(str(folder / "model"))
        return net(mx.nd.array(rows(5))).asnumpy()

    return folder, write


@pytest.mark.parametrize("batch", [1, 4])
def test_weights_that_change_are_compiled_anew(real_folder, batch):
    folder, write = real_folder
    for seed in (0, 1):
        expected = write(seed)
        served = load(folder, batch=batch)
        assert served.most_rows == batch
        np.testing.assert_allclose(served.run([rows(5)])[0], expected, rtol=1e-5)
    kept = (folder / "model.ngraph").stat()
    load(folder, batch=batch)
    assert (folder / "model.ngraph").stat().st_ino == kept.st_ino, "nothing was compiled again"
