"""Recurrent nets against native MXNet: cells unrolled into symbols, and Gluon's cells and layers hybridized."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest
from mxnet_helpers import backend, close, fill, is_partitioned, mx, needs_library
from native_runs import import_mxnet

from mxnet import gluon  # isort: skip  # the helpers make it importable
from mxnet.gluon import rnn  # isort: skip
import ngraph_mxnet  # isort: skip
from ngraph_mxnet.ir import count_ops
from ngraph_mxnet.passes.pipelines import optimize
from ngraph_mxnet.plugin.binding import gluon_blocks

pytestmark = needs_library

STEPS, BATCH, INPUTS, UNITS = 4, 3, 5, 7


def stacked() -> mx.rnn.SequentialRNNCell:
    cells = mx.rnn.SequentialRNNCell()
    cells.add(mx.rnn.LSTMCell(UNITS, prefix="low_"))
    cells.add(mx.rnn.DropoutCell(0.5))
    cells.add(mx.rnn.ResidualCell(mx.rnn.GRUCell(UNITS, prefix="high_")))
    return cells


CELLS: dict[str, Callable[[], mx.rnn.BaseRNNCell]] = {
    "tanh": lambda: mx.rnn.RNNCell(UNITS),
    "relu": lambda: mx.rnn.RNNCell(UNITS, activation="relu"),
    "lstm": lambda: mx.rnn.LSTMCell(UNITS),
    "gru": lambda: mx.rnn.GRUCell(UNITS),
    "stacked": stacked,
    "residual": lambda: mx.rnn.ResidualCell(mx.rnn.RNNCell(INPUTS)),
    "bidirectional": lambda: mx.rnn.BidirectionalCell(mx.rnn.LSTMCell(UNITS, prefix="l_"),
                                                      mx.rnn.GRUCell(UNITS, prefix="r_")),
    "fused": lambda: mx.rnn.FusedRNNCell(UNITS, num_layers=2, mode="gru", bidirectional=True),
}


def unrolled(cell: mx.rnn.BaseRNNCell, layout: str = "NTC") -> tuple[mx.sym.Symbol, dict[str, tuple[int, ...]]]:
    """All outputs and the last states, and the shapes of data and first states."""
    shape = (BATCH, STEPS, INPUTS) if layout == "NTC" else (STEPS, BATCH, INPUTS)
    names = [f"begin{i}" for i in range(len(cell.state_info))]
    shapes = {name: tuple(dim or BATCH for dim in info["shape"])
              for name, info in zip(names, cell.state_info, strict=True)}
    outputs, states = cell.unroll(STEPS, mx.sym.var("data"), [mx.sym.var(name) for name in names], layout=layout,
                                  merge_outputs=True)
    flat_states = [state for part in states for state in (part if isinstance(part, list) else [part])]
    return mx.sym.Group([outputs, *flat_states]), {"data": shape, **shapes}


@pytest.mark.parametrize("layout", ["NTC", "TNC"])
@pytest.mark.parametrize("name", CELLS)
def test_unrolled_cells(name, layout):
    is_slow = name == "fused" and layout == "NTC"
    with pytest.warns(UserWarning, match="NTC layout detected") if is_slow else nullcontext():
        symbol, shapes = unrolled(CELLS[name](), layout)
    executors = {}
    for value in ("NGRAPH", "MKLDNN"):
        with backend(value):
            executors[value] = fill(symbol.simple_bind(mx.cpu(), grad_req="null", **shapes))
    assert is_partitioned(executors["NGRAPH"])
    assert executors["NGRAPH"].debug_str().count("Op:NGraphSubgraphOp") == 1
    for ours, theirs in zip(*(executor.forward() for executor in executors.values()), strict=True):
        close(ours, theirs)


@pytest.mark.parametrize(("name", "gates", "products"), [("lstm", "lstm_cell", 1), ("gru", "gru_cell", 1),
                                                         ("tanh", "tanh", 1), ("stacked", "lstm_cell", 2)])
def test_an_unrolled_layer_multiplies_all_inputs_at_once(name, gates, products):
    symbol, shapes = unrolled(CELLS[name]())
    graph = import_mxnet(symbol, **shapes)
    optimize(graph)
    ops = count_ops(graph.nodes)
    assert ops[gates] == STEPS
    assert ops["matmul"] == sum("bias" in node.epilogue for node in graph.nodes) == products * (STEPS + 1)
    assert "sigmoid" not in ops


def test_the_weights_of_a_layer_are_prepared_whichever_way_they_come():
    data, whole = mx.sym.var("data"), mx.sym.var("packed")
    parts = [mx.sym.reshape(mx.sym.var(f"part{i}"), shape=(-1,)) for i in range(4)]
    for packed in (whole, mx.sym._internal._rnn_param_concat(*parts, dim=0)):
        symbol = mx.sym.RNN(data, packed, mx.sym.var("h"), state_size=UNITS, num_layers=1, mode="rnn_tanh")
        sizes = {"data": (STEPS, BATCH, INPUTS), "h": (1, BATCH, UNITS)}
        if packed is not whole:
            sizes |= {"part0": (UNITS, INPUTS), "part1": (UNITS, UNITS), "part2": (UNITS,), "part3": (UNITS,)}
        graph = import_mxnet(symbol, **sizes)
        assert {p.name for p in graph.parameters if not p.is_weight} == {"data", "h"}


def test_projected_states():
    """Against cells, which MXNet unrolls: its own `RNN` with `projection_size` crashes now and then on a CPU."""
    layer = rnn.LSTM(UNITS, 1, projection_size=3, input_size=INPUTS)
    cell = gluon.contrib.rnn.LSTMPCell(UNITS, 3, input_size=INPUTS)
    layer.initialize(mx.init.Uniform(0.5))
    cell.initialize()
    for name in ("i2h_weight", "h2h_weight", "h2r_weight", "i2h_bias", "h2h_bias"):
        values = np.random.default_rng(len(name)).uniform(-0.5, 0.5, getattr(cell, name).shape)
        getattr(layer, f"l0_{name}").set_data(mx.nd.array(values))
        getattr(cell, name).set_data(mx.nd.array(values))
    x = mx.nd.array(np.random.default_rng(0).uniform(-1, 1, (STEPS, BATCH, INPUTS)))
    with backend("NGRAPH"):
        layer.hybridize()
        found, (h, c) = layer(x, layer.begin_state(BATCH))
        assert runs_compiled(layer)
    expected, (last, state) = cell.unroll(STEPS, x, layout="TNC", merge_outputs=True)
    for ours, theirs in ((found, expected), (h[0], last), (c[0], state)):
        close(ours, theirs)


LAYERS: dict[str, Callable[[], gluon.HybridBlock]] = {
    "rnn": lambda: rnn.RNN(UNITS, 2, activation="tanh"),
    "lstm": lambda: rnn.LSTM(UNITS, 2, bidirectional=True, layout="NTC"),
    "gru": lambda: rnn.GRU(UNITS, 1, dropout=0.5),
}


def runs_compiled(net: gluon.HybridBlock) -> bool:
    bodies = gluon_blocks.of_block(net).bodies
    return bodies is not None and bodies.latest is not None


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_gluon_layers(name, with_states):
    layer = LAYERS[name]()
    layer.initialize(mx.init.Uniform(0.5))
    rng = np.random.default_rng(0)
    for steps, batch in ((STEPS, BATCH), (6, 2)):
        shape = (batch, steps, INPUTS) if layer._layout == "NTC" else (steps, batch, INPUTS)
        inputs = [mx.nd.array(rng.uniform(-1, 1, shape))]
        if with_states:
            inputs.append([mx.nd.array(rng.uniform(-1, 1, state.shape)) for state in layer.begin_state(batch)])
        with backend(None):
            layer.hybridize(active=False)
            expected = layer(*inputs)
        with backend("NGRAPH"):
            layer.hybridize()
            found = layer(*inputs)
            assert runs_compiled(layer)
        for ours, theirs in zip(flat(found), flat(expected), strict=True):
            close(ours, theirs)


def flat(result: object) -> list[mx.nd.NDArray]:
    if isinstance(result, (list, tuple)):
        return [array for part in result for array in flat(part)]
    return [result]


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell", "ZoneoutCell", "ResidualCell", "BidirectionalCell"])
def test_gluon_cells(name):
    cell = {
        "ZoneoutCell": lambda: rnn.ZoneoutCell(rnn.LSTMCell(UNITS), 0.3, 0.2),
        "ResidualCell": lambda: rnn.ResidualCell(rnn.GRUCell(INPUTS)),
        "BidirectionalCell": lambda: rnn.BidirectionalCell(rnn.LSTMCell(UNITS), rnn.GRUCell(UNITS)),
    }.get(name, lambda: getattr(rnn, name)(UNITS))()

    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def hybrid_forward(self, F, x):  # noqa: N803
            return self.cell.unroll(STEPS, x, layout="NTC", merge_outputs=True)[0]

    net = Net()
    net.initialize(mx.init.Uniform(0.5))
    x = mx.nd.array(np.random.default_rng(0).uniform(-1, 1, (BATCH, STEPS, INPUTS)))
    with backend(None):
        net.hybridize()
        expected = net(x)
    with backend("NGRAPH"):
        net.hybridize()
        close(net(x), expected)
        assert runs_compiled(net)


@pytest.mark.parametrize("kind", ["object", "file"])
def test_a_symbol_whose_states_have_an_open_batch(kind, tmp_path):
    """`begin_state` of symbols has batch 0, for unknown, until MXNet infers it."""
    layer = rnn.GRU(6, layout="NTC", prefix="gru_")
    symbol = layer(mx.sym.Variable("data"))
    layer.initialize(mx.init.Xavier())
    x = mx.nd.random.uniform(shape=(3, 5, 4))
    expected = layer(x).asnumpy()
    assert '"(1, 0, 6)"' in symbol.tojson()
    model = symbol
    if kind == "file":
        model = tmp_path / "gru-symbol.json"
        symbol.save(str(model))
    weights = {name: parameter.data() for name, parameter in layer.collect_params().items()}
    found = ngraph_mxnet.compile(model, "CPU", weights=weights, shapes={"data": x.shape})(x)
    close(found[0], expected)
