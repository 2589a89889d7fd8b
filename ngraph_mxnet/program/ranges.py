"""Programs for ranges of sizes: which sizes change, what is compiled for them, and what people are told of it.

A graph is compiled with symbols in place of sizes, for the sizes at hand. The *template* holds for all sizes for which
its guards hold, and makes an executable for such sizes in microseconds. Where a guard does not hold, another template
is compiled. A graph that has no templates is compiled for each set of sizes.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError, NGraphError, PackageError, UnsupportedError, listed
from ngraph_mxnet.base.forks import ForkSafeLock, Recent
from ngraph_mxnet.base.rendered import Facts
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.ranges import Guard, Guards, assuming, axis_name
from ngraph_mxnet.ir.sizes import MOST, Binding, symbol
from ngraph_mxnet.ir.types import Shape, TensorType
from ngraph_mxnet.program.audit import active
from ngraph_mxnet.program.executable import Executable, InputError, Port, as_array, input_ports, output_ports

MOST_BOUND = 64
"""Sets of shapes for which what runs them is kept; the one used longest ago goes first."""
MOST_FAILURES = 2
"""So often it is tried to compile for a range of sizes."""
MOST_RANGES = 8
"""So many ranges of sizes are compiled of a graph. Beyond them each set of shapes is compiled for itself."""

logger = config.logger(__name__)

Shapes = Sequence[Sequence[int]]
Symbolic = tuple[tuple[tuple[int, ...], ...], Binding]
"""Shapes with symbols for sizes, and the symbols' values now."""
Dimensions = tuple[int | str | None, ...]
"""A dimension is a number if it is fixed, its name if it has one, else None."""
Told = Mapping[tuple[int, int], str]
"""By input and axis; those with the same text have the same size."""


def are_wanted() -> bool:
    """True if graphs may be compiled for ranges of sizes that are found to change."""
    return config.get("NGRAPH_DYNAMIC") != "off" and active() is None


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

    def symbolic(self, now: Shapes) -> Symbolic | None:
        """These shapes with symbols for all sizes that have changed, and the symbols' values now. Sizes that have
        always been the same are one symbol. None for the first shapes."""
        with self._lock:
            self._known |= bool(self._seen) and now != self._seen[0]
            self._keep(now)
            return _symbolic(self._columns(), self._groups(), now) if self._known else None

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
              now: Shapes) -> Symbolic | None:
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


class Template(ABC):
    """A graph that is compiled for all sizes for which `guards` hold. `inputs` have symbols in their types."""

    inputs: Sequence[Port] = ()
    guards: Sequence[Guard] = ()
    native: Any = None
    """The `_core.Binder` that does it without Python, if there is one."""

    @property
    def is_narrow(self) -> bool:
        """True if a guard leaves only one value of a symbol."""
        return any(guard.is_narrow for guard in self.guards)

    def package(self) -> Any:
        """Return the data from which this template is made again, in this process or another one. For a graph that is a
        `Package`, which `runtime.backend.load_template` takes.

        Raises:
            PackageError: the template can't be kept; the text says why.
        """
        raise PackageError("what this backend compiles for a range can't be kept, as it does not say how")

    @abstractmethod
    def bind(self, shapes: Shapes) -> Any:
        """Return the executable for inputs of these shapes; None where a guard does not hold. For a graph the result is
        an `Executable`. Any thread may call this."""


def require_fixed_weights(graph: Graph) -> None:
    """Raises UnsupportedError where the size of a weight changes: they are packed once, for all sizes."""
    for value in graph.parameters:
        if value.is_weight and value.type.is_symbolic:
            raise UnsupportedError(f"weight {value.name} changes its size: {value.type}")


@dataclass(frozen=True)
class Attempt:
    """To compile for a range of sizes: the template, or the reason why there is none. `shapes`: those with symbols that
    it is for."""

    template: Template | None
    reason: str = ""
    is_defect: bool = False
    shapes: Shapes = ()


def attempt(hint: Binding, make: Callable[[], Template | None]) -> Attempt:
    """Call `make` under guards, for the symbols' values now. Return the template, or the reason why there is none."""
    try:
        with assuming(Guards(hint)):
            template = make()
    except NGraphError as error:
        return Attempt(None, str(error))
    except Exception as error:  # whatever is wrong with the range, the shapes at hand are compiled
        return Attempt(None, f"it can't be compiled for a range: {error!r}", True)
    return Attempt(template, "" if template is not None else "its backend and options have no templates")


