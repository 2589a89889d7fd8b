"""Modules: what holds of their flow, what the builder makes, and what is told of wrong ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ngraph_mxnet.base.errors import GraphError
from ngraph_mxnet.ir import Builder, Graph, TensorType, element_type
from ngraph_mxnet.ir.graph import extract
from ngraph_mxnet.ir.module import Changes, Derivation, Flow, Module, Modules, Shared, Step, changes_of, single_step
from ngraph_mxnet.ir.types import Role

PAIR = TensorType(element_type("f32"), (2,))
X, W, Y = Shared("x", PAIR, Role.INPUT), Shared("w", PAIR, Role.WEIGHT), Shared("y", PAIR, Role.MADE)


def whole() -> Graph:
    """exp(w) is read by two parts, and is a result beside what the last one makes."""
    b = Builder(name="whole")
    x, w = b.parameter("x", (2,)), b.weight("w", (2,))
    scale = b.exp(w)
    product = b.multiply(x, scale)
    return b.results(b.add(product, scale), scale, x)


def cut(graph: Graph) -> Module:
    modules = Modules(graph)
    values = [node.output for node in graph.nodes]
    for number, value in enumerate(values):
        stops = (*graph.parameters, *values[:number])
        part = extract(graph, [value], stops, name=f"part{number}", label=lambda _, at: f"in{at}")
        modules.add(f"part{number}", part, [value])
    return modules.build()


def test_parts_of_a_graph():
    module = cut(whole())
    module.verify()
    x, w = module.flow.inputs
    (scale,), (product,), (total,) = (step.outputs for step in module.flow.steps)
    assert [(value.name, value.role) for value in module.flow.values()] == [
        ("x", Role.INPUT), ("w", Role.WEIGHT), ("part0.0", Role.MADE), ("part1.0", Role.MADE), ("part2.0", Role.MADE)]
    assert [step.inputs for step in module.flow.steps] == [(w,), (x, scale), (scale, product)]
    assert module.flow.results == (total, scale, x) and module.flow.names == ("output0", "output1", "x")
    assert changes_of(module.flow) == {x: Changes.WITH_CALLS, w: Changes.WITH_WEIGHTS, scale: Changes.WITH_WEIGHTS,
                                       product: Changes.WITH_CALLS, total: Changes.WITH_CALLS}


def test_parts_are_made_once():
    graph = whole()
    modules, value = Modules(graph), graph.nodes[0].output
    part = extract(graph, [value], graph.parameters, name="part", label=lambda *_: "")
    modules.add("part", part, [value])
    with pytest.raises(GraphError, match="two parts of graph whole are called 'part'"):
        modules.add("part", part, [value])
    with pytest.raises(GraphError, match=r"part 'again' of graph whole makes part\.0: f32\[2\] made again"):
        modules.add("again", part, [value])


def test_the_only_step_returns_values_of_its_own():
    b = Builder(name="odd")
    x = b.parameter("main.0", (2,))
    flow = single_step(b.results(x, x, b.exp(x)))
    flow.verify()
    assert len(set(flow.results)) == 3 and flow.step("main").outputs == flow.results
    assert flow.names == ("main.0", "main.0", "output2")
    with pytest.raises(GraphError, match=r"no step calls a graph 'other'; the steps call \['main'\]"):
        flow.step("other")


def flow(**changes: object) -> Flow:
    return replace(Flow((X, W), (Step("g", (X, W), (Y,)),), (Y,), ("y",)), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("wrong", "message"), [
    (flow(inputs=(X, W, replace(X, role=Role.WEIGHT))), "two shared values are called 'x'"),
    (flow(inputs=(X, W, replace(Y, name="z"))), "z: .* made is an input"),
    (flow(inputs=(X,)), r"step 0 \(g\) reads w: f32\[2\] weight, which no earlier one makes"),
    (flow(steps=(Step("g", (X, W), (replace(X, name="z"),)),)), "is made by step 0 .g.: found the role input"),
    (flow(steps=()), r"y: f32\[2\] made is a result, and nothing makes it"),
    (flow(names=()), "1 results have 0 names"),
])
def test_wrong_flows(wrong: Flow, message: str):
    flow().verify()
    with pytest.raises(GraphError, match=message):
        wrong.verify()


def graph(weight: bool = True, size: int = 2) -> Graph:
    b = Builder(name="g")
    return b.results(b.add(b.parameter("a", (size,)), (b.weight if weight else b.parameter)("b", (size,))))


@pytest.mark.parametrize(("graphs", "message"), [
    ({}, r"module m, step 0 \(g\): there is no such graph"),
    ({"g": Builder().results()}, "found 2 values, the graph has 0 parameters"),
    ({"g": graph(size=3)}, r"x: f32\[2\] input is number 0 of the parameters, which is f32\[3\]"),
    ({"g": graph(weight=False)}, r"w: f32\[2\] weight is given for 'b', a input"),
])
def test_wrong_modules(graphs: dict[str, Graph], message: str):
    Module("m", {"g": graph()}, flow()).verify()
    with pytest.raises(GraphError, match=message):
        Module("m", graphs, flow()).verify()


def test_what_changes_when():
    b = Builder()
    x, w = b.parameter("x", (2,)), b.weight("w", (2,))
    one = b.constant(1.0)
    values = {b.exp(one): Changes.NEVER, b.add(one, b.exp(w)): Changes.WITH_WEIGHTS, w: Changes.WITH_WEIGHTS,
              x: Changes.WITH_CALLS, b.add(b.add(x, one), w): Changes.WITH_CALLS}
    derivation = Derivation()
    for value, changes in values.items():
        assert derivation.of(value) is changes
    assert derivation.of_node(one.node) is Changes.NEVER


def test_long_chains():
    b = Builder()
    value = b.parameter("x", (2,))
    for _ in range(3000):
        value = b.exp(value)
    assert Derivation().of(value) is Changes.WITH_CALLS
