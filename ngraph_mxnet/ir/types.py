"""Element types, tensor types, and kinds of attributes: how each is checked, printed and parsed."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import TypeRuleError, listed
from ngraph_mxnet.ir.ranges import Symbols, parse_dim, parse_dims
from ngraph_mxnet.ir.sizes import Dim, are_same_shape, evaluate

Shape = tuple[int, ...]
"""Sizes, of which each may be a `Dim` (`ir/sizes.py`)."""


@dataclass(frozen=True)
class ElementType:
    """The type of one element; `name` is how it prints, e.g. `f32`."""

    name: str
    numpy: np.dtype

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def size(self) -> int:
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self.numpy.kind == "f"

    def __str__(self) -> str:
        return self.name


def _named_element(name: str, numpy_name: str) -> ElementType:
    return ElementType(name, np.dtype(numpy_name))


boolean = _named_element("bool", "bool")
f16, f32, f64 = _named_element("f16", "float16"), _named_element("f32", "float32"), _named_element("f64", "float64")
i8, i16, i32, i64 = (_named_element(f"i{bits}", f"int{bits}") for bits in (8, 16, 32, 64))
u8, u16, u32, u64 = (_named_element(f"u{bits}", f"uint{bits}") for bits in (8, 16, 32, 64))

ELEMENT_TYPES: dict[str, ElementType] = {
    t.name: t for t in (boolean, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64)
}

_NAME = re.compile(r"[<>=|]?[A-Za-z]\w*")
"""Names of NumPy's for one element. NumPy parses other texts as Python's."""
_BY_DTYPE = {t.numpy: t for t in ELEMENT_TYPES.values()}


def element_type(of: str | np.dtype | type | ElementType) -> ElementType:
    """The element type named `of` (`"f32"`) or equal to a NumPy dtype. Raises KeyError: there is none."""
    if isinstance(of, ElementType):
        return of
    if isinstance(of, str) and of in ELEMENT_TYPES:
        return ELEMENT_TYPES[of]
    if isinstance(of, str) and not _NAME.fullmatch(of):
        raise KeyError(f"no element type for {of!r:.80}; known: {listed(ELEMENT_TYPES)}")
    found = _BY_DTYPE.get(np.dtype(of))
    if found is not None:
        return found
    raise KeyError(f"no element type for {of!r}; known: {listed(ELEMENT_TYPES, str(of))}")


@dataclass(frozen=True, eq=False)
class TensorType:
    """A dense tensor: its element type and its shape. Prints as `f32[8,512]`, with symbols as `f32[N,512]`."""

    element: ElementType
    shape: Shape

    def __eq__(self, other: object) -> bool:
        """True if the types are provably equal. Symbolic sizes that may differ compare unequal."""
        if not isinstance(other, TensorType):
            return NotImplemented
        if self is other:
            return True
        alike = self.element is other.element or self.element == other.element
        return alike and are_same_shape(self.shape, other.shape)

    def __hash__(self) -> int:
        return hash((self.element.name, self.shape))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.element.size

    @property
    def is_symbolic(self) -> bool:
        return Dim in map(type, self.shape)

    def at(self, binding: Mapping[str, int]) -> TensorType:
        return self.with_shape(tuple(evaluate(size, binding) for size in self.shape)) if self.is_symbolic else self

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(self.element, tuple(shape))

    def __str__(self) -> str:
        return f"{self.element}[{','.join(map(str, self.shape))}]"


class Role(Enum):
    """Who brings a value, and how often it changes."""

    INPUT = "input"
    """The caller brings it with each call."""
    WEIGHT = "weight"
    """The caller brings it, and it seldom changes: what depends on weights only is derived once."""
    MADE = "made"
    """It is computed."""


RANDOM_STATE = "random.state"
"""The parameter i32[4] of a graph that draws random numbers (`ops/random.py`): the low and high word of a key, then
of a step. The readers of files ask for it without the ops."""

REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()


@dataclass(frozen=True)
class Attribute:
    """One attribute; subclasses say which values they take. `default` may be REQUIRED."""

    default: Any = REQUIRED

    def check(self, op: str, name: str, value: Any) -> Any:
        """The normalised value of attribute `name`. Raises TypeRuleError when it is of the wrong kind."""
        try:
            return self.convert(value)
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise TypeRuleError(f"{op}.{name}: found {value!r}, expected {self.expects}") from error

    expects = "a value"

    def convert(self, value: Any) -> Any:
        raise NotImplementedError


def _integer(value: Any) -> int:
    if type(value) is int or isinstance(value, Dim):
        return value
    if isinstance(value, bool) or int(value) != value:
        raise ValueError(value)
    return int(value)


class Int(Attribute):
    expects = "an integer"

    def convert(self, value: Any) -> int:
        return _integer(value)


class Float(Attribute):
    expects = "a number"

    def convert(self, value: Any) -> float:
        return float(value)


class Bool(Attribute):
    expects = "true or false"

    def convert(self, value: Any) -> bool:
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError(value)
        return bool(value)


class Ints(Attribute):
    expects = "a list of integers"

    def convert(self, value: Any) -> tuple[int, ...]:
        return tuple([_integer(v) for v in value])


@dataclass(frozen=True)
class PerAxis(Ints):
    """One integer for each axis of operand 0 after the first `skip`; `()` stands for `fill` on each of them.

    A node's attributes hold the filled list, never `()` (see `OpDef.complete`).
    """

    default: Any = ()
    fill: int = 0
    skip: int = 0


@dataclass(frozen=True)
class Choice(Attribute):
    choices: tuple[str, ...] = ()

    @property
    def expects(self) -> str:  # type: ignore[override]
        return "one of " + ", ".join(self.choices)

    def convert(self, value: Any) -> str:
        if value not in self.choices:
            raise ValueError(value)
        return str(value)


class Element(Attribute):
    expects = "an element type such as f32"

    def convert(self, value: Any) -> ElementType:
        return element_type(value)


class Array(Attribute):
    expects = "an array"

    def convert(self, value: Any) -> np.ndarray:
        array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
        element_type(array.dtype)
        if array.flags.writeable:
            array = array.copy()
            array.flags.writeable = False
        return array


def format_attribute(value: Any) -> str:
    """The text of a checked attribute value; `parse_attribute` reads it back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return "[" + ",".join(str(v) for v in value) + "]"
    if isinstance(value, ElementType):
        return value.name
    if isinstance(value, np.ndarray):
        return f"dense<{','.join(map(str, value.shape))};{base64.b64encode(value.tobytes()).decode()}>"
    return f'"{value}"'


def parse_attribute(kind: Attribute, text: str, element: ElementType | None, symbols: Symbols | None = None) -> Any:
    """Read what `format_attribute` wrote; `element` is the array's element type, `symbols` are the graph's."""
    if isinstance(kind, Array):
        assert element is not None
        shape_text, data = text.removeprefix("dense<").removesuffix(">").split(";")
        shape = tuple(int(v) for v in shape_text.split(",") if v)
        return np.frombuffer(base64.b64decode(data, validate=True), element.numpy).reshape(shape)
    if isinstance(kind, Ints):
        return parse_dims(text[1:-1], symbols or {})
    if isinstance(kind, Bool):
        return {"true": True, "false": False}[text]
    if isinstance(kind, Int):
        return parse_dim(text.strip('"'), symbols or {})
    if isinstance(kind, Float):
        return float(text)
    return text.strip('"')
