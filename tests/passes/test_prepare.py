"""The split: what goes to prepare, what stays, and how the parameters correspond."""

from __future__ import annotations

from pass_helpers import check_split, ops

from ngraph_mxnet.ir import Builder, parse_graph, print_graph
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.passes import split_prepare
from ngraph_mxnet.passes.clusters import MAIN, PREPARE


def test_mapping_is_explicit():
    graph = parse_graph("""
    graph @g(%x: f32[3], %w: f32[3] weight, %unread: f32[1], %v: f32[3] weight) -> (f32[3], f32[3]) {
      %0: f32[3] = exp(%w)
      %1: f32[3] = add(%0, %v)
      %2: f32[3] = multiply(%x, %1)
      %3: f32[3] = subtract(%2, %v)
      return %3, %0
    }""")
    module = split_prepare(graph)
    first, second = module.flow.steps
    x, w, unread, v = module.flow.inputs
    assert (first.graph, first.inputs, second.graph) == (PREPARE, (w, v), MAIN)
    assert second.inputs == (x, v, *first.outputs) and module.flow.results == second.outputs
    assert [value.role for value in (x, w, unread, *first.outputs)] == [
        Role.INPUT, Role.WEIGHT, Role.INPUT, Role.MADE, Role.MADE]
    assert print_graph(module.graphs[MAIN]) == """\
graph @g(%x: f32[3], %v: f32[3] weight, %prepared0: f32[3], %prepared1: f32[3]) -> (f32[3], f32[3]) {
  %0: f32[3] = multiply(%x, %prepared0)
  %1: f32[3] = subtract(%0, %v)
  return %1, %prepared1
}
"""
    assert print_graph(module.graphs[PREPARE]) == """\
graph @g_prepare(%w: f32[3] weight, %v: f32[3] weight) -> (f32[3], f32[3]) {
  %0: f32[3] = exp(%w)
  %1: f32[3] = add(%0, %v)
  return %1, %0
}
"""
    check_split(graph)
    assert len(graph.nodes) == 4  # untouched


def test_nothing_to_prepare():
    b = Builder()
    graph = b.results(b.add(b.parameter("x", (2,)), b.weight("w", (2,))))
    module = split_prepare(graph)
    prepare, (first, second) = module.graphs[PREPARE], module.flow.steps
    assert not prepare.nodes and not prepare.results and not prepare.parameters and not first.outputs
    assert second.inputs == module.flow.inputs
    assert module.graphs[MAIN].parameters[1].is_weight


def test_constants_alone_stay_and_shared_ones_are_copied():
    b = Builder()
    x, w = b.parameter("x", (2,)), b.weight("w", (2,))
    shared = b.exp(b.constant(2.0))
    prepare, main = check_split(b.results(b.add(b.add(x, shared), b.multiply(w, shared)), shared))
    assert ops(prepare) == {"constant": 1, "exp": 1, "multiply": 1}
    assert ops(main) == {"add": 2, "constant": 1, "exp": 1}


def test_results_may_be_prepared_or_parameters():
    b = Builder()
    x, w = b.parameter("prepared0", (2,)), b.weight("w", (2,))
    doubled = b.add(w, w)
    prepare, main = check_split(b.results(doubled, w, x, doubled))
    assert ops(prepare) == {"add": 1} and not main.nodes
    assert [p.name for p in main.parameters] == ["prepared0", "w", "prepared0_"]


def test_outputs_of_a_prepared_node_are_kept_apart():
    b = Builder()
    x = b.parameter("x", (1, 2, 3, 3))
    shapes = ((2, 2, 1, 1), (2,), (1, 2, 3, 3), (2,), (2,))
    weights = [b.weight(f"w{i}", shape) for i, shape in enumerate(shapes)]
    node = b.node("convolution", [weights[2], *weights], {})
    prepare, main = check_split(b.results(b.add(x, node.outputs[1])))
    assert len(prepare.results) == 1 and prepare.results[0].index == 1
    assert ops(main) == {"add": 1}
