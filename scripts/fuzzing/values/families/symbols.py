"""MXNet symbols: an operator with its options, as the conformance tests draw it, and random models in all ways."""

from __future__ import annotations

from typing import Any

from fuzzing.values import test_helpers  # noqa: F401  (before what it makes importable)
from fuzzing.values.closeness import Closeness
from fuzzing.values.drawing import Draw, chance, integer, pick
from fuzzing.values.setups import draw_setup
from fuzzing.values.trials import Trial, family
from ngraph_mxnet.base.errors import UnsupportedError

# isort: split
import json

import mxnet as mx
import numpy as np
from families import RECORDS
from hypothesis import reject
from mxnet_helpers import backend
from native_runs import all_shapes
from random_models import models, values_for
from runs import arrays_for, build, import_case
from test_random_models import others


def drawn_model(draw: Draw) -> tuple[mx.sym.Symbol, tuple[int, ...]]:
    """A random model; MXNet counts the names that it gives, from 0 on here."""
    with mx.name.NameManager():
        found: tuple[mx.sym.Symbol, tuple[int, ...]] = draw(models())
    return found


def is_bindable(symbol: mx.sym.Symbol, shape: tuple[int, ...]) -> bool:
    """Whether MXNet itself binds and runs it: of some symbols it can't infer the shapes, and it refuses outputs given
    twice. A size of 0, as behind a transposed convolution that cuts off all, is to it one that it does not know."""
    with backend(None):
        try:
            symbol.simple_bind(mx.cpu(), grad_req="null", data=shape)
        except RuntimeError:
            return False
    _, sizes, _ = symbol.get_internals().infer_shape(data=shape)
    return all(0 not in size for size in sizes)


def operators_of(symbol: mx.sym.Symbol) -> tuple[str, ...]:
    return tuple(node["op"] for node in json.loads(symbol.tojson())["nodes"] if node["op"] != "null")


@family("MXNet operators", weight=16)
def operators(draw: Draw) -> Trial:
    record = RECORDS[integer(draw, 0, len(RECORDS) - 1)]
    case = record.case(draw)
    with mx.name.NameManager():
        symbol = build(record.op, case, numpy=record.numpy)
    if record.outputs is not None:
        symbol = mx.sym.Group([symbol[i] for i in record.outputs])
    arrays = arrays_for(symbol, case, integer(draw, 0, 2**16), numpy=record.numpy)
    halves = any(array.dtype == np.float16 for array in arrays.values())
    width = max(record.tolerance, 1e-2 * halves)
    try:
        import_case(symbol, arrays)
    except UnsupportedError:
        reject()
    closeness = Closeness(width, width, steps=record.steps)
    return Trial("symbol", symbol.tojson().encode(), [arrays], draw_setup(draw), closeness, operators_of(symbol),
                 {"numpy": record.numpy, "whole": True})


@family("MXNet models", weight=6)
def whole_models(draw: Draw) -> Trial:
    symbol, shape = drawn_model(draw)
    if not is_bindable(symbol, shape):
        reject()
    way = pick(draw, "graph", "executor", "executor", "module", "block")
    shapes = [shape]
    if chance(draw):
        shapes += [pick(draw, *others(symbol, shape)) for _ in range(integer(draw, 1, 2))]
    seed = integer(draw, 0, 2**16)
    calls = [{name: values_for(name, size, seed + number) for name, size in all_shapes(symbol, {"data": each}).items()}
             for number, each in enumerate(shapes)]
    notes: dict[str, Any] = {"way": way, "inputs": ["data"]}
    if way == "block":
        notes["flags"] = pick(draw, {}, {"static_alloc": True}, {"static_alloc": True, "static_shape": True})
        calls = [{**calls[0], "data": feeds["data"]} for feeds in calls]
    kind = "symbol" if way == "graph" else "bound symbol"
    setup = draw_setup(draw, open_sizes=len(calls) > 1)
    return Trial(kind, symbol.tojson().encode(), calls, setup, Closeness(2e-3, 2e-3, floor=2e-4),
                 operators_of(symbol), notes)
