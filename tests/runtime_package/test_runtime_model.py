"""Loading and calling a model, beside a library that is made for the tests."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest

import ngraph_runtime
from ngraph_runtime import InputError, LibraryError, ModelError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_what_a_model_says_of_itself(fake):
    path = fake("twice")
    model = ngraph_runtime.load(path, threads=3)
    assert (model.path, model.threads, model.name, model.precision) == (path, 3, "fake", "f32")
    assert model.made_by == "ngraph_mxnet 0.0" and model.metadata == {"labels": "ä, b"}
    assert model.instruction_set == "baseline"
    (data,) = model.inputs
    assert (data.name, data.element, data.dtype, data.shape) == ("data", "f32", np.float32, (2, 3))
    assert data.shapes == ((2, 3), (4, 3))
    assert [port.name for port in model.outputs] == ["twice", "a/total"] and model.outputs[1].shape == ()
    assert model.shape_sets[1].inputs == {"data": (4, 3)}
    assert model.shape_sets[1].outputs == {"twice": (4, 3), "a/total": ()}
    assert "data -> twice, a/total" in repr(model)


def test_by_position_and_by_name(fake):
    model = ngraph_runtime.load(fake("twice"))
    for outputs in (model(X), model(data=X), model.run([X]), model.run((X,)), model.run({"data": X}), model.run(X)):
        assert isinstance(outputs, list) and len(outputs) == 2
        assert np.array_equal(outputs[0], 2 * X) and outputs[1].shape == () and outputs[1] == X.sum()
        assert outputs[0].dtype == np.float32 and outputs[1].dtype == np.float64


def test_the_shapes_choose_the_set(fake):
    model = ngraph_runtime.load(fake("twice"))
    large = np.ones((4, 3), np.float32)
    assert model(large)[0].shape == (4, 3) and model(X)[0].shape == (2, 3) and model(large)[1] == 12


def test_every_element_type(fake):
    model = ngraph_runtime.load(fake("types"))
    values = [np.array([True, False]), np.array([1, -2**40]), np.array([1, 255], np.uint8),
              np.array([1, 2], np.float16), np.array([0x3F80, 1], np.uint16)]
    assert [port.dtype for port in model.inputs] == [value.dtype for value in values]
    found = model(*values)
    assert [array.dtype for array in found] == [value.dtype for value in values]
    assert all(map(np.array_equal, found, values))


def test_a_seed_is_an_integer(fake):
    model = ngraph_runtime.load(fake("twice"))
    model.seed(7)
    with pytest.raises(TypeError):
        model.seed(0.5)


# ---- memory ------------------------------------------------------------------------------------------------


def probe(address_of: np.ndarray, **options: object) -> tuple[int, int]:
    """The address and the number of threads that the library was given."""
    return tuple(int(n) for n in ngraph_runtime.load(options.pop("path")).run([address_of], **options)[0])


def test_arrays_that_fit_are_read_in_place(fake):
    path, array = fake("probe"), np.zeros(2, np.float32)
    assert probe(array, path=path) == (array.ctypes.data, 0)
    array.flags.writeable = False
    assert probe(array, path=path)[0] == array.ctypes.data
    assert probe(np.zeros((2, 2), np.float32)[1], path=path)[0]


def test_other_layouts_are_copied(fake):
    model = ngraph_runtime.load(fake("twice"))
    shifted = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3)
    shifted[:] = X
    assert not shifted.flags.aligned
    for array in (np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], shifted, X[::-1][::-1]):
        assert np.array_equal(model(array)[0], 2 * X)


class Tensor:
    """A tensor of another framework: DLPack is all that it offers."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_buffers_and_tensors_of_others(fake):
    path, array = fake("probe"), np.zeros(2, np.float32)
    assert probe(memoryview(array), path=path)[0] == array.ctypes.data
    if hasattr(np, "from_dlpack"):
        assert probe(Tensor(array), path=path)[0] == array.ctypes.data
        with pytest.raises(InputError, match=r"input data: found float64 \[2,3\], expected float32"):
            ngraph_runtime.load(fake("twice"))(Tensor(X.astype(np.float64)))
    memory = np.memmap(path + ".raw", np.float32, "w+", shape=2)
    assert probe(memory, path=path)[0] == memory.ctypes.data
    assert ngraph_runtime.load(fake("twice"))([[1, 2, 3], [4, 5, 6.5]])[1] == 21.5