class RangePrograms:
    """The templates of one graph, of which more are compiled as shapes come that none holds for. All threads may use
    it."""

    def __init__(self, symbolic: Callable[[Shapes], Symbolic | None], names: Sequence[str] = (), *,
                 are_told: bool = False) -> None:
        """
        Args:
            symbolic: gives shapes with symbols for the sizes that change, and the symbols' values now; None for shapes
                that are compiled for themselves.
            names: of the inputs in the order in which shapes come, if a template may have another order.
            are_told: the caller wants these symbols. Else a template is of no use that leaves one only one value.
        """
        self._symbolic, self._names, self._are_told = symbolic, names, are_told
        self._lock = ForkSafeLock()
        self._attempts = self._failures = 0
        self.templates: list[Template] = []

    def bind(self, shapes: Shapes, make: Callable[[Shapes, Binding], Template | None], what: str,
             tell: Callable[[Attempt], None] = lambda made: None) -> Any:
        """What a template binds to these shapes; None where they have to be compiled for themselves. The arguments are
        as for `compile`."""
        found = self._bound(shapes)
        if found is None:
            with self._lock:
                found = self._bound(shapes)  # another thread may have made one
                if found is None:
                    template, found = self.compile(shapes, make, what, tell)
                    self.templates += [template] if template is not None else []
        return found

    def compile(self, shapes: Shapes, make: Callable[[Shapes, Binding], Template | None], what: str,
                tell: Callable[[Attempt], None] = lambda made: None) -> tuple[Template | None, Any]:
        """A new template for a range that has these shapes, and what it binds to them. Both are None where nothing is
        to be compiled, or the template does not hold here.

        Args:
            make: compiles for shapes with symbols and the symbols' values now, under guards.
            what: is compiled, for the log.
            tell: is told what became of it.
        """
        with self._lock:
            symbolic = self._symbolic(shapes)
            if symbolic is None or self._failures >= MOST_FAILURES or self._attempts >= MOST_RANGES:
                return None, None
            self._attempts += 1
        made = replace(attempt(symbolic[1], lambda: make(*symbolic)), shapes=symbolic[0])
        template, found = made.template, None
        if template is None:
            logger.log(logging.WARNING if made.is_defect else logging.INFO, "%s is compiled for each set of shapes: %s",
                       what, made.reason)
        else:
            found = template.bind(self._in_order(template, shapes))
            if found is None:
                logger.warning("%s is compiled for these shapes: what was made for a range at these sizes does not "
                               "hold there", what)
        if template is None or found is None or (template.is_narrow and not self._are_told):
            with self._lock:
                self._failures += 1
        tell(made)
        return (template, found) if found is not None else (None, None)

    def _bound(self, shapes: Shapes) -> Any:
        bound = (template.bind(self._in_order(template, shapes)) for template in list(self.templates))
        return next((found for found in bound if found is not None), None)

    def _in_order(self, template: Template, shapes: Shapes) -> Shapes:
        if not self._names:
            return shapes
        by_name = dict(zip(self._names, shapes, strict=True))
        return [by_name[port.name] for port in template.inputs]


class RangeExecutable(Executable):
    """Called with arrays of any sizes that its inputs' types allow. Where no template can be made, each set of sizes is
    compiled for itself.

    make: the graph, anew. It is called with guards in force, which hold sizes.
    template: what `Backend.template` gives of such a graph; None: it has no templates.
    compile: compiles a graph without symbols.
    """

    def __init__(self, graph: Graph, make: Callable[[], Graph], template: Callable[[Graph], Template | None],
                 compile: Callable[[Graph], Executable]) -> None:
        super().__init__(input_ports(graph), output_ports(graph))
        self._symbols = {atom.text: (atom.low, atom.high) for atom in graph.symbols()}
        self._make, self._template, self._compile = make, template, compile
        self._lock = ForkSafeLock()
        self._bound = Recent(MOST_BOUND)
        types = tuple(port.type.shape for port in self.ports)
        self._ranges = RangePrograms(lambda shapes: (types, self.binding(shapes)), are_told=True)

    @property
    def templates(self) -> Sequence[Template]:
        return self._ranges.templates

    def at(self, *shapes: Sequence[int]) -> Executable:
        """Return the executable for all of `ports` in these shapes.

        Raises:
            InputError: a shape does not fit.
        """
        key = tuple(map(tuple, shapes))
        found: Executable = self._bound.get_or_make(key, lambda: self._made(key))
        return found

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return self.at(*(array.shape for array in arrays))(*arrays)

    def checked(self, arrays: tuple[Any, ...]) -> list[np.ndarray]:
        given = self.with_state([as_array(array, f"input {port.name!r}")
                                 for port, array in zip(self.inputs, self.in_order(arrays), strict=True)])
        return self.at(*(array.shape for array in given)).checked(tuple(given))

    def _made(self, shapes: tuple[tuple[int, ...], ...]) -> Executable:
        binding = self.binding(shapes)
        found: Executable | None = self._ranges.bind(shapes, lambda *_: self._template(self._make()), "a model")
        if found is not None:
            return found
        with self._lock:
            with assuming(Guards(binding)):
                graph = self._make()
            return self._compile(graph.at(binding))

    def binding(self, shapes: Shapes) -> Binding:
        """The value of each symbol for inputs of these shapes.

        Raises:
            InputError: they do not fit.
        """
        binding: dict[str, int] = {}
        for port, shape in zip(self.ports, shapes, strict=True):
            if len(shape) != port.type.rank:
                raise InputError(f"input {port.name!r}: found shape {tuple(shape)}, expected {port.type}")
            for size, value in zip(port.type.shape, shape, strict=True):
                name = str(size)
                if name in self._symbols:
                    low, high = self._symbols[name]
                    if not low <= value <= high:
                        raise InputError(f"input {port.name!r}: found shape {tuple(shape)}, expected {port.type} with "
                                         f"{name} from {low} {'on' if high >= MOST else f'to {high}'}")
                    binding.setdefault(name, value)
        for port, shape in zip(self.ports, shapes, strict=True):
            wanted = port.type.at(binding).shape
            if tuple(shape) != wanted:
                raise InputError(f"input {port.name!r}: found shape {tuple(shape)}, expected {wanted} ({port.type})")
        return binding


