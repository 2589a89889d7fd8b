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
_MOST = 1 << 46
"""No size is larger."""


class Port(NamedTuple):
    """An input or output; `shapes` has its shape in each set of shapes, `ranges` its sizes in each range, which are
    numbers, or texts such as "N" and "(H + 1)//2"."""

    name: str
    element: str
    dtype: np.dtype[Any]
    shapes: tuple[tuple[int, ...], ...]
    ranges: tuple[tuple[int | str, ...], ...] = ()

    @property
    def shape(self) -> tuple[int | str, ...]:
        """In the first set of shapes, for most models the only one; without one, in the first range."""
        return (self.shapes or self.ranges)[0]


class ShapeSet(NamedTuple):
    """One set of shapes that the model was compiled for, by names."""

    inputs: dict[str, tuple[int, ...]]
    outputs: dict[str, tuple[int, ...]]

    def __str__(self) -> str:
        return ", ".join(f"{name} {shown(shape)}" for name, shape in self.inputs.items())


class Range(NamedTuple):
    """Sizes that the model was compiled for.

    `inputs`, `outputs`: sizes by name, as in `Port.ranges`. `symbols`: the least and the greatest value of each.
    `guards`: of the sizes one of these must hold, too; an empty one always does.
    """

    inputs: dict[str, tuple[int | str, ...]]
    outputs: dict[str, tuple[int | str, ...]]
    symbols: dict[str, tuple[int, int]]
    guards: tuple[str, ...]

    def __str__(self) -> str:
        inputs = ", ".join(f"{name} {shown(sizes)}" for name, sizes in self.inputs.items())
        symbols = ", ".join(f"{name} {bounds(*ends)}" for name, ends in self.symbols.items())
        return f"{inputs} with {symbols}"


def bounds(low: int, high: int) -> str:
    return f"{low}..{high if high < _MOST else ''}"


def shown(shape: Sequence[int | str]) -> str:
    return f"[{','.join(map(str, shape))}]"


def joined(sets: Sequence[Sequence[RawPort]], ranges: Sequence[Sequence[RawPort]] = ()) -> tuple[Port, ...]:
    """The ports of all sets of shapes and ranges, one for each name."""
    ports = []
    for same in zip(*sets, *ranges):
        first, shapes = same[0], tuple(port.shape for port in same)
        dtype = DTYPES.get(first.element)
        if dtype is None or dtype.itemsize != first.element_bytes:
            raise ModelError(f"{first.name} has elements {first.element} of {first.element_bytes} bytes, which this "
                             "version of ngraph-runtime does not know")
        ports.append(Port(first.name, first.element, dtype, shapes[:len(sets)], shapes[len(sets):]))
    return tuple(ports)
