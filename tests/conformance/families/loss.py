"""Softmax and its relatives."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from records import FLOATS, NUMBERS, Case, Draw, Operand, Record, any_axis, dims, maybe, pick


def _softmax(draw: Draw) -> Case:
    """In any float, with results in any other."""
    shape, dtype = dims(draw), pick(draw, *FLOATS)
    attrs = maybe(draw, axis=any_axis(draw, len(shape)), temperature=st.sampled_from([0.5, 1.0, 3.0]),
                  dtype=st.sampled_from(FLOATS))
    return Case([Operand(shape, dtype, low=-6, high=6)], attrs)


def _log_softmax(draw: Draw) -> Case:
    """Rows of two elements or more: over a single one the result is 0, which oneDNN misses by 1e-6."""
    case = _softmax(draw)
    shape = list(case.operands[0].shape)
    shape[case.attrs.get("axis", -1)] += 1
    return Case([Operand(tuple(shape), case.operands[0].dtype, low=-6, high=6)], case.attrs)


def _with_length(draw: Draw) -> Case:
    """MXNet writes out of bounds where a length exceeds the axis, and fails on negative axes but -1."""
    shape = dims(draw, 2)
    attrs = maybe(draw, axis=st.integers(-1, len(shape) - 1), temperature=st.sampled_from([0.5, 3.0]))
    axis = attrs.get("axis", -1) % len(shape)
    lengths = Operand(shape[:axis] + shape[axis + 1:], pick(draw, "int32", "int64"), 0, shape[axis])
    return Case([Operand(shape, pick(draw, *FLOATS), low=-6, high=6), lengths], {**attrs, "use_length": True})


def _by_mode(draw: Draw) -> Case:
    """MXNet fails on float16 and float64, and on matrices by channel."""
    return Case([Operand(dims(draw, 3))], maybe(draw, mode=pick(draw, "instance", "channel")))


def _softmax_output(draw: Draw) -> Case:
    """Over axis 1, over the last axis, or of a matrix; the label is what MXNet infers."""
    mode, dtype = pick(draw, "", "multi_output", "preserve_shape"), pick(draw, *FLOATS)
    attrs = {**maybe(draw, use_ignore=st.booleans(), grad_scale=2.0), **({mode: True} if mode else {})}
    return Case([Operand(dims(draw, 2, 4) if mode else dims(draw, 2, 2), dtype)], attrs)


def _prediction(**attrs: object) -> Callable[[Draw], Case]:
    """A label like the prediction."""
    def case(draw: Draw) -> Case:
        shape, dtype = dims(draw, 2), pick(draw, *FLOATS)
        return Case([Operand(shape, dtype), Operand(shape, dtype)], maybe(draw, **attrs))

    return case


def _margins(draw: Draw) -> Case:
    shape, dtype = dims(draw, 2, 2), pick(draw, *FLOATS)
    return Case([Operand(shape, dtype), Operand(shape[:1], dtype, 0, 1)], maybe(draw, margin=0.5, use_linear=True))


def _one(*types: str, **attrs: object) -> Callable[[Draw], Case]:
    return lambda draw: Case([Operand(dims(draw), pick(draw, *types))], maybe(draw, **attrs))


def _cross_entropy(draw: Draw) -> Case:
    """A label for each row; probabilities go down to MXNet's bound of 1e-8."""
    rows, columns, dtype = draw(st.integers(1, 6)), draw(st.integers(1, 17)), pick(draw, "float32", "float64")
    labels = [draw(st.integers(0, columns - 1)) for _ in range(rows)]
    return Case([Operand((rows, columns), dtype, -15, 15), Operand((rows,), dtype, values=labels)])


RECORDS = [
    *(Record(name, _softmax) for name in ("softmax", "softmin")),
    Record("log_softmax", _log_softmax),
    Record("softmax", _with_length, variant="length"),
    Record("SoftmaxActivation", _by_mode),
    Record("SoftmaxOutput", _softmax_output),
    *(Record(f"{name}RegressionOutput", _prediction(grad_scale=2.0)) for name in ("Linear", "Logistic", "MAE")),
    Record("SVMOutput", _margins),
    Record("MakeLoss", _one(*FLOATS, grad_scale=2.0, normalization="batch")),
    Record("make_loss", _one(*NUMBERS)),
    Record("softmax_cross_entropy", _cross_entropy),
]
