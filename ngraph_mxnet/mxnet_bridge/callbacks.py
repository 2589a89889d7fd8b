"""What the C++ plugin asks: which nodes we take, whether a region is worth it, and the compiled region.

MXNet calls in this order: `assign_regions` with the whole graph; `review_subgraph` for each region that it
cuts out; `compile_subgraph` when an op is created and no compiled one fits. What `optimize_for` is told no shapes
for has regions without them: `review_subgraph` repeats what it said of the same region before.

The options that `optimize_for` and `hybridize` pass through: `ngraph_backend`, by default NGRAPH_BACKEND, and
`ngraph_<option>` for an option of that backend. MXNet's own mean nothing here, and there are no others. Our
wrappers pass `DATA`.

`partitions()` has the last verdicts; the logger `ngraph_mxnet` tells them at level INFO.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ngraph_mxnet import config
from ngraph_mxnet.cache import cpu_features, place_for
from ngraph_mxnet.errors import ConfigError, NGraphError, UnsupportedError
from ngraph_mxnet.ir import Graph, TensorType
from ngraph_mxnet.mxnet_bridge import fallbacks, interrupts, known
from ngraph_mxnet.mxnet_bridge.fallbacks import Refusal
from ngraph_mxnet.mxnet_bridge.importer import lower_graph
from ngraph_mxnet.mxnet_bridge.judgement import (
    argument_types,
    crossing_bool,
    judge_graph,
    judge_region,
    shared_names,
)
from ngraph_mxnet.mxnet_bridge.pins import pins_of
from ngraph_mxnet.mxnet_bridge.symbol_json import VARIABLE, mxnet_element, parse_symbol, type_attributes
from ngraph_mxnet.partition.cost import Cost
from ngraph_mxnet.partition.regions import ALONE
from ngraph_mxnet.partition.report import Partition, PartitionLog, Region, count_kinds
from ngraph_mxnet.partition.support import Verdict
from ngraph_mxnet.runtime.backend import canonical_name, get_backend, load_kept
from ngraph_mxnet.runtime.backend import check_options as check_backend_options
from ngraph_mxnet.runtime.executable import Executable
from ngraph_mxnet.runtime.garbage import collector_paused
from ngraph_mxnet.runtime.trace import recorder, span

logger = config.logger("ngraph_mxnet")
log = PartitionLog()

PREFIX = "ngraph_"
_MXNETS_OPTIONS = frozenset({"dedup_subgraph"})
_BACKEND = "ngraph_backend"
_STRUCTURE = "ngraph_structure"

DATA = "ngraph_data"
"""A JSON list of the model's inputs that are data wherever they are read: no weights, though they stand in a weight's
slot. A region's attribute of that name lists places among its inputs."""

Review = tuple[bool, dict[str, str]]

_lowered = known.Memory(8)
"""What the latest reviews lowered, by structure, types and places of data, for the compilation that mostly follows."""


def partitions() -> list[Partition]:
    """The last partitionings of this process, the oldest first."""
    return log.last()


class PartitionedGraph(Protocol):
    """What the partitioner is given: `_core.MXNetGraph`, which parses nothing that is not asked for."""

    def json(self) -> str: ...

    def digest(self, *, with_types: bool) -> str:
        """Of all that lowering depends on, with or without types, whatever the names."""

    @property
    def has_types(self) -> bool: ...

    @property
    def nodes(self) -> list[tuple[str, str]]:
        """(name, operator) of each; names here and below stand as in JSON, with its escapes."""

    @property
    def arguments(self) -> list[str]: ...

    @property
    def outputs(self) -> list[str]: ...


def _nodes(graph: PartitionedGraph) -> list[tuple[str, str]]:
    return [(_unescaped(name), op) for name, op in graph.nodes]


def _unescaped(name: str) -> str:
    return json.loads(f'"{name}"') if "\\" in name else name


# ---- the record ------------------------------------------------------------------------------------------

def tell(partition: Partition) -> None:
    """Enter a partitioning that was not made anew."""
    _begin(Partition(partition.backend, partition.verdicts))
    for region in partition.reviewed:
        _add(region, partition.backend)


def _begin(partition: Partition) -> None:
    log.begin(partition)
    for (op, reason), count in count_kinds(partition.verdicts).items():
        logger.info("left to MXNet: %d x %s: %s", count, op, reason)


def _tell_failure(what: str, error: Exception) -> None:
    fallbacks.log.tell(Refusal(what, str(error) or repr(error)), exc_info=not isinstance(error, NGraphError))


def left_by_kind(partitions: Sequence[Partition], most: int = 8) -> str:
    """Which operators are not supported, and why, in one line; empty if all are."""
    verdicts = [verdict for partition in partitions for verdict in partition.verdicts]
    kinds = [f"{count} x {op}: {reason}" for (op, reason), count in count_kinds(verdicts).items()]
    more = [f"and {len(kinds) - most} more kinds"] if len(kinds) > most else []
    return "; ".join([*kinds[:most], *more])


