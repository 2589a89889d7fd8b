"""Attention cells of MXNet models: one region, one attention kernel, MXNet's own outputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from mxnet_helpers import bound, close, mx, needs_library

from ngraph_mxnet.frontends.mxnet.importer import import_symbol
from ngraph_mxnet.program.compile import compile

BATCH, LENGTH, HEADS, UNITS = 2, 9, 3, 24
LENGTHS = (4.0, 9.0)


def interleaved(data: mx.sym.Symbol, lengths: mx.sym.Symbol) -> mx.sym.Symbol:
    """GluonNLP's BERT: (length, batch, units), one projection, softmax by length."""
    projection = mx.sym.FullyConnected(mx.sym.transpose(data, axes=(1, 0, 2)), num_hidden=3 * UNITS, flatten=False)
    scores = mx.sym.contrib.interleaved_matmul_selfatt_qk(projection, heads=HEADS)
    each = mx.sym.Cast(mx.sym.broadcast_axis(mx.sym.reshape(lengths, (-1, 1)), axis=1, size=LENGTH), "int32")
    each = mx.sym.broadcast_axis(mx.sym.expand_dims(each, axis=1), axis=1, size=HEADS)
    weights = mx.sym.softmax(scores, mx.sym.reshape(each, (-1, 0), reverse=True), use_length=True)
    weights = mx.sym.Dropout(weights, p=0.1)
    return mx.sym.contrib.interleaved_matmul_selfatt_valatt(projection, weights, heads=HEADS)


def batch_dots(data: mx.sym.Symbol, lengths: mx.sym.Symbol) -> mx.sym.Symbol:
    """Three projections, heads merged with the batch, a large negative number where the mask is 0."""

    def heads(name: str) -> mx.sym.Symbol:
        x = mx.sym.FullyConnected(data, num_hidden=UNITS, flatten=False, name=name)
        x = mx.sym.transpose(mx.sym.reshape(x, (0, 0, HEADS, -1)), axes=(0, 2, 1, 3))
        return mx.sym.reshape(x, (-1, 0, 0), reverse=True)

    scores = mx.sym.batch_dot(heads("query") / np.sqrt(UNITS / HEADS), heads("key"), transpose_b=True)
    kept = mx.sym.broadcast_lesser(mx.sym.reshape(mx.sym.Variable("positions"), (1, 1, -1)),
                                   mx.sym.reshape(mx.sym.repeat(lengths, HEADS), (-1, 1, 1)))
    kept = mx.sym.broadcast_axis(kept, axis=1, size=LENGTH)
    weights = mx.sym.softmax(mx.sym.where(kept, scores, mx.sym.ones_like(scores) * -1e18), axis=-1)
    context = mx.sym.reshape(mx.sym.batch_dot(weights, heads("value")), (-1, HEADS, 0, 0), reverse=True)
    return mx.sym.reshape(mx.sym.transpose(context, axes=(0, 2, 1, 3)), (0, 0, -1))


def additive(data: mx.sym.Symbol, lengths: mx.sym.Symbol) -> mx.sym.Symbol:
    """The mask is added to scores of rank 4, through linalg_gemm2."""

    def heads(name: str) -> mx.sym.Symbol:
        x = mx.sym.FullyConnected(data, num_hidden=UNITS, flatten=False, name=name)
        return mx.sym.transpose(mx.sym.reshape(x, (0, 0, HEADS, -1)), axes=(0, 2, 1, 3))

    scores = mx.sym.linalg_gemm2(heads("query"), heads("key"), transpose_b=True, alpha=0.25)
    kept = mx.sym.broadcast_lesser(mx.sym.reshape(mx.sym.Variable("positions"), (1, 1, 1, -1)),
                                   mx.sym.reshape(lengths, (-1, 1, 1, 1)))
    weights = mx.sym.softmax(mx.sym.broadcast_add(scores, (kept - 1) * 1e9), axis=-1)
    return mx.sym.linalg_gemm2(weights, heads("value"))


@needs_library
@pytest.mark.parametrize("cell", [interleaved, batch_dots, additive])
def test_cell(cell: Callable[[mx.sym.Symbol, mx.sym.Symbol], mx.sym.Symbol]) -> None:
    symbol = cell(mx.sym.Variable("data"), mx.sym.Variable("lengths"))
    inputs = {"data": mx.nd.random.normal(shape=(BATCH, LENGTH, UNITS)), "lengths": mx.nd.array(LENGTHS),
              "positions": mx.nd.arange(LENGTH)}
    inputs = {name: inputs[name] for name in symbol.list_arguments() if name in inputs}
    shapes = {name: array.shape for name, array in inputs.items()}
    native, ours = (bound(symbol, backend, **shapes) for backend in ("NONE", "NGRAPH"))
    assert ours.debug_str().count("Op:NGraphSubgraphOp") == 1
    for executor in (native, ours):  # weights around 0, so that scores differ
        for name, array in executor.arg_dict.items():
            if name not in inputs:
                array[:] = array - 0.55
    close(ours.forward(is_train=False, **inputs)[0], native.forward(is_train=False, **inputs)[0])

    arguments = symbol.list_arguments()
    graph = import_symbol(symbol.tojson(), dict(zip(arguments, symbol.infer_shape(**shapes)[0], strict=True)))
    levels = compile(graph, "CPU").main.levels()  # type: ignore[attr-defined]
    assert sum("attention" in instruction.kernel for level in levels for instruction in level) == 1
