"""`.params` files of every version, read without MXNet, and damaged ones."""

from __future__ import annotations

import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from fuzzing import params
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet.base.errors import ModelError
from ngraph_mxnet.frontends.mxnet.params import read_arrays, read_params

V1, V2, V3 = params.V1, params.V2, params.V3


def file_bytes(arrays: dict[str, np.ndarray], version: int) -> bytes:
    return params.packed(params.file_fields([params.array_fields(one, version) for one in arrays.values()],
                                            list(arrays)))


def sparse_bytes(shape: tuple[int, ...], data: list[float], *indices: list[int] | np.ndarray) -> bytes:
    """A file of one sparse array of rows of one element, or of a matrix in CSR."""
    elements = np.array(data, np.float32).reshape((-1, 1) if len(indices) == 1 else -1)
    fields = params.sparse_fields(shape, elements, *map(np.asarray, indices))
    return params.packed(params.file_fields([fields], ["arg:x"]))


def some_arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {f"arg:{dtype}": rng.integers(0, 2, (2, 3, 1)).astype(dtype) for dtype in params.FLAGS}


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("version", [0, V1, V2, V3])
def test_versions(version: int, tmp_path: Path) -> None:
    arrays = some_arrays()
    (tmp_path / "net.params").write_bytes(file_bytes(arrays, version))
    same(read_arrays(tmp_path / "net.params"), arrays)
    assert list(read_params(file_bytes(arrays, version))) == list(params.FLAGS)


def test_shapes_of_numpy() -> None:
    """Version 3 has arrays of rank 0 and of no elements, and marks an unknown shape by a negative rank."""
    arrays = {"scalar": np.array(3.5, np.float32), "none": np.zeros((0, 4), np.float32)}
    same(read_arrays(file_bytes(arrays, V3)), arrays)
    unknown = struct.pack("<QQQIiiQQ", 0x112, 0, 1, V3, 0, -1, 1, 1) + b"x"
    assert read_arrays(unknown) == {}


SCRIPT = """
import sys
import ngraph_mxnet
import mxnet as mx
import numpy as np
rng = np.random.default_rng(0)
rows = mx.nd.array(rng.standard_normal((5, 3)) * (np.arange(5) % 2)[:, None])
arrays = {"arg:dense": mx.nd.array(rng.standard_normal((2, 3))), "aux:half": mx.nd.ones((4,), dtype="float16"),
          "arg:rows": rows.tostype("row_sparse"), "arg:csr": rows.tostype("csr"),
          "arg:empty": mx.nd.zeros((5, 3)).tostype("row_sparse")}
mx.nd.waitall()  # MXNet writes the rows of a sparse array before it waits for them
mx.nd.save(sys.argv[1], arrays)
np.savez(sys.argv[2], **{name: array.asnumpy() for name, array in arrays.items()})
with mx.util.np_shape(True), mx.util.np_array(True):
    mx.npx.save(sys.argv[3], {"np": mx.np.array(7.0)})
"""