def _add(region: Region, backend: str) -> None:
    number = log.add(region)
    if region.rejected is None:
        logger.info("region %d on %s: %s", number, backend, describe(region))
    else:
        logger.info("region %d left to MXNet: %s: %s", number, describe(region), region.rejected)


# ---- which nodes ----------------------------------------------------------------------------------------

@interrupts.told_apart()
def assign_regions(graph: PartitionedGraph, options: Mapping[str, str]) -> list[int]:
    """For each node the number of its region; ALONE for what stays with MXNet, and for variables. Never raises.

    The regions are ours, not MXNet's: left to itself it makes such as read each other's results, and then fails.
    """
    nodes = _nodes(graph)
    if all(op == VARIABLE for _, op in nodes):  # a lone one, which makes the partitioner forget the graph before
        return [ALONE] * len(nodes)
    try:
        backend = chosen_backend(options)
        reasons, numbers = _judged(graph, backend)
    except Exception as error:
        _tell_failure("a whole graph", error)
        return [ALONE] * len(nodes)
    verdicts = [Verdict(name, op, reason) for (name, op), reason in zip(nodes, reasons, strict=True) if op != VARIABLE]
    _begin(Partition(backend, verdicts))
    return numbers


def _judged(graph: PartitionedGraph, backend: str) -> tuple[list[str | None], list[int]]:
    """For each node why it stays with MXNet (None for what is supported, and for variables), and its region."""
    alike = shared_names([name for name, _ in graph.nodes])

    def make() -> list[Any]:
        with collector_paused():
            symbol = parse_symbol(graph.json())
            return list(judge_graph(symbol, get_backend(backend)))

    # The digest knows no names; which nodes share one matters all the same.
    reasons, numbers = known.recall("verdicts", f"{backend} {graph.digest(with_types=True)} {alike or ''}", make,
                                    len(graph.nodes))
    return reasons, numbers


# ---- which regions --------------------------------------------------------------------------------------

@interrupts.told_apart()
def review_subgraph(graph: PartitionedGraph, options: Mapping[str, str]) -> Review:
    """Whether the region is to be ours, and the attributes that `compile_subgraph` will get. Never raises."""
    try:
        return _review(graph, options)
    except Exception as error:
        _tell_failure("a region", error)
        log.fail()
        return False, {}


def _review(graph: PartitionedGraph, options: Mapping[str, str]) -> Review:
    backend, structure = chosen_backend(options), graph.digest(with_types=False)
    attrs = {**_own_options(options), _BACKEND: backend, _STRUCTURE: settings_key(structure)}
    data = set(json.loads(attrs.pop(DATA, "[]")))
    places = [place for place, name in enumerate(map(_unescaped, graph.arguments)) if name in data]
    if places:
        attrs[DATA] = json.dumps(places)
    key = ("review", structure, tuple(sorted(options.items())))
    facts = _region_facts(graph, backend, structure, places)
    if facts is None:
        said = known.memory.get(key)
        if said is None:
            logger.info("MXNet runs a region of %d nodes: its shapes are unknown", len(graph.nodes))
            said = False, {}
        log.fail()  # another time more may be known
        return said
    nodes = tuple((name, op) for name, op in _nodes(graph) if op != VARIABLE)
    cost, rejected, types = facts
    inputs, outputs = (tuple(map(_unescaped, names)) for names in (graph.arguments, graph.outputs))
    region = Region(nodes, inputs, outputs, cost, rejected)
    _add(region, backend)
    review = (True, {**attrs, **types}) if rejected is None else (False, {})
    known.memory.put(key, review)
    return review


def _region_facts(graph: PartitionedGraph, backend: str, structure: str,
                  data: Sequence[int]) -> tuple[Cost, str | None, dict[str, str]] | None:
    """The region's work, why it is rejected, and its outputs' types as MXNet writes them into a node's attributes; None
    when MXNet has not told the types of all its inputs.

    MXNet writes the types where it knows them. Cutting without, it reads them all the same from a region that another
    one reads, and fails for lack of them.
    """
    if not graph.has_types:
        return None

    def make() -> list[Any] | None:
        symbol = parse_symbol(graph.json())
        types = argument_types(symbol)
        if types is None:
            return None
        with collector_paused():
            cost, rejected, lowered = judge_region(symbol, types, get_backend(backend), data)
        if lowered is not None and rejected is None:
            _lowered.put((structure, tuple(types), tuple(data)), lowered)
        return [cost.macs, cost.operations, cost.bytes, rejected, type_attributes(symbol)]

    facts = known.recall("region", f"{backend} {graph.digest(with_types=True)}", make, len(graph.nodes))
    return (Cost(*facts[:3]), facts[3], facts[4]) if facts is not None else None


def settings_key(structure: str) -> str:
    """What, beside shapes and types, a compiled region depends on: its structure and the CPU settings."""
    return f"{structure} {config.compile_settings()}"


def describe(region: Region) -> str:
    """One line: how many nodes of which operators, and their work."""
    ops = ", ".join(f"{op} x{count}" for op, count in region.ops().items())
    return f"{len(region.nodes)} nodes ({ops}), {region.cost.macs / 1e6:.1f} million multiply-adds"


