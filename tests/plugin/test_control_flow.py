"""`foreach`, `while_loop` and `cond` within regions: Gluon's calls and executors give what MXNet alone gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet_helpers import backend, close, forget_graphs, mx, needs_library

from ngraph_mxnet.plugin.binding import gluon_blocks

from mxnet import autograd, gluon  # isort: skip  # the helpers make it importable
from mxnet.gluon import contrib, nn, rnn  # isort: skip
import ngraph_mxnet
from ngraph_mxnet import explain
from ngraph_mxnet.frontends.mxnet import inlining
from ngraph_mxnet.targets.interpreter import InterpreterBackend

pytestmark = needs_library

STEPS, BATCH, UNITS = 4, 2, 16
STATIC = [{}, {"static_alloc": True}, {"static_alloc": True, "static_shape": True}]


class Net(gluon.HybridBlock):
    """Dense layers before, in and after a body."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.before = nn.Dense(UNITS, in_units=UNITS, flatten=False, activation="relu")
        self.inner = nn.Dense(UNITS, in_units=UNITS, flatten=False)
        self.after = nn.Dense(64, in_units=UNITS, flatten=False, activation="tanh")

    def hybrid_forward(self, F, x, state):  # noqa: N803 - MXNet's name
        x = self.before(x)
        return self.after(getattr(self, self.kind)(F, x, state))

    def foreach(self, F, x, state):  # noqa: N803
        def body(step, carried):
            made = F.tanh(self.inner(step) + carried)
            return made, made

        return F.contrib.foreach(body, x, state)[0]

    def while_loop(self, F, x, state):  # noqa: N803
        def body(i, carried):
            return carried, (i + 1, F.tanh(self.inner(carried)))

        first = F.reshape(F.slice_axis(x, axis=0, begin=0, end=1), shape=(BATCH, UNITS))
        outputs, _ = F.contrib.while_loop(lambda i, carried: i < STEPS, body, (F.zeros((1,)), first + state),
                                          max_iterations=STEPS)
        return outputs

    def cond(self, F, x, state):  # noqa: N803
        return F.contrib.cond(F.sum(state) > 0, lambda: F.relu(self.inner(x)), lambda: F.tanh(x))


