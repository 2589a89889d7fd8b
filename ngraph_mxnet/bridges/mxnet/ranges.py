"""Which sizes of a region's inputs change: found out as calls come with other shapes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.options import STRUCTURE
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import mxnet_element
from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.ir import TensorType
from ngraph_mxnet.ir.dims import Dim
from ngraph_mxnet.ir.sizes import symbol
from ngraph_mxnet.recent import Recent

Shapes = Sequence[Sequence[int]]
_AXES = {1: "N", 2: "NT", 3: "NTC", 4: "NCHW", 5: "NCDHW"}
"""What the symbols for changing axes are called, by rank."""
_MOST_FAILURES = 2
"""So often a region is tried to be compiled for a range of sizes."""


@dataclass(frozen=True)
class Types:
    """Those of the inputs, with symbols for the sizes that have changed; `hint` are the symbols' values now."""

    types: tuple[TensorType, ...]
    hint: dict[str, int]
    seen: _Seen


@dataclass
class _Seen:
    """Of a region: the values of each size, as far as they tell sizes apart that change together."""

    shapes: list[tuple[tuple[int, ...], ...]] = field(default_factory=list)
    failures: int = 0


_seen = Recent(256)
_lock = ForkSafeLock()


def types_of(subgraph_json: str, shapes: Shapes, in_types: Sequence[int], attrs: Mapping[str, str]) -> Types | None:
    """Of a region that comes with these shapes, and came with others before; None for the first ones, where the ranks
    differ, and where NGRAPH_DYNAMIC is off."""
    if config.get("NGRAPH_DYNAMIC") == "off":
        return None
    now, ranks = tuple(map(tuple, shapes)), tuple(map(len, shapes))
    key = (attrs.get(STRUCTURE) or subgraph_json, tuple(in_types), tuple(sorted(attrs.items())), ranks)
    with _lock:
        seen: _Seen = _seen.get(key) or _Seen()
        _seen.put(key, seen)
        _keep(seen, now)
        if len(seen.shapes) < 2 or seen.failures >= _MOST_FAILURES:
            return None
        columns = _columns(seen)
    return _symbolic(columns, now, in_types, seen)


def refuse(types: Types) -> None:
    """It can't be compiled for a range of sizes."""
    types.seen.failures += 1


def _keep(seen: _Seen, now: tuple[tuple[int, ...], ...]) -> None:
    """Shapes that tell nothing new are not kept: a size that is known to change, beside one that changes with it."""
    if now in seen.shapes:
        return
    before = _groups(_columns(seen)) if seen.shapes else None
    seen.shapes.append(now)
    if before == _groups(_columns(seen)):
        seen.shapes.pop()


def _columns(seen: _Seen) -> list[tuple[int, ...]]:
    """The values of each size of each input, one after the other."""
    flat = [[size for shape in shapes for size in shape] for shapes in seen.shapes]
    return list(zip(*flat, strict=True))


def _groups(columns: Sequence[tuple[int, ...]]) -> list[Hashable]:
    """For each size None if it has not changed, else the first size that has always been the same."""
    first: dict[tuple[int, ...], int] = {}
    return [None if len(set(column)) < 2 else first.setdefault(column, place) for place, column in enumerate(columns)]


def _symbolic(columns: Sequence[tuple[int, ...]], now: Shapes, in_types: Sequence[int], seen: _Seen) -> Types | None:
    symbols: dict[Hashable, Dim] = {}
    hint: dict[str, int] = {}
    groups = iter(zip(_groups(columns), columns, strict=True))
    types = []
    for shape, number in zip(now, in_types, strict=True):
        sizes: list[int] = []
        for axis, size in enumerate(shape):
            group, values = next(groups)
            if group is not None and group not in symbols:
                name = _name(len(shape), axis, hint)
                outer = axis < 2 or len(shape) < 4
                symbols[group] = symbol(name, 1 if outer or 1 in values else 2)
                hint[name] = size
            sizes.append(size if group is None else symbols[group])
        types.append(TensorType(mxnet_element(number), tuple(sizes)))
    return Types(tuple(types), hint, seen) if hint else None


def _name(rank: int, axis: int, taken: Mapping[str, int]) -> str:
    letter = _AXES[rank][axis] if rank in _AXES else "D"
    number, name = 1, letter
    while name in taken:
        number, name = number + 1, f"{letter}{number}"
    return name
