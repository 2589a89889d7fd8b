"""Files that `ngraph_mxnet.export` writes, run by the real library: the same bits as in the process that wrote them."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="the other Pythons have the runtime alone")
ngraph_mxnet = pytest.importorskip("ngraph_mxnet", reason="the other Pythons have the runtime alone")
from mxnet.gluon import nn, rnn  # noqa: E402
from mxnet.gluon.model_zoo import vision  # noqa: E402

import ngraph_runtime  # noqa: E402
from ngraph_mxnet import _core  # noqa: E402
from ngraph_mxnet.targets.cpu.machine.isa import supported  # noqa: E402
from ngraph_runtime import InputError, ModelError  # noqa: E402
from ngraph_runtime.reference import verify  # noqa: E402
from ngraph_runtime.serving import load  # noqa: E402

ISAS = [isa for isa in supported(_core.cpu_features()) if isa != "baseline"]
"""Beside others, baseline has no Winograd's algorithm in a file."""


def conv_net() -> tuple[mx.gluon.HybridBlock, tuple[int, ...]]:
    block = nn.HybridSequential()
    block.add(nn.Conv2D(16, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(), nn.Dense(5))
    return block, (2, 3, 12, 12)


MODELS = {
    "conv": conv_net,
    "lstm": lambda: (rnn.LSTM(24, num_layers=2, bidirectional=True), (7, 2, 10)),
    "mobilenet0.25": lambda: (vision.mobilenet0_25(classes=20), (1, 3, 64, 64)),
    "squeezenet1.1": lambda: (vision.squeezenet1_1(classes=10), (1, 3, 224, 224)),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest,
          tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, mx.gluon.HybridBlock]:
    """The file, with x.npy and the block's own result for it beside, and the block."""
    mx.random.seed(1)
    block, shape = MODELS[request.param]()
    block.initialize(mx.init.Xavier())
    folder = tmp_path_factory.mktemp(request.param)
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "native.npy", block(mx.nd.array(x)).asnumpy())
    ngraph_mxnet.export(block, folder / "model.ngraph", data=[shape, (shape[0] + 1, *shape[1:])]
                        if request.param != "lstm" else shape, with_references=True)
    return folder / "model.ngraph", block


def in_process(block: mx.gluon.HybridBlock, isa: str, x: np.ndarray) -> np.ndarray:
    from ngraph_mxnet.frontends.model import model_of

    shapes = {"data": x.shape}
    graph, weights = model_of(block).graph(shapes, "CPU")()
    return ngraph_mxnet.compile(graph, "CPU", weights=weights, isa=isa)(x)[0]


@pytest.mark.parametrize("isa", ISAS)
def test_the_same_bits(model: tuple[Path, mx.gluon.HybridBlock], isa: str, real_library: str,
                       monkeypatch: pytest.MonkeyPatch) -> None:
    path, block = model
    monkeypatch.setenv("NGRAPH_CPU_ISA", isa)
    loaded, x = ngraph_runtime.load(path), np.load(path.with_name("x.npy"))
    assert loaded.instruction_set == isa
    expected = in_process(block, isa, x)
    for threads in (1, 2, 5, None):
        np.testing.assert_array_equal(loaded.run([x], threads=threads)[0], expected, strict=True)
    np.testing.assert_allclose(expected, np.load(path.with_name("native.npy")), rtol=1e-4, atol=1e-5)


def test_threads_share_a_model(model: tuple[Path, mx.gluon.HybridBlock], real_library: str) -> None:
    path, _ = model
    loaded, x = ngraph_runtime.load(path), np.load(path.with_name("x.npy"))
    expected = [loaded(x * scale)[0] for scale in range(8)]

    def right(number: int) -> bool:
        return np.array_equal(loaded.run([x * (number % 8)], threads=1 + number % 3)[0], expected[number % 8])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(right, range(200)))


