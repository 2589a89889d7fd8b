"""`.params` files of every version, read without MXNet, and damaged ones."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet.base.errors import ModelError
from ngraph_mxnet.frontends.mxnet.params import read_arrays, read_params

FLAGS = {"float32": 0, "float64": 1, "float16": 2, "uint8": 3, "int32": 4, "int8": 5, "int64": 6, "bool": 7}
V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA


def array_bytes(array: np.ndarray, version: int) -> bytes:
    """An array as MXNet of that version wrote it; 0 is the oldest, which begins with the rank."""
    if version:
        head = struct.pack("<I", version) + (struct.pack("<i", 0) if version in (V2, V3) else b"")
        head += struct.pack(f"<i{array.ndim}q", array.ndim, *array.shape)
    else:
        head = struct.pack(f"<I{array.ndim}I", array.ndim, *array.shape)
    return head + struct.pack("<iii", 1, 0, FLAGS[str(array.dtype)]) + array.tobytes()


def file_bytes(arrays: dict[str, np.ndarray], version: int) -> bytes:
    parts = [struct.pack("<QQQ", 0x112, 0, len(arrays)), *(array_bytes(one, version) for one in arrays.values()),
             struct.pack("<Q", len(arrays))]
    parts += [struct.pack("<Q", len(name.encode())) + name.encode() for name in arrays]
    return b"".join(parts)


def some_arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {f"arg:{dtype}": rng.integers(0, 2, (2, 3, 1)).astype(dtype) for dtype in FLAGS}


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
    assert list(read_params(file_bytes(arrays, version))) == list(FLAGS)


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
