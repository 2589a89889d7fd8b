"""Shapes that depend on the data: the graph ends there, and the rest is compiled for what it gave."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_models import model, value

import ngraph_mxnet
from ngraph_mxnet.base.errors import ModelError
from ngraph_mxnet.frontends.onnx.importer import import_model
from ngraph_mxnet.frontends.onnx.model import read_model
from ngraph_mxnet.frontends.onnx.values import Statics
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.program.executable import InputError

BACKENDS = ["CPU", "INTERPRETER"]


def typed(name: str, shape: list[int | str | None], element: int = TensorProto.INT64) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def chosen_elements() -> onnx.ModelProto:
    """Twice the elements of a product that are positive, in order, and their number."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["r"]),
             helper.make_node("NonZero", ["r"], ["at"]), helper.make_node("Transpose", ["at"], ["rows"]),
             helper.make_node("GatherND", ["r", "rows"], ["kept"]), helper.make_node("Add", ["kept", "kept"], ["y"]),
             helper.make_node("Shape", ["y"], ["count"])]
    return model(nodes, [value("x", ["n", 3])], [value("y", [None]), typed("count", [1])],
                 {"w": np.eye(3, dtype=np.float32)})


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_follows_is_compiled_for_the_shape(backend: str) -> None:
    exe, random = ngraph_mxnet.compile(chosen_elements(), backend), np.random.default_rng(0)
    arrays = [random.normal(size=(rows, 3)).astype(np.float32) for rows in (2, 5, 5, 2)]
    for x in (*arrays, np.zeros((2, 3), np.float32)):
        y, count = exe(x)
        np.testing.assert_allclose(y, 2 * x[x > 0], rtol=1e-6)
        assert count.tolist() == [(x > 0).sum()]


def test_the_graph_ends_where_the_shape_is_not_known() -> None:
    proto = read_model(chosen_elements())
    x = np.ones((2, 3), np.float32)
    imported = import_model(proto, {"x": (2, 3)}, {"x": x}, partly=True)
    assert imported.rest is not None
    assert [node.op_type for node in imported.rest.proto.graph.node] == ["Transpose", "GatherND", "Add", "Shape"]
    assert [tensor.name for tensor in imported.rest.proto.graph.initializer] == []
    assert sorted(value.name for value in imported.rest.inputs) == ["at", "r"]


@pytest.mark.parametrize("backend", BACKENDS)
@given(seed=st.integers(0, 2**32 - 1), ordered=st.booleans())
def test_unique(backend: str, seed: int, ordered: bool) -> None:
    node = helper.make_node("Unique", ["x"], ["y", "first", "inverse", "often"], sorted=int(ordered))
    exe = ngraph_mxnet.compile(model([node], [typed("x", [None])], [typed(name, [None]) for name in node.output]),
                               backend)
    x = np.random.default_rng(seed).integers(-3, 4, 9)
    values, first, inverse, often = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.arange(len(values)) if ordered else np.argsort(first)
    wanted = [values[order], first[order], np.argsort(order)[inverse], often[order]]
    for found, expected in zip(exe(x), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_boxes_that_are_kept_are_read(backend: str) -> None:
    """The scores of the boxes that non-maximum suppression keeps, as detectors end."""
    nodes = [helper.make_node("Sigmoid", ["s"], ["scores"]),
             helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["kept"]),
             helper.make_node("GatherND", ["scores", "kept"], ["y"])]
    held = {"most": np.array([9]), "overlap": np.array([0.5], np.float32)}
    exe = ngraph_mxnet.compile(model(nodes, [value("boxes", [1, 4, 4]), value("s", [1, 1, 4])], [value("y", [None])],
                                     held), backend)
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1], [2, 2, 3, 3], [9, 9, 8, 8]]], np.float32)
    for scores, kept in (([0.5, 1, 0, 2], [3, 1, 2]), ([3, 1, 0, 2], [0, 3, 2])):
        logits = np.array([[scores]], np.float32)
        (y,) = exe(boxes, logits)
        np.testing.assert_allclose(y, 1 / (1 + np.exp(-logits[0, 0, kept])), rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_trip_count_that_is_computed(backend: str) -> None:
    nodes = [helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0), helper.make_node("Loop", ["most", "", "x"],
                                                                                        ["y"], body=doubling())]
    exe = ngraph_mxnet.compile(model(nodes, [typed("x", [5000])], [typed("y", [5000])]), backend)
    for most in (1, 3, 3):
        x = np.random.default_rng(0).integers(0, most + 1, 5000)
        np.testing.assert_array_equal(exe(x)[0], x * 2**most)
    assert len(list(exe.stages)) == 1  # its first part is for all elements


def doubling() -> onnx.GraphProto:
    nodes = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["a", "a"], ["b"])]
    return helper.make_graph(nodes, "body", [typed("i", []), typed("go", [], TensorProto.BOOL), typed("a", [5000])],
                             [typed("on", [], TensorProto.BOOL), typed("b", [5000])])


# ---- sequences ----------------------------------------------------------------------------------------------


def reversed_pair() -> onnx.ModelProto:
    nodes = [helper.make_node("SequenceAt", ["s", "one"], ["last"]),
             helper.make_node("SequenceErase", ["s", "one"], ["others"]),
             helper.make_node("SequenceInsert", ["others", "last", "zero"], ["y"])]
    held = {"one": np.array(1), "zero": np.array(0)}
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [None]))
    return model(nodes, [helper.make_value_info("s", kind)], [helper.make_value_info("y", kind)], held)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sequences_are_lists(backend: str) -> None:
    exe = ngraph_mxnet.compile(reversed_pair(), backend)
    assert str(exe.inputs[0]) == "s: sequence(float32[?])"
    for sizes in ((2, 3), (4, 1)):
        arrays = [np.arange(size, dtype=np.float32) for size in sizes]
        (y,) = exe(arrays)
        assert [part.tolist() for part in y] == [arrays[1].tolist(), arrays[0].tolist()]


def test_a_sequence_must_be_one() -> None:
    exe = ngraph_mxnet.compile(reversed_pair(), "INTERPRETER")
    with pytest.raises(InputError, match="expected a list of arrays"):
        exe(np.ones(2, np.float32))
    with pytest.raises(ModelError, match=r"node 0 SequenceAt: position 1 is outside \[-1, 1\)"):
        exe([np.ones(2, np.float32)])


def test_what_depends_on_inputs_is_noted_in_one_walk():
    """Each trip of a loop may ask for a value at the end of all trips before."""

    class Counting(dict):
        asked = 0

        def __contains__(self, key: object) -> bool:
            Counting.asked += 1
            return super().__contains__(key)

    b, statics, length = Builder(), Statics(), 200
    value = b.parameter("x", (2,), "i64")
    first, statics.offered = value, Counting({value: np.ones(2, np.int64)})
    for _ in range(length):
        value = b.add(value, value)
        assert statics.require(value) is not None
    assert statics.used == {first}
    assert Counting.asked < 10 * length