# ---- compiling ------------------------------------------------------------------------------------------

@interrupts.told_apart()
def compile_subgraph(subgraph_json: str, in_shapes: Sequence[Sequence[int]], in_types: Sequence[int],
                     attrs: Mapping[str, str]) -> Any:
    """The `_core.Executable` (or `_core.PythonExecutable`) of a region.

    Its inputs are the JSON's arguments, in order.

    Raises:
        NGraphError: the region can't be compiled for these shapes and types; MXNet shows the user the text.
    """
    from ngraph_mxnet import _core

    backend = chosen_backend(attrs)
    _core.limit_compile_cache(config.get("NGRAPH_SHAPES"))
    key = repr((backend, sorted(attrs.items()), in_shapes, in_types, cpu_features()))
    small = subgraph_json.count('"op"') <= known.SMALL_NODES
    place = None if recorder() else place_for("program", key, small=small)
    content = place.get() if place is not None else None
    if content is not None:
        try:
            with span("load", "compile"):
                return load_kept(backend, content)
        except Exception as error:
            logger.warning("a kept program does not load, it is compiled anew: %r", error)
    made = _compile(subgraph_json, in_shapes, in_types, backend, attrs)
    if place is not None:
        place.put(made.kept())
    return _native(made)


def _compile(subgraph_json: str, in_shapes: Sequence[Sequence[int]], in_types: Sequence[int], backend: str,
             attrs: Mapping[str, str]) -> Executable:
    from ngraph_mxnet.runtime.compile import compile as compile_graph

    with collector_paused(), span("import", "compile"):
        graph = region_graph(subgraph_json, in_shapes, in_types, attrs)
    passed: dict[str, Any] = {
        key.removeprefix(PREFIX): value
        for key, value in _own_options(attrs).items() if key not in (_BACKEND, _STRUCTURE, DATA)
    }
    devices = get_backend(backend).devices
    if devices and "pins" not in passed:
        passed["pins"] = pins_of(parse_symbol(subgraph_json), devices)
    return compile_graph(graph, backend, **passed)


def region_graph(subgraph_json: str, in_shapes: Sequence[Sequence[int]], in_types: Sequence[int],
                  attrs: Mapping[str, str]) -> Graph:
    """The region's IR: the review's, if it was for these types, else lowered anew."""
    types = [TensorType(mxnet_element(number), tuple(shape))
             for number, shape in zip(in_types, in_shapes, strict=True)]
    data = json.loads(attrs.get(DATA, "[]"))
    graph = _lowered.take((attrs.get(_STRUCTURE, "").partition(" ")[0], tuple(types), tuple(data)))
    if graph is None:
        symbol = parse_symbol(subgraph_json)
        graph = lower_graph(symbol, types, name=symbol.nodes[symbol.heads[0].node].name, data=data)
        unfit = crossing_bool(graph)
        if unfit is not None:
            raise UnsupportedError(unfit)  # now, in the caller's thread: MXNet's own error would come out of its worker
    return graph


def _native(executable: Executable) -> Any:
    from ngraph_mxnet import _core

    native = getattr(executable, "native", None)
    if native is not None:
        return native
    _finish_before_forks()
    specs = [[(port.type.element.name, port.type.shape) for port in ports]
             for ports in (executable.inputs, executable.outputs)]
    return _core.PythonExecutable(lambda arrays: executable(*arrays), *specs)


@functools.cache
def _finish_before_forks() -> None:
    """From now on the process does not fork while MXNet's engine runs regions that need Python.

    MXNet waits for its engine's threads before a fork, on the forking thread, which has the GIL: such a region would
    never end.
    """

    def finish() -> None:
        from mxnet import nd

        nd.waitall()

    os.register_at_fork(before=finish)


def chosen_backend(options: Mapping[str, str]) -> str:
    """The name of the backend that the options ask for, or the environment.

    Raises:
        ConfigError: there is no such backend.
    """
    return canonical_name(options.get(_BACKEND) or config.get("NGRAPH_BACKEND"))


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse what `optimize_for` and `hybridize` are given for our backend and nobody knows.

    Raises:
        ConfigError: an option is unknown, or its value not allowed.
    """
    if not options:
        return
    try:
        backend = chosen_backend({_BACKEND: str(options[_BACKEND])} if _BACKEND in options else {})
        check_backend_options(backend, {})
    except ConfigError:
        if _BACKEND in options:
            raise
        return  # it is the environment's, and told when something is to be compiled
    own = {name.removeprefix(PREFIX): value for name, value in _own_options(options).items()
           if name not in (_BACKEND, DATA)}
    others = sorted(name for name in options if not name.startswith(PREFIX) and name not in _MXNETS_OPTIONS)
    try:
        check_backend_options(backend, {**own, **dict.fromkeys(others)})
    except ConfigError as error:
        raise ConfigError(f"{error}. Here names begin with {PREFIX}, and {_BACKEND} chooses the backend") from None
    if others:
        raise ConfigError(f"found the option {others[0]}, expected {PREFIX}{others[0]}")


def _own_options(options: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in options.items() if key.startswith(PREFIX)}
