"""Control flow, as MXNet's Python functions make it."""

from __future__ import annotations

import ngraph_mxnet  # noqa: F401  (makes mxnet importable on current NumPy)

# isort: split
import mxnet as mx
from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, dims, pick

_STEPS = (mx.sym.tanh, mx.sym.relu, mx.sym.sin, mx.sym.sigmoid, mx.sym.negative)


def _group(*parts: list[mx.sym.Symbol]) -> mx.sym.Symbol:
    return mx.sym.Group([each for part in parts for each in part])


def _foreach(draw: Draw) -> Case:
    """Arrays, states and what is captured in one shape; each state and output is a sum of some of these."""
    shape, arrays, states, outputs = dims(draw, most=2), draw(st.integers(1, 2)), draw(st.integers(0, 3)), draw(
        st.integers(0, 2))
    captured = draw(st.integers(0, 2))
    outputs = max(outputs, not states)
    dtype = pick(draw, "float32", "float64", "float16", "int32")
    if dtype == "float16":
        shape = tuple(min(size, 3) for size in shape)  # MXNet's roundings add up from trip to trip
    rows = shape if len(shape) > 1 else (shape[0], 1)
    taken = draw(st.lists(st.sampled_from(_STEPS), min_size=outputs + states, max_size=outputs + states))
    flat = len(shape) == 1 and draw(st.booleans())

    def symbol(*given: mx.sym.Symbol) -> mx.sym.Symbol:
        data, first, kept = given[:arrays], given[arrays:arrays + states], given[arrays + states:]

        def body(places: list[mx.sym.Symbol], carried: list[mx.sym.Symbol]) -> tuple[list[mx.sym.Symbol], ...]:
            total = sum(kept, sum(carried, sum(places[1:], places[0])))
            made = [each(total + number) if number % 2 else each(total) * 0.5 for number, each in enumerate(taken)]
            return made[:outputs], [x + y for x, y in zip(made[outputs:], carried, strict=True)]

        return _group(*mx.sym.contrib.foreach(body, list(data), list(first)))

    whole = Operand((shape[0],) if flat else rows, dtype, low=-1, high=1)
    one = Operand((1,) if flat else rows[1:], dtype, low=-1, high=1)
    return Case([whole] * arrays + [one] * (states + captured), symbol=symbol)


def _while(draw: Draw, *, rows: bool) -> Case:
    """As long as a number is below another: with `rows`, for all trips that there may be."""
    trips, shape = draw(st.integers(1, 6)), dims(draw, most=2)
    reach = trips if rows else draw(st.integers(0, trips + 2))
    step = pick(draw, *_STEPS)
    dtype = pick(draw, "float32", "int32", "float64")

    def symbol(count: mx.sym.Symbol, x: mx.sym.Symbol, end: mx.sym.Symbol, y: mx.sym.Symbol) -> mx.sym.Symbol:
        def body(at: mx.sym.Symbol, carried: mx.sym.Symbol) -> tuple[list[mx.sym.Symbol], list[mx.sym.Symbol]]:
            return [step(carried), at * 2] if rows else [], [at + 1, step(carried + y)]

        return _group(*mx.sym.contrib.while_loop(lambda at, carried: mx.sym.broadcast_lesser(at, end), body, [count, x],
                                                 max_iterations=trips))

    some = Operand(shape, low=-1, high=1)
    return Case([Operand((1,), dtype, values=[0]), some, Operand((1,), dtype, values=[reach]), some], symbol=symbol)


def _cond(draw: Draw) -> Case:
    shape, (then, otherwise) = dims(draw), draw(st.tuples(st.sampled_from(_STEPS), st.sampled_from(_STEPS)))
    dtype = pick(draw, "float32", "int32", "float16")

    def symbol(flag: mx.sym.Symbol, x: mx.sym.Symbol, y: mx.sym.Symbol) -> mx.sym.Symbol:
        return _group(mx.sym.contrib.cond(flag, lambda: [then(x), x + y], lambda: [otherwise(x + y), y]))

    some = Operand(shape, dtype, low=-1, high=1)
    flag = Operand(pick(draw, (1,), (1, 1)), values=[pick(draw, 0, 1, -3)])
    return Case([flag, some, some], symbol=symbol)


def _long_foreach(x: mx.sym.Symbol) -> mx.sym.Symbol:
    return mx.sym.contrib.foreach(lambda place, _: (mx.sym.tanh(place * 2), []), x, [])[0]


def _long_while(count: mx.sym.Symbol) -> mx.sym.Symbol:
    return mx.sym.contrib.while_loop(lambda at: at < 3, lambda at: ([], [at + 1]), [count], max_iterations=9000)[1][0]


RECORDS = [
    Record("_foreach", _foreach),
    Record("_while_loop", lambda draw: _while(draw, rows=False)),
    Record("_while_loop", lambda draw: _while(draw, rows=True), variant="rows"),
    Record("_cond", _cond),
]
LEFT = [
    Left("_foreach", Case([Operand((6000, 1))], symbol=_long_foreach), "its 6000 trips apply 12000 operators"),
    Left("_while_loop", Case([Operand((1,))], symbol=_long_while), "its trips may apply 18000 operators"),
]
