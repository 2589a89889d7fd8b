"""Graphs are drawn whole, and downwards."""

from __future__ import annotations

from hypothesis import given, settings
from problems import problems

from ngraph_mxnet.base.drawing import arrange
from ngraph_mxnet.targets.hybrid.search import Problem


@settings(max_examples=40)
@given(problems())
def test_each_edge_goes_down_row_by_row(problem: Problem):
    sources = problem.sources
    found = arrange(sources)
    row_of = {place: number for number, row in enumerate(found.rows) for place in row}
    assert len(row_of) == sum(map(len, found.rows))  # each place once
    assert set(range(len(sources))) <= set(row_of)
    assert set(found.paths) == {(source, reader) for reader, read in enumerate(sources) for source in read}
    for (source, reader), path in found.paths.items():
        assert (path[0], path[-1]) == (source, reader)
        assert [row_of[place] for place in path] == list(range(row_of[source], row_of[reader] + 1))
        assert all(place >= len(sources) for place in path[1:-1])


def test_branches_keep_their_sides():
    """Two chains side by side do not cross."""
    sources = [[], [0], [0], [1], [2], [4, 3]]
    rows = arrange(sources).rows
    left = [row[0] for row in rows if len(row) == 2]
    assert left in ([1, 3], [2, 4])
