"""What is the interpreter's own: dropping values, two outputs, an op without a reference."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir import Builder
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.compile import compile


def test_a_long_chain_and_a_value_read_twice():
    b = Builder(name="chain")
    x = b.parameter("x", (3,))
    y = x
    for _ in range(50):
        y = b.add(y, x)
    run = compile(b.results(y, b.multiply(y, y)), "INTERPRETER")
    one, other = run(np.ones(3, np.float32))
    assert one.tolist() == [51] * 3
    assert other.tolist() == [51 * 51] * 3


def test_an_op_with_two_outputs():
    b = Builder(name="two")
    x, w, v = b.parameter("x", (1, 1, 2)), b.parameter("w", (1, 1, 1)), b.parameter("v", (1,))
    node = b.node("convolution", [x, w, v, x, v, v], {"lower2": 0, "upper2": 5})
    run = compile(b.results(node.outputs[1], node.outputs[0]), "INTERPRETER")
    scaled, total = run(np.float32([[[1, -4]]]), np.float32([[[2]]]), np.float32([1]))
    assert total.tolist() == [[[4, -11]]]
    assert scaled.tolist() == [[[5, 0]]]


def test_ports_have_the_graphs_names():
    b = Builder(name="named")
    x = b.parameter("x", (2,))
    run = compile(b.results(b.relu(x), x), "interpreter")
    assert [str(port) for port in (*run.inputs, *run.outputs)] == [
        "x: f32[2]",
        "output0: f32[2]",
        "x: f32[2]",
    ]
    assert get_backend("Interpreter") is get_backend("INTERPRETER")