def test_the_command_verifies(model: tuple[Path, mx.gluon.HybridBlock], real_library: str) -> None:
    path, _ = model
    command = [sys.executable, "-m", "ngraph_runtime", str(path), "--verify", "--json"]
    environment_path = str(Path(ngraph_runtime.__file__).parents[1])
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env={"PYTHONPATH": environment_path, "NGRAPH_RUNTIME_LIBRARY": real_library, "PATH": ""})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_seeds_of_a_model_that_draws(real_library: str, tmp_path: Path) -> None:
    """For sets of shapes and for ranges; what callers see has no state."""
    p = mx.sym.Variable("p")
    symbol, path = mx.sym.sample_gamma(p, p), tmp_path / "drawn.ngraph"
    ngraph_mxnet.export(symbol, path, params={}, p=[(2, 3), (4, 3), ("N", 5)], with_references=True)
    compiled = ngraph_mxnet.compile(symbol, "CPU", params={}, shapes={"p": (2, 3)})
    model, again = ngraph_runtime.load(path), ngraph_mxnet.compile(str(path))
    assert [port.name for port in model.inputs] == [port.name for port in again.inputs] == ["p"]
    assert model.ranges[0].inputs == {"p": ("N", 5)}
    x = np.full((2, 3), 2, np.float32)
    first = [compiled(x)[0] for _ in range(3)]
    for one in (model, again):
        for wanted in first:
            np.testing.assert_array_equal(one(x)[0], wanted)
        one.seed(-1)
        assert (one(x)[0] != first[0]).all()
        one.seed(2**64)
        np.testing.assert_array_equal(one(x)[0], first[0])
    wide = np.full((7, 5), 2, np.float32)
    model.seed(4)
    again.seed(4)
    drawn = [model(wide)[0] for _ in range(2)]
    assert (drawn[0] != drawn[1]).any()
    np.testing.assert_array_equal(drawn, [again(wide)[0] for _ in range(2)])
    with ThreadPoolExecutor(4) as pool:
        model.seed(0)
        together = list(pool.map(lambda _: model(x)[0].tobytes(), range(3)))
    assert sorted(together) == sorted(array.tobytes() for array in first)
    assert [one.matches for one in verify(model)] == [True, True]
    with pytest.raises(InputError, match="input p: found shape"):
        model(np.zeros((7, 6), np.float32))


def test_workers_draw_different_numbers(real_library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless they are told their seed."""
    p = mx.sym.Variable("p")
    ngraph_mxnet.export(mx.sym.sample_normal(p, p), tmp_path / "drawn.ngraph", params={}, p=(2, 3))
    x = np.ones((2, 3), np.float32)

    def drawn() -> list[float]:
        return load(tmp_path).run([x])[0].ravel().tolist()

    monkeypatch.delenv("NGRAPH_RUNTIME_SEED", raising=False)
    assert len({number for _ in range(3) for number in drawn()}) == 18
    monkeypatch.setenv("NGRAPH_RUNTIME_SEED", "5")
    assert drawn() == drawn()


def test_shapes_are_chosen_by_the_inputs(real_library: str, tmp_path: Path) -> None:
    block, shape = conv_net()
    block.initialize()
    ngraph_mxnet.export(block, tmp_path / "m.ngraph", data=[shape, (5, 3, 12, 12)])
    loaded = ngraph_runtime.load(tmp_path / "m.ngraph")
    for batch in (2, 5):
        assert loaded(np.zeros((batch, 3, 12, 12), np.float32))[0].shape == (batch, 5)
    with pytest.raises(InputError, match=r"found shape \[3,3,12,12\]"):
        loaded(np.zeros((3, 3, 12, 12), np.float32))
    (tmp_path / "m.ngraph").unlink()  # what is mapped stays
    assert loaded(np.zeros((5, 3, 12, 12), np.float32))[0].shape == (5, 5)


def test_damage_is_refused(real_library: str, tmp_path: Path) -> None:
    """A byte changed anywhere, or the end cut off."""
    block, shape = conv_net()
    block.initialize()
    ngraph_mxnet.export(block, tmp_path / "m.ngraph", data=shape, isas=["baseline"])
    content = (tmp_path / "m.ngraph").read_bytes()
    random, refused = np.random.default_rng(0), 0
    for trial in range(300):
        damaged = bytearray(content)
        if trial % 10 == 0:
            del damaged[int(random.integers(len(content))):]
        else:
            damaged[int(random.integers(len(content)))] ^= int(random.integers(1, 256))
        path = tmp_path / "damaged.ngraph"
        path.write_bytes(damaged)
        try:
            ngraph_runtime.load(path)(np.zeros(shape, np.float32))
        except ModelError:
            refused += 1
    assert refused > 250  # what lies between sections is nothing


def test_a_program_in_c(real_library: str, tmp_path: Path) -> None:
    """examples/c/classify.c finds the classes that Python finds."""
    block = vision.mobilenet0_25(classes=20)
    block.initialize(mx.init.Xavier())
    ngraph_mxnet.export(block, tmp_path / "m.ngraph", data=(1, 3, 64, 64))
    pixels = np.random.default_rng(4).integers(0, 256, (64, 64, 3), np.uint8)
    (tmp_path / "image.ppm").write_bytes(b"P6\n64 64\n255\n" + pixels.tobytes())
    program, folder, root = tmp_path / "classify", Path(real_library).parent, Path(__file__).parents[2]
    subprocess.run(["cc", "-std=c11", f"-I{root}/runtime/include", "-o", program, f"{root}/examples/c/classify.c",
                    f"-L{folder}", "-lngraph_runtime", f"-Wl,-rpath,{folder}"], check=True)
    done = subprocess.run([program, tmp_path / "m.ngraph", tmp_path / "image.ppm"], capture_output=True, text=True,
                          check=True)
    found = [int(line.split()[0]) for line in done.stdout.splitlines()]
    x = (pixels / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    scores = ngraph_runtime.load(tmp_path / "m.ngraph")(x.transpose(2, 0, 1)[None].astype(np.float32))[0][0]
    assert found == np.argsort(-scores)[:5].tolist()
