"""Elementwise operators of several tensors, and of a tensor and a scalar."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from records import NUMBERS, Case, Draw, Operand, Record, dims, maybe, pick

EVERY = (*NUMBERS, "bool")
_SIGNED = ("float32", "float16", "float64", "int32", "int64", "int8")


def _type(draw: Draw, types: tuple[str, ...] = NUMBERS) -> str:
    """float32 half of the time."""
    return types[0] if draw(st.booleans()) else pick(draw, *types)


def _broadcast(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if draw(st.integers(0, 3)) == 0 else size for size in shape)


def _two(*, low: float = -4.0, high: float = 4.0, divisor: bool = False,
         broadcast: bool = False) -> Callable[[Draw], Case]:
    """A `divisor` is never 0, for which integers have no quotient."""

    def case(draw: Draw) -> Case:
        shape, dtype = dims(draw), _type(draw)
        shapes = [_broadcast(draw, shape) if broadcast else shape for _ in range(2)]
        least = 1.0 if divisor else low
        return Case([Operand(shapes[0], dtype, low, high), Operand(shapes[1], dtype, least, high)])

    return case


def _scalar(*numbers: float, types: tuple[str, ...] = EVERY, low: float = -4.0) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        dtype = _type(draw, types)
        attrs = {"scalar": pick(draw, *numbers), **maybe(draw, is_int=st.booleans())}
        return Case([Operand(dims(draw), dtype, low, 4)], attrs)

    return case


def _sum(draw: Draw) -> Case:
    shape, dtype = dims(draw), _type(draw)
    return Case([Operand(shape, dtype) for _ in range(draw(st.integers(1, 4)))])


def _where(draw: Draw) -> Case:
    """The condition is of any type, and may have one entry for each row."""
    shape, dtype = dims(draw), _type(draw)
    rows = shape[:1] if draw(st.booleans()) else shape
    return Case([Operand(rows, pick(draw, *NUMBERS), -1, 1), Operand(shape, dtype), Operand(shape, dtype)])


_NAMES = "add sub mul maximum minimum hypot equal not_equal greater greater_equal lesser lesser_equal logical_and " \
         "logical_or logical_xor"
_PLAIN = {"add": "elemwise_add", "sub": "elemwise_sub", "mul": "elemwise_mul", "div": "elemwise_div"}
_OLD = {"add": "plus", "sub": "minus"}

RECORDS = [
    *(Record(f"broadcast_{name}", _two(broadcast=True)) for name in _NAMES.split()),
    *(Record(_PLAIN.get(name, f"_{name}"), _two()) for name in _NAMES.split()),
    *(Record(f"_{_OLD.get(name, name)}_scalar", _scalar(2, -3, 2.5, 0)) for name in _NAMES.split()),
    *(Record(op, _two(divisor=True, broadcast=op.startswith("b")))
      for op in ["broadcast_div", "broadcast_mod", "elemwise_div", "_mod", "_scatter_elemwise_div"]),
    *(Record(f"_{name}_scalar", _scalar(2, -3, 2.5)) for name in ("div", "mod")),
    *(Record(f"_r{name}_scalar", _scalar(2, 5, 2.5, types=NUMBERS, low=1)) for name in ("div", "mod")),
    Record("_rminus_scalar", _scalar(2, -3, 2.5)),
    *(Record(f"_scatter_{name}_scalar", _scalar(2, -3, 2.5)) for name in ("plus", "minus")),
    # Powers of a range in which those of integers are exact in float32.
    *(Record(op, _two(low=1, high=3, broadcast=op.startswith("b"))) for op in ("broadcast_power", "_power")),
    Record("_power_scalar", _scalar(2, 3, types=_SIGNED, low=1)),
    Record("_rpower_scalar", _scalar(2, 3, types=_SIGNED, low=0)),
    Record("_grad_add", _two()),
    Record("add_n", _sum),
    Record("where", _where),
]
