"""What a model takes and gives: names, element types, and the shapes of each set."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

from ngraph_runtime.errors import ModelError
from ngraph_runtime.library import RawPort

_FLOATS = {"f16": "float16", "f32": "float32", "f64": "float64"}
_INTEGERS = {f"{letter}{bits}": f"{kind}{bits}" for letter, kind in (("i", "int"), ("u", "uint"))
             for bits in (8, 16, 32, 64)}
# NumPy has no bfloat16: an array of uint16 holds the bits, as `array.view(np.uint16)` gives them where there is one.
DTYPES = {name: np.dtype(numpy) for name, numpy in {
    "bool": "bool", "bf16": "uint16", **_FLOATS, **_INTEGERS}.items()}
"""NumPy's types by the names of elements."""


class Port(NamedTuple):
    """An input or output; `shapes` has its shape in each set of shapes."""

    name: str
    element: str
    dtype: np.dtype[Any]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """In the first set of shapes, for most models the only one."""
        return self.shapes[0]


class ShapeSet(NamedTuple):
    """One set of shapes that the model was compiled for, by names."""

    inputs: dict[str, tuple[int, ...]]
    outputs: dict[str, tuple[int, ...]]

    def __str__(self) -> str:
        return ", ".join(f"{name} {shown(shape)}" for name, shape in self.inputs.items())


def shown(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def joined(sets: Sequence[Sequence[RawPort]]) -> tuple[Port, ...]:
    """The ports of all sets of shapes, one for each name."""
    ports = []
    for same in zip(*sets):
        first = same[0]
        dtype = DTYPES.get(first.element)
        if dtype is None or dtype.itemsize != first.element_bytes:
            raise ModelError(f"{first.name} has elements {first.element} of {first.element_bytes} bytes, which this "
                             "version of ngraph-runtime does not know")
        ports.append(Port(first.name, first.element, dtype, tuple(port.shape for port in same)))
    return tuple(ports)