class Function(gluon.HybridBlock):
    """A function of F and the inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, *inputs):  # noqa: N803
        return self.function(F, *inputs)


def drawn(*shapes: tuple[int, ...], seed: int = 0) -> list[mx.nd.NDArray]:
    rng = np.random.default_rng(seed)
    return [mx.nd.array(rng.uniform(-1, 1, shape)) for shape in shapes]


def made(net: gluon.HybridBlock) -> gluon.HybridBlock:
    net.initialize(mx.init.Uniform(0.5))
    return net


def is_whole(net: gluon.HybridBlock) -> bool:
    """Whether one region is all that runs."""
    latest = gluon_blocks.of_block(net).bodies.latest
    return latest is not None and latest.op.is_direct


def flat(found: Any) -> list[mx.nd.NDArray]:
    return [found] if isinstance(found, mx.nd.NDArray) else [one for each in found for one in flat(each)]


def same(found: Any, expected: Any) -> None:
    for ours, theirs in zip(flat(found), flat(expected), strict=True):
        close(ours, theirs)


def check(net: gluon.HybridBlock, *inputs: mx.nd.NDArray, whole: bool = True, **flags: bool) -> None:
    """The block compiled, and the symbol bound, against the block that MXNet runs."""
    with backend(None):
        net.hybridize(False)
        expected = net(*inputs)
    with backend("NGRAPH"):
        net.hybridize(**flags)
        same(net(*inputs), expected)
        same(net(*inputs), expected)
        assert is_whole(net) == whole
        variables = [mx.sym.var(f"input{i}") for i in range(len(inputs))]
        symbol = mx.sym.Group(flat_symbols(net(*variables)))
        values = {f"input{i}": value for i, value in enumerate(inputs)}
        values |= {name: parameter.data() for name, parameter in net.collect_params().items()}
        executor = symbol.bind(mx.cpu(), {name: values[name] for name in symbol.list_arguments()}, grad_req="null",
                               aux_states={name: values[name] for name in symbol.list_auxiliary_states()})
        same(executor.forward(is_train=False), expected)
        assert not whole or executor.is_compiled


def flat_symbols(found: Any) -> list[mx.sym.Symbol]:
    return [found] if isinstance(found, mx.sym.Symbol) else [one for each in found for one in flat_symbols(each)]


@pytest.mark.parametrize("flags", STATIC, ids=["", "static_alloc", "static_shape"])
@pytest.mark.parametrize("kind", ["foreach", "while_loop", "cond"])
def test_layers_around_and_within(kind, flags):
    net = made(Net(kind))
    x, state = drawn((STEPS, BATCH, UNITS), (BATCH, UNITS))
    for each in (mx.nd.abs(state), -mx.nd.abs(state)):
        check(net, x, each, **flags)


@pytest.mark.parametrize("kind", ["foreach", "while_loop", "cond"])
def test_explain_shows_the_node_as_taken(kind):
    net = made(Net(kind))
    symbol = net(mx.sym.var("x"), mx.sym.var("state"))
    partition = explain(symbol, {"x": (STEPS, BATCH, UNITS), "state": (BATCH, UNITS)}).partition
    assert not partition.left()
    assert [region.ops[f"_{kind}"] for region in partition.regions] == [1]


@pytest.mark.parametrize("kind", ["foreach", "while_loop", "cond"])
def test_new_weights_in_a_body_give_new_results(kind):
    net = made(Net(kind))
    x, state = drawn((STEPS, BATCH, UNITS), (BATCH, UNITS))
    state = mx.nd.abs(state)
    check(net, x, state)
    with backend("NGRAPH"):
        before = net(x, state)
    for layer in (net.inner, net.before):
        for parameter in (layer.weight, layer.bias):
            parameter.set_data(parameter.data() * -0.5 + 0.1)
            with backend("NGRAPH"):
                now = net(x, state)
            assert not np.allclose(now.asnumpy(), before.asnumpy())
            before = now
            check(net, x, state)
    net.inner.weight.data()[0] = 3  # in place
    check(net, x, state)


@settings(max_examples=12)
@given(st.integers(1, 6), st.integers(1, 2), st.integers(0, 2), st.integers(1, 2), st.booleans(), st.integers(0, 999))
def test_foreach_in_foreach(length, arrays, states, outputs, captured, seed):
    """The inner loop goes over the places of the outer one's data, from the outer one's states."""
    def function(F, *inputs):  # noqa: N803
        data, first, kept = inputs[:arrays], inputs[arrays:arrays + states], inputs[-1]

        def outer(places, carried):
            def inner(row, total):
                now = F.tanh(total + row + kept if captured else total + row)
                return now * 2, now

            rows, last = F.contrib.foreach(inner, places[0], sum(carried, F.zeros_like(F.slice_axis(
                places[0], axis=0, begin=0, end=1)).reshape((3,))))
            more = [rows, F.broadcast_add(rows, F.expand_dims(last, axis=0))][:outputs]
            return [*more, *places[1:]], [each + last for each in carried]

        return F.contrib.foreach(outer, list(data), list(first))

    inputs = drawn(*[(length, 2, 3)] * arrays, *[(3,)] * states, (3,), seed=seed)
    check(Function(function), *inputs[:None if captured else -1])


CELLS: dict[str, Callable[[], tuple[gluon.rnn.HybridRecurrentCell, int]]] = {
    "rnn": lambda: (rnn.RNNCell(UNITS, input_size=UNITS), 1),
    "lstm": lambda: (rnn.LSTMCell(UNITS, input_size=UNITS), 2),
    "gru": lambda: (rnn.GRUCell(UNITS, input_size=UNITS), 1),
    "residual": lambda: (rnn.ResidualCell(rnn.GRUCell(UNITS, input_size=UNITS)), 1),
    "zoneout": lambda: (rnn.ZoneoutCell(rnn.RNNCell(UNITS, input_size=UNITS), 0.5, 0.5), 1),
    "dropout": lambda: (contrib.rnn.VariationalDropoutCell(rnn.GRUCell(UNITS, input_size=UNITS), 0.3), 1),
    "projected": lambda: (contrib.rnn.LSTMPCell(UNITS, UNITS, input_size=UNITS), 2),
}


@pytest.mark.parametrize("kind", CELLS)
def test_cells_over_a_sequence(kind):
    cell, states = CELLS[kind]()

    class Layer(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell

        def hybrid_forward(self, F, x, *states):  # noqa: N803
            self.cell.reset()
            return F.contrib.foreach(self.cell, x, list(states))

    check(made(Layer()), *drawn((5, 3, UNITS), *[(3, UNITS)] * states))


def test_stacked_cells_over_a_sequence():
    class Layer(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.cells = rnn.HybridSequentialRNNCell()
            self.cells.add(rnn.LSTMCell(UNITS, input_size=UNITS))
            self.cells.add(rnn.GRUCell(UNITS, input_size=UNITS))

        def hybrid_forward(self, F, x):  # noqa: N803
            states = self.cells.begin_state(batch_size=3, func=F.zeros)
            return F.contrib.foreach(self.cells, x, states)

    check(made(Layer()), *drawn((5, 3, UNITS)))


def test_batch_norm_in_a_body():
    class Layer(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm(in_channels=UNITS)

        def hybrid_forward(self, F, x):  # noqa: N803
            return F.contrib.foreach(lambda row, _: (self.norm(row), []), x, [])[0]

    net = made(Layer())
    net.norm.running_mean.set_data(mx.nd.arange(UNITS))
    check(net, *drawn((3, 4, UNITS)))
    net.norm.running_mean.set_data(mx.nd.ones(UNITS))
    check(net, *drawn((3, 4, UNITS)))


@pytest.mark.parametrize("flags", STATIC[:2], ids=["", "static_alloc"])
def test_lengths_that_change(flags):
    net, state = made(Net("foreach")), mx.nd.ones((BATCH, UNITS))
    with backend("NGRAPH"):
        net.hybridize(**flags)
        found = {length: net(*drawn((length, BATCH, UNITS)), state) for length in (4, 6, 1, 6, 9, 4)}
        assert is_whole(net)
    with backend(None):
        net.hybridize(False)
        for length, ours in found.items():
            close(ours, net(*drawn((length, BATCH, UNITS)), state))


@pytest.mark.parametrize("reach", range(7))
def test_rows_that_a_while_loop_does_not_reach_are_zero(reach):
    """MXNet leaves there what was in the memory, and has no shape for no trip."""
    def function(F, i, x, end):  # noqa: N803
        return F.contrib.while_loop(lambda i, x: i < end, lambda i, x: ([x * 2, i], [i + 1, F.broadcast_add(x, i)]),
                                    [i, x], max_iterations=5)

    net, inputs = Function(function), [mx.nd.zeros((1,)), mx.nd.array([1, 2, 3]), mx.nd.array([reach])]
    with backend("NGRAPH"):
        net.hybridize()
        (rows, places), (last, total) = net(*inputs)
        assert is_whole(net)
    trips = min(reach, 5)
    sums = np.cumsum([[0], *([i] for i in range(5))], axis=0) + np.array([[1, 2, 3]])
    close(last, np.array([trips]))
    close(total, sums[trips])
    expected = np.where(np.arange(5)[:, None] < trips, sums[:5] * 2, 0)
    close(rows, expected)
    close(places, np.where(np.arange(5) < trips, np.arange(5), 0)[:, None])
    if trips:
        with backend(None):
            (native, _), native_states = net(*inputs)
            close(native[:trips], expected[:trips])
            same([last, total], native_states)


def test_a_while_loop_that_ends_where_its_values_leave_no_number():
    """What is computed behind the end reaches nothing, be it NaN."""
    def function(F, x):  # noqa: N803
        return F.contrib.while_loop(lambda x: F.min(x) > 0, lambda x: ([F.log(x)], [x - 1]), [x], max_iterations=4)

    with backend("NGRAPH"):
        net = Function(function)
        net.hybridize()
        rows, (last,) = net(mx.nd.array([2.5, 1.5]))
    close(last, np.array([0.5, -0.5]))
    close(rows[0], np.log([[2.5, 1.5], [1.5, 0.5], [1, 1], [1, 1]]))


def test_conditions_in_loops_and_loops_in_conditions():
    def function(F, x, state):  # noqa: N803
        def body(row, carried):
            now = F.contrib.cond(F.sum(row) > 0, lambda: row + carried, lambda: row - carried)
            _, (count, now) = F.contrib.while_loop(lambda i, v: F.sum(F.abs(v)) < 4, lambda i, v: ([], [i + 1, v * 2]),
                                                   [F.zeros((1,)), now], max_iterations=3)
            return [now, count], F.tanh(now)

        def looped():
            return F.contrib.foreach(body, x, state)[0][0]

        rows, last = F.contrib.foreach(body, x, state)
        return *rows, last, F.contrib.cond(F.max(last) > 0.5, looped, lambda: x)

    for seed in range(4):
        check(Function(function), *drawn((5, 3), (3,), seed=seed))


def test_what_follows_is_compiled_too():
    """MXNet knows no shape behind these nodes."""
    net = made(Net("cond"))
    symbol = net.after(net.inner(net(mx.sym.var("x"), mx.sym.var("state")).slice_axis(axis=-1, begin=0, end=UNITS)))
    partition = explain(symbol, {"x": (STEPS, BATCH, UNITS), "state": (BATCH, UNITS)}).partition
    assert len(partition.regions) == 1
    assert not partition.left()


# ---- what stays ------------------------------------------------------------------------------------------


def reasons(symbol: mx.sym.Symbol, **shapes: tuple[int, ...]) -> dict[str, str]:
    found = explain(symbol, shapes)
    return {node.op: node.reason for node in found.partition.left()}


def loop(F: Any, x: Any, y: Any) -> Any:  # noqa: N803
    return F.contrib.foreach(lambda row, carried: (F.tanh(row), row + carried), x, y)[0]


def test_a_body_with_what_is_not_supported_leaves_the_whole_node():
    def function(F, x, y):  # noqa: N803
        def body(row, carried):
            return F.linalg.trsm(F.broadcast_add(row * 0, F.eye(3)), row) + carried, carried

        return F.relu(F.contrib.foreach(body, F.tanh(x) * 2, y)[0]) * 2

    left = reasons(function(mx.sym, mx.sym.var("x"), mx.sym.var("y")), x=(2, 40, 3, 3), y=(40, 3, 3))
    assert left.keys() == {"_foreach"}
    assert "_linalg_trsm stays with MXNet" in left["_foreach"]
    check(Function(function), *drawn((2, 40, 3, 3), (40, 3, 3)), whole=False)


def test_too_many_trips():
    x, y = mx.sym.var("x"), mx.sym.var("y")
    trips = inlining.MOST_OPERATORS // 2 + 1
    left = reasons(loop(mx.sym, x, y), x=(trips, 8), y=(8,))
    assert f"its {trips} trips apply {2 * trips} operators" in left["_foreach"]
    for trips, taken in ((inlining.MOST_OPEN_OPERATORS // 3, True), (inlining.MOST_OPEN_OPERATORS // 3 + 1, False)):
        rows, _ = mx.sym.contrib.while_loop(lambda i: i < 3, lambda i: ([i], [i + 1]), [x], max_iterations=trips)
        left = reasons(rows[0], x=(1,))
        assert left == {} if taken else "operators; at most 1000" in left["_while_loop"]


def test_too_many_trips_of_loops_within_loops():
    """Each loop by itself is short."""
    def outer(row, state):
        return mx.sym.contrib.foreach(lambda x, y: (mx.sym.tanh(x + y), y * 2), row, state)

    looped, _ = mx.sym.contrib.foreach(outer, mx.sym.var("x"), mx.sym.var("y"))
    assert "its 200 trips come to" in reasons(looped, x=(200, 200, 4), y=(4,))["_foreach"]
    assert not reasons(looped, x=(20, 20, 4), y=(4,))
    x, y, i = (mx.sym.var(name) for name in "xyi")
    rows, _ = mx.sym.contrib.while_loop(lambda i, y: i < 3, lambda i, y: (outer(x, y)[0], [i + 1, y * 2]), [i, y],
                                        max_iterations=150)
    assert "its operators come to more than 50000 nodes" in reasons(rows, x=(200, 4), y=(4,), i=(1,))["_while_loop"]
    assert not reasons(rows, x=(2, 4), y=(4,), i=(1,))


def test_a_length_that_is_too_many_trips_stays_with_mxnet():
    net = Function(lambda space, x, y: loop(space, x * 2, y))
    most = inlining.MOST_OPERATORS // 2
    with backend("NGRAPH"):
        net.hybridize()
        for length in (4, most + 1, 5, most + 2):
            x, y = drawn((length, 8), (8,))
            close(net(x, y), np.tanh(x.asnumpy() * 2))


def test_much_in_vain():
    flag, x = mx.sym.var("flag"), mx.sym.var("x")
    chosen = mx.sym.contrib.cond(flag, lambda: mx.sym.dot(x, x), lambda: x)
    assert "both its sides compute" in reasons(chosen, flag=(1,), x=(512, 512))["_cond"]
    looped = mx.sym.contrib.while_loop(lambda i, x: i < 3, lambda i, x: ([], [i + 1, mx.sym.dot(x, x)]), [flag, x],
                                       max_iterations=30)[1][1]
    assert "all its trips compute" in reasons(looped, flag=(1,), x=(128, 128))["_while_loop"]
    assert not reasons(chosen, flag=(1,), x=(128, 128))


def test_sides_of_other_shapes_stay_with_mxnet():
    def function(F, x):  # noqa: N803
        return F.contrib.cond(F.sum(x) > 0, lambda: F.sum(x, axis=0, keepdims=True), lambda: F.tanh(x)) * 2

    symbol = function(mx.sym, mx.sym.var("x") * 2)
    assert "shapes can't be inferred" in reasons(symbol, x=(64, 64))["_cond"]
    net = Function(lambda space, x: function(space, space.relu(x * 2 + 1) - 1))
    for x in (mx.nd.ones((64, 64)), -mx.nd.ones((64, 64))):
        check(net, x, whole=False)


def test_an_input_that_only_an_unread_output_needs():
    def function(F, x, y):  # noqa: N803
        return F.contrib.cond(F.sum(x) > 0, lambda: [x * 2, y], lambda: [x * 3, y + 1])[0] * 2

    assert "only outputs that nobody reads depend on" in reasons(
        function(mx.sym, mx.sym.var("x"), mx.sym.var("y")), x=(3, 4), y=(3, 4))["_cond"]
    check(Function(function), *drawn((3, 4), (3, 4)), whole=False)


def test_nodes_of_a_region_that_is_rejected_stay(own_backend, monkeypatch):
    """What was inlined is MXNet's again, and nothing behind it has a shape. The backend refuses what reads another
    operator's result, which shows in a region alone."""
    own_backend(InterpreterBackend, supports=lambda self, node: "a test rejects it" if node.op.name == "tanh" and
                node.inputs[0].node is not None else None)
    monkeypatch.setenv("NGRAPH_BACKEND", "OWN")
    net = made(Net("cond"))
    left = reasons(net(mx.sym.var("x"), mx.sym.var("state")), x=(STEPS, BATCH, UNITS), state=(BATCH, UNITS))
    assert left["_cond"] == "backend OWN: a test rejects it"
    assert "unknown" in left["Activation"] or left["Activation"] == left["_cond"]


