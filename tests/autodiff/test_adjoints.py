"""Every adjoint against differences of the op's reference in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from op_records import RECORDS, Record, array_of

from ngraph_mxnet.autodiff import differentiate, why_not
from ngraph_mxnet.autodiff.reverse import ADJOINTS, NO_DERIVATIVE, REFUSED
from ngraph_mxnet.ir import Builder, Graph, TensorType, all_ops, element_type
from ngraph_mxnet.program.compile import compile as compile_graph

STEP = 1e-6
KINKED = {"relu", "abs", "clamp", "leaky_relu", "elu", "hard_swish", "prelu", "maximum", "minimum", "reduce_max",
          "reduce_min", "max_pool", "mod", "atan2", "bilinear_sample", "log_softmax_pick"}
"""Differences across a kink mean nothing: data of these is drawn so that neighbours are further apart than the step."""
POSITIVE = {"log", "log10", "log2", "log1p", "sqrt", "rsqrt", "reciprocal", "cbrt", "power", "divide", "mod",
            "reduce_prod", "atan2", "lrn"}
INSIDE = {"acos", "asin", "atanh", "erfinv"}
ABOVE_ONE = {"acosh"}


def test_every_op_has_an_adjoint_or_a_reason() -> None:
    assert sorted([*ADJOINTS, *NO_DERIVATIVE, *REFUSED]) == list(all_ops())


def in_f64(types: Sequence[TensorType], attrs: dict[str, Any]) -> tuple[list[TensorType], dict[str, Any]]:
    wide = element_type("f64")
    return [TensorType(wide, one.shape) if one.element.is_float else one for one in types], attrs


def data_for(record: Record, type_: TensorType, position: int, rng: np.random.Generator) -> np.ndarray:
    if not type_.element.is_float:
        return array_of(type_, rng)
    low, high = record.low, record.high
    if record.op in INSIDE:
        low, high = -0.9, 0.9
    elif record.op in ABOVE_ONE:
        low, high = 1.2, 3.0
    elif record.op in POSITIVE or record.op.startswith("batch_norm"):
        low, high = 0.3, 2.0
    if record.op in KINKED:  # distinct, and off whole numbers, halves and thirds
        steps = rng.permutation(type_.size).reshape(type_.shape)
        return low + (high - low) * (steps + 0.37 + 0.013 * position) / max(type_.size, 1)
    return rng.uniform(low, high, type_.shape)


def graph_of(op: str, types: Sequence[TensorType], attrs: dict[str, Any]) -> Graph:
    b = Builder()
    operands = [b.parameter(f"x{i}", one.shape, one.element) for i, one in enumerate(types)]
    return b.results(*b.node(op, operands, attrs).outputs)


def check_gradients(graph: Graph, arrays: Sequence[np.ndarray], rng: np.random.Generator, tolerance: float = 2e-5,
                    wanted: Sequence[str] = ()) -> None:
    """The gradients of random heads along a random direction, for each float parameter, against central differences."""
    names = [p.name for p in graph.parameters]
    floats = list(wanted) or [p.name for p in graph.parameters if p.type.element.is_float]
    run = compile_graph(graph.clone(), "INTERPRETER")
    joint = differentiate(graph, floats)
    back = compile_graph(joint.graph, "INTERPRETER")
    heads = [rng.standard_normal(r.type.shape) for r in graph.results if r.type.element.is_float]
    found = back(*arrays, *heads)[len(graph.results):]
    for name, gradient in zip(floats, found, strict=True):
        at = names.index(name)
        direction = rng.uniform(0.5, 1.0, arrays[at].shape) * rng.choice([-1, 1], arrays[at].shape)

        def total(step: float, at: int = at, direction: np.ndarray = direction) -> float:
            moved = [array + step * direction if number == at else array for number, array in enumerate(arrays)]
            results = [y for y in run(*moved) if y.dtype.kind == "f"]
            return float(sum(np.vdot(head, y) for head, y in zip(heads, results, strict=True)))

        expected = (total(STEP) - total(-STEP)) / (2 * STEP)
        scale = max(1.0, float(np.abs(gradient * direction).sum()))
        assert gradient.shape == arrays[at].shape
        assert abs(float(np.vdot(gradient, direction)) - expected) <= tolerance * scale, (name, expected)


NO_DERIVATIVES = {"convert", "own_gradient", "quantize", "dequantize"}
"""They have tests of their own."""
DIFFERENTIABLE = [record for record in RECORDS.values()
                  if record.op in ADJOINTS.keys() - NO_DERIVATIVES and not record.epilogue]


@pytest.mark.parametrize("record", DIFFERENTIABLE, ids=lambda record: record.op)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_an_adjoint_is_the_derivative(record: Record, data: st.DataObject, seed: int) -> None:
    types, attrs = in_f64(*record.case(data.draw))
    graph = graph_of(record.op, types, attrs)
    assume(graph.results[0].type.element.is_float and any(one.element.is_float for one in types))
    assume(why_not(record.op, graph.nodes[-1].attrs) is None)
    assume(sum(one.size for one in types) < 20_000)
    rng = np.random.default_rng(seed)
    check_gradients(graph, [data_for(record, one, i, rng) for i, one in enumerate(types)], rng)




@pytest.mark.parametrize(("element", "expected"), [("f64", "f32"), ("f16", "f32"), ("i32", None)])
def test_a_conversion_gives_back_in_the_type_that_came(element: str, expected: str | None) -> None:
    b = Builder()
    x = b.parameter("x", (3,))
    joint = differentiate(b.results(b.apply("convert", x, element=element), x), ["x"])
    (gradient,) = joint.gradients
    assert str(gradient.type.element) == "f32"
    heads = [np.ones(3, element_type(element).numpy)] if expected else []
    found = compile_graph(joint.graph, "INTERPRETER")(np.ones(3, "f"), *heads, np.full(3, 2, "f"))[-1]
    np.testing.assert_array_equal(found, 3.0 if expected else 2.0)
