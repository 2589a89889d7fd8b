"""Random inputs are such as the graph is made for: positions in a table, lengths, masks, images."""

from __future__ import annotations

from collections.abc import Callable

import mxnet as mx
import numpy as np
import pytest

from ngraph_mxnet.frontends.model import model_of
from ngraph_mxnet.frontends.mxnet.importer import import_symbol
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.program.executable import Port
from ngraph_mxnet.program.feeds import MASK, Draw, draws_of, fitting_inputs, random_inputs
from ngraph_mxnet.targets.cpu.pipeline import pipeline

DATA, OTHER, TABLE = (mx.sym.var(name) for name in ("data", "other", "table"))
CASES: dict[str, tuple[Callable[[], mx.sym.Symbol], dict, dict[str, Draw]]] = {
    "embedding": (lambda: mx.sym.Embedding(DATA, TABLE, input_dim=1000, output_dim=4),
                  {"data": (2, 3), "table": (1000, 4)}, {"data": Draw(0, 999)}),
    "take": (lambda: mx.sym.take(TABLE, DATA, axis=1), {"data": (2, 3), "table": (4, 7)}, {"data": Draw(0, 6)}),
    "pick": (lambda: mx.sym.pick(DATA, OTHER), {"data": (5, 4), "other": (5,)}, {"other": Draw(0, 3)}),
    "one_hot": (lambda: mx.sym.one_hot(DATA, 7), {"data": (2, 3)}, {"data": Draw(0, 6)}),
    "sequence_mask": (lambda: mx.sym.SequenceMask(DATA, OTHER, use_sequence_length=True),
                      {"data": (5, 2, 3), "other": (2,)}, {"other": Draw(1, 5)}),
    "sequence_last": (lambda: mx.sym.SequenceLast(DATA, OTHER, use_sequence_length=True),
                      {"data": (5, 2, 3), "other": (2,)}, {"other": Draw(1, 5)}),
    "sequence_reverse": (lambda: mx.sym.SequenceReverse(DATA, OTHER, use_sequence_length=True),
                         {"data": (5, 2, 3), "other": (2,)}, {"other": Draw(1, 5)}),
    "softmax_of_lengths": (lambda: mx.sym.softmax(DATA, length=OTHER, use_length=True), {"data": (2, 5), "other": (2,)},
                           {"other": Draw(1, 5)}),
    "bytes": (lambda: DATA / 255, {"data": (1, 3, 4, 4)}, {"data": Draw(0, 255)}),
    "means_of_images": (lambda: (DATA - 123.7) / 58, {"data": (1, 3, 4, 4)}, {"data": Draw(0, 255)}),
    "mask": (lambda: mx.sym.softmax(mx.sym.broadcast_add(DATA, (1 - OTHER) * -1e9)), {"data": (2, 5), "other": (2, 5)},
             {"other": MASK}),
    "padding": (lambda: mx.sym.broadcast_mul(mx.sym.Embedding(DATA, TABLE, input_dim=9, output_dim=4),
                                             mx.sym.expand_dims(DATA != 0, -1)),
                {"data": (2, 3), "table": (9, 4)}, {"data": Draw(0, 8)}),
    "shifted": (lambda: mx.sym.take(TABLE, (DATA + 3) * 2), {"data": (2, 3), "table": (20, 4)}, {"data": Draw(-3, 6)}),
    "numbers": (lambda: mx.sym.relu(DATA * 2 + 1), {"data": (2, 3)}, {}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("optimised", [False, True])
def test_what_a_graph_does_with_its_inputs(name: str, optimised: bool) -> None:
    symbol, shapes, wanted = CASES[name]
    graph = import_symbol(symbol().tojson(), shapes, {})
    if optimised:
        PassManager(pipeline()).run(graph)
    assert draws_of(graph) == wanted


def embedding(rows: int = 40) -> Graph:
    b = Builder()
    ids, mask = b.parameter("ids", (3, 50), "i64"), b.parameter("mask", (3, 50), "bool")
    found = b.gather(b.weight("table", (rows, 4)), ids)
    return b.results(b.select(b.reshape(mask, shape=(3, 50, 1)), found, b.constant(np.float32(0))))


def test_inputs_reach_all_rows_and_masks_keep_something() -> None:
    graph, seen = embedding(), set()
    for seed in range(3):
        inputs = random_inputs(np.random.default_rng(seed), graph, ["table"])
        assert inputs.keys() == {"ids", "mask"} and inputs["ids"].dtype == np.int64
        assert inputs["mask"].any(axis=1).all() and not inputs["mask"].all()
        seen |= set(inputs["ids"].ravel().tolist())
    assert seen == set(range(40))
    ports = [Port(value.name, value.type) for value in graph.parameters if not value.is_weight]
    assert fitting_inputs(ports, {}, {}, draws=draws_of(graph))["ids"].max() > 1


@pytest.mark.parametrize(("element", "wanted"), [
    ("u8", Draw(0, 255)), ("i8", Draw(-128, 127)), ("bool", MASK), ("i64", None),
])  # fmt: skip
def test_of_small_types_all_values(element: str, wanted: Draw | None) -> None:
    b = Builder()
    graph = b.results(b.convert(b.parameter("x", (4,), element), element="f32"))
    assert draws_of(graph) == ({} if wanted is None else {"x": wanted})


def test_constants_may_be_weights_that_are_known() -> None:
    """As an ONNX model has them."""
    b = Builder()
    scores, mask = b.parameter("scores", (2, 5)), b.parameter("mask", (2, 5))
    one, large = (b.weight(name, ()) for name in ("one", "large"))
    graph = b.results(b.add(scores, b.multiply(b.subtract(one, mask), large)))
    known = {"one": np.float32(1), "large": np.float32(-1e4)}
    assert draws_of(graph) == {} and draws_of(graph, known) == {"mask": MASK}


def test_two_inputs_together_say_nothing() -> None:
    b = Builder()
    x, y = (b.parameter(name, (3,), "i64") for name in "xy")
    assert draws_of(b.results(b.gather(b.weight("table", (9, 4)), b.add(x, y)))) == {}


def test_of_a_symbol_that_mxnet_runs_in_part_the_regions_say() -> None:
    ids = mx.sym.Embedding(DATA, TABLE, input_dim=30, output_dim=4)
    symbol = mx.sym.broadcast_add(mx.sym.relu(ids), mx.sym.random.normal(shape=(1, 1, 4)))
    assert model_of(symbol).draws({"data": (2, 3)}, "CPU") == {"data": Draw(0, 29)}
