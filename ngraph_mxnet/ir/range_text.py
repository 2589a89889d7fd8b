"""Shapes as users write them, of sizes that are numbers or ranges.

A size is a number; `"1..32"`, any size from 1 to 32; `"H"`, a size of at least 1 that is the same wherever it is called
so; or `"H:8..640"`, such a size within bounds. `"8.."` and `"H:8.."` have no upper bound.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import isqrt
from typing import Any

from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.ir.dim_terms import Atom
from ngraph_mxnet.ir.dims import MOST, Dim
from ngraph_mxnet.ir.sizes import evaluate, symbol

Shapes = Mapping[str, Sequence[Any]]
"""Of inputs, by name."""

_SIZE = re.compile(r"(?:([^\W\d]\w*)(?::|\Z))?(?:(\d+)\.\.(\d*))?\Z")
_AXES = {1: "N", 2: "NT", 3: "NTC", 4: "NCHW", 5: "NCDHW"}
"""What the sizes of axes are called, by rank."""
_LARGE = 4096
"""Without an upper bound, sizes are thought of as up to so many times the lower one."""


def has_ranges(shapes: Shapes) -> bool:
    """Whether a size is no number."""
    return any(isinstance(size, (str, Dim)) for shape in shapes.values() for size in shape)


def checked_shape(name: str, shape: Sequence[Any]) -> tuple[int | str, ...]:
    """The sizes of input `name`: ints, and texts of ranges; what is written as a number is one.

    Raises:
        ConfigError: a size is none; the text names the input, what was found and what is expected.
    """
    return tuple(_checked(name, size) for size in shape)


def symbolic_shapes(shapes: Shapes) -> dict[str, tuple[Any, ...]]:
    """The shapes with symbols for sizes that are ranges; one without a name gets that of its axis.

    Raises:
        ConfigError: as for `checked_shape`, or a name has two ranges.
    """
    sizes = {name: checked_shape(name, shape) for name, shape in shapes.items()}
    declared = _declared(sizes)
    taken = set(declared)

    def of(size: int | str, rank: int, axis: int) -> Any:
        if isinstance(size, int):
            return size
        called, low, high = _parts(size)
        if called:
            return declared[called]
        taken.add(name := axis_name(rank, axis, taken))
        return symbol(name, low, high)

    return {name: tuple(of(size, len(shape), axis) for axis, size in enumerate(shape))
            for name, shape in sizes.items()}


def axis_name(rank: int, axis: int, taken: Collection[str]) -> str:
    """A name for the size of an axis that is not taken yet."""
    letter = _AXES[rank][axis] if rank in _AXES else "D"
    number, name = 2, letter
    while name in taken:
        number, name = number + 1, f"{letter}{number}"
    return name


def range_of(low: int, high: int) -> str:
    """Bounds as they are written."""
    return f"{low}..{'' if high >= MOST else high}"


def described(shapes: Shapes) -> str:
    """All that there is to say of shapes whose sizes may be symbols, for keys."""
    symbols = [f"{atom.text} {range_of(atom.low, atom.high)}" for atom in symbols_in(shapes)]
    return repr(({name: tuple(map(str, shape)) for name, shape in shapes.items()}, symbols))


def symbols_in(shapes: Shapes) -> list[Atom]:
    """Those of the shapes, as they come."""
    return list(dict.fromkeys(atom for shape in shapes.values() for size in shape if isinstance(size, Dim)
                              for atom in sorted(size.symbols, key=str)))


def some_shapes(sets: Sequence[Shapes]) -> dict[str, tuple[int, ...]]:
    """Those of one of the sets, the one with the fewest symbols, where sizes are numbers that may be tried first."""
    found = min(map(symbolic_shapes, sets), key=lambda one: len(symbols_in(one)))
    binding = next(bindings_to_try(symbols_in(found)))
    return {name: tuple(evaluate(size, binding) for size in shape) for name, shape in found.items()}


def bindings_to_try(symbols: Sequence[Atom]) -> Iterator[dict[str, int]]:
    """Values for which something may be compiled first, the best to guess with before others: sizes in the middle, then
    large ones, for what has to be large enough, and small ones."""
    most = {atom.text: min(atom.high, max(atom.low, 1) * _LARGE) for atom in symbols}
    least = {atom.text: max(atom.low, 1) for atom in symbols}
    middle = {name: isqrt(least[name] * high) for name, high in most.items()}
    yield middle
    yield {name: isqrt(middle[name] * high) for name, high in most.items()}
    yield most
    yield {name: isqrt(middle[name] * low) for name, low in least.items()}
    yield {atom.text: atom.low for atom in symbols}


def sizes_to_try(atom: Atom, most: int) -> list[int]:
    """About so many values of a symbol: all, or its ends and what lies between, further and further apart."""
    low, high = atom.low, min(atom.high, max(atom.low, 1) * _LARGE)
    if high - low < most:
        return list(range(low, high + 1))
    ratio = (high - low) ** (1 / (most - 1))
    return sorted({low, high, *(low + round(ratio ** power) for power in range(most - 1))})


def _declared(sizes: Mapping[str, Sequence[int | str]]) -> dict[str, Dim]:
    """The symbols that have names. Only one of the places where a name stands need have bounds."""
    bounds: dict[str, tuple[int, int]] = {}
    for size in (size for shape in sizes.values() for size in shape if isinstance(size, str)):
        called, low, high = _parts(size)
        if called and (":" in size or called not in bounds):
            before = bounds.get(called, (low, high))
            if ":" in size and before not in ((1, MOST), (low, high)):
                raise ConfigError(f"size {called}: found {range_of(low, high)} and {range_of(*before)}, expected one "
                                  "range")
            bounds[called] = low, high
    return {name: symbol(name, *ends) for name, ends in bounds.items()}


def _checked(name: str, size: Any) -> int | str:
    if isinstance(size, str):
        text = size.strip()
        if text.isdigit():
            return int(text)
        try:
            called, low, high = _parts(text)
            if low == high and not called:
                return low
            symbol(called or "N", low, high)
            return text
        except ValueError:
            pass
    elif not isinstance(size, (bool, float)):
        try:
            return int(size)
        except (TypeError, ValueError):
            pass
    raise ConfigError(f"input {name!r}: found the size {size!r}, expected a number, a range as '1..32', a name as "
                      "'H', or both as 'H:8..640'")


def _parts(text: str) -> tuple[str, int, int]:
    """The name, empty if there is none, and the bounds. Raises ValueError."""
    match = _SIZE.match(text)
    if match is None or not text or text.endswith(":"):
        raise ValueError(f"{text!r} is no range")
    called, low, high = match.groups()
    return called or "", int(low) if low else 1, int(high) if high else MOST