def test_out(fake):
    model = ngraph_runtime.load(fake("twice"))
    twice, total = np.zeros((2, 3), np.float32), np.zeros(())
    for out in ([twice, total], {"a/total": total, "twice": twice}):
        twice[:] = total[...] = 0
        found = model.run([X], out=out)
        assert found[0] is twice and found[1] is total and np.array_equal(twice, 2 * X) and total == 15
    single = ngraph_runtime.load(fake("single"))
    assert single.run(X, out=twice)[0] is twice


@pytest.mark.parametrize(("out", "text"), [
    ([np.zeros((2, 3), np.float32)], r"out has 1 arrays: the outputs are twice, a/total"),
    ({"twice": None}, r"out has twice: the outputs are twice, a/total"),
    ([np.zeros((2, 3)), np.zeros(())], r"out for twice: found float64 \[2,3\], expected a NumPy array of float32"),
    ([np.zeros((4, 3), np.float32), np.zeros(())], r"out for twice: found float32 \[4,3\]"),
    ([[0.0], np.zeros(())], r"out for twice: found a list"),
    ([np.zeros((2, 6), np.float32)[:, ::2], np.zeros(())], r"\[2,3\], not C-contiguous, expected"),
    ([np.frombuffer(bytes(24), np.float32).reshape(2, 3), np.zeros(())], r"\[2,3\], not writeable, expected"),
    ([X, np.zeros(())], r"out for twice: shares memory with an input or another output"),
])
def test_out_that_does_not_fit(fake, out, text):
    with pytest.raises(InputError, match=text):
        ngraph_runtime.load(fake("twice")).run([X], out=out)


# ---- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arrays", "named", "text"), [
    ((X.astype(np.float64),), {}, r"input data: found float64 \[2,3\], expected float32"),
    ((X.astype(">f4"),), {}, r"of the other byte order, \[2,3\], expected float32"),
    ((X[0],), {}, r"input data: found shape \[3\], expected \[2,3\] or \[4,3\]"),
    ((["a", "b"],), {}, r"input data: found <U1 \[2\], expected float32"),
    (([[1.0], [1.0, 2.0]],), {}, r"input data: found "),
    ((b"abc",), {}, r"input data: found .S3 \[\], expected float32"),
    ((X, X), {}, r"found 2 inputs, expected 1: data"),
    ((), {}, r"found 0 inputs, expected 1: data"),
    ((), {"date": X}, r"there is no input date: the inputs are data"),
    ((X,), {"data": X}, r"found 2 inputs|input data was given by position and by name"),
])
def test_inputs_that_do_not_fit(fake, arrays, named, text):
    with pytest.raises(InputError, match=text) as caught:
        ngraph_runtime.load(fake("twice"))(*arrays, **named)
    assert isinstance(caught.value, ValueError)


def test_shapes_that_are_in_different_sets(fake):
    model = ngraph_runtime.load(fake("pairs"))
    one, two = np.zeros(1, np.float32), np.zeros(2, np.float32)
    assert [a.shape for a in model(one, right=one)] == [(1,), (1,)]
    with pytest.raises(InputError, match=r"found left \[1\], right \[2\], expected one of the sets of shapes: "
                                         r"left \[1\], right \[1\]; left \[2\], right \[2\]"):
        model(one, two)
    with pytest.raises(InputError, match="nothing was given for right"):
        model.run({"left": one})
    with pytest.raises(InputError, match="input left was given by position and by name"):
        model(one, left=one)


@pytest.mark.parametrize("threads", [-1, 2**31, "two", 1.5, None])
def test_numbers_of_threads_that_are_none(fake, threads):
    with pytest.raises(InputError, match="threads: found"):
        ngraph_runtime.load(fake("single"), threads=threads)


def test_threads_of_the_model_and_of_a_call(fake):
    path, array = fake("probe"), np.zeros(2, np.float32)
    model = ngraph_runtime.load(path, threads=2)
    assert model(array)[0][1] == 2 and model.run(array)[0][1] == 2
    assert model.run(array, threads=5)[0][1] == 5 and model.run(array, threads=np.int64(0))[0][1] == 0


@pytest.mark.parametrize(("word", "text"), [
    ("nonsense", "it is no compiled model"),
    ("other-cpu", "it has nothing that this CPU runs"),
    ("newer", "x has elements i4 of 1 bytes, which this version of ngraph-runtime does not know"),
    ("no-json", "its metadata is no JSON object"),
    ("deep-json", "its metadata is no JSON object"),
])
def test_files_that_are_refused(fake, word, text):
    path = fake(word)
    with pytest.raises(ModelError, match=text):
        ngraph_runtime.load(path)


