"""Templates and executables that run a graph for a range of sizes.

A graph is compiled with symbols in place of sizes, for the sizes at hand. The *template* holds for all sizes for which
its guards hold, and makes an executable for such sizes in microseconds. Where a guard does not hold, another template
is compiled. A graph that has no templates is compiled for each set of sizes.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from ngraph_mxnet import config
from ngraph_mxnet.auditing.audit import active
from ngraph_mxnet.errors import NGraphError, PackageError, UnsupportedError
from ngraph_mxnet.forks import ForkSafeLock, Recent
from ngraph_mxnet.ir.dims import MOST
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.sizes import Guard, Guards, assuming, evaluate
from ngraph_mxnet.runtime.changing import MOST_FAILURES, MOST_RANGES, ChangingShapes
from ngraph_mxnet.runtime.executable import Executable, InputError, Port, as_array, input_ports, output_ports
from ngraph_mxnet.runtime.trace import recorder, span

MOST_BOUND = 64
"""Sets of shapes for which what runs them is kept; the one used longest ago goes first."""

logger = config.logger(__name__)

Shapes = Sequence[Sequence[int]]
Binding = dict[str, int]


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
    """To compile for a range of sizes: the template, or the reason why there is none."""

    template: Template | None
    reason: str = ""
    is_defect: bool = False


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


def for_range(hint: Binding, make: Callable[[], Template | None], shapes: Callable[[Template], Shapes], what: str,
              changing: ChangingShapes | None = None) -> tuple[Attempt, Any]:
    """To compile for a range of sizes, and what the template makes for those at hand; None where these have to be
    compiled for themselves.

    Args:
        hint: the symbols' values now.
        make: compiles the graph, under guards.
        shapes: those at hand, in the order of the template's inputs.
        what: is compiled, for the log.
        changing: found out what changes, and is told when it is of no use.
    """
    made = attempt(hint, make)
    template = made.template
    if template is None:
        logger.log(logging.WARNING if made.is_defect else logging.INFO, "%s is compiled for each set of shapes: %s",
                   what, made.reason)
    found = template.bind(shapes(template)) if template is not None else None
    if template is not None and found is None:
        logger.warning("%s is compiled for these shapes: what was made for a range at these sizes does not hold there",
                       what)
    if changing is not None and (template is None or found is None or template.is_narrow):
        changing.failed()
    return made, found


class Place(Protocol):
    """The place of an entry of the cache on disk; `cache.Place` is one."""

    def get(self) -> bytes | None: ...

    def put(self, content: bytes | None) -> None: ...


class Packaged(Protocol):
    """A template as plain data."""

    def holds(self, binding: Mapping[str, int]) -> bool: ...


Held = TypeVar("Held", bound=Packaged)
Made = TypeVar("Made", bound=Template)


def cached_template(place_of: Callable[[int], Place | None], hint: Mapping[str, int], make: Callable[[], Made | None],
                    encode: Callable[[Made], bytes | None], decode: Callable[[bytes], Held],
                    load: Callable[[Held], Made]) -> Made | None:
    """A template of the cache that holds for these sizes, else what `make` gives, which goes to the cache.

    Args:
        place_of: the place of the template that is numbered so, from 0, among those that are alike but for their
            guards; its key holds all that these depend on beside the sizes that they were compiled for.
        hint: the symbols' values now.
        encode, decode: make the content of an entry, and the package of such content.
        load: makes the template of it. Whatever these two raise, the template is made anew.
    """
    free: Place | None = None
    for number in range(0 if recorder() or active() else MOST_RANGES):
        place = place_of(number)
        content = place.get() if place is not None else None
        if content is None:
            free = place
            break
        try:
            with span("load", "compile"):
                package = decode(content)
                if package.holds(hint):
                    return load(package)
        except Exception as error:  # whatever is in the folder, the model runs
            logger.warning("a cached program for a range of sizes does not load, it is compiled anew: %r", error)
            free = place
            break
    template = make()
    if template is not None and free is not None:
        try:
            free.put(encode(template))
        except PackageError as error:
            logger.info("not cached: %s", error)
    return template


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
        self.templates: list[Template] = []
        self._failures = 0

    def at(self, *shapes: Sequence[int]) -> Executable:
        """Return the executable for inputs of these shapes.

        Raises:
            InputError: a shape does not fit.
        """
        key = tuple(map(tuple, shapes))
        found: Executable | None = self._bound.get(key)
        if found is None:
            found = self._made(key)
            self._bound.put(key, found)
        return found

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return self.at(*(array.shape for array in arrays))(*arrays)

    def checked(self, arrays: tuple[Any, ...]) -> list[np.ndarray]:
        given = [as_array(array, f"input {port.name!r}")
                 for port, array in zip(self.inputs, self.in_order(arrays), strict=True)]
        return self.at(*(array.shape for array in given)).checked(tuple(given))

    def _made(self, shapes: tuple[tuple[int, ...], ...]) -> Executable:
        binding = self.binding(shapes)
        found = self._from_templates(shapes)
        if found is not None:
            return found
        with self._lock:
            found = self._from_templates(shapes)  # another thread may have made one
            if found is not None:
                return found
            if self._failures < MOST_FAILURES and len(self.templates) < MOST_RANGES:
                made, found = for_range(binding, lambda: self._template(self._make()), lambda _: shapes, "a model")
                if made.template is not None and found is not None:
                    self.templates.append(made.template)
                    return found
                self._failures += 1
            with assuming(Guards(binding)):
                graph = self._make()
            return self._compile(graph.at(binding))

    def _from_templates(self, shapes: Shapes) -> Executable | None:
        bound = (template.bind(shapes) for template in list(self.templates))
        return next((found for found in bound if found is not None), None)

    def binding(self, shapes: Shapes) -> Binding:
        """The value of each symbol for inputs of these shapes.

        Raises:
            InputError: they do not fit.
        """
        binding: Binding = {}
        for port, shape in zip(self.inputs, shapes, strict=True):
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
        for port, shape in zip(self.inputs, shapes, strict=True):
            wanted = tuple(evaluate(size, binding) for size in port.type.shape)
            if tuple(shape) != wanted:
                raise InputError(f"input {port.name!r}: found shape {tuple(shape)}, expected {wanted} ({port.type})")
        return binding
