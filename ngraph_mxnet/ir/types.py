"""Element types and tensor types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod

import numpy as np

from ngraph_mxnet.errors import listed
from ngraph_mxnet.ir.dims import Dim
from ngraph_mxnet.ir.sizes import are_same_shape, evaluate

Shape = tuple[int, ...]
"""Sizes, of which each may be a `Dim` (`ir/dims.py`)."""


@dataclass(frozen=True)
class ElementType:
    """The type of one element; `name` is how it prints, e.g. `f32`."""

    name: str
    numpy: np.dtype

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self.numpy.kind == "f"

    def __str__(self) -> str:
        return self.name


def _element(name: str, numpy_name: str) -> ElementType:
    return ElementType(name, np.dtype(numpy_name))


boolean = _element("bool", "bool")
f16, f32, f64 = _element("f16", "float16"), _element("f32", "float32"), _element("f64", "float64")
i8, i16, i32, i64 = (_element(f"i{bits}", f"int{bits}") for bits in (8, 16, 32, 64))
u8, u16, u32, u64 = (_element(f"u{bits}", f"uint{bits}") for bits in (8, 16, 32, 64))

ELEMENT_TYPES: dict[str, ElementType] = {
    t.name: t for t in (boolean, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64)
}

_BY_DTYPE = {t.numpy: t for t in ELEMENT_TYPES.values()}


def element_type(of: str | np.dtype | type | ElementType) -> ElementType:
    """The element type named `of` (`"f32"`) or equal to a NumPy dtype.

    Raises:
        KeyError: there is none.
    """
    if isinstance(of, ElementType):
        return of
    if isinstance(of, str) and of in ELEMENT_TYPES:
        return ELEMENT_TYPES[of]
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
        """Number of elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.element.size

    @property
    def is_symbolic(self) -> bool:
        """True if a size is not known yet."""
        return Dim in map(type, self.shape)

    def at(self, binding: Mapping[str, int]) -> TensorType:
        """The type where each symbol has a value."""
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
