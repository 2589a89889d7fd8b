"""Which node is found, of graphs on backends that compute nodes wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import ngraph_mxnet
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.ir.graph import Graph, Node
from ngraph_mxnet.program.executable import Executable, input_ports, output_ports
from ngraph_mxnet.targets.interpreter import InterpreterBackend

NAME = "ODD"
Wrong = Callable[[Graph, Node, list[np.ndarray]], list[np.ndarray]]
wrong: list[Wrong] = []
"""What the backend makes of the right results of each node."""
compiled: list[Graph] = []


class OddBackend(InterpreterBackend):
    """The references, with results that the test makes wrong."""

    name = NAME

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Any:
        graph.remove_dead()
        compiled.append(graph)
        return OddExecutable(graph)


class OddExecutable(Executable):
    """One node after the other."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(input_ports(graph), output_ports(graph))
        self.graph = graph

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        values = dict(zip(self.graph.parameters, arrays, strict=True))
        for node in self.graph.nodes:
            results = node.op.evaluate([values[operand] for operand in node.inputs], node.attrs)
            for make in wrong:
                results = make(self.graph, node, results)
            values.update(zip(node.outputs, results, strict=True))
        return [np.array(values[result]) for result in self.graph.results]


@pytest.fixture(autouse=True)
def odd(register: Callable[[str, str], None]) -> None:
    register(NAME, f"{__name__}:OddBackend")
    wrong.clear()
    compiled.clear()


def verified(graph: Graph, make: Wrong, **options: Any) -> Any:
    wrong.append(make)
    return ngraph_mxnet.verify(graph, backend=NAME, **options)


def scaled(*origins: str, by: float = 1.5) -> Wrong:
    def make(graph: Graph, node: Node, results: list[np.ndarray]) -> list[np.ndarray]:
        return [(result * by).astype(result.dtype) for result in results] if node.origin in origins else results

    return make


def chain(ops: Sequence[str], shape: tuple[int, ...] = (3, 4)) -> Graph:
    """Each op's node has as origin the op and its place."""
    b = Builder(name="chain")
    x = b.parameter("x", shape)
    for place, op in enumerate(ops):
        b.origin = f"{op}{place}"
        x = getattr(b, op)(x)
    return b.results(x)


@pytest.mark.parametrize("place", range(0, 100, 7))
def test_few_parts_of_a_long_chain_are_compiled(place: int):
    graph = chain(["negative", "abs"] * 50)
    name = f"{'negative' if place % 2 == 0 else 'abs'}{place}"
    found = verified(graph, scaled(name))
    assert found.diverging.origin == name and found.diverging.computes_wrong
    assert len(compiled) <= 2 + 8 + 3  # the whole, log2 of 100, what is told of the node
    assert found.diverging.parts <= len(compiled)


def test_a_difference_that_a_value_in_between_hides():
    """The relu's result is right, and what the wrong value makes on its other way is not."""
    b = Builder(name="hidden")
    x = b.parameter("x", (64,))
    b.origin = "low"
    low = b.sigmoid(x)
    b.origin = "negative"
    negative = b.negative(low)
    b.origin = "hidden"
    hidden = b.relu(negative)
    b.origin = "sum"
    found = verified(b.results(b.add(negative, b.tanh(hidden))), scaled("negative"))
    assert found.diverging.origin == "negative"
    assert [operand.origin for operand in found.diverging.operands] == ["low"]


def test_of_two_faults_one_that_no_other_causes():
    found = verified(chain(["tanh", "sigmoid", "tanh", "sigmoid"]), scaled("tanh0", "tanh2"))
    assert found.diverging.origin == "tanh0" and found.diverging.computes_wrong


def test_what_only_carries_an_earlier_difference():
    """Each of two nodes adds less than the tolerance, both together more."""
    b = Builder(name="sums")
    x = b.parameter("x", (5,))
    for name in ("first", "second", "third"):
        b.origin = name
        x = b.sigmoid(x) if name == "first" else b.identity(x)
    found = verified(b.results(x), scaled("first", "second", by=1.0007), tolerance=1e-3)
    assert not found.agrees and found.diverging.origin == "second" and not found.diverging.computes_wrong
    assert "carries an earlier difference" in found.diverging.verdict()
    assert [operand.difference.agrees for operand in found.diverging.operands] == [True]
    assert found.diverging.operands[0].difference.share > 0


def test_a_fault_that_no_part_shows():
    """As if nodes were fused in the whole alone: every part is right."""
    def make(graph: Graph, node: Node, results: list[np.ndarray]) -> list[np.ndarray]:
        return [result + 1 for result in results] if len(compiled) == 1 else results

    found = verified(chain(["tanh", "sigmoid"]), make)
    assert not found.agrees and found.diverging is None
    assert "how the whole is compiled" in found.unnamed


def test_a_fault_that_a_further_output_hides():
    def make(graph: Graph, node: Node, results: list[np.ndarray]) -> list[np.ndarray]:
        is_seen = any(result.node is not None and result.node.origin == "sigmoid1" for result in graph.results)
        is_last = graph.results[-1].node.origin == "sigmoid1" and len(graph.results) == 1
        return [result + 1 for result in results] if node.origin == "sigmoid1" and (is_last or not is_seen) else results

    found = verified(chain(["tanh", "sigmoid", "tanh"]), make)
    assert found.diverging.origin == "sigmoid1" and found.diverging.whole.agrees


def test_a_node_with_several_outputs():
    b = Builder(name="several")
    gates, state = b.parameter("gates", (2, 12)), b.parameter("state", (2, 3))
    b.origin = "cell"
    hidden, state = b.node("lstm_cell", [gates, gates, state], {}).outputs
    b.origin = "after"
    graph = b.results(b.tanh(hidden), state)

    def make(graph: Graph, node: Node, results: list[np.ndarray]) -> list[np.ndarray]:
        return [results[0], results[1] + 1] if node.origin == "cell" else results

    found = verified(graph, make)
    assert [difference.agrees for _, difference in found.outputs] == [True, False]
    assert found.diverging.origin == "cell" and found.diverging.name == "%1"


def test_the_ir_around_the_node():
    found = verified(chain(["tanh", "sigmoid", "tanh", "abs"]), scaled("tanh2"))
    before, own = found.diverging.text.splitlines()
    assert before.startswith("  %1: f32[3,4] = sigmoid(%0)") and own.startswith("> %2: f32[3,4] = tanh(%1)")
    assert own.endswith("# tanh2")


def test_weights_of_the_reference():
    b = Builder(name="weighted")
    x, w, v = b.parameter("x", (2, 3)), b.weight("w", (3, 4)), b.weight("v", (4,))
    b.origin = "product"
    product = b.matmul(x, w)
    b.origin = "scale"
    graph = b.results(b.multiply(product, v))
    ours = {"w": np.ones((3, 4), np.float32), "v": np.ones(4, np.float32)}
    found = ngraph_mxnet.verify(graph, params=ours, reference_params={"v": np.full(4, 2, np.float32)})
    assert found.diverging.origin == "scale" and list(found.diverging.differing) == ["v"]
    assert ngraph_mxnet.verify(graph, params=ours, reference_params=dict(ours)).agrees


def test_a_value_of_another_shape():
    def make(graph: Graph, node: Node, results: list[np.ndarray]) -> list[np.ndarray]:
        return [results[0][:1]] if node.origin == "tanh0" else results

    found = verified(chain(["tanh", "sigmoid"]), make)
    assert found.diverging.origin == "tanh0" and found.diverging.difference.share is None
