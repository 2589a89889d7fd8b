"""From a graph to an executable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import NGraphError, UnsupportedError, listed
from ngraph_mxnet.base.forks import collector_paused
from ngraph_mxnet.ir.graph import Graph, Value, make_node, verify
from ngraph_mxnet.ir.ranges import Guards, assuming, bindings_to_try
from ngraph_mxnet.ir.sizes import Atom
from ngraph_mxnet.program.audit import active
from ngraph_mxnet.program.backend import Backend, get_backend
from ngraph_mxnet.program.executable import Executable, InputError, Port, checked_array
from ngraph_mxnet.program.ranges import RangeExecutable, Template
from ngraph_mxnet.program.trace import span

Made = TypeVar("Made")


@collector_paused
def compile(
    graph: Graph, backend: str | None = None, weights: Mapping[str, Any] | None = None, **options: Any
) -> Executable:
    """Compile `graph`, which stays as it is. One with symbols among its inputs' sizes is compiled when it is called,
    for a range of sizes at once where the backend can do that (`program/ranges.py`).

    Args:
        graph: verified first.
        backend: a name from `backends()`; by default the value of NGRAPH_BACKEND.
        weights: arrays by parameter name. These parameters become constants, no longer inputs.
        options: the backend's own.

    Raises:
        GraphError: the graph is malformed.
        InputError: a weight names no parameter, or has another shape or dtype.
        ConfigError: no such backend or option, or an option's value is not allowed.
        UnsupportedError: the backend does not run a node of the graph, or not at its size.
    """
    chosen = get_backend(backend)
    chosen.check_options(options)
    verify(graph)
    bound = bind_weights(graph, weights or {})
    if graph.symbols():
        return RangeExecutable(bound, bound.clone, lambda made: _template(chosen, made, options),
                               lambda made: _at_sizes(made, chosen, options)).hide_state()
    return compile_own(bound, chosen, options, (graph, weights or {})).hide_state()


def compile_own(graph: Graph, backend: Backend, options: Mapping[str, Any],
                given: tuple[Graph, Mapping[str, Any]] | None = None) -> Executable:
    """Compile a graph without symbols that its maker gives away: it is not verified, and the passes change it.

    Args:
        options: checked ones.
        given: the graph, and the arrays of its weights, that it was made of, for audits.

    Raises:
        UnsupportedError: as for `compile`.
    """
    audit, watch, nodes = active(), None, len((given[0] if given else graph).nodes)
    with span(f"compile {graph.name}", "compile", backend=backend.name, nodes=nodes):
        if audit is not None:
            watch = audit.watch(*(given or (graph.clone(), {})), backend.name)
        try:
            executable = backend.compile(graph, options)
        except (MemoryError, OverflowError) as error:  # of tables that are as large as a tensor
            raise UnsupportedError(f"backend {backend.name} can't compile graph {graph.name} for tensors of these "
                                   f"sizes: {error}") from error
    if watch is not None:
        watch.attach(executable)
    config.logger(__name__).info("compiled graph %s of %d nodes for %s", graph.name, nodes, backend.name)
    return executable


Weighted = Callable[[], tuple[Graph, Mapping[str, Any]]]
"""Makes the graph for a set of shapes, and its weights: when its turn comes, as they may be large."""


class Ranged(NamedTuple):
    """A range of sizes. `make` gives the graph with symbols for sizes: it is called with guards in force, for each
    program that the range needs."""

    make: Weighted
    symbols: Sequence[Atom]


def compile_range(make: Callable[[], Graph], symbols: Sequence[Atom], backend: str | None = None,
                  options: Mapping[str, Any] | None = None) -> RangeExecutable:
    """Return an executable of a model for a range of sizes. It compiles when it is called, as the executable of a graph
    with symbols does.

    Args:
        make: makes the model's graph anew. It is called with guards in force, which answer for sizes at hand.
        symbols: the symbols in the sizes of the graph's inputs.

    Raises:
        ConfigError: as for `compile`.
        NGraphError: what `make` raises, if it does for all sizes that are tried.
    """
    chosen, passed = get_backend(backend), options or {}
    chosen.check_options(passed)
    graph, _ = made_at_some_sizes(make, symbols)
    return RangeExecutable(graph, make, lambda made: _template(chosen, made, passed),
                           lambda made: _at_sizes(made, chosen, passed)).hide_state()


def _at_sizes(graph: Graph, backend: Backend, options: Mapping[str, Any]) -> Executable:
    verify(graph)
    return compile_own(graph, backend, options)


def _template(backend: Backend, graph: Graph, options: Mapping[str, Any]) -> Template | None:
    """That of the backend; none of what is audited, which is compiled for each set of sizes."""
    return backend.template(graph, options) if active() is None else None


def made_at_some_sizes(make: Callable[[], Made], symbols: Sequence[Atom]) -> tuple[Made, Guards]:
    """Call `make`, with guards in force, at sizes within the symbols' bounds until it succeeds. Return its result and
    the guards of these sizes.

    Raises:
        NGraphError: `make` succeeds at no sizes; the error is that of the first sizes.
    """
    first: NGraphError | None = None
    for binding in bindings_to_try(symbols):
        try:
            with assuming(Guards(binding)) as guards:
                return make(), guards
        except NGraphError as error:
            first = first or error
    assert first is not None
    raise first


def bind_weights(graph: Graph, weights: Mapping[str, Any]) -> Graph:
    """A copy of `graph` with the named parameters as constants: copies of the arrays, but of views of `bytes`.

    Raises:
        InputError: as for `compile`.
    """
    bound = graph.clone()
    unknown = sorted(set(weights) - {parameter.name for parameter in bound.parameters})
    if unknown:
        names = listed((parameter.name for parameter in bound.parameters), unknown[0])
        raise InputError(f"weights {listed(unknown)} name no parameter of graph {graph.name}; it has {names}")
    constants: dict[Value, Value] = {}
    for parameter in bound.parameters:
        if parameter.name in weights:
            array = checked_array(Port(parameter.name, parameter.type), weights[parameter.name], what="weight")
            if not _never_changes(array):
                array = array.copy()
                array.flags.writeable = False  # so that the constant takes it as it is
            constants[parameter] = make_node("constant", [], {"value": array}, parameter.origin).output
    bound.replace(constants)
    bound.nodes[:0] = [value.node for value in constants.values() if value.node is not None]
    bound.parameters = [parameter for parameter in bound.parameters if parameter not in constants]
    return bound


def _never_changes(array: np.ndarray) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return isinstance(base, bytes)
