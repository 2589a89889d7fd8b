"""Regions: as large as they can be, without cycles, and right; on random graphs and on those that break MXNet's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet_helpers import bound, forget_graphs, mx, needs_library

from ngraph_mxnet.frontends.verdicts import ALONE, Partition, grow_regions
from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.plugin.binding import fallbacks
from ngraph_mxnet.targets.interpreter import InterpreterBackend

LEFT = "left"
"""A node whose name begins so stays with MXNet in these tests: the backend refuses what it computes."""
SHAPE = (2, 4, 16, 16)
"""Its half is large enough for a region by itself."""


def refusal(_: object, node: Node) -> str | None:
    """Of functions that only such nodes compute, and of what moves along the last two axes."""
    moves = node.op.name in ("concat", "slice", "split") and node.inputs[0].shape[2:] != node.output.shape[2:]
    return "its kind" if moves or node.op.name in ("erf", "maximum") else None


# ---- the grouping alone ---------------------------------------------------------------------------------

@st.composite
def dags(draw: st.DrawFn) -> tuple[list[list[int]], list[bool]]:
    count = draw(st.integers(1, 14))
    inputs = [sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(count)]
    return inputs, [draw(st.booleans()) for _ in range(count)]


def has_cycle(inputs: list[list[int]], numbers: list[int]) -> bool:
    """Whether the graph has one when each region is a single node."""
    owner = [-2 - node if number == ALONE else number for node, number in enumerate(numbers)]
    graph: dict[int, set[int]] = {here: set() for here in owner}
    for node, sources in enumerate(inputs):
        graph[owner[node]] |= {owner[source] for source in sources} - {owner[node]}
    while graph:
        ready = [node for node, sources in graph.items() if not sources & graph.keys()]
        if not ready:
            return True
        for node in ready:
            del graph[node]
    return False


@given(dags())
def test_regions_cover_the_supported_without_cycles(case: tuple[list[list[int]], list[bool]]) -> None:
    inputs, supported = case
    numbers = grow_regions(inputs, supported)
    assert [number != ALONE for number in numbers] == supported
    assert not has_cycle(inputs, numbers)


@given(dags())
def test_no_two_neighbours_could_be_one(case: tuple[list[list[int]], list[bool]]) -> None:
    inputs, supported = case
    numbers = grow_regions(inputs, supported)
    for node, sources in enumerate(inputs):
        for source in sources:
            pair = numbers[source], numbers[node]
            if ALONE not in pair and pair[0] != pair[1]:
                assert has_cycle(inputs, [pair[0] if number == pair[1] else number for number in numbers])


@given(dags())
def test_regions_are_connected(case: tuple[list[list[int]], list[bool]]) -> None:
    inputs, supported = case
    numbers = grow_regions(inputs, supported)
    for number in set(numbers) - {ALONE}:
        members = {node for node, of in enumerate(numbers) if of == number}
        reached, stack = set(), [min(members)]
        while stack:
            here = stack.pop()
            reached.add(here)
            near = set(inputs[here]) | {node for node in members if here in inputs[node]}
            stack.extend((near & members) - reached)
        assert reached == members


def test_a_long_graph_is_one_region() -> None:
    count = 5000
    inputs = [[max(node - 1, 0), node // 2] if node else [] for node in range(count)]
    assert grow_regions(inputs, [True] * count) == [0] * count


# ---- with MXNet -----------------------------------------------------------------------------------------

@pytest.fixture(autouse=True)
def left(own_backend: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that refuses what nodes called `left...` compute, and nothing is remembered from test to test."""
    own_backend(InterpreterBackend, supports=refusal)
    monkeypatch.setenv("NGRAPH_BACKEND", "OWN")
    monkeypatch.setenv("NGRAPH_CACHE_DIR", "off")
    forget_graphs()


def check(symbol: mx.sym.Symbol, **shapes: tuple[int, ...]) -> Partition:
    """Binding gives native MXNet's outputs, with all regions that were chosen; the partition."""
    names = [name for name in symbol.list_arguments() if name not in shapes]
    shapes = {**shapes, **dict.fromkeys(names, SHAPE)}
    native = bound(symbol, "NONE", **shapes).forward()
    with fallbacks.partition_log.listening() as heard:
        executor = bound(symbol, "NGRAPH", **shapes)
    for found, expected in zip(executor.forward(), native, strict=True):
        np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-5, atol=1e-5)
    partition = heard[0]
    assert executor.debug_str().count("Op:NGraphSubgraphOp") == len(partition.regions)
    assert all("no region" not in (verdict.reason or "") for verdict in partition.left())
    return partition


def names_of(partition: Partition) -> list[set[str]]:
    return [{name for name, _ in region.nodes} for region in partition.regions]


def unary(x: mx.sym.Symbol, name: str) -> mx.sym.Symbol:
    return mx.sym.erf(x, name=name) if name.startswith(LEFT) else mx.sym.Activation(x, act_type="softsign", name=name)


def binary(x: mx.sym.Symbol, y: mx.sym.Symbol, name: str) -> mx.sym.Symbol:
    return (mx.sym.broadcast_maximum if name.startswith(LEFT) else mx.sym.broadcast_sub)(x, y, name=name)


