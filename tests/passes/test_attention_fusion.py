"""Attention out of its parts, in the forms that models write it in."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from pass_helpers import check, ops, run_pass

from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.passes.fuse import attention_fusion

BATCH, HEADS, QUERIES, KEYS, DEPTH, WIDTH = 2, 3, 4, 6, 5, 8


def heads(b: Builder, name: str, length: int, width: int) -> Value:
    """(batch x heads, length, width), merged of a view of the projection of all heads."""
    x = b.parameter(name, (BATCH, length, HEADS, width))
    return b.reshape(b.transpose(x, order=(0, 2, 1, 3)), shape=(BATCH * HEADS, length, width))


def operands(b: Builder) -> tuple[Value, Value, Value]:
    return heads(b, "q", QUERIES, DEPTH), heads(b, "k", KEYS, DEPTH), heads(b, "v", KEYS, WIDTH)


def mask(b: Builder, shape: tuple[int, ...] = (BATCH * HEADS, QUERIES, KEYS)) -> Value:
    """Every row keeps a key."""
    kept = np.random.default_rng(0).integers(0, 2, shape).astype(bool)
    kept[..., 0] = True
    return b.constant(kept)


def plain(b: Builder) -> Value:
    q, k, v = operands(b)
    return b.matmul(b.softmax(b.matmul(q, k, transpose_b=True)), v)


def scaled_queries(b: Builder) -> Value:
    q, k, v = operands(b)
    return b.matmul(b.softmax(b.matmul(b.multiply(q, b.constant(0.25)), k, transpose_b=True)), v)


def scaled_scores(b: Builder) -> Value:
    q, k, v = operands(b)
    keys, values = b.transpose(k, order=(0, 2, 1)), b.transpose(v, order=(0, 2, 1))
    return b.matmul(b.softmax(b.divide(b.matmul(q, keys), b.constant(4.0)), axis=2), values, transpose_b=True)


def by_length(b: Builder) -> Value:
    q, k, v = operands(b)
    scores, kept = b.matmul(q, k, transpose_b=True), mask(b)
    weights = b.softmax(b.select(kept, scores, b.constant(-math.inf)))
    return b.matmul(b.select(kept, weights, b.constant(0.0)), v)


def by_a_large_number(b: Builder) -> Value:
    q, k, v = operands(b)
    scores = b.matmul(q, k, transpose_b=True)
    fill = b.broadcast(b.constant(-1e4), shape=scores.shape)
    return b.matmul(b.softmax(b.select(mask(b, (1, QUERIES, KEYS)), scores, fill)), v)


def added(b: Builder) -> Value:
    q, k, v = operands(b)
    scores = b.multiply(b.matmul(q, k, transpose_b=True), b.constant(0.5))
    return b.matmul(b.softmax(b.add(scores, b.parameter("bias", (QUERIES, KEYS)))), v)


def rank_4(b: Builder) -> Value:
    q, k, v = (b.parameter(name, (BATCH, HEADS, n, d)) for name, n, d in
               (("q", QUERIES, DEPTH), ("k", KEYS, DEPTH), ("v", KEYS, WIDTH)))
    return b.matmul(b.softmax(b.matmul(q, k, transpose_b=True)), v)


def one_query(b: Builder) -> Value:
    """The transpose of a single step's heads is a reshape."""
    q = b.reshape(b.parameter("q", (BATCH, 1, HEADS * DEPTH)), shape=(BATCH * HEADS, 1, DEPTH))
    k, v = heads(b, "k", KEYS, DEPTH), heads(b, "v", KEYS, WIDTH)
    return b.matmul(b.softmax(b.matmul(q, k, transpose_b=True)), v)


@pytest.mark.parametrize("make", [plain, scaled_queries, scaled_scores, by_length, by_a_large_number, added, rank_4,
                                  one_query])
def test_fused(make: Callable[[Builder], Value]) -> None:
    b = Builder()
    after = check(b.results(make(b)), lambda graph: run_pass(graph, attention_fusion()))
    assert ops(after)["attention"] == 1
    assert not {"matmul", "softmax", "select", "multiply", "divide", "add"} & ops(after).keys()
    (node,) = (node for node in after.nodes if node.op.name == "attention")
    queries = 1 if make is one_query else QUERIES
    assert node.output.shape == (BATCH, HEADS, queries, WIDTH)  # the heads are not merged with the batch


def read_weights(b: Builder) -> Graph:
    q, k, v = operands(b)
    weights = b.softmax(b.matmul(q, k, transpose_b=True))
    return b.results(b.matmul(weights, v), weights)


def other_axis(b: Builder) -> Graph:
    q, k, v = operands(b)
    return b.results(b.matmul(b.softmax(b.matmul(q, k, transpose_b=True), axis=1), v))


def other_mask(b: Builder) -> Graph:
    q, k, v = operands(b)
    scores = b.matmul(q, k, transpose_b=True)
    weights = b.softmax(b.select(mask(b), scores, b.constant(-math.inf)))
    chosen = b.greater(weights, b.constant(0.5))
    return b.results(b.matmul(b.select(chosen, weights, b.constant(0.0)), v))


def shared_values(b: Builder) -> Graph:
    q, k, _ = operands(b)
    return b.results(b.matmul(b.softmax(b.matmul(q, k, transpose_b=True)), b.parameter("one", (1, KEYS, WIDTH))))


def test_heads_of_different_numbers() -> None:
    b = Builder()
    q = b.reshape(b.parameter("q", (BATCH, HEADS, QUERIES, DEPTH)), shape=(6, QUERIES, DEPTH))
    k, v = (b.reshape(b.parameter(name, (HEADS, BATCH, KEYS, size)), shape=(6, KEYS, size))
            for name, size in (("k", DEPTH), ("v", WIDTH)))
    after = check(b.results(b.matmul(b.softmax(b.matmul(q, k, transpose_b=True)), v)),
                  lambda graph: run_pass(graph, attention_fusion()))
    (node,) = (node for node in after.nodes if node.op.name == "attention")
    assert node.output.shape == (6, QUERIES, WIDTH)


@pytest.mark.parametrize("make", [read_weights, other_axis, other_mask, shared_values])
def test_left_as_it_is(make: Callable[[Builder], Graph]) -> None:
    after = check(make(Builder()), lambda graph: run_pass(graph, attention_fusion()))
    assert "attention" not in ops(after)