def test_a_file_that_is_not_there(fake):
    fake("twice")
    with pytest.raises(ModelError, match=r"nowhere\.ngraph: no such file"):
        ngraph_runtime.load("nowhere.ngraph")
    with pytest.raises(ModelError, match="zero bytes"):
        ngraph_runtime.load("a\0b")


@pytest.mark.parametrize(("status", "error"), [(2, ModelError), (4, InputError), (5, MemoryError), (77, ModelError)])
def test_a_run_that_fails(fake, status, error):
    model = ngraph_runtime.load(fake("probe"))
    with pytest.raises(error, match="step 3 of probe failed"):
        model(np.array([0, status], np.float32))
    assert model(np.zeros(2, np.float32))


def test_libraries_that_are_none(fake, monkeypatch, tmp_path):
    path = fake("twice")
    monkeypatch.setenv("NGRAPH_RUNTIME_LIBRARY", str(tmp_path / "gone.so"))
    with pytest.raises(LibraryError, match=r"there is no .*gone.so: NGRAPH_RUNTIME_LIBRARY names it"):
        ngraph_runtime.load(path)
    monkeypatch.setenv("NGRAPH_RUNTIME_LIBRARY", path)
    with pytest.raises(LibraryError, match="does not load"):
        ngraph_runtime.load(path)
    monkeypatch.setenv("NGRAPH_RUNTIME_LIBRARY", other_library())
    with pytest.raises(LibraryError, match="has no function ngraph_"):
        ngraph_runtime.load(path)


def test_a_library_with_another_interface(fake_library, monkeypatch, tmp_path):
    path = shutil.copy(fake_library, tmp_path / "newer.so")  # one that is loaded is not asked again
    monkeypatch.setenv("FAKE_ABI", "2")
    monkeypatch.setenv("NGRAPH_RUNTIME_LIBRARY", str(path))
    with pytest.raises(LibraryError, match=r"newer\.so has the interface 2, this package knows 1"):
        ngraph_runtime.load("model.ngraph")


def other_library() -> str:
    """Some library that is loaded here."""
    with open("/proc/self/maps") as maps:
        return next(line.split()[-1] for line in maps if "libm.so" in line or "libm-" in line)


# ---- threads and lifetimes ---------------------------------------------------------------------------------


def test_calls_overlap(fake):
    """The library sleeps within each call: four of them take the time of one."""
    model = ngraph_runtime.load(fake("probe"))
    array = np.array([200, 0], np.float32)
    threads = [threading.Thread(target=model, args=(array,)) for _ in range(4)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.perf_counter() - began < 0.6


def test_run_async(fake):
    model = ngraph_runtime.load(fake("probe"))
    futures = [model.run_async([np.array([20, 0], np.float32)], threads=n) for n in range(1, 5)]
    assert all(isinstance(future, Future) for future in futures)
    assert [future.result()[0][1] for future in futures] == [1, 2, 3, 4]
    assert isinstance(model.run_async([X]).exception(), InputError)
    out = np.zeros(2, np.int64)
    assert model.run_async(np.zeros(2, np.float32), out=out).result()[0] is out


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(fake):
    model = ngraph_runtime.load(fake("probe"))
    array = np.zeros(2, np.float32)
    model.run_async(array).result()
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if model.run_async(array).result(timeout=20) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_many_threads_get_their_own_results(fake):
    model = ngraph_runtime.load(fake("single"))
    wrong = []

    def calls(number: int) -> None:
        array = np.full((2, 3), number, np.float32)
        for _ in range(300):
            if not np.array_equal(model(array)[0], 2 * array):
                wrong.append(number)

    threads = [threading.Thread(target=calls, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_models_are_freed(fake, fake_library):
    alive = ctypes.CDLL(fake_library).fake_live_models
    gc.collect()
    before = alive()
    path = fake("single")
    model = ngraph_runtime.load(path)
    pending = ngraph_runtime.load(fake("probe")).run_async(np.array([50, 0], np.float32))
    assert alive() == before + 2
    assert pending.result()
    del model
    with pytest.raises(ModelError):
        ngraph_runtime.load(fake("newer"))
    deadline = time.monotonic() + 10
    while alive() != before and time.monotonic() < deadline:  # the pool's thread drops its model a little later
        gc.collect()
        time.sleep(0.01)
    assert alive() == before
