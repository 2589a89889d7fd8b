"""What passes changed, as lines."""

from __future__ import annotations

from ngraph_mxnet.ir import parse_graph
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.tools.reporting import History

GRAPH = """
graph @small(%x: f32[2,3,5,6], %w: f32[4,3,1,1] weight) -> (f32[2,4,5,6]) {
  %0: f32[2,3,5,6] = identity(%x)
  %1: f32[2,4,5,6] = convolution(%0, %w)
  %2: f32[2,4,5,6] = relu(%1)
  %3: f32[2,4,5,6] = abs(%2)
  return %3
}
"""


def history() -> History:
    graph = parse_graph(GRAPH)
    found = History(graph)
    PassManager(get_backend("CPU").pipeline(), observer=found).run(graph)
    return found


def test_differences_lead_from_the_start_to_the_end() -> None:
    """All removed lines were there, and what stays and what is added makes the end."""
    found = history()
    lines = list(found.start)
    for change in found.changes:
        for sign, line in change.lines:
            if sign == "-":
                lines.remove(line)
            elif sign == "+":
                lines.append(line)
            elif sign == " ":
                assert line in lines
    assert sorted(lines) == sorted(found.end) and found.start != found.end


def test_values_keep_their_numbers() -> None:
    """Though the identity before it is gone, the last node is still the fourth."""
    found = history()
    assert any(line.startswith("%3: f32[2,4,5,6] = abs(") for line in found.end)
    touched = [line for change in found.changes for sign, line in change.lines if sign in "+-"]
    assert touched and not any(line.startswith("return") for line in touched)


def test_passes_that_change_nothing_are_counted() -> None:
    found = history()
    assert found.unchanged > 0 and all(change.lines for change in found.changes)
    assert all(by for _, by in found.changes[0].ops)


def test_many_lines_are_cut() -> None:
    body = "\n".join(f"  %{n}: f32[2] = identity(%{n - 1 if n else 'x'})" for n in range(2000))
    graph = parse_graph(f"graph @long(%x: f32[2]) -> (f32[2]) {{\n{body}\n  return %1999\n}}\n")
    found = History(graph)
    PassManager(get_backend("CPU").pipeline(), observer=found).run(graph)
    assert len(found.changes[0].lines) == 1500 and found.changes[0].left_out > 500
