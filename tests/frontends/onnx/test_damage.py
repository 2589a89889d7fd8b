"""Files that are damaged, or made to harm: a clear error in bounded time and memory, and nothing opened outside."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_models import F32, model, network, value

import ngraph_mxnet
from ngraph_mxnet.base.errors import ModelError, NGraphError, UnsupportedError

RELU = helper.make_node("Relu", ["x"], ["y"], name="act")


def refusal(proto: onnx.ModelProto | bytes | Path, error: type[NGraphError] = ModelError) -> str:
    with pytest.raises(error) as caught:
        ngraph_mxnet.compile(proto, "INTERPRETER")
    return str(caught.value)


def test_no_model() -> None:
    assert "cut off" in refusal(b"")
    assert "no ONNX model" in refusal(b"\x00\x01nonsense" * 10)
    assert "No such file" in refusal(Path("/nowhere/model.onnx"))
    whole = network(1).SerializeToString()
    for length in (1, len(whole) // 3, len(whole) - 1):
        assert refusal(whole[:length])


def test_names_that_are_no_text() -> None:
    """Of a node's output, and within a branch."""
    inner = helper.make_graph([helper.make_node("Relu", ["x"], ["inner"])], "branch", [], [value("inner", [2])])
    choice = helper.make_node("If", ["flag"], ["y"], then_branch=inner, else_branch=inner)
    whole = model([choice], [value("x", [2]), value("flag", [], TensorProto.BOOL)], [value("y", [2])])
    content = whole.SerializeToString()
    for name in (b"inner", b"branch", b"If"):
        assert "is no UTF-8; the file is damaged" in refusal(content.replace(name, b"\xd1" * len(name)))


@pytest.mark.parametrize(("version", "text"), [(0, "expected 6 to"), (10_000, "a newer onnx package")])
def test_operator_set_versions(version: int, text: str) -> None:
    assert text in refusal(model([RELU], [value("x", [2])], [value("y", [2])], opset=version), UnsupportedError)


def test_no_operator_set() -> None:
    proto = network(1)
    del proto.opset_import[:]
    assert "which version" in refusal(proto)


def test_graphs_that_do_not_hang_together() -> None:
    x, y = [value("x", [2])], [value("y", [2])]
    cycle = [helper.make_node("Add", ["x", "b"], ["a"], name="first"), helper.make_node("Relu", ["a"], ["b"]), RELU]
    assert "node first Add: reads 'b', before the node that computes it" in refusal(model(cycle, x, y))
    assert "node act Relu: reads 'x', which is no input" in refusal(model([RELU], [], y))
    assert "no node computes its outputs ['z']" in refusal(model([RELU], x, [value("z", [2])]))
    assert "'y' is computed twice" in refusal(model([RELU, RELU], x, y))
    other = helper.make_node("Thing", ["x"], ["y"], domain="elsewhere", name="odd")
    assert "'elsewhere' is not among the operator sets" in refusal(model([other], x, y))


