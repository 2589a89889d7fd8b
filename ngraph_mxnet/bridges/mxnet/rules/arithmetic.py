"""Elementwise operators of several tensors, or of one and a scalar: arithmetic, comparisons, logic, choices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ngraph_mxnet.bridges.mxnet.rules.common import as_number, truth
from ngraph_mxnet.bridges.mxnet.rules.registry import LOGIC, MATHS, NUMBERS, Lowering, Types, add_rule, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.norms import hypotenuse
from ngraph_mxnet.compositions.tensors import along_axis, scalar
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, f64, i64

Binary = Callable[[Builder, Value, Value], Value]


def _compared(name: str) -> Binary:
    return lambda b, x, y: as_number(b, b.apply(name, x, y), x)


def _logical(name: str) -> Binary:
    return lambda b, x, y: as_number(b, b.apply(name, truth(b, x), truth(b, y)), x)


def _plain(name: str) -> Binary:
    return lambda b, x, y: b.apply(name, x, y)


# Operations by their names in MXNet's operators: what computes each, and the element types that it takes.
ARITHMETIC: dict[str, tuple[Binary, Types]] = {
    "add": (_plain("add"), NUMBERS), "sub": (_plain("subtract"), NUMBERS), "mul": (_plain("multiply"), NUMBERS),
    "div": (_plain("divide"), NUMBERS), "mod": (_plain("mod"), NUMBERS), "power": (_plain("power"), MATHS),
    "maximum": (_plain("maximum"), NUMBERS), "minimum": (_plain("minimum"), NUMBERS), "hypot": (hypotenuse, MATHS),
}
COMPARISONS: dict[str, tuple[Binary, Types]] = {
    **{name: (_compared(op), NUMBERS) for name, op in {
        "equal": "equal", "not_equal": "not_equal", "greater": "greater", "greater_equal": "greater_equal",
        "lesser": "less", "lesser_equal": "less_equal",
    }.items()},
    **{name: (_logical(name), NUMBERS) for name in ("logical_and", "logical_or", "logical_xor")},
}
# Names in the forms without broadcasting, where they differ: _plus beside broadcast_add.
_OLD_NAMES = {"add": "plus", "sub": "minus"}


def _binary_rule(function: Binary) -> Lowering:
    return lambda b, inputs, attrs, node: function(b, inputs[0], inputs[1])


def _scalar_rule(function: Binary, takes: Types, *, reverse: bool = False) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        """Integers stay what they are, and the scalar becomes one, unless `is_int=False`: that gives float64.

        bool becomes int64 first.
        """
        (x,) = inputs
        number, whole = attrs.float("scalar", 1.0), attrs.bool("is_int", True)
        if not x.type.element.is_float:
            element = i64 if x.type.element.numpy.kind == "b" else x.type.element
            x = b.convert(x, element=element if whole else f64)
        if takes is MATHS and not x.type.element.is_float:
            return b.convert(_with(b, function, as_float(b, x), wrapped(number, x.type.element), reverse),
                             element=x.type.element)
        return _with(b, function, x, wrapped(number, x.type.element), reverse)

    return lower


def _with(b: Builder, function: Binary, x: Value, number: float, reverse: bool) -> Value:
    value = scalar(b, number, x)
    return function(b, value, x) if reverse else function(b, x, value)


def as_float(b: Builder, x: Value) -> Value:
    """Integers as float32, in which MXNet's functions compute."""
    return x if x.type.element.is_float else b.convert(x, element="f32")


def wrapped(number: float, element: ElementType) -> float:
    """`number` as `element`: cut off, and wrapped to its range, as a cast in C does on x86."""
    if element.is_float:
        return number
    return int(np.asarray(int(number)).astype(element.numpy))


def _register() -> None:
    """Each operation has an elementwise form, a broadcasting one, and one or two with a scalar."""
    for name, (function, takes) in {**ARITHMETIC, **COMPARISONS}.items():
        plain = _OLD_NAMES.get(name, name)
        forms = (f"broadcast_{name}", f"_{plain}")
        add_rule(_binary_rule(function), *forms, operands=2, types=takes)
        add_rule(_scalar_rule(function, takes), f"_{plain}_scalar", operands=1, types=LOGIC)
    for name in ("sub", "div", "mod", "power"):
        function, takes = ARITHMETIC[name]
        add_rule(_scalar_rule(function, takes, reverse=True), f"_r{_OLD_NAMES.get(name, name)}_scalar", operands=1,
                 types=LOGIC)
    # For dense tensors these do what the operators do that they are named after; only for sparse ones they differ.
    add_rule(_binary_rule(_plain("divide")), "_scatter_elemwise_div", operands=2, types=NUMBERS)
    for name in ("add", "sub"):
        function, takes = ARITHMETIC[name]
        add_rule(_scalar_rule(function, takes), f"_scatter_{_OLD_NAMES[name]}_scalar", operands=1, types=LOGIC)
    add_rule(_binary_rule(_plain("add")), "_grad_add", operands=2, types=NUMBERS)


_register()


@rule("add_n", types=NUMBERS, ignored=["num_args"])
def add_n(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The sum of one or more tensors of one shape."""
    total = inputs[0]
    for value in inputs[1:]:
        total = b.add(total, value)
    return total


@rule("where", operands=3, types=LOGIC, typed_by=1)
def where(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The condition has the shape of the branches, or one entry for each row of axis 0."""
    condition, x, y = inputs
    if condition.shape != x.shape:
        condition = along_axis(b, condition, 0, len(x.shape))
    return b.select(truth(b, condition), x, y)
