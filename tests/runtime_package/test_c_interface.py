"""What include/ngraph_runtime.h says of the real library beyond what the Python package uses."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ngraph_runtime
from ngraph_runtime import InputError, ModelError
from ngraph_runtime.library import ABI
from ngraph_runtime.reference import references, verify

HEADER = Path(__file__).parents[2] / "runtime" / "include" / "ngraph_runtime.h"
OK, FILE, ARGUMENT = 0, 1, 4
TABLE, SECTION, REFERENCE = 64, struct.Struct("<IIQQ16sII16x"), 4  # docs/artefact.md


@pytest.fixture
def c(real_library: str) -> ctypes.CDLL:
    library = ctypes.CDLL(real_library)
    for name in ("ngraph_last_error", "ngraph_metadata", "ngraph_instruction_set"):
        getattr(library, name).restype = ctypes.c_char_p
    for name in ("ngraph_input", "ngraph_output"):
        getattr(library, name).restype = ctypes.c_void_p
    return library


def test_the_number_of_the_interface(c: ctypes.CDLL) -> None:
    (declared,) = re.findall(r"#define NGRAPH_RUNTIME_ABI (\d+)", HEADER.read_text())
    assert c.ngraph_runtime_abi() == int(declared) == ABI


def test_null_pointers(c: ctypes.CDLL, small_model: Path) -> None:
    model = ctypes.c_void_p(1)
    assert c.ngraph_load(None, ctypes.byref(model)) == ARGUMENT and not model
    assert c.ngraph_load(b"x", None) == ARGUMENT
    assert (c.ngraph_metadata(None), c.ngraph_instruction_set(None)) == (b"", b"")
    assert c.ngraph_shape_sets(None) == c.ngraph_inputs(None) == c.ngraph_outputs(None) == 0
    assert c.ngraph_input(None, 0, 0) is c.ngraph_output(None, 0, 0) is None
    assert c.ngraph_run(None, 0, None, None, 1) == ARGUMENT and b"model is null" in c.ngraph_last_error()
    assert c.ngraph_load(os.fsencode(small_model), ctypes.byref(model)) == OK
    assert c.ngraph_run(model, 0, None, None, 1) == ARGUMENT and b"inputs or outputs is null" in c.ngraph_last_error()
    nothing = (ctypes.c_void_p * 1)()
    assert c.ngraph_run(model, 0, nothing, nothing, 1) == ARGUMENT and c.ngraph_last_error() == b"input x is null"
    assert c.ngraph_reference(model, 0, None, None) == ARGUMENT
    c.ngraph_free(model)
    c.ngraph_free(None)


@pytest.mark.parametrize("threads", [-1, -2**31, 1025])
def test_numbers_of_threads_that_are_none(c: ctypes.CDLL, small_model: Path, threads: int) -> None:
    model = ctypes.c_void_p()
    assert c.ngraph_load(os.fsencode(small_model), ctypes.byref(model)) == OK
    arrays = (ctypes.c_void_p * 1)()
    assert c.ngraph_run(model, 0, arrays, arrays, threads) == ARGUMENT
    assert f"{threads} threads, expected 0 to 1024".encode() in c.ngraph_last_error()
    c.ngraph_free(model)


def test_errors_are_each_threads_own(c: ctypes.CDLL, tmp_path: Path) -> None:
    """And paths are bytes, in no encoding."""
    model, texts = ctypes.c_void_p(), {}

    def fails(name: bytes) -> None:
        before = c.ngraph_last_error()
        status = c.ngraph_load(name, ctypes.byref(model))
        texts[name] = before, status, c.ngraph_last_error()

    fails(b"one \xff")
    thread = threading.Thread(target=fails, args=(b"other",))
    thread.start()
    thread.join()
    assert texts[b"other"] == (b"", FILE, b"other: No such file or directory")
    assert c.ngraph_last_error() == b"one \xff: No such file or directory"
    odd = os.fsdecode(bytes(tmp_path) + b"/\xff.ngraph")
    with pytest.raises(ModelError, match="No such file"):
        ngraph_runtime.load(odd)


def test_a_path_that_is_no_utf8(real_library: str, small_model: Path, tmp_path: Path) -> None:
    odd = bytes(tmp_path) + b"/\xff.ngraph"
    shutil.copy(small_model, odd)
    assert ngraph_runtime.load(os.fsdecode(odd)).inputs[0].name == "x"


def test_references(real_library: str, small_model: Path) -> None:
    model = ngraph_runtime.load(small_model)
    found = model.reference()
    assert found is not None
    (x,), (y,) = found
    assert x.shape == (3, 40) and x.any()
    np.testing.assert_allclose(model(x)[0], y, rtol=1e-4, atol=1e-5)
    assert [one.matches for one in verify(model)] == [True]
    with pytest.raises(InputError, match="there is no set of shapes 1, the model has 1"):
        model.reference(1)


@pytest.mark.parametrize("content", [None, b"", bytes(500), "another"])
def test_references_are_of_the_file_that_was_loaded(real_library: str, small_model: Path, tmp_path: Path,
                                                    export_small: Callable[[Path, int], None],
                                                    content: bytes | str | None) -> None:
    """Whatever stands in its place when they are asked for: nothing, no model, or one with a reference of its own."""
    path = tmp_path / "m.ngraph"
    shutil.copy(small_model, path)
    model = ngraph_runtime.load(path)
    path.unlink()
    if content == "another":
        export_small(path, 1)
        assert not np.array_equal(ngraph_runtime.load(path).reference()[1][0],
                                  ngraph_runtime.load(small_model).reference()[1][0])
    elif content is not None:
        path.write_bytes(content)
    np.testing.assert_equal(model.reference(), ngraph_runtime.load(small_model).reference())
    assert [one.matches for one in verify(model)] == [True]


@pytest.mark.parametrize("place", [0, 4, 20, -1], ids=["set", "inputs", "element", "last"])
def test_a_damaged_reference_is_refused_and_the_model_runs(real_library: str, small_model: Path, tmp_path: Path,
                                                           place: int) -> None:
    content = bytearray(small_model.read_bytes())
    (count,) = struct.unpack_from("<I", content, 20)
    (row,) = (row for row in SECTION.iter_unpack(content[TABLE:TABLE + count * SECTION.size]) if row[0] == REFERENCE)
    offset, size = row[2:4]
    content[offset + place % size] ^= 1
    path = tmp_path / "m.ngraph"
    path.write_bytes(content)
    model, x = ngraph_runtime.load(path), np.ones((3, 40), np.float32)
    for _ in range(2):
        with pytest.raises(ModelError, match=rf"m\.ngraph: REFERENCE at {offset} is damaged"):
            references(model)
    np.testing.assert_array_equal(model(x)[0], ngraph_runtime.load(small_model)(x)[0])


def test_a_file_that_is_replaced_or_removed_stays_what_it_was(real_library: str, small_model: Path,
                                                               tmp_path: Path) -> None:
    path, x = tmp_path / "m.ngraph", np.ones((3, 40), np.float32)
    shutil.copy(small_model, path)
    model = ngraph_runtime.load(path)
    expected = model(x)[0]
    (tmp_path / "new").write_bytes(bytes(path.stat().st_size))
    (tmp_path / "new").replace(path)
    np.testing.assert_array_equal(model(x)[0], expected)
    path.unlink()
    np.testing.assert_array_equal(model(x)[0], expected)
    with pytest.raises(ModelError, match="No such file"):
        ngraph_runtime.load(path)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_runs_its_parents_models(real_library: str, small_model: Path) -> None:
    model, x = ngraph_runtime.load(small_model), np.ones((3, 40), np.float32)
    expected = model.run([x], threads=2)[0]
    child = os.fork()
    if child == 0:
        try:
            same = (np.array_equal(model.run([x], threads=2)[0], expected)
                    and np.array_equal(ngraph_runtime.load(small_model)(x)[0], expected))
            os._exit(0 if same else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(model.run([x], threads=2)[0], expected)


def test_shapes_that_no_set_has(c: ctypes.CDLL, small_model: Path) -> None:
    """Of a model without ranges, too."""
    model, bound = ctypes.c_void_p(), ctypes.c_void_p()
    assert c.ngraph_load(os.fsencode(small_model), ctypes.byref(model)) == OK
    for sizes, status in (((3, 40), OK), ((4, 40), ARGUMENT), ((3,), ARGUMENT)):
        row = (ctypes.c_int64 * len(sizes))(*sizes)
        shapes, ranks = (ctypes.c_void_p * 1)(ctypes.addressof(row)), (ctypes.c_size_t * 1)(len(sizes))
        assert c.ngraph_bind(model, shapes, ranks, ctypes.byref(bound)) == status
        if status == OK:
            c.ngraph_unbind(bound)
        else:
            shown = ",".join(map(str, sizes))
            assert c.ngraph_last_error().decode() == f"input x: found shape [{shown}], expected [3,40]"
    c.ngraph_free(model)