# ---- whole models and training ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["foreach", "while_loop", "cond"])
def test_a_whole_model(kind):
    """As `ngraph_mxnet.export` compiles it."""
    net = made(Net(kind))
    x, state = drawn((STEPS, BATCH, UNITS), (BATCH, UNITS))
    with backend(None):
        expected = net(x, state)
    symbol, weights = whole(net)
    run = ngraph_mxnet.compile(symbol, "CPU", weights=weights, shapes={"x": x.shape, "state": state.shape})
    values = {"x": x.asnumpy(), "state": state.asnumpy()}
    close(run(*(values[port.name] for port in run.inputs))[0], expected)


def whole(net: gluon.HybridBlock) -> tuple[mx.sym.Symbol, dict[str, np.ndarray]]:
    symbol = net(mx.sym.var("x"), mx.sym.var("state"))
    return symbol, {name: parameter.data().asnumpy() for name, parameter in net.collect_params().items()}


def test_a_whole_model_for_ranges():
    """One template for all batches, one for each length."""
    net = made(Net("foreach"))
    symbol, weights = whole(net)
    shapes = {"x": ("T", "B", UNITS), "state": ("B", UNITS)}
    run = ngraph_mxnet.compile(symbol, "CPU", weights=weights, shapes=shapes)
    for length, batch, templates in ((4, 2, 1), (4, 3, 1), (6, 2, 2), (6, 5, 2)):
        x, state = drawn((length, batch, UNITS), (batch, UNITS))
        close(run(x.asnumpy(), state.asnumpy())[0], net(x, state))
        assert len(run.templates) == templates


