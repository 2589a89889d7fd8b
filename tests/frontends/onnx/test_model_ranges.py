"""ONNX models that are called with shapes which change."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import ngraph_mxnet
from ngraph_mxnet.tools.cli.commands import main

rng = np.random.default_rng(0)


def model(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: list[object],
          outputs: list[str]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "changing", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def images() -> onnx.ModelProto:
    weights = {"a": rng.standard_normal((16, 3, 3, 3), np.float32), "b": rng.standard_normal((6, 16, 1, 1), np.float32)}
    nodes = [helper.make_node("Conv", ["x", "a"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
             helper.make_node("Relu", ["c"], ["r"]), helper.make_node("Conv", ["r", "b"], ["y"]),
             helper.make_node("GlobalAveragePool", ["y"], ["p"]), helper.make_node("Flatten", ["p"], ["f"])]
    return model(nodes, weights, ["N", 3, "H", "W"], ["y", "f"])


def exported() -> onnx.ModelProto:
    """Heads are split as PyTorch's exporter writes it: by arithmetic on the result of Shape."""
    weights = {"zero": np.array(0), "one": np.array(1), "axes": np.array([0]), "four": np.array([4]),
               "rest": np.array([-1]), "w": rng.standard_normal((8, 16), np.float32)}
    nodes = [helper.make_node("Shape", ["x"], ["s"]),
             helper.make_node("Gather", ["s", "zero"], ["n"]), helper.make_node("Gather", ["s", "one"], ["t"]),
             helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]), helper.make_node("Unsqueeze", ["t", "axes"], ["t1"]),
             helper.make_node("Concat", ["n1", "t1", "four", "rest"], ["to"], axis=0),
             helper.make_node("Reshape", ["x", "to"], ["split"]),
             helper.make_node("Transpose", ["split"], ["heads"], perm=[0, 2, 1, 3]),
             helper.make_node("MatMul", ["heads", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["y"], axis=-1)]
    return model(nodes, weights, ["N", "T", 32], ["y"])


def indexed() -> onnx.ModelProto:
    """A column at a place that is data, and may count from the end."""
    weights = {"low": np.array(-2, np.float32), "high": np.array(1, np.float32)}
    nodes = [helper.make_node("ReduceMin", ["x"], ["m"], keepdims=0),
             helper.make_node("Clip", ["m", "low", "high"], ["c"]),
             helper.make_node("Cast", ["c"], ["at"], to=TensorProto.INT64),
             helper.make_node("Gather", ["x", "at"], ["y"], axis=1)]
    return model(nodes, weights, ["N", "T"], ["y"])


def sizes_as_data() -> onnx.ModelProto:
    """What Shape gives is a result: the model is for these sizes."""
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT)]
    return model(nodes, {}, ["N", "T"], ["y"])


def pyramid() -> onnx.ModelProto:
    """Images of half the size and back, as a feature pyramid has them."""
    nodes = [helper.make_node("AveragePool", ["x"], ["half"], kernel_shape=[2, 2], strides=[2, 2]),
             helper.make_node("Resize", ["half", "", "twice"], ["a"], mode="nearest", nearest_mode="floor",
                              coordinate_transformation_mode="asymmetric"),
             helper.make_node("Resize", ["half", "", "twice"], ["b"], mode="linear"),
             helper.make_node("Resize", ["x", "", "halves"], ["c"], mode="nearest", nearest_mode="floor",
                              coordinate_transformation_mode="asymmetric"),
             helper.make_node("Add", ["a", "b"], ["y"]), helper.make_node("Sub", ["c", "half"], ["d"])]
    scales = {"twice": np.array([1, 1, 2, 2], np.float32), "halves": np.array([1, 1, 0.5, 0.5], np.float32)}
    return model(nodes, scales, ["N", 4, "H", "W"], ["y", "d"])


@pytest.mark.parametrize(("make", "shapes"), [
    (pyramid, [(1, 4, 8, 12), (2, 4, 9, 13), (1, 4, 31, 6), (3, 4, 64, 40)]),
    (images, [(1, 3, 9, 9), (1, 3, 10, 12), (2, 3, 31, 8), (4, 3, 17, 40), (2, 3, 31, 8)]),
    (exported, [(2, 5, 32), (3, 7, 32), (1, 1, 32), (4, 20, 32), (2, 5, 32)]),
    (indexed, [(2, 5), (3, 7), (3, 2), (4, 20), (1, 9)]),
    (sizes_as_data, [(2, 5), (3, 7), (1, 1), (4, 20)]),
])
def test_results_are_those_of_onnx_reference(make, shapes) -> None:
    made = make()
    run, reference = ngraph_mxnet.compile(made), ReferenceEvaluator(made)
    for shape in shapes:
        x = rng.standard_normal(shape, np.float32)
        for found, expected in zip(run(x), reference.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    if make is not sizes_as_data:
        assert 1 <= len(run.ranges.templates) <= 2


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_DYNAMIC", "off")
    run = ngraph_mxnet.compile(images())
    for size in (8, 9, 10):
        run(np.ones((1, 3, size, size), np.float32))
    assert not run.ranges.templates


def test_sizes_that_the_model_names_need_one_template() -> None:
    run = ngraph_mxnet.compile(images())
    for shape in ((2, 3, 9, 9), (2, 3, 10, 9), (2, 3, 10, 12), (3, 3, 10, 12)):
        run(np.ones(shape, np.float32))
    assert len(run.ranges.templates) == 1


def test_axes_that_are_told_change_from_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_DYNAMIC", "x:0,2,3;y:9")
    made = images()
    run, reference = ngraph_mxnet.compile(made), ReferenceEvaluator(made)
    for shape in ((2, 3, 9, 9), (3, 3, 12, 10)):
        x = rng.standard_normal(shape, np.float32)
        for found, expected in zip(run(x), reference.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert len(run.ranges.templates) == 1


def of_one_name() -> onnx.ModelProto:
    proto = model([helper.make_node("Add", ["x", "y"], ["z"])], {}, ["N", 4], ["z"])
    proto.graph.input.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4]))
    return proto


