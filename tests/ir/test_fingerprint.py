"""Fingerprints: equal for graphs that compute the same, whatever they are called, different for others."""

from __future__ import annotations

from hypothesis import given
from random_graphs import graphs

from ngraph_mxnet.ir.graph import Graph, fingerprint
from ngraph_mxnet.ir.parser import parse_graph

TEXT = """
graph @head(%data: f32[8,512,7,7], %w: f32[10,512] weight, %b: f32[10] weight) -> (f32[8,10]) {
  %0: f32[8,512] = reduce_mean(%data) {axes=[2,3]}
  %1: f32[8,10] = matmul(%0, %w) {transpose_b=true}
  %2: f32[8,10] = add(%1, %b)
  %3: f32[8,10] = tanh(%2)
  return %3
}
"""


def digest(text: str) -> str:
    return fingerprint(parse_graph(text)).digest


def names(text: str) -> list[str]:
    return [value.name for value in fingerprint(parse_graph(text)).parameters]


def test_names_and_roles_do_not_count() -> None:
    other = (TEXT.replace("@head", "@other").replace("%data", "%x").replace("%w", "%weight").replace(" weight,", ",")
             .replace("b: f32[10] weight", "b: f32[10]"))
    assert digest(other) == digest(TEXT)
    assert names(other) == ["x", "weight", "b"]


def test_the_order_of_parameters_and_what_is_not_read_do_not_count() -> None:
    other = TEXT.replace("%data: f32[8,512,7,7], %w: f32[10,512] weight, %b: f32[10] weight",
                         "%label: f32[8], %b: f32[10] weight, %w: f32[10,512] weight, %data: f32[8,512,7,7]")
    other = other.replace("  return", "  %4: f32[8] = tanh(%label)\n  return")
    assert digest(other) == digest(TEXT)
    assert names(other) == ["data", "w", "b"]


def test_all_else_counts() -> None:
    changes = {"tanh": "sigmoid", "f32[8,": "f32[9,", "f32[": "f64[", "add(%1, %b)": "add(%b, %1)",
               "return %3": "return %2"}
    digests = {digest(TEXT.replace(old, new)) for old, new in changes.items()}
    assert len(digests) == len(changes) and digest(TEXT) not in digests


def test_which_parameter_is_read_where_counts() -> None:
    text = "graph @g(%a: f32[4], %b: f32[4]) -> (f32[4]) {\n  %0: f32[4] = subtract(%a, %b)\n  return %0\n}\n"
    same = text.replace("subtract(%a, %b)", "subtract(%b, %a)")
    assert digest(same) == digest(text) and names(same) == ["b", "a"]
    assert digest(text.replace("subtract(%a, %b)", "subtract(%a, %a)")) != digest(text)


@given(graphs())
def test_of_a_renamed_copy(graph: Graph) -> None:
    copy = graph.clone()
    copy.name = "copy"
    for place, value in enumerate(copy.parameters):
        value.name = f"other{place}"
    copy.parameters.reverse()
    found, other = fingerprint(graph), fingerprint(copy)
    assert found.digest == other.digest
    assert [graph.parameters.index(value) for value in found.parameters] == [
        len(copy.parameters) - 1 - copy.parameters.index(value) for value in other.parameters]