@pytest.mark.parametrize("kind", ["foreach", "while_loop", "cond"])
def test_a_second_instance_is_not_compiled_anew(kind, heard):
    """Its nodes have other names, in bodies too."""
    inputs = drawn((STEPS, BATCH, UNITS), (BATCH, UNITS))
    forget_graphs()
    steps = [heard(begins) for begins in ("partition a graph ", "lowered a graph ", "compiled graph ")]
    check(made(Net(kind)), *inputs)
    assert all(steps)
    for each in steps:
        each.clear()
    check(made(Net(kind)), *inputs)
    assert not any(steps)


def test_an_executor_of_another_shape():
    net = made(Net("cond"))
    symbol = net(mx.sym.var("x"), mx.sym.var("state"))
    x, state = drawn((7, BATCH, UNITS), (BATCH, UNITS))
    values = {name: parameter.data() for name, parameter in net.collect_params().items()}
    with backend("NGRAPH"):
        executor = symbol.simple_bind(mx.cpu(), grad_req="null", x=(STEPS, BATCH, UNITS), state=state.shape)
        executor.copy_params_from(values)
        shapes = {"x": x.shape, "state": state.shape, **{name: value.shape for name, value in values.items()}}
        other = executor.reshape(partial_shaping=True, allow_up_sizing=True, **shapes)
        assert executor.is_compiled
        assert other.is_compiled
        close(other.forward(is_train=False, x=x, state=state)[0], net(x, state))


