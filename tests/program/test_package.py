"""Packages: what is in them comes back, and what is no package is refused."""

from __future__ import annotations

import stat
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import graphs

from ngraph_mxnet.base.errors import PackageError
from ngraph_mxnet.ir import Builder, Graph, print_graph
from ngraph_mxnet.ir.module import single_step
from ngraph_mxnet.program.package import (
    FORMAT,
    HEADER_BYTES,
    Package,
    decode_graph,
    decode_module,
    encode_graph,
    pack,
    seal,
    unpack,
)

ARRAYS = st.builds(
    lambda dtype, shape: np.arange(np.prod(shape)).astype(dtype).reshape(shape),
    st.sampled_from(["<f4", "<i4", "<i8", "|b1", "<f2", "<u2"]), st.lists(st.integers(0, 3), max_size=3).map(tuple),
)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text() | ARRAYS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet="abcä", max_size=3), inner), max_leaves=20)


def again(value: Any, external: Any = None) -> Any:
    return unpack(b"".join(pack(value, external)), 0, external)


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found, expected, strict=True)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_same(found[key], value)
    else:
        assert (type(found), found) == (type(expected), expected)


@given(DATA)
def test_plain_data_come_back(value: Any):
    assert_same(again(value), value)


def test_odd_numbers_come_back():
    found = again([nan, inf, -inf, -0.0, 5e-324])
    assert str(found) == "[nan, inf, -inf, -0.0, 5e-324]"


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", np.float32(1), 1j, {(1, 2): 3}, np.zeros(2, complex),
                                   np.array(["a"]), np.array([None])])
def test_what_is_no_plain_data(value: Any):
    with pytest.raises(PackageError, match="no plain data"):
        pack([value])


def test_arrays_are_there_once():
    large, other = np.arange(5000.0), np.arange(5000.0) + 1
    size = len(b"".join(pack([large])))
    assert len(b"".join(pack([large, large, {"a": large}]))) < size + 100
    for external in (large, large.copy(), large.reshape(50, 100)):  # the very array, or an equal one
        content = b"".join(pack([large, other], {"it": external}))
        assert len(content) < size + 100
        found = unpack(content, 0, {"it": external})
        np.testing.assert_array_equal(found[0], large, strict=True)
        np.testing.assert_array_equal(found[1], other, strict=True)
    assert len(b"".join(pack([np.ones(3)], {"small": np.ones(3)}))) > 24
    with pytest.raises(PackageError, match="'it' is of float32, expected float64"):
        unpack(content, 0, {"it": large.astype(np.float32)})


def test_arrays_are_read_only():
    found = again(np.arange(4))
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


@pytest.mark.parametrize("content", [
    b"", b"\n", b"[]\n", b"[]\nx\n", b"x\n1\n", b"7\n1\n", b"{}\n[", b"[1]\n1\n", b"[]\n{\"$array\": 0}\n",
    b'[{"element": "f32", "shape": [2]}]\n1\n', b'[{"element": "f32", "shape": [-1]}]\n1\n',
    b'[{"element": "O", "shape": [0]}]\n1\n', b'[{"element": "f32", "shape": 1}]\n1\n', b"[" * 99999 + b"\n1\n",
    b'[{"element": "f32", "shape": [4611686018427387904, 4]}]\n1\n', b'[{"element": "f32", "shape": [true]}]\n1\n',
    b'[]\n{"$array": -1}\n', b'[]\n{"$array": "0"}\n', b"\xff\n\xff\n",
])
def test_what_was_not_packed(content: bytes):
    with pytest.raises(PackageError):
        unpack(content)


@given(graphs())
def test_graphs_come_back(graph: Graph):
    found = decode_graph(again(encode_graph(graph)))
    assert print_graph(found) == print_graph(graph)


def test_names_and_bodies_come_back():
    b = Builder(name="odd name")
    b.origin = "onnx:a b Fused"
    inner = Builder(name="body")
    body = inner.results(inner.sigmoid(inner.parameter("a", (2,))))
    x = b.weight("x", (2,))
    value = b.convert(b.fused(x, body=body), element="f16")
    value.name = "the result"
    graph = b.results(value, x, b.constant(np.float32(nan)))
    found = decode_graph(again(encode_graph(graph)))
    assert print_graph(found) == print_graph(graph)
    assert found.results[0].name == "the result" and found.nodes[0].attrs["body"] is not body


