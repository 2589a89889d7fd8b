"""What the pass tests share: an evaluator over the ops' references, random inputs, comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from ngraph_mxnet.ir import Graph, Node, print_graph, verify
from ngraph_mxnet.passes import PassManager, Report, split_prepare
from ngraph_mxnet.passes.clusters import MAIN, PREPARE


def evaluate(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results, node by node."""
    values = dict(zip(graph.parameters, inputs, strict=True))
    for node in graph.nodes:
        outputs = node.op.evaluate([values[v] for v in node.inputs], node.attrs)
        values.update(zip(node.outputs, outputs, strict=True))
    return [values[v] for v in graph.results]


def random_inputs(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Normal floats, small integers; parameters called *var* are positive."""
    rng = np.random.default_rng(seed)
    inputs = []
    for parameter in graph.parameters:
        array = rng.standard_normal(parameter.shape) * 2
        if "var" in parameter.name:
            array = np.abs(array) + 0.5
        inputs.append(np.asarray(array).astype(parameter.type.element.numpy))
    return inputs


def assert_same(found: Sequence[np.ndarray], expected: Sequence[np.ndarray], context: str = "") -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, context
        tolerance = 2e-2 if a.dtype == np.float16 else 1e-4
        finite = b[np.isfinite(b)] if b.dtype.kind == "f" else np.ones(1)
        scale = max(1.0, float(np.max(np.abs(finite), initial=0.0)))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale, err_msg=context)


def check(graph: Graph, run: Callable[[Graph], object]) -> Graph:
    """Run `run` on a copy and return that: it verifies, keeps its signature and computes the same."""
    after = graph.clone()
    run(after)
    verify(after)
    assert [(p.name, p.type) for p in after.parameters] == [(p.name, p.type) for p in graph.parameters]
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        with np.errstate(all="ignore"):
            expected, found = evaluate(graph, inputs), evaluate(after, inputs)
        assert_same(found, expected, f"{print_graph(graph)}\n{print_graph(after)}")
    return after


def check_passes(graph: Graph, *passes) -> Graph:
    """`check` with the given passes, verified after each."""
    return check(graph, PassManager(passes, verify_each=True).run)


def run_pass(graph: Graph, *passes) -> Report:
    return PassManager(passes, verify_each=True).run(graph)


def check_split(graph: Graph) -> tuple[Graph, Graph]:
    """Split, verify both parts, and compare prepare then main with the whole."""
    module = split_prepare(graph)
    module.verify()
    inputs = random_inputs(graph)
    values = dict(zip(module.flow.inputs, inputs, strict=True))
    for step in module.flow.steps:
        made = evaluate(module.graphs[step.graph], [values[value] for value in step.inputs])
        values.update(zip(step.outputs, made, strict=True))
    assert_same([values[value] for value in module.flow.results], evaluate(graph, inputs))
    return module.graphs[PREPARE], module.graphs[MAIN]


def form(node: Node) -> str:
    """The op and what its epilogue has."""
    return "+".join([node.op.name, *node.epilogue])


def ops(graph: Graph) -> dict[str, int]:
    return dict(sorted(Counter(map(form, graph.nodes)).items()))
