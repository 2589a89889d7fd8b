"""Recurrent layers in compiled training steps, against MXNet's own gradients, in all sizes and kinds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mxnet_helpers import backend, check_that_all_is_kept, close, mx, needs_library

pytestmark = needs_library


@pytest.fixture(autouse=True)
def trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    check_that_all_is_kept(monkeypatch)


def layers(mode: str, units: int, count: int, both_ways: bool) -> mx.sym.Symbol:
    names = ("x", "weights", "h", *(["c"] if mode == "lstm" else []))
    return mx.sym.RNN(*map(mx.sym.Variable, names), mode=mode, state_size=units, num_layers=count,
                      bidirectional=both_ways, state_outputs=True, name="rnn")


def executors(symbol: mx.sym.Symbol, seed: int, **shapes: tuple[int, ...]) -> list[mx.executor.Executor]:
    """Ours and MXNet's, of the same random content."""
    made = []
    for value in ("NGRAPH", None):
        rng = np.random.default_rng(seed)
        with backend(value):
            made.append(symbol.simple_bind(mx.cpu(), grad_req="write", **shapes))
        for array in made[-1].arg_arrays:
            array[:] = rng.uniform(-0.5, 0.5, array.shape)
    return made


def step(made: mx.executor.Executor, seed: int) -> None:
    rng = np.random.default_rng(seed)
    outputs = made.forward(is_train=True)
    made.backward([mx.nd.array(rng.uniform(-1, 1, output.shape)) for output in outputs])


@settings(max_examples=12, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(mode=st.sampled_from(["lstm", "gru", "rnn_tanh", "rnn_relu"]), seed=st.integers(0, 99),
       steps=st.integers(1, 6), batch=st.sampled_from([1, 3, 17]), depth=st.sampled_from([1, 5, 16]),
       units=st.sampled_from([1, 7, 16, 37]), count=st.integers(1, 3), both_ways=st.booleans())
def test_gradients_are_those_of_mxnet(mode: str, seed: int, steps: int, batch: int, depth: int, units: int, count: int,
                                      both_ways: bool) -> None:
    ours, theirs = executors(layers(mode, units, count, both_ways), seed, x=(steps, batch, depth))
    for made in (ours, theirs):
        step(made, seed)
    assert ours.training.ran
    for one, other in zip(ours.outputs, theirs.outputs, strict=True):
        close(one, other)
    for name, gradient in theirs.grad_dict.items():
        close(ours.grad_dict[name], gradient, rtol=1e-3, atol=1e-5)


def test_gradients_are_the_same_bits_on_any_number_of_threads() -> None:
    from ngraph_mxnet.autodiff import differentiate
    from ngraph_mxnet.ir import Builder
    from ngraph_mxnet.program.compile import compile as compile_graph

    found = []
    for threads in (1, 2, 3):
        b, rng = Builder(), np.random.default_rng(1)
        shapes = [(7, 9, 148), (148, 37), (148,), (9, 37), (9, 37)]
        operands = [b.parameter(f"p{number}", shape) for number, shape in enumerate(shapes)]
        graph = b.results(*b.node("rnn", operands, {"cell": "lstm", "reverse": True}).outputs)
        joint = differentiate(graph, [operand.name for operand in operands]).graph
        arrays = [rng.uniform(-0.5, 0.5, p.type.shape).astype("f") for p in joint.parameters]
        found.append(compile_graph(joint, "CPU", threads=threads)(*arrays))
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("cell", ["LSTMCell", "GRUCell", "RNNCell"])
def test_unrolled_cells_train_with_states_whose_sizes_are_inferred(cell: str) -> None:
    from mxnet.gluon import rnn

    cells = rnn.HybridSequentialRNNCell()
    for units in (7, 16):
        cells.add(getattr(rnn, cell)(units))
    ours, theirs = executors(cells.unroll(5, mx.sym.Variable("x"), layout="NTC", merge_outputs=True)[0], 3, x=(3, 5, 4))
    for made in (ours, theirs):
        step(made, 4)
    assert ours.training.ran
    close(ours.outputs[0], theirs.outputs[0])
    for name, gradient in theirs.grad_dict.items():
        close(ours.grad_dict[name], gradient, rtol=1e-3, atol=1e-5)