def test_files_of_mxnet(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a.params", "a.npz", "b.params")]
    subprocess.run([sys.executable, "-c", SCRIPT, *paths], check=True, timeout=120)
    same(read_arrays(paths[0]), dict(np.load(paths[1])))
    same(read_arrays(paths[2]), {"np": np.array(7.0, np.float32)})


def test_damage_is_told(tmp_path: Path) -> None:
    whole = file_bytes(some_arrays(), V2)
    for end in range(len(whole)):
        with pytest.raises(ModelError, match="can't read parameters by name from the parameters: "):
            read_arrays(whole[:end])
    for text, content in {
        "it is no file of MXNet's arrays": b"\x13" + whole[1:],
        "4 bytes follow the last name": whole + b"more",
        "name 7 is b'arg:boo\\\\xff', no UTF-8": whole[:-1] + b"\xff",
        "array 0 has rank 99": whole[:32] + struct.pack("<i", 99) + whole[36:],
        "array 0 has storage type 7": whole[:28] + struct.pack("<i", 7) + whole[32:],
        "it has 1 arrays and 0 names": file_bytes({"x": np.zeros(2, "f")}, V2)[:-17] + bytes(8),
        "array 0 is of bfloat16": file_bytes({"x": np.zeros(2, "f")}, V2).replace(
            struct.pack("<iii", 1, 0, 0), struct.pack("<iii", 1, 0, 12)),
        "MXNet dtype number 9 has no element type": file_bytes({"x": np.zeros(2, "f")}, V2).replace(
            struct.pack("<iii", 1, 0, 0), struct.pack("<iii", 1, 0, 9)),
        "a name occurs twice": file_bytes({"x": np.zeros(2, "f"), "y": np.zeros(2, "f")}, V2)[:-1] + b"x",
    }.items():
        with pytest.raises(ModelError, match=text):
            read_arrays(content)
    with pytest.raises(ModelError, match=r"can't read parameters from .*gone\.params: No such file"):
        read_arrays(tmp_path / "gone.params")


@contextmanager
def peak() -> Iterator[list[int]]:
    """The bytes that Python and NumPy took within, afterwards."""
    taken: list[int] = []
    tracemalloc.start()
    try:
        yield taken
    finally:
        taken.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


LONG = 1 << 60


@pytest.mark.parametrize(("content", "text"), [
    (params.packed([("Q", 0x112), ("Q", 0), ("Q", LONG)]), "it tells of 1152921504606846976 arrays, expected at most"),
    (params.packed([("Q", 0x112), ("Q", 0), ("Q", 0), ("Q", LONG)]), "it has 0 arrays and 1152921504606846976 names"),
    (file_bytes({"x": np.zeros(1, "f")}, V2).replace(struct.pack("<iq", 1, 1), struct.pack("<iq", 1, LONG)),
     r"array 0 has shape \(1152921504606846976,\), larger than any memory"),
    (file_bytes({"x": np.zeros(1, "f")}, V2).replace(struct.pack("<iq", 1, 1), struct.pack("<iq", 1, 1 << 40)),
     "it ends at byte 77, within what begins at byte 56"),
    (file_bytes({"x": np.zeros((0, 1, 1), "f")}, V3).replace(
        struct.pack("<qq", 1, 1), struct.pack("<qq", LONG, LONG), 1), r"shape \(0, 11.*larger than any memory"),
    (sparse_bytes((LONG, 1), [1.0], [0]), f"it brings the file's to {4 * LONG + 16} bytes, expected at most 6710"),
    (sparse_bytes((1 << 26, 1), [1.0], [0]), r"write it dense, as array\.tostype\('default'\)"),
    (sparse_bytes((1, LONG), [1.0], [0, 1], [0]), "it brings the file's to"),
    (sparse_bytes((2, 1), [1.0], [2]), "do not fit its shape .2, 1.: there is no row 2"),
    (sparse_bytes((2, 1), [1.0], [-1]), "there is no row -1"),
    (sparse_bytes((2, 1), [1.0], [0, 1]), r"2 rows, and elements of shape \(1, 1\)"),
    (sparse_bytes((2, 1), [1.0], np.array([0], np.int32)), r"expected vectors of int64, found int32 \(1,\)"),
    (sparse_bytes((2, 3), [1.0], [0, 1, 1], [3]), "there is no column 3"),
    (sparse_bytes((2, 3), [1.0], [0, LONG, 1], [0]), "its rows do not begin one behind the other, from 0 to 1"),
    (sparse_bytes((2, 3), [1.0], [0, 1], [0]), "its rows do not begin"),
    (sparse_bytes((2, 3, 1), [1.0], [0, 1, 1], [0]), "a matrix in CSR of 1 columns"),
])
def test_sizes_and_indices_are_checked_before_memory_is_taken(content: bytes, text: str) -> None:
    with peak() as taken, pytest.raises(ModelError, match=text):
        read_arrays(content)
    assert taken[0] < 1 << 21  # pytest takes some, too


def test_reading_takes_at_most_twice_the_file(tmp_path: Path) -> None:
    """The file, and a sparse array as a dense one."""
    rows = np.arange(1 << 16)
    content = params.packed(params.file_fields([
        params.array_fields(np.zeros(1 << 22, np.float32), V2),
        params.sparse_fields((1 << 17, 64), np.ones((1 << 16, 64), np.float32), rows)], ["x", "y"]))
    (tmp_path / "net.params").write_bytes(content)
    size = len(content)
    del content
    with peak() as taken:
        found = read_arrays(tmp_path / "net.params")
    assert found["y"].sum() == 64 << 16
    assert size < taken[0] < 2.1 * size


@given(st.data())
def test_any_bytes_end_in_a_model_error(data: st.DataObject) -> None:
    whole = bytearray(file_bytes(some_arrays(), data.draw(st.sampled_from([0, V1, V2, V3]))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(16, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_arrays(bytes(whole))
    except ModelError:
        return
    assert all(isinstance(array, np.ndarray) for array in found.values())