@pytest.mark.parametrize("train_mode", [True, False])
@pytest.mark.parametrize("kind", ["foreach", "while_loop", "cond"])
def test_training_gives_the_gradients_of_mxnet(kind, train_mode):
    x, state = drawn((STEPS, BATCH, UNITS), (BATCH, UNITS))
    net, found = made(Net(kind)), {}
    for value in (None, "NGRAPH"):
        with backend(value):
            net.hybridize()
            with autograd.record(train_mode):
                loss = net(x, mx.nd.abs(state)).square().sum()
            loss.backward()
            found[value] = [parameter.grad().asnumpy().copy() for parameter in net.collect_params().values()]
            net(x, state)  # inference between steps
    for ours, theirs in zip(found["NGRAPH"], found[None], strict=True):
        close(ours, theirs)
        assert np.abs(theirs).max() > 0


@pytest.mark.parametrize("kind", ["foreach", "while_loop", "cond"])
def test_an_executor_that_trains_gives_the_gradients_of_mxnet(kind):
    """But for `cond`, whose gradients in MXNet's executors are what was in the memory."""
    net = made(Net(kind))
    symbol = net(mx.sym.var("x"), mx.sym.var("state"))
    x, state = drawn((STEPS, BATCH, UNITS), (BATCH, UNITS))
    values = {"x": x, "state": mx.nd.abs(state)}
    values |= {name: parameter.data() for name, parameter in net.collect_params().items()}
    results = {}
    for value in (None, "NGRAPH"):
        with backend(value):
            grads = {name: mx.nd.zeros(array.shape) for name, array in values.items()}
            executor = symbol.bind(mx.cpu(), values, grads)
            before = executor.forward(is_train=False)[0].asnumpy()
            outputs = executor.forward(is_train=True)
            executor.backward([mx.nd.ones(outputs[0].shape)])
            after = executor.forward(is_train=False)[0].asnumpy()
            np.testing.assert_array_equal(before, after)
            gradients = [] if kind == "cond" else [grad.asnumpy() for grad in grads.values()]
            results[value] = [outputs[0].asnumpy(), before, *gradients]
    for ours, theirs in zip(results["NGRAPH"], results[None], strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("kind", ["foreach", "while_loop", "cond"])
def test_explain_training_says_why_it_stays(kind):
    net = made(Net(kind))
    symbol = net(mx.sym.var("x"), mx.sym.var("state"))
    told = str(ngraph_mxnet.explain_training(symbol, {"x": (STEPS, BATCH, UNITS), "state": (BATCH, UNITS)}))
    assert "trip by trip" in " ".join(told.split())
