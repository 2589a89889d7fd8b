"""The programs of a file for a range of sizes: as many as it takes for all sizes within.

A program is compiled for sizes at hand, and holds where its guards do. Sizes for which none holds get another one:
those that are tried are all of a range of few sizes, and of others the ends and what lies between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.errors import GraphError, NGraphError, UnsupportedError, listed
from ngraph_mxnet.ir.dims import Atom
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.module import result_names
from ngraph_mxnet.ir.sizes import Guards, assuming, bindings_to_try, sizes_to_try
from ngraph_mxnet.package.artefact_programs import Ports, ProgramSet
from ngraph_mxnet.package.program import IsaProgram

logger = config.logger(__name__)

MOST_PROGRAMS = 8
"""The most programs of a range, for each instruction set."""
_MOST_TRIED = 512

Made = tuple[Graph, Mapping[str, Any]]
"""A graph, and those of its parameters' arrays that become constants."""


@dataclass(frozen=True)
class _Compiled:
    """For sizes at hand, of all instruction sets."""

    inputs: Ports
    outputs: Ports
    parts: Sequence[IsaProgram]

    def holds(self, binding: Mapping[str, int]) -> bool:
        return all(guard.holds(binding) for one in self.parts for guard in one.guards)


def compile_range_programs(number: int, make: Callable[[], Made], symbols: Sequence[Atom],
                           compile: Callable[[Made], Sequence[IsaProgram]]) -> Iterator[ProgramSet]:
    """The range that is numbered so, for each instruction set.

    Args:
        make: the graph, anew; it is called with guards in force, as is `compile`.
        symbols: of its inputs' sizes.

    Raises:
        UnsupportedError: it takes too many programs.
        NGraphError: what `make` or `compile` raises, if they do for all sizes that are tried.
    """
    programs: list[_Compiled] = []
    first: NGraphError | None = None
    for binding in _tried(symbols):
        if any(one.holds(binding) for one in programs):
            continue
        if len(programs) >= MOST_PROGRAMS:
            guards = sorted({str(guard) for one in programs for part in one.parts for guard in part.guards})
            raise UnsupportedError(
                f"for {_text(binding)} the model would need a program beside {MOST_PROGRAMS} others, which assume "
                f"{listed(guards)}: give a smaller range, or numbers for sizes that the model has as numbers")
        try:
            programs.append(_compiled(binding, make, compile))
        except NGraphError as error:
            first = first or error
            logger.info("no program for %s: %s", _text(binding), error)
    if not programs:
        assert first is not None
        raise first
    for same in zip(*(one.parts for one in programs), strict=True):
        yield ProgramSet(same[0].isa, number, programs[0].inputs, programs[0].outputs, tuple(symbols),
                         [(one.program, tuple(map(str, one.guards))) for one in same])


def _compiled(binding: Mapping[str, int], make: Callable[[], Made],
              compile: Callable[[Made], Sequence[IsaProgram]]) -> _Compiled:
    with assuming(Guards(binding)) as guards:
        graph, weights = make()
        for guard in graph.guards:
            if guards.answer(guard.condition) != guard.value:
                raise GraphError(f"graph {graph.name}: guard {guard} does not hold for {_text(binding)}")
        inputs = [(one.name, one.type) for one in graph.parameters if one.name not in weights]
        outputs = [(name, one.type) for name, one in zip(result_names(graph), graph.results, strict=True)]
        return _Compiled(inputs, outputs, compile((graph, weights)))


def _tried(symbols: Sequence[Atom]) -> Iterator[dict[str, int]]:
    yield from bindings_to_try(symbols)
    each = max(2, int(_MOST_TRIED ** (1 / len(symbols))))
    for values in product(*(sizes_to_try(atom, each) for atom in symbols)):
        yield {atom.text: value for atom, value in zip(symbols, values, strict=True)}


def _text(binding: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in binding.items())
