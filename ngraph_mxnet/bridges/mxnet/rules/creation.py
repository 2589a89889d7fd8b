"""Operators that make tensors of nothing but their attributes: constants, or one number broadcast."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import numpy as np

from ngraph_mxnet.bridges.mxnet.rules.common import positive
from ngraph_mxnet.bridges.mxnet.rules.registry import EXACT, Lowering, add_rule, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import is_symbolic
from ngraph_mxnet.ir.types import ElementType, Shape, f32, i32

LARGEST = 1 << 24
"""Elements of the largest constant that a rule makes."""


def _element(attrs: Attrs, default: ElementType = f32) -> ElementType:
    """The element type that `dtype` names. Old files have a number there; -1 stands for the default."""
    text = attrs.text("dtype", "None")
    return default if text in ("None", "-1") else attrs.element("dtype")


def _shape(attrs: Attrs, node: SymbolNode) -> Shape:
    """The shape that MXNet inferred, as the attribute `shape` may have sizes of 0, for unknown; else the attribute."""
    known = node.types[0] if node.types else None
    shape = attrs.ints("shape", ())
    return known.shape if known is not None else shape


def _constant(b: Builder, array: np.ndarray, element: ElementType) -> Value:
    """Numbers as MXNet casts them."""
    if array.size > LARGEST:
        raise UnsupportedError(f"a constant of {array.size} elements, expected at most {LARGEST}")
    return b.constant(array.astype(element.numpy))


def _filled(value: float | None) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        number = attrs.float("value") if value is None else value
        return b.broadcast(b.constant(np.float64(number), _element(attrs)), shape=_shape(attrs, node))

    return lower


for _names, _value in ((("_zeros", "_npi_zeros"), 0.0), (("_ones", "_npi_ones"), 1.0),
                       (("_full",), None)):
    add_rule(_filled(_value), *_names, operands=0, ignored=["ctx"])


@rule("_npi_full_like", operands=1, ignored=["ctx"], types=EXACT)
def full_like(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """One number in the input's shape, and its type unless `dtype` says another."""
    (x,) = inputs
    value = b.constant(np.float64(attrs.float("fill_value")), _element(attrs, x.type.element))
    return b.broadcast(value, shape=x.shape)


def _steps(start: float, step: float, count: int, repeat: int, element: ElementType) -> np.ndarray:
    """start + step * (i // repeat) in the element type, as MXNet computes it."""
    number = element.numpy.type
    with np.errstate(all="ignore"):
        return number(start) + (np.arange(count) // repeat).astype(element.numpy) * number(step)


@rule("_arange", "_npi_arange", operands=0, ignored=["ctx"])
def arange(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """From `start` to before `stop`, each number `repeat` times; without `stop` from 0 to before `start`."""
    start, stop = attrs.float("start"), attrs.float("stop", None)
    step, repeat = attrs.float("step", 1.0), positive(attrs.int("repeat", 1), "repeat")
    if attrs.bool("infer_range", False):
        known = node.types[0] if node.types else None
        if known is None:
            raise UnsupportedError("infer_range=True, and the shape is unknown")
        count = known.shape[0]
        if is_symbolic(count):
            raise UnsupportedError("infer_range=True, and the shape is a range of sizes")
    else:
        start, stop = (0.0, start) if stop is None else (start, stop)
        count = ceil((stop - start) / step) * repeat if step else 0
    if count < 1:
        raise UnsupportedError(f"start={start}, stop={stop}, step={step}: no number")
    element = _element(attrs)
    return _constant(b, _steps(start, step, count, repeat, element), element)


@rule("_linspace", operands=0, ignored=["ctx"])
def linspace(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """`num` numbers from `start` to `stop`, which is the last unless `endpoint` is false."""
    return _constant(b, _even(attrs), _element(attrs))


@rule("_npi_logspace", operands=0, ignored=["ctx"])
def logspace(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """`base` to the powers of linspace."""
    return _constant(b, attrs.float("base", 10.0) ** _even(attrs), _element(attrs))


def _even(attrs: Attrs) -> np.ndarray:
    return np.linspace(attrs.float("start"), attrs.float("stop"), positive(attrs.int("num"), "num"),
                       endpoint=attrs.bool("endpoint", True))


@rule("_eye", "_npi_eye", operands=0, ignored=["ctx"])
def eye(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """N rows and M columns (0: N), ones on the k-th diagonal."""
    rows = positive(attrs.int("N"), "N")
    columns = attrs.int("M", 0) or rows
    return _constant(b, np.eye(rows, positive(columns, "M"), attrs.int("k", 0)), _element(attrs))


@rule("_npi_identity", operands=0, ignored=["ctx"])
def identity_matrix(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Ones on the diagonal of a matrix of `shape`."""
    shape = _shape(attrs, node)
    if len(shape) != 2:
        raise UnsupportedError(f"shape={shape}, expected a matrix")
    return _constant(b, np.eye(*shape), _element(attrs))


@rule("_npi_diag_indices_from", operands=1, types=EXACT)
def diagonal_indices(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The coordinates of the main diagonal of a tensor whose axes are of one size, as int64."""
    shape = inputs[0].shape
    if len(shape) < 2 or len({*shape}) != 1:
        raise UnsupportedError(f"found {inputs[0].type}, expected at least two axes of one size")
    return b.constant(np.tile(np.arange(shape[0], dtype=np.int64), (len(shape), 1)))


@rule("_npi_indices", operands=0, ignored=["ctx"])
def indices(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The coordinates of each place of a tensor of `dimensions`, along a new first axis."""
    return _constant(b, np.indices(attrs.ints("dimensions")), _element(attrs, i32))


def _window(function: Callable[[int], np.ndarray]) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        element = _element(attrs)
        if not element.is_float:
            raise UnsupportedError(f"dtype={element}: only f16, f32 and f64, as integers show each rounding")
        return _constant(b, function(positive(attrs.int("M"), "M")), element)

    return lower


add_rule(_window(np.blackman), "_npi_blackman", operands=0, ignored=["ctx"])
add_rule(_window(np.hamming), "_npi_hamming", operands=0, ignored=["ctx"])
add_rule(_window(np.hanning), "_npi_hanning", operands=0, ignored=["ctx"])