@pytest.mark.parametrize(("dims", "raw"), [([3_000_000_000 // 4], b"\0" * 8), ([-1], b""), ([2, 2], b"\0" * 15)])
def test_tensors_that_claim_what_they_do_not_hold(dims: list[int], raw: bytes) -> None:
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", [1])], [value("y", [None])])
    proto.graph.initializer.append(TensorProto(name="w", data_type=F32, dims=dims, raw_data=raw))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "initialiser 'w'" in refusal(proto)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_shapes_that_ask_for_too_much() -> None:
    node = helper.make_node("ConstantOfShape", ["s"], ["y"])
    proto = model([node], [], [value("y", [None])], {"s": np.array([1 << 40])})
    assert "asks for a tensor of" in refusal(proto, UnsupportedError)


def external(folder: Path, location: str, **entries: int) -> Path:
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", [2])], [value("y", [2])])
    tensor = TensorProto(name="w", data_type=F32, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, entry in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(entry))
    proto.graph.initializer.append(tensor)
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data(tmp_path: Path) -> None:
    path = external(tmp_path / "m", "w.bin", offset=4, length=8)
    (path.parent / "w.bin").write_bytes(np.array([9, 1, 2], np.float32).tobytes())
    assert ngraph_mxnet.compile(path, "INTERPRETER")(np.ones(2, np.float32))[0].tolist() == [2, 3]
    assert "was not read from a file" in refusal(path.read_bytes())
    for entries, text in [({"offset": 8, "length": 8}, "which has 12"), ({"length": 4}, "found 4 bytes")]:
        assert text in refusal(external(path.parent, "w.bin", **entries))
    assert "no file 'gone.bin'" in refusal(external(path.parent, "gone.bin"))


@pytest.mark.parametrize("location", ["../secret", "sub/../../secret", "{root}/secret", "link", "linked/secret", ""])
def test_nothing_outside_the_folder_is_opened(location: str, tmp_path: Path,
                                              audited: Callable[[str], list[str]]) -> None:
    (tmp_path / "secret").write_bytes(b"\0" * 8)
    folder = tmp_path / "m"
    path = external(folder, location.format(root=tmp_path))
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    opened = audited("open")
    assert "external data in" in refusal(path)
    assert str(path) in opened
    assert not any("secret" in name or name.endswith("link") for name in opened)


@pytest.mark.parametrize(("node", "inputs", "text"), [
    (helper.make_node("Softmax", ["x"], ["y"], axis=7), {}, "axis 7 is outside"),
    (helper.make_node("Conv", ["x", "w"], ["y"]), {"w": np.zeros((2, 9, 3, 3), np.float32)}, "convolution("),
    (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[0, 0]), {}, "expected 1 or more"),
    (helper.make_node("Reshape", ["x", "s"], ["y"]), {"s": np.array([-1, 7])}, "does not fit"),
    (helper.make_node("Transpose", ["x"], ["y"], perm=[0, 0, 1, 1]), {}, "permutation"),
    (helper.make_node("Tile", ["x", "n"], ["y"]), {"n": np.array([1 << 40, 1, 1, 1])}, "asks for a tensor of"),
    (helper.make_node("Expand", ["x", "n"], ["y"]), {"n": np.array([1 << 40, 3, 8, 8])}, "asks for a tensor of"),
    (helper.make_node("Concat", [], ["y"], axis=0), {}, "no inputs"),
    (helper.make_node("Relu", ["x"], ["y"], slope=1.0), {}, "no support for slope"),
    (helper.make_node("Elu", ["x"], ["y"], alpha=1), {}, "expected float"),
])
def test_nodes_that_do_not_fit(node: onnx.NodeProto, inputs: dict[str, np.ndarray], text: str) -> None:
    node.name = "bad"
    with pytest.raises((ModelError, UnsupportedError), match=r"node bad") as caught:
        ngraph_mxnet.compile(model([node], [value("x", [1, 3, 8, 8])], [value("y", None)], inputs), "INTERPRETER")
    assert text in str(caught.value)


def varied() -> onnx.ModelProto:
    """A network with shape arithmetic, a branch and a loop."""
    proto = network(1)
    shape = [helper.make_node("Shape", ["relu"], ["s"]), helper.make_node("Gather", ["s", "two"], ["size"]),
             helper.make_node("Unsqueeze", ["size", "zero"], ["sizes"]), helper.make_node("Tile", ["y", "ones"], ["t"]),
             helper.make_node("Slice", ["t", "zero", "sizes", "one"], ["z"])]
    proto.graph.node.extend(shape)
    numbers = {"two": np.array(2), "zero": np.array([0]), "one": np.array([1]), "ones": np.array([1, 1])}
    for name, array in numbers.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    proto.graph.output.append(value("z", None))
    return proto


SEED = varied().SerializeToString()


@settings(max_examples=150, deadline=5000)
@given(st.data())
def test_mutated_models(data: st.DataObject) -> None:
    """Whatever is done to a file's bytes: it compiles, or there is an error of ours."""
    content = bytearray(SEED)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(["flip", "insert", "remove", "copy"]))
        if kind == "flip":
            content[at] = data.draw(st.integers(0, 255))
        elif kind == "insert":
            content[at:at] = data.draw(st.binary(max_size=8))
        elif kind == "remove":
            del content[at : at + data.draw(st.integers(1, 16))]
        else:
            content[at:at] = content[: data.draw(st.integers(0, 64))]
        if not content:
            break
    with contextlib.suppress(NGraphError):
        ngraph_mxnet.compile(bytes(content), "INTERPRETER")


def test_a_triangle_of_a_vector() -> None:
    """NumPy makes a matrix of it, here one of 1 TiB."""
    node = helper.make_node("Trilu", ["x"], ["y"], name="triangle", upper=0)
    said = refusal(model([node], [value("x", [1 << 20])], [value("y", [1 << 20])]), UnsupportedError)
    assert "node triangle Trilu: found f32[1048576], expected matrices" in said


@pytest.mark.skipif(not onnx.defs.has("FlexAttention", 1, "ai.onnx.preview"), reason="this onnx has no such function")
def test_a_body_that_onnx_does_not_make() -> None:
    """It writes bodies as text, and reads that again: a name with a dot in it is none there."""
    score = helper.make_graph([helper.make_node("Mul", ["score", "a.b"], ["out"])], "change", [value("score", [])],
                              [value("out", [])], [numpy_helper.from_array(np.float32([2]).reshape(()), "a.b")])
    node = helper.make_node("FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview", name="flexible",
                            score_mod=score)
    inputs = [value(name, [1, 2, 4, 8]) for name in "qkv"]
    proto = helper.make_model(helper.make_graph([node], "flexible", inputs, [value("y", [1, 2, 4, 8])]), opset_imports=[
        helper.make_opsetid("", 26), helper.make_opsetid("ai.onnx.preview", 1)])
    assert "node flexible FlexAttention: onnx makes no body of it" in refusal(proto, UnsupportedError)