# ---- for people -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assumption:
    """A guard: the condition, and what asked."""

    condition: str
    why: str

    def __str__(self) -> str:
        return f"{self.condition} ({self.why})" if self.why else self.condition

    @staticmethod
    def of(guard: Guard, named: Callable[[str], str] = str) -> Assumption:
        return Assumption(str(guard), named(guard.why))


@dataclass(frozen=True)
class RangeVerdict:
    """The verdict on a region or model: the inputs whose sizes change, and the assumptions about these sizes. Where
    each set of shapes is compiled for itself, `reason` says why."""

    name: str
    inputs: tuple[str, ...]
    assumptions: tuple[Assumption, ...] = ()
    reason: str | None = None

    @staticmethod
    def of(name: str, inputs: Iterable[str], made: Attempt, named: Callable[[str], str] = str) -> RangeVerdict:
        """`named` puts the names of nodes into a text."""
        template, inputs = made.template, tuple(dict.fromkeys(inputs))
        if template is None:
            return RangeVerdict(name, inputs, (), named(made.reason))
        narrow = next((named(f"{guard}: {guard.why}") for guard in template.guards if guard.is_narrow), None)
        return RangeVerdict(name, inputs, tuple(Assumption.of(guard, named) for guard in template.guards), narrow)


@dataclass(frozen=True, repr=False)
class RangeExplanation(Facts):
    """Prints as a table; `to_dict` is for programs. `fixed`: how many regions see no size that changes."""

    verdicts: tuple[RangeVerdict, ...]
    fixed: int = 0

    layout = "ranges"

    @property
    def compiles(self) -> bool:
        """True if no set of shapes has to be compiled for itself."""
        return all(verdict.reason is None for verdict in self.verdicts)

    @staticmethod
    def of_whole(name: str, types: Mapping[str, TensorType], changing: ChangingShapes,
                 make: Callable[[dict[str, Shape]], Template | None]) -> RangeExplanation:
        """Explain a model that is compiled as a whole, by compiling it for a range.

        Args:
            name: of the model in the verdict.
            types: of the inputs, with the sizes now.
            changing: which of these sizes change.
            make: compiles for inputs of these shapes, in which such sizes are symbols.
        """
        found = changing.symbolic(tuple(type_.shape for type_ in types.values()))
        if found is None:
            return RangeExplanation((), 1)
        shapes = dict(zip(types, found[0], strict=True))
        changed = {each: types[each].with_shape(shape) for each, shape in shapes.items()}
        inputs = [f"{each}: {type_}" for each, type_ in changed.items() if type_.is_symbolic]
        return RangeExplanation((RangeVerdict.of(name, inputs, attempt(found[1], lambda: make(shapes))),))


def check_axes(axes: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]]) -> None:
    """Raises ConfigError for axes that the inputs of these shapes lack."""
    for name, changing in axes.items():
        for axis in changing:
            if name not in shapes or axis not in range(len(shapes[name])):
                raise ConfigError(f"axis {axis} of {name!r} is to change; there are: "
                                  f"{listed(f'{name}={tuple(shape)}' for name, shape in shapes.items())}")
