"""Models for ranges of sizes: beside the library that is made for the tests, and on the real one."""

from __future__ import annotations

import ctypes
import gc
import threading

import numpy as np
import pytest

import ngraph_runtime
from ngraph_runtime import InputError
from ngraph_runtime.run import main


def rows(count: int) -> np.ndarray:
    return np.arange(3 * count, dtype=np.float32).reshape(count, 3)


@pytest.mark.parametrize("word", ["ranged", "range"])
def test_what_a_model_says_of_its_range(fake, word):
    model = ngraph_runtime.load(fake(word))
    (data,), (found,) = model.inputs, model.ranges
    assert data.ranges == (("N", 3),) and data.shape == ((2, 3) if word == "ranged" else ("N", 3))
    assert len(model.shape_sets) == (word == "ranged")
    assert (found.inputs, found.outputs) == ({"data": ("N", 3)}, {"twice": ("N", 3)})
    assert found.symbols == {"N": (1, 100)} and found.guards == ("N != 7",)
    assert str(found) == "data [N,3] with N 1..100"


@pytest.mark.parametrize("word", ["ranged", "range"])
def test_all_sizes_of_a_range(fake, word):
    model = ngraph_runtime.load(fake(word))
    for count in (2, 5, 100, 5, 1):
        assert np.array_equal(model(rows(count))[0], 2 * rows(count))
    out = np.empty((5, 3), np.float32)
    assert model.run(rows(5), out=out)[0] is out and np.array_equal(out, 2 * rows(5))
    with pytest.raises(InputError, match=r"expected \[N,3\] with N 1\.\.100"):
        model(rows(101))
    with pytest.raises(InputError, match=r"found data \[7,3\], expected N != 7"):
        model(rows(7))


def test_what_is_bound_is_bounded_and_given_back(fake, fake_library):
    live = ctypes.CDLL(fake_library).fake_live_bound
    model = ngraph_runtime.load(fake("ranged"))
    for count in range(8, 101):
        model(rows(count))
    assert live() == 64
    model(rows(2))  # that is a set of shapes of its own
    assert live() == 64
    del model
    gc.collect()
    assert live() == 0


def test_threads_that_bind_at_once(fake, fake_library):
    model, wrong = ngraph_runtime.load(fake("ranged")), []

    def call() -> None:
        for count in [*range(8, 101)] * 3:
            if not np.array_equal(model(rows(count))[0], 2 * rows(count)):
                wrong.append(count)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    gc.collect()
    assert ctypes.CDLL(fake_library).fake_live_bound() <= 64 + 4


def test_the_command(fake, capsys):
    assert main([fake("range"), "--list"]) == 0
    assert "range 0:\n  input data: f32 [N,3]\n  output twice: f32 [N,3]\n  N 1..100\n  where N != 7" in (
        capsys.readouterr().out)
    assert main([fake("range"), "--time", "2", "--shape", "data=5,3"]) == 0
    for wrong in (["--shape", "data=x"], ["--shape", "other=5,3"], []):
        assert main([fake("range"), "--time", "2", *wrong]) == 2
    error = capsys.readouterr().err
    assert "the model takes ranges of sizes, data [N,3] with N 1..100: give --shape" in error
    assert "--shape: found other, expected one for each of data" in error


# ---- the real library --------------------------------------------------------------------------------------------


def test_a_range_on_the_real_library(real_library, tmp_path):
    """Each size gives what a set of shapes for it gives, and one that has a set of shapes runs that."""
    ngraph_mxnet = pytest.importorskip("ngraph_mxnet", reason="the other Pythons have the runtime alone")
    from ngraph_mxnet.ir import Builder
    from ngraph_mxnet.ir.sizes import symbol

    weights = np.random.default_rng(1).standard_normal((16, 3, 3, 3), np.float32)

    def graph(*shape):
        b = Builder()
        y = b.relu(b.convolution(b.parameter("data", shape), b.constant(weights), pads_begin=(1, 1), pads_end=(1, 1)))
        return b.results(y, b.reduce_mean(y, axes=(2, 3)))

    ngraph_mxnet.export(graph(symbol("N", 1, 32), 3, symbol("H", 4, 99), 20), tmp_path / "range.ngraph")
    model = ngraph_runtime.load(tmp_path / "range.ngraph")
    random = np.random.default_rng(2)
    for batch, height in ((1, 4), (32, 5), (3, 99), (7, 20)):
        x = random.standard_normal((batch, 3, height, 20), np.float32)
        ngraph_mxnet.export(graph(*x.shape), tmp_path / "fixed.ngraph")
        expected = ngraph_runtime.load(tmp_path / "fixed.ngraph")(x)
        for found, wanted in zip(model(x), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    for count in range(4, 99):  # more than are kept
        assert model(np.zeros((1, 3, count, 20), np.float32))[1].shape == (1, 16)
    for shape in ((33, 3, 4, 20), (1, 3, 3, 20), (1, 3, 4, 21), (1, 3, 4)):
        with pytest.raises(InputError, match=r"data: found shape .*, expected \[N,3,H,20\] with N 1\.\.32, H 4\.\.99"):
            model(np.zeros(shape, np.float32))