def small() -> Graph:
    b = Builder(name="small")
    return b.results(b.add(b.parameter("x", (2,)), b.constant(np.ones(2, np.float32))))


@pytest.mark.parametrize("change", [
    lambda d: d.pop("name"), lambda d: d.update(name=1), lambda d: d.update(results=[9]), lambda d: d.update(nodes=7),
    lambda d: d["nodes"].reverse(),
    lambda d: d["nodes"][1].__setitem__(0, "no_such_op"), lambda d: d["nodes"][1].__setitem__(1, [0]),
    lambda d: d["nodes"][0][2].update(value=[1.0]), lambda d: d["nodes"][0][2].update(more=1),
    lambda d: d["parameters"].append(d["parameters"][0]), lambda d: d["parameters"][0].__setitem__(1, "f33"),
    lambda d: d["nodes"][1].__setitem__(4, []),
])
def test_what_is_no_graph(change: Any):
    data = again(encode_graph(small()))
    change(data)
    with pytest.raises(PackageError, match="no data of a graph"):
        decode_graph(data)


def package(code: Any = None) -> Package:
    graph = small()
    return Package("TOY", "net", single_step(graph), {"main": encode_graph(graph)} if code is None else code, {"n": 1})


def test_a_package_comes_back(tmp_path: Path):
    made = package()
    for found in (Package.from_bytes(made.to_bytes()), Package.from_plain(made.plain())):
        assert (found.target, found.name, found.flow, found.settings) == ("TOY", "net", made.flow, {"n": 1})
        assert print_graph(decode_module(found).graphs["main"]) == print_graph(small())
    path = tmp_path / "net.package"
    path.write_text("what was there before")
    made.save(path)
    assert path.read_bytes() == made.to_bytes()
    assert Package.load(path).flow == made.flow
    assert [file.name for file in tmp_path.iterdir()] == ["net.package"]
    assert not path.stat().st_mode & stat.S_IXUSR


def test_what_can_not_be_written_leaves_nothing(tmp_path: Path):
    path = tmp_path / "net.package"
    path.write_text("what was there before")
    with pytest.raises(PackageError, match="no plain data"):
        package({"main": object()}).save(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError):  # noqa: PT011  (its class and text are the system's)
        package().save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["net.package"]


def test_damage_is_told(tmp_path: Path):
    content = package().to_bytes()
    other_format = content[:16] + (FORMAT + 1).to_bytes(8, "little") + content[24:]
    older = content[:16] + bytes(8) + content[24:]
    for wrong, message in (
        (b"", "no package of ngraph_mxnet"), (b"PK\3\4" + content, "no package of ngraph_mxnet: it begins with b'PK"),
        (content[:10], "cut off: found 10 bytes, its header has 64"), (content[:HEADER_BYTES], "cut off, or"),
        (content[:-1], "cut off, or"), (content + b"\0", "more behind it"),
        (other_format, f"of format {FORMAT + 1}, and this ngraph_mxnet reads up to {FORMAT}"),
        (older, "of format 0, and this"), (seal(b"\n\n"), "no packed data"),
        (seal(content[HEADER_BYTES:].replace(b'"version":"', b'"version":"9')), "made by ngraph_mxnet 9"),
    ):
        path = tmp_path / "file"
        path.write_bytes(wrong)
        with pytest.raises(PackageError, match=message):
            Package.from_bytes(wrong)
        with pytest.raises(PackageError, match=f"^{path}: .*{message}"):
            Package.load(path)
    for at in range(0, len(content), 7):
        with pytest.raises(PackageError):
            Package.from_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1:])


def test_code_is_of_what_steps_call():
    with pytest.raises(PackageError, match="package net: no code of main, which steps call"):
        Package.from_bytes(package({"other": 1}).to_bytes())
    with pytest.raises(PackageError, match="no data of a graph"):
        decode_module(package({"main": 1}))
