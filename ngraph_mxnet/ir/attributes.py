"""Kinds of attributes: how each is checked, printed and parsed."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.errors import TypeRuleError
from ngraph_mxnet.ir.dims import Dim
from ngraph_mxnet.ir.sizes import Symbols, parse_dim, parse_dims
from ngraph_mxnet.ir.types import ElementType, element_type

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
    """One of a few words."""

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
    """A NumPy array, made read-only."""

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
