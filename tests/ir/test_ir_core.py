"""Types, attributes, op table, builder, graph edits, verifier."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ngraph_mxnet.base.errors import GraphError, TypeRuleError
from ngraph_mxnet.ir import (
    Builder,
    Graph,
    TensorType,
    count_ops,
    element_type,
    get_op,
    print_graph,
    register_op,
    verify,
)
from ngraph_mxnet.ir.types import ELEMENT_TYPES, Role


def chain() -> tuple[Builder, Graph]:
    b = Builder(name="chain")
    y = b.relu(b.parameter("x", (2, 3)))
    return b, b.results(b.add(y, b.tanh(y)))


@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_element_types(name: str):
    type_ = element_type(name)
    assert element_type(type_.numpy) is type_
    assert TensorType(type_, (2, 3)).bytes == 6 * type_.size
    assert str(TensorType(type_, (2, 3))) == f"{name}[2,3]"


def test_unknown_element_type():
    with pytest.raises(KeyError, match="no element type"):
        element_type("complex64")


@pytest.mark.parametrize(
    ("op", "attrs", "text"),
    [
        ("elu", {"alpha": "steep"}, "elu.alpha: found 'steep', expected a number"),
        ("elu", {"beta": 1}, "elu has no attribute"),
        ("clamp", {"lower": 0}, "clamp.upper is missing"),
        ("reduce_sum", {"axes": [0.5]}, "expected a list of integers"),
        ("reduce_sum", {"axes": [float("inf")]}, "expected a list of integers"),
        ("reduce_sum", {"axes": 1}, "expected a list of integers"),
        ("reduce_sum", {"axes": [0], "keep_dims": 1}, "expected true or false"),
        ("pad", {"mode": "wrap"}, "expected one of constant, edge, reflect"),
        ("convert", {"element": "f31"}, "expected an element type"),
    ],
)
def test_wrong_attributes(op: str, attrs: dict, text: str):
    b = Builder()
    with pytest.raises(TypeRuleError, match=text):
        b.apply(op, b.parameter("x", (2, 3)), **attrs)


def test_attributes_that_depend_on_the_rank_are_filled_in():
    b = Builder()
    y = b.convolution(b.parameter("x", (1, 2, 5)), b.parameter("w", (4, 2, 3)))
    assert y.node.attrs == {
        "strides": (1,),
        "dilations": (1,),
        "pads_begin": (0,),
        "pads_end": (0,),
        "groups": 1,
        "data_dilations": (1,),
        "exact": False,
        "lower": -math.inf,
        "upper": math.inf,
        "lower2": -math.inf,
        "upper2": math.inf,
    }


def test_errors_name_the_origin_and_the_operands():
    b = Builder()
    b.origin = "mx:plus0 elemwise_add"
    with pytest.raises(
        TypeRuleError, match=r"add\(f32\[2\], f32\[3\]\) from mx:plus0 elemwise_add: shapes: found"
    ):
        b.add(b.parameter("x", (2,)), b.parameter("y", (3,)))


def test_the_op_table():
    with pytest.raises(ValueError, match="registered twice"):
        register_op("relu", operands=1)(lambda types, attrs: types[0])
    with pytest.raises(ValueError, match="already has a reference"):
        get_op("relu").reference(lambda inputs, attrs: inputs[0])
    with pytest.raises(KeyError, match=r"declare it in ops/<family>\.py"):
        get_op("fly")
    with pytest.raises(AttributeError, match="no op 'fly'"):
        Builder().fly()


def test_constants_are_copies():
    b = Builder()
    array = np.zeros(3, np.float32)
    value = b.constant(array).node.attrs["value"]
    array[0] = 1
    assert value[0] == 0
    assert not value.flags.writeable
    assert b.constant(1.5).type == TensorType(element_type("f32"), ())


def test_operators_append_nodes_and_numbers_take_the_element_type_of_the_value():
    b = Builder()
    x, y = b.parameter("x", (3,), "f64"), b.parameter("y", (3,), "f64")
    halves = np.float64(0.5) * (1 - x)  # a NumPy scalar leaves the operation to the value
    graph = b.results(b.select((x > y) & ~(y >= 2), 0, -halves % y))
    numbers = [value.node.attrs["value"] for value in graph.values() if value.node and value.node.op.name == "constant"]
    assert [(number.dtype.name, float(number)) for number in numbers] == [("float64", n) for n in (1, 0.5, 2, 0)]
    text = [line.strip().partition(" = ")[2] for line in print_graph(graph).splitlines() if " = " in line]
    assert [line for line in text if "constant" not in line] == [
        "subtract(%0, %x)", "multiply(%2, %1)", "greater(%x, %y)", "greater_equal(%y, %5)", "logical_not(%6)",
        "logical_and(%4, %7)", "negative(%3)", "mod(%9, %y)", "select(%8, %11, %10)"]
    assert x != y
    with pytest.raises(GraphError, match="no Builder made it"):
        Graph().add_parameter(x.type, "z") + 1


def test_replace_remove_dead_sort():
    _b, graph = chain()
    relu, tanh, add = graph.nodes
    graph.replace({tanh.output: relu.output})
    assert add.inputs == [relu.output, relu.output]
    assert graph.remove_dead() == 1
    assert count_ops(graph.nodes) == {"add": 1, "relu": 1}
    graph.nodes.reverse()
    graph.sort()
    assert graph.nodes == [relu, add]
    assert graph.readers()[relu.output] == [(add, 0), (add, 1)]
    verify(graph)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda g: g.nodes.reverse(), "used before it is defined"),
        (lambda g: g.nodes.append(g.nodes[0]), "not its own"),
        (lambda g: g.nodes[0].attrs.update(alpha=1), "has no attribute"),
        (
            lambda g: setattr(g.nodes[1].output, "type", TensorType(element_type("f32"), (9,))),
            "the type rule gives",
        ),
        (lambda g: g.results.append(chain()[1].results[0]), "result 1 is not defined"),
        (lambda g: g.add_parameter(g.parameters[0].type, "x"), "two parameters are called 'x'"),
        (lambda g: setattr(g.parameters[0], "role", Role.MADE), "parameter 'x' has the role made"),
        (lambda g: setattr(g.nodes[2], "inputs", [chain()[1].results[0]] * 2), "or is of another graph"),
    ],
)
def test_the_verifier_finds(damage, text: str):
    _, graph = chain()
    verify(graph)
    damage(graph)
    with pytest.raises(GraphError, match=text):
        verify(graph)


def test_verifier_errors_show_the_neighbourhood():
    _, graph = chain()
    graph.nodes[1].attrs["alpha"] = 1.0
    with pytest.raises(GraphError, match=r"(?s)>  %1: f32\[2,3\] = tanh.*alpha=1.0"):
        verify(graph)