def test_sizes_of_the_same_name_change_with_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_DYNAMIC", "x:0")
    run = ngraph_mxnet.compile(of_one_name())
    for rows in (2, 3, 1):
        x = rng.standard_normal((rows, 4), np.float32)
        np.testing.assert_array_equal(run(x, x)[0], x + x)
    assert [[str(guard) for guard in template.guards] for template in run.ranges.templates] == [[]]


def test_explained(tmp_path: Path) -> None:
    path = str(tmp_path / "model.onnx")
    onnx.save(images(), path)
    command = ["explain", path, "--shape", "x=2,3,9,9", "--json", "--shapes"]
    found = CliRunner().invoke(main, [*command, "x:0,2,3"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.output)["verdicts"][0]["inputs"] == ["x: f32[N,3,H,W]"]
    found = CliRunner().invoke(main, [*command, "x:0"])
    assert json.loads(found.output)["verdicts"][0]["inputs"] == ["x: f32[N,3,H,W]"], "all sizes that the model names"
    found = CliRunner().invoke(main, [*command, "x:1"])
    assert found.exit_code == 1
    assert "what the model says of input 'x'" in json.loads(found.output)["verdicts"][0]["reason"]


@pytest.mark.parametrize("axes", [{"x": (0,)}, {"x": (0,), "y": (0,)}])
def test_sizes_of_one_name_are_explained_as_one(axes: dict[str, tuple[int, ...]], tmp_path: Path) -> None:
    """As they are compiled: of a model that names them, none changes without the others."""
    onnx.save(of_one_name(), str(tmp_path / "model.onnx"))
    (verdict,) = ngraph_mxnet.explain_shapes(tmp_path / "model.onnx", {"x": (2, 4), "y": (2, 4)}, axes).verdicts
    assert verdict.inputs == ("x: f32[N,4]", "y: f32[N,4]") and verdict.reason is None and not verdict.assumptions


RANGED: dict[str, tuple[dict[str, object], list[object], list[np.ndarray]]] = {
    # operator: attributes, the first input's sizes, the others
    "Gather": ({"axis": 1}, [3, "S"], [np.array(-1)]),
    "GatherElements": ({"axis": 1}, [3, "S"], [np.array([[-1, 0], [1, -2], [-1, -1]])]),
    "MaxPool": ({"kernel_shape": [2, 2], "strides": [2, 2]}, [1, 2, "S", 4], []),
    "CenterCropPad": ({}, ["S", 4], [np.array([5, 5])]),
    "Trilu": ({}, [3, "S"], []),
    "Resize": ({"mode": "linear"}, [1, 2, 6, "S"], [np.zeros(0, np.float32), np.array([1, 1, 1, 0.7], np.float32)]),
}


@pytest.mark.parametrize("op", RANGED)
def test_every_operator_takes_a_range(op: str) -> None:
    """What has none is compiled for each size: not an error, and no wrong number."""
    attributes, shape, others = RANGED[op]
    names = [f"i{place}" for place in range(len(others))]
    outputs = ["y", "at"] if op == "MaxPool" else ["y"]
    made = model([helper.make_node(op, ["x", *names], outputs, **attributes)],
                 dict(zip(names, others, strict=True)), shape, outputs)
    made.opset_import[0].version = 18
    run = ngraph_mxnet.compile(made, shapes={"x": tuple(shape)})
    for size in (4, 5, 7, 4, 11):
        x = rng.standard_normal([size if isinstance(each, str) else each for each in shape]).astype(np.float32)
        for found, expected in zip(run(x), ngraph_mxnet.compile(made, "INTERPRETER")(x), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("at", [np.array(-1), np.array([-2]), np.array([0, -1])])
def test_an_element_from_the_end_is_compiled_once(at: np.ndarray) -> None:
    made = model([helper.make_node("Gather", ["x", "at"], ["y"], axis=1)], {"at": at}, [3, "S"], ["y"])
    run = ngraph_mxnet.compile(made)
    for size in (4, 5, 7, 9):
        x = rng.standard_normal((3, size), np.float32)
        np.testing.assert_array_equal(run(x)[0], x[:, at])
    assert len(run.ranges.templates) == 1


def test_ranks_may_change_where_the_model_says_none() -> None:
    made = model([helper.make_node("Add", ["x", "one"], ["y"])], {"one": np.ones((), np.float32)}, [], ["y"])
    made.graph.input[0].type.tensor_type.ClearField("shape")
    run = ngraph_mxnet.compile(made)
    for shape in ((3,), (5,), (2, 3), (), (4, 3), (7,), (2, 3, 4), (9, 3)):
        x = rng.standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(run(x)[0], x + 1)
    assert len(run.ranges.templates) == 2
