"""If: both branches and a selection, or the one that is taken, compiled when it is first taken."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_models import model, value

import ngraph_mxnet
from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx.importer import import_model, import_whole
from ngraph_mxnet.frontends.onnx.model import read_model, unfold
from ngraph_mxnet.frontends.onnx.values import MOST_ELEMENTS

BACKENDS = ["CPU", "INTERPRETER"]
node = helper.make_node
POSITIVE = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Greater", ["sum", "nought"], ["positive"])]
NOUGHT = {"nought": np.array(0, np.float32)}


def branch(nodes: list[onnx.NodeProto], output: str, weights: dict[str, np.ndarray] | None = None) -> onnx.GraphProto:
    held = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    return helper.make_graph(nodes, "branch", [], [value(output, None)], held)


def choice(yes: onnx.GraphProto, no: onnx.GraphProto, condition: str = "positive", output: str = "y",
           name: str = "choice") -> onnx.NodeProto:
    return node("If", [condition], [output], name=name, then_branch=yes, else_branch=no)


def chosen(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray] | None = None, dims: Any = ("n",),
           **more: Any) -> onnx.ModelProto:
    """From x to y; `nodes` come behind a look at whether the sum of x is positive."""
    return model([*POSITIVE, *nodes], [value("x", list(dims))], [value("y", None)], {**NOUGHT, **(weights or {})},
                 opset=17, **more)


def wanted(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime gives, or where it is not installed ONNX's reference."""
    if importlib.util.find_spec("onnxruntime") is None:
        return ReferenceEvaluator(proto).run(None, feeds)
    import onnxruntime

    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def assert_right(exe: Any, proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    for found, expected in zip(exe(feeds), wanted(proto, feeds), strict=True):
        assert found.shape == expected.shape and found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def array(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def two_shapes() -> onnx.ModelProto:
    """x twice, or what a value from before the choice adds to it."""
    return chosen([node("Exp", ["x"], ["e"]),
                   choice(branch([node("Concat", ["x", "x"], ["r"], axis=0)], "r"),
                          branch([node("Add", ["x", "e"], ["r"])], "r")),])


@pytest.mark.parametrize("backend", BACKENDS)
def test_branches_that_both_fit_are_one_program(backend: str, compiled: list[str]) -> None:
    proto = chosen([choice(branch([node("Mul", ["x", "w"], ["r"])], "r", {"w": array(3)}),
                           branch([node("Sub", ["x", "sum"], ["r"])], "r"))])
    exe = ngraph_mxnet.compile(proto, f"OWN_{backend}")
    for x in (array(1, 2), array(-1, -2), array(4, -9)):
        assert_right(exe, proto, {"x": x})
    assert len(compiled) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_of_different_shapes(backend: str, compiled: list[str]) -> None:
    """Three programs whatever the data: what decides, and each branch when it is first taken."""
    proto = two_shapes()
    exe = ngraph_mxnet.compile(proto, f"OWN_{backend}")
    for x, programs in ((array(1, 2), 2), (array(3, 4), 2), (array(-1, -2), 3), (array(5, -1), 3), (array(5, -9), 3)):
        assert_right(exe, proto, {"x": x})
        assert len(compiled) == programs


@given(rows=st.lists(st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3), min_size=1, max_size=6))
def test_any_order_of_branches(rows: list[list[float]]) -> None:
    proto = two_shapes()
    exe = ngraph_mxnet.compile(proto, "INTERPRETER", shapes={"x": (3,)})
    for row in rows:
        x = np.array(row, np.float32)
        (found,) = exe(x)
        expected = np.concatenate([x, x]) if x.sum(dtype=np.float32) > 0 else x + np.exp(x)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def for_widths(condition: str = "positive") -> onnx.NodeProto:
    """A product that wants three columns, or one that wants four."""
    widths = (3, 4)
    return choice(*(branch([node("MatMul", ["x", "w"], ["r"], name=f"for{width}")], "r",
                           {"w": np.arange(width * 2, dtype=np.float32).reshape(width, 2)}) for width in widths),
                  condition=condition)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_branch_that_does_not_fit_is_an_error_when_it_is_taken(backend: str) -> None:
    proto = chosen([for_widths()], dims=("n", "k"))
    exe = ngraph_mxnet.compile(proto, backend)
    for width, sign in ((3, 1), (4, -1), (3, 2)):
        assert_right(exe, proto, {"x": np.full((2, width), sign, np.float32)})
    with pytest.raises(UnsupportedError, match=r"node for4 MatMul: .*f32\[2,3\]"):
        exe(np.full((2, 3), -1, np.float32))
    assert_right(exe, proto, {"x": np.full((2, 3), 1, np.float32)})
    with pytest.raises(UnsupportedError, match=r"node choice If: then_branch: node for3 MatMul: .*; else_branch: node "
                                               r"for4 MatMul"):
        exe(np.ones((2, 5), np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_condition_that_is_an_input(backend: str, compiled: list[str]) -> None:
    flag = value("flag", [], TensorProto.BOOL)
    proto = model([for_widths("flag")], [value("x", ["n", "k"]), flag], [value("y", None)], opset=17)
    exe = ngraph_mxnet.compile(proto, f"OWN_{backend}")
    for _ in range(2):
        assert_right(exe, proto, {"x": np.ones((2, 4), np.float32), "flag": np.array(False)})
    assert len(compiled) == 1
    with pytest.raises(UnsupportedError, match="node for3 MatMul"):
        exe(np.ones((2, 4), np.float32), np.array(True))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_choice_within_a_branch(backend: str, compiled: list[str]) -> None:
    """Both conditions depend on the data; the inner branches read what stands around both, by names used twice."""
    inner = choice(branch([node("Concat", ["a", "x"], ["r"], axis=0)], "r"), branch([node("Neg", ["a"], ["r"])], "r"),
                   "large", "chosen", "inner")
    outer = choice(branch([node("Mul", ["x", "w"], ["a"]), node("Greater", ["sum", "ten"], ["large"]), inner,
                           node("Add", ["chosen", "w"], ["r"])], "r", {"w": array(2), "ten": np.array(10, np.float32)}),
                   branch([node("Abs", ["x"], ["a"]), node("Concat", ["a", "a", "a"], ["r"], axis=0)], "r"),
                   output="z")
    proto = chosen([outer, node("Relu", ["z"], ["y"])])
    exe = ngraph_mxnet.compile(proto, f"OWN_{backend}")
    arrays = [array(1, 2), array(9, 8), array(-1, -2)]
    for x in (*arrays, *arrays, array(20, 3)):
        assert_right(exe, proto, {"x": x})
    assert len(compiled) == 5  # the sum; the comparison within; three branches


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("always", [True, False])
def test_shapes_within_a_branch_that_depend_on_the_data(backend: str, always: bool) -> None:
    """Where the branch is known it is as if its nodes stood there."""
    yes = branch([node("NonZero", ["x"], ["at"]), node("Transpose", ["at"], ["places"]),
                  node("GatherND", ["x", "places"], ["r"])], "r")
    no = branch([node("Neg", ["x"], ["r"])], "r")
    weights = {"positive": np.array(True)} if always else {}
    nodes = [choice(yes, no, output="z"), node("Add", ["z", "z"], ["y"])]
    proto = chosen(nodes) if not always else model(nodes, [value("x", ["n"])], [value("y", None)], weights, opset=17)
    exe = ngraph_mxnet.compile(proto, backend)
    for x in (array(1, 0, 2), array(0, 0, 3), array(-1, 0, 5)):
        assert_right(exe, proto, {"x": x})
    if not always:
        assert_right(exe, proto, {"x": array(-1, 0)})


@pytest.mark.parametrize("backend", BACKENDS)
def test_several_choices_in_a_row(backend: str) -> None:
    nodes = [choice(branch([node("Concat", ["x", "x"], ["r"], axis=0)], "r"), branch([node("Neg", ["x"], ["r"])], "r"),
                    output="a", name="first"),
             node("ReduceMax", ["a"], ["most"], keepdims=0), node("Less", ["most", "nought"], ["negative"]),
             choice(branch([node("Concat", ["a", "x"], ["r"], axis=0)], "r"), branch([node("Exp", ["a"], ["r"])], "r"),
                    "negative", name="second")]
    proto = chosen(nodes)
    exe = ngraph_mxnet.compile(proto, backend)
    for x in (array(1, 2), array(-1, -2), array(-1, 0.5), array(3, -1)):
        assert_right(exe, proto, {"x": x})


def test_sequences_of_different_lengths() -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))

    def of(count: int) -> onnx.GraphProto:
        return helper.make_graph([node("SequenceConstruct", ["x"] * count, ["s"])], "branch", [],
                                 [helper.make_value_info("s", kind)])

    proto = chosen([choice(of(1), of(3), output="s"), node("ConcatFromSequence", ["s"], ["y"], axis=0)])
    exe = ngraph_mxnet.compile(proto, "CPU")
    for x in (array(1, 2), array(-1, -2)):
        assert_right(exe, proto, {"x": x})


def test_within_a_loop_that_is_repeated_both_must_fit() -> None:
    """Else it is run, and each trip takes its branch."""
    inner = choice(branch([node("Concat", ["a", "a"], ["r"], axis=0)], "r"), branch([node("Neg", ["a"], ["r"])], "r"),
                   "large", "b", "inner")
    steps = [node("Identity", ["go"], ["on"]), node("ReduceMax", ["a"], ["most"], keepdims=0),
             node("Greater", ["most", "one"], ["large"]), inner]
    body = helper.make_graph(steps, "body",
                             [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("a", None)],
                             [value("on", [], TensorProto.BOOL), value("b", None)])
    proto = model([node("Loop", ["trips", "", "x"], ["y"], name="loop", body=body)], [value("x", ["n"])],
                  [value("y", None)], {"trips": np.array(2), "one": np.array(1, np.float32)}, opset=17)
    exe = ngraph_mxnet.compile(proto, "INTERPRETER")
    for x in (array(1, 2), array(-2, 0), array(1, 0), np.ones(MOST_ELEMENTS + 1, np.float32)):
        expected = x  # ONNX's own reference gives another shape
        for _ in range(2):
            expected = np.concatenate([expected, expected]) if expected.max() > 1 else -expected
        np.testing.assert_array_equal(exe({"x": x})[0], expected)
    with pytest.raises(UnsupportedError, match=r"node inner If: which branch is taken depends on the data, and the "
                                               r"branches' results differ in type: .* within a loop "):
        import_whole(read_model(proto), {"x": (3,)})


def test_what_is_taken_back_leaves_no_trace() -> None:
    """The branch's own array is a weight once, whatever was tried before; only the condition was asked for."""
    proto = read_model(model([for_widths("flag"), node("Reshape", ["y", "shape"], ["z"])],
                             [value("x", [2, 4]), value("flag", [], TensorProto.BOOL),
                              value("shape", [1], TensorProto.INT64)], [value("z", None)], opset=17))
    values = {"x": np.ones((2, 4), np.float32), "flag": np.array(False), "shape": np.array([4])}
    imported = import_model(proto, {name: each.shape for name, each in values.items()}, values, partly=True)
    assert imported.rest is None and imported.specialised == ["flag", "shape"]
    assert [(name, each.shape) for name, each in imported.weights.items()] == [("w", (4, 2))]
    assert [each.op.name for each in imported.graph.nodes].count("matmul") == 1


def test_nodes_of_a_branch_get_names_of_their_own() -> None:
    """Those of its subgraphs that give names themselves keep these."""
    inner = choice(branch([node("Neg", ["w"], ["a"]), node("Add", ["a", "outer"], ["r"])], "r"),
                   helper.make_graph([], "branch", [], [value("b", None)]), "flag", "b2")
    part = helper.make_graph([node("Neg", ["outer"], ["a"]), node("Neg", ["a"], ["b"]), inner], "branch", [],
                             [value("b2", None), value("w", None), value("outer", None)],
                             [numpy_helper.from_array(array(1), "w")])
    whole = node("If", ["flag"], ["y", "", "z"], then_branch=part, else_branch=part)
    found = unfold(whole, part, {"outer", "flag", "y", "z", "y/a"})
    assert [tensor.name for tensor in found.initializers] == ["y//w"]
    assert [(each.op_type, list(each.input), list(each.output)) for each in found.nodes] == [
        ("Neg", ["outer"], ["y//a"]), ("Neg", ["y//a"], ["y//b"]), ("If", ["flag"], ["y//b2"]),
        ("Identity", ["y//b2"], ["y"]), ("Identity", ["outer"], ["z"])]
    graphs = {attribute.name: attribute.g for attribute in found.nodes[2].attribute}
    assert [list(each.input) for each in graphs["then_branch"].node] == [["y//w"], ["a", "outer"]]
    assert [each.name for each in graphs["else_branch"].output] == ["y//b"]
    assert part.node[0].output[0] == "a"  # the model's own is as it was
    with pytest.raises(ModelError, match="has 3 outputs, expected 4"):
        unfold(node("If", ["flag"], ["a", "b", "c", "d"]), part, set())