@needs_library
def test_regions_that_would_read_each_other() -> None:
    """MXNet's own cutting makes {a1, a2} and {b1, b2, b3}, each of which reads the other through what stays."""
    a1, b2 = unary(mx.sym.var("data"), "a1"), unary(mx.sym.var("other"), "b2")
    a2 = binary(a1, unary(b2, "left2"), "a2")
    b3 = binary(unary(unary(a1, "left1"), "b1"), b2, "b3")
    partition = check(mx.sym.Group([a2, b3]))
    assert len(partition.regions) == 3
    assert {"a1", "a2"} in names_of(partition)


@needs_library
def test_nodes_of_one_name() -> None:
    """Each gets one of its own."""
    x = unary(unary(mx.sym.var("data"), "same"), "left")
    symbol = unary(unary(x, "same"), "after")
    assert names_of(check(symbol)) == [{"same"}, {"same_again1", "after"}]
    with fallbacks.partition_log.listening() as heard:
        symbol.optimize_for("NGRAPH", {"data": mx.nd.ones(SHAPE)})
    assert names_of(heard[0]) == [{"same"}, {"same_again1", "after"}]
    assert names_of(check(unary(unary(unary(mx.sym.var("data"), "same"), "same"), "b"))) == [
        {"same", "same_again1", "b"}]


@needs_library
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("size", [4, 4096])
def test_a_lone_small_operator_between_those_of_mxnet(size: int, count: int) -> None:
    x = unary(mx.sym.var("data"), "left")
    for number in range(count):
        x = unary(x, f"ours{number}")
    partition = check(unary(x, "left2"), data=(1, size))
    assert len(partition.regions) == (size > 4 or count > 1)
    if not partition.regions:
        reasons = {verdict.name: verdict.reason for verdict in partition.left()}
        assert (reasons["ours0"] or "").startswith("alone between operators of MXNet it would compute 4 elements")


@needs_library
def test_a_small_operator_that_is_the_whole_graph() -> None:
    assert names_of(check(unary(mx.sym.var("data"), "all"))) == [{"all"}]


@needs_library
def test_the_same_input_twice_and_the_same_output_twice() -> None:
    left = unary(mx.sym.var("data"), "left")
    twice = binary(unary(left, "a"), unary(left, "b"), "c")
    assert names_of(check(mx.sym.Group([twice, twice, unary(twice, "left2")]))) == [{"a", "b", "c"}]


@needs_library
def test_outputs_that_are_inputs() -> None:
    data = mx.sym.var("data")
    left = unary(data, "left")
    assert names_of(check(mx.sym.Group([left, binary(left, data, "a"), data]))) == [{"a"}]


@needs_library
def test_several_outputs_and_unread_ones() -> None:
    parts = mx.sym.SliceChannel(unary(mx.sym.var("data"), "a"), num_outputs=4, axis=1, name="split")
    partition = check(mx.sym.Group([parts[2], unary(parts[0], "left"), binary(parts[3], parts[2], "b"), parts[2]]))
    assert names_of(partition) == [{"a", "split", "b"}]


@needs_library
def test_a_rejected_region_with_an_input_that_it_reads_twice() -> None:
    """MXNet puts its nodes back, among them those that read one input in two places."""
    left = unary(mx.sym.var("data"), "left")
    moved = mx.sym.Concat(left, mx.sym.var("other"), left, dim=0, name="joined")
    other = unary(left, "kept")
    partition = check(mx.sym.Group([unary(moved, "left2"), other]))
    assert not any("joined" in names for names in names_of(partition))


OPS = ("unary", "binary", "concat", "split")


@st.composite
def models(draw: st.DrawFn) -> mx.sym.Symbol:
    """Random graphs of operators that keep SHAPE, about half of them left, with several outputs."""
    values = [mx.sym.var(f"x{i}") for i in range(draw(st.integers(1, 3)))]
    for number in range(draw(st.integers(1, 14))):
        name = f"{LEFT if draw(st.booleans()) else 'ours'}{number}"
        pick = st.sampled_from(values)
        op = draw(st.sampled_from(OPS))
        if op == "unary":
            values.append(unary(draw(pick), name))
        elif op == "binary":
            values.append(binary(draw(pick), draw(pick), name))
        elif op == "concat":
            axis = 2 if name.startswith(LEFT) else 0
            half = mx.sym.slice_axis(draw(pick), axis=axis, begin=0, end=SHAPE[axis] // 2, name=f"{name}_half")
            values.append(mx.sym.Concat(half, half, dim=axis, name=name))
        else:
            axis = 3 if name.startswith(LEFT) else 1
            parts = mx.sym.SliceChannel(draw(pick), num_outputs=2, axis=axis, name=name)
            values.append(mx.sym.Concat(parts[1], parts[draw(st.integers(0, 1))], dim=axis, name=f"{name}_joined"))
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4))
    return mx.sym.Group([*outputs, values[-1]])


@needs_library
@settings(max_examples=40, deadline=None)
@given(models())
def test_random_graphs(symbol: mx.sym.Symbol) -> None:
    check(symbol)


@needs_library
@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(models())
def test_many_random_graphs(symbol: mx.sym.Symbol) -> None:
    check(symbol)
