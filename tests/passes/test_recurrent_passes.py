"""Cells of unrolled recurrent nets, and products that share weights."""

from __future__ import annotations

import pytest
from pass_helpers import check_passes, ops, run_pass

from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.passes.fuse import recurrent_cells
from ngraph_mxnet.passes.movement import MergeProducts

ROWS, UNITS = 3, 5


def part(b: Builder, x: Value, index: int) -> Value:
    begin = index * UNITS
    return b.slice(x, begin=(0, begin), end=(ROWS, begin + UNITS))


def lstm(order: str = "ifgo", *, swapped: bool = False) -> Graph:
    """One step; `order` names the gates' places."""
    b = Builder()
    x, p, c = b.parameter("x", (ROWS, 4 * UNITS)), b.parameter("p", (ROWS, 4 * UNITS)), b.parameter("c", (ROWS, UNITS))
    total = b.add(x, p)
    i, f, g, o = (part(b, total, order.index(gate)) for gate in "ifgo")
    kept, new = b.multiply(b.sigmoid(f), c), b.multiply(b.sigmoid(i), b.tanh(g))
    state = b.add(new, kept) if swapped else b.add(kept, new)
    out = b.tanh(state), b.sigmoid(o)
    return b.results(b.multiply(*(out if swapped else out[::-1])), state)


def gru(*, complement: float = 1.0) -> Graph:
    b = Builder()
    x, p, h = b.parameter("x", (ROWS, 3 * UNITS)), b.parameter("p", (ROWS, 3 * UNITS)), b.parameter("h", (ROWS, UNITS))
    r, z = (b.sigmoid(b.add(part(b, x, k), part(b, p, k))) for k in (0, 1))
    n = b.tanh(b.add(part(b, x, 2), b.multiply(r, part(b, p, 2))))
    return b.results(b.add(b.multiply(b.subtract(b.constant(complement), z), n), b.multiply(z, h)))


@pytest.mark.parametrize("swapped", [False, True])
def test_lstm_cell(swapped: bool) -> None:
    after = check_passes(lstm(swapped=swapped), recurrent_cells())
    after.remove_dead()
    assert ops(after) == {"lstm_cell": 1}


def test_gru_cell() -> None:
    after = check_passes(gru(), recurrent_cells())
    after.remove_dead()
    assert ops(after) == {"gru_cell": 1}


@pytest.mark.parametrize("graph", [lstm("figo"), lstm("ifog"), gru(complement=2.0)])
def test_other_cells_stay(graph: Graph) -> None:
    before = ops(graph)
    run_pass(graph, recurrent_cells())
    assert ops(graph) == before


def products(count: int, rows: int = ROWS, *, chained: bool = False, bias: bool = True) -> Graph:
    b = Builder()
    weights, vector = b.weight("w", (UNITS, UNITS)), b.weight("v", (UNITS,))
    results: list[Value] = []
    for index in range(count):
        x = b.parameter(f"x{index}", (rows, UNITS))
        if chained and results:
            x = b.add(x, results[-1])
        results.append(b.matmul(x, weights, vector) if bias else b.matmul(x, weights, transpose_b=True))
    return b.results(*results)


@pytest.mark.parametrize("bias", [False, True])
def test_products_with_the_same_weights_become_one(bias: bool) -> None:
    after = check_passes(products(4, bias=bias), MergeProducts())
    assert ops(after) == {"concat": 1, "matmul+bias" if bias else "matmul": 1, "slice": 4}


@pytest.mark.parametrize("graph", [products(1), products(3, chained=True), products(3, rows=100)])
def test_products_that_stay(graph: Graph) -> None:
    run_pass(graph, MergeProducts())
    assert "concat" not in ops(graph)


def test_two_groups_that_need_each_other_are_not_both_merged() -> None:
    """a1 -> b1 and b2 -> a2: one product for all a and one for all b would each wait for the other."""
    b = Builder()
    first, second = b.parameter("w1", (UNITS, UNITS)), b.parameter("w2", (UNITS, UNITS))
    x, y = b.parameter("x", (ROWS, UNITS)), b.parameter("y", (ROWS, UNITS))
    a1, b2 = b.matmul(x, first), b.matmul(y, second)
    after = check_passes(b.results(b.matmul(a1, second), b.matmul(b2, first)), MergeProducts())
    assert ops(after)["matmul"] == 3
