"""From graphs to the file that the runtime runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.errors import ConfigError, UnsupportedError
from ngraph_mxnet.ir.dims import Atom
from ngraph_mxnet.ir.graph import Graph, fingerprint, verify
from ngraph_mxnet.ir.module import result_names
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.package.artefact import DEFAULT_ISAS, Meta, Origin, Reference, Summary, check
from ngraph_mxnet.package.artefact_programs import ProgramSet, SetSummary
from ngraph_mxnet.package.artefact_writer import Item, write_artefact
from ngraph_mxnet.package.program import IsaProgram
from ngraph_mxnet.runtime.backend import Backend, get_backend
from ngraph_mxnet.runtime.compile import bind_weights
from ngraph_mxnet.runtime.compile import compile as compile_graph
from ngraph_mxnet.runtime.feeds import SEED, random_inputs
from ngraph_mxnet.runtime.range_programs import compile_range_programs

Weighted = Callable[[], tuple[Graph, Mapping[str, Any]]]
"""Makes the graph for a set of shapes, and its weights: when its turn comes, as they may be large."""


@dataclass(frozen=True)
class Ranged:
    """A range of sizes. `make` gives the graph with symbols for sizes: it is called with guards in force, for each
    program that the range needs."""

    make: Weighted
    symbols: Sequence[Atom]


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
        isas: instruction sets; if there are none all but avx_vnni, of int8 without baseline: its weights take 16 bits,
            more than those of the others together, and few CPUs have nothing better.
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
        inputs = [(one.name, one.type) for one in bound.parameters if one.name not in rest]
        outputs = [(name, one.type) for name, one in zip(result_names(bound), bound.results, strict=True)]
        for made in backend.artefact_programs(bound, options, isas, rest):
            yield ProgramSet.of(made, number, inputs, outputs)
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
    return Reference(number, list(inputs.values()), compiled({**weights, **inputs}))
