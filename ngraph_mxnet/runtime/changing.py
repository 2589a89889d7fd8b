"""Which sizes of inputs change: found out as calls come with other shapes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.ir.sizes import axis_name, symbol

Shapes = tuple[tuple[int, ...], ...]
Dimensions = tuple[int | str | None, ...]
"""A dimension is a number if it is fixed, its name if it has one, else None."""
Told = Mapping[tuple[int, int], str]
"""By input and axis; those with the same text have the same size."""
MOST_FAILURES = 2
"""So often it is tried to compile for a range of sizes."""
MOST_RANGES = 8
"""So many ranges of sizes are compiled of a graph. Beyond them each set of shapes is compiled for itself."""


def told_by_place(axes: Mapping[str, Sequence[int]], inputs: Iterable[tuple[str, Dimensions | None]]) -> Told:
    """Map what is told by the inputs' names to the inputs' places. Axes that an input lacks or that have a fixed size
    are left out, because they may be told about other models.

    Args:
        inputs: the name and dimensions of each input; None where the rank is unknown.
    """
    found = {}
    for place, (name, dims) in enumerate(inputs):
        for axis in axes.get(name, ()):
            if dims is None:
                found[place, axis] = f"{name} {axis}"
            elif axis < len(dims) and not isinstance(dims[axis], int):
                found[place, axis] = str(dims[axis] or f"{name} {axis}")
    return found


class ChangingShapes:
    """A record of the input shapes of one graph that finds out which sizes change; the ranks stay. All threads may use
    it."""

    def __init__(self, told: Told | None = None, *, at_once: bool = False) -> None:
        """
        Args:
            told: sizes that change, whether they are seen to or not.
            at_once: also at the first shapes; else from when others have come.
        """
        self._lock = ForkSafeLock()
        self._told, self._known = dict(told or {}), at_once and bool(told)
        self._seen: list[Shapes] = []
        self._failures = self._ranges = 0

    def symbolic(self, now: Shapes) -> tuple[Shapes, dict[str, int]] | None:
        """These shapes with symbols for all sizes that have changed, and the symbols' values now. Sizes that have
        always been the same are one symbol. None for the first shapes, and after failures."""
        with self._lock:
            self._known |= bool(self._seen) and now != self._seen[0]
            self._keep(now)
            if not self._known or self._failures >= MOST_FAILURES or self._ranges >= MOST_RANGES:
                return None
            self._ranges += 1
            columns = self._columns()
            return _symbolic(columns, self._groups(), now)

    def failed(self) -> None:
        """It could not be compiled for a range of sizes, or one that holds no second size."""
        with self._lock:
            self._failures += 1

    def _keep(self, now: Shapes) -> None:
        """Shapes that tell nothing new are not kept: where what changes is known to, beside what changes with it."""
        if now in self._seen:
            return
        before = self._groups() if self._seen else None
        self._seen.append(now)
        if before == self._groups():
            self._seen.pop()

    def _columns(self) -> list[tuple[int, ...]]:
        """The values of each size of each input, one after the other."""
        return list(zip(*([size for shape in shapes for size in shape] for shapes in self._seen), strict=True))

    def _groups(self) -> list[Hashable]:
        """For each size None if it does not change, else what those have in common that have always been the same."""
        columns = self._columns()
        places = [(number, axis) for number, shape in enumerate(self._seen[0]) for axis in range(len(shape))]
        told = [self._told.get(place) for place in places]
        first: dict[tuple[int, ...], Hashable] = {}
        for name, column in zip(told, columns, strict=True):
            if name is not None and _differ(column):
                first.setdefault(column, name)
        return [name or (first.setdefault(column, place) if _differ(column) else None)
                for name, column, place in zip(told, columns, places, strict=True)]


def _differ(column: tuple[int, ...]) -> bool:
    return len(set(column)) > 1


def _symbolic(columns: Sequence[tuple[int, ...]], groups: Sequence[Hashable],
              now: Shapes) -> tuple[Shapes, dict[str, int]] | None:
    symbols: dict[Hashable, int] = {}
    hint: dict[str, int] = {}
    found = iter(zip(groups, columns, strict=True))
    shapes = []
    for shape in now:
        sizes: list[int] = []
        for axis, size in enumerate(shape):
            group, values = next(found)
            if group is not None and group not in symbols:
                name = axis_name(len(shape), axis, hint)
                outer = axis < 2 or len(shape) < 4
                symbols[group] = symbol(name, 0 if 0 in values else 1 if outer or 1 in values else 2)
                hint[name] = size
            sizes.append(size if group is None else symbols[group])
        shapes.append(tuple(sizes))
    return (tuple(shapes), hint) if hint else None
