"""From graphs to the file that the runtime runs.

A range of sizes takes as many programs as it needs for all sizes within. A program is compiled for sizes at hand, and
holds where its guards do. Sizes for which none holds get another one: those that are tried are all of a range of few
sizes, and of others the ends and what lies between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError, GraphError, NGraphError, UnsupportedError, listed
from ngraph_mxnet.ir.graph import Graph, fingerprint, verify
from ngraph_mxnet.ir.module import result_names
from ngraph_mxnet.ir.ranges import Guards, assuming, because, bindings_to_try, sizes_to_try
from ngraph_mxnet.ir.sizes import Atom
from ngraph_mxnet.ir.types import RANDOM_STATE, Role
from ngraph_mxnet.program.artefact import DEFAULT_ISAS, Item, Meta, Origin, Reference, Summary, check, write_artefact
from ngraph_mxnet.program.backend import Backend, get_backend
from ngraph_mxnet.program.compile import Ranged, Weighted, bind_weights
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.program.feeds import SEED, random_inputs
from ngraph_mxnet.program.program import IsaProgram, Ports, ProgramSet, SetSummary

_MOST_NAMED = 40


def compile_to_file(path: str | Path, graphs: Sequence[Weighted | Ranged], backend: str, *, isas: Sequence[str] = (),
                    options: Mapping[str, Any] | None = None, metadata: Mapping[str, str] | None = None,
                    with_references: bool = False, prepares: bool = False,
                    on_program: Callable[[], None] = lambda: None) -> Summary:
    """Write the model as the runtime runs it. Parameters of a graph that have no weights are its inputs.

    Each program goes to the file when it is made, so that the memory is that of one.

    Args:
        path: of the file; its stem is the model's name.
        graphs: one for each set of shapes, or range of sizes.
        prepares: its results are, bit for bit, those of a graph whose weights are parameters, as MXNet's are; else of
            one whose weights are constants, which passes may compute with.
        isas: instruction sets; if there are none all but amx and avx_vnni, of int8 without baseline: its weights take
            16 bits, more than those of the others together, and few CPUs have nothing better.
        options: the backend's own, such as `precision` and `recipe`.
        with_references: with random inputs for each set of shapes, and what this machine computes of them; ranges
            have none.
        on_program: called whenever a program is made.

    Raises:
        UnsupportedError: naming all nodes that the backend does not run, with the reasons.
        ConfigError, PackageError: as `Backend.artefact_programs`.
        OSError: it can't be written.
    """
    chosen = get_backend(backend)
    options = options or {}
    chosen.check_options(options)
    meta = Meta(Path(path).stem, chosen.precision(options), metadata or {})
    isas = isas or default_isas(meta.precision)
    sets = [one for one in graphs if not isinstance(one, Ranged)]
    if with_references and not sets:
        raise ConfigError("references are for sets of shapes, and there are ranges alone: give shapes beside them")
    count = len(graphs) * len(set(isas)) + len(sets) * with_references
    items = _items(graphs, chosen, options, isas, with_references, prepares)
    summaries: list[SetSummary] = []

    def summarised() -> Iterator[Item]:
        for item in items:
            if isinstance(item, ProgramSet):
                summaries.append(item.summary())
                on_program()
            yield item
            del item  # its weights go before the next one is made

    write_artefact(path, meta, summarised(), count)
    return Summary(meta, summaries, len(sets) * with_references)


def default_isas(precision: str) -> Sequence[str]:
    """The instruction sets that a file of this precision is for, where nobody says."""
    return [isa for isa in DEFAULT_ISAS if precision != "int8" or isa != "baseline"]


def _items(graphs: Sequence[Weighted | Ranged], backend: Backend, options: Mapping[str, Any], isas: Sequence[str],
           with_references: bool, prepares: bool) -> Iterator[Item]:
    """Keeps no program that it has given away."""
    ranges = [one for one in graphs if isinstance(one, Ranged)]
    sets = [one for one in graphs if not isinstance(one, Ranged)]
    for number, weighted in enumerate(sets):
        graph, weights = weighted()
        bound, rest = _with_weights(backend, graph, weights, prepares)
        yield origin_of(graph, weights)
        if with_references:
            yield _reference(bound, backend, options, number, rest)
        ports = _ports(bound, rest)  # before passes change the graph
        for made in backend.artefact_programs(bound, options, isas, rest):
            yield ProgramSet.of(made, number, *ports)
            del made
    for number, ranged in enumerate(ranges, len(sets)):
        yield from compile_range_programs(number, partial(_bound, backend, ranged.make, prepares), ranged.symbols,
                                          partial(_programs, backend, options, isas))


def _bound(backend: Backend, make: Weighted, prepares: bool) -> tuple[Graph, Mapping[str, Any]]:
    return _with_weights(backend, *make(), prepares)


def _programs(backend: Backend, options: Mapping[str, Any], isas: Sequence[str],
              made: tuple[Graph, Mapping[str, Any]]) -> list[IsaProgram]:
    return list(backend.artefact_programs(made[0], options, isas, made[1]))


def _with_weights(backend: Backend, graph: Graph, weights: Mapping[str, Any],
                  prepares: bool) -> tuple[Graph, Mapping[str, Any]]:
    """The graph to compile, and those weights that are parameters of it."""
    verify(graph)
    bound, rest = (graph.clone(), weights) if prepares else (bind_weights(graph, weights), {})
    for parameter in bound.parameters:
        if parameter.name not in rest:
            parameter.role = Role.INPUT
    _require_support(backend, bound)
    return bound, rest


def origin_of(graph: Graph, weights: Mapping[str, Any]) -> Origin:
    """Return the origin of a set of shapes that is compiled from this graph and these weights. Parameters without
    weights are inputs."""
    digest, parameters = fingerprint(graph)
    return Origin(digest, [check(np.ascontiguousarray(weights[one.name]).reshape(-1).view(np.uint8).data)
                           if one.name in weights else one.name for one in parameters])


def _require_support(backend: Backend, graph: Graph) -> None:
    found = {f"{node}: {reason}": None for node in graph.nodes if (reason := backend.supports(node)) is not None}
    if found:
        raise UnsupportedError(f"backend {backend.name} does not run\n" + listing(list(found)))


def listing(lines: Sequence[str]) -> str:
    """A line each, at most so many."""
    more = [f"and {len(lines) - _MOST_NAMED} more"] if len(lines) > _MOST_NAMED else []
    return "\n".join(f"  {line}" for line in [*lines[:_MOST_NAMED], *more])


def _reference(graph: Graph, backend: Backend, options: Mapping[str, Any], number: int,
               weights: Mapping[str, Any]) -> Reference:
    inputs = random_inputs(np.random.default_rng(SEED), graph, weights)
    compiled = compile_graph(graph, backend.name, **options)
    outputs = compiled({**weights, **inputs})
    state = {RANDOM_STATE: np.zeros(4, np.int32)}  # that of the first call
    return Reference(number, [{**inputs, **state}[one.name] for one in graph.parameters if one.name not in weights],
                     outputs)


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
            with because(guard.why or f"graph {graph.name}"):
                holds = guards.answer(guard.condition) == guard.value
            if not holds:
                raise GraphError(f"graph {graph.name}: guard {guard} does not hold for {_text(binding)}")
        return _Compiled(*_ports(graph, weights), compile((graph, weights)))


def _ports(graph: Graph, weights: Mapping[str, Any]) -> tuple[Ports, Ports]:
    """The inputs, but for the weights, and the outputs."""
    return ([(one.name, one.type) for one in graph.parameters if one.name not in weights],
            [(name, one.type) for name, one in zip(result_names(graph), graph.results, strict=True)])


def _tried(symbols: Sequence[Atom]) -> Iterator[dict[str, int]]:
    yield from bindings_to_try(symbols)
    each = max(2, int(_MOST_TRIED ** (1 / len(symbols))))
    for values in product(*(sizes_to_try(atom, each) for atom in symbols)):
        yield {atom.text: value for atom, value in zip(symbols, values, strict=True)}


def _text(binding: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in binding.items())
