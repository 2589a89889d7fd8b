"""Regions: their options, their programs from a compiled file, and what is compiled for shapes that change.

`optimize_for` and `hybridize` pass options through to us, and a region has them as attributes: `ngraph_backend`, by
default NGRAPH_BACKEND, and `ngraph_<option>` for an option of that backend. MXNet's own mean nothing here, and there
are no others. Our wrappers pass `DATA`.

NGRAPH_PACKAGE names a compiled file. A region is matched by its graph (`ir.fingerprint`: nodes, attributes, types and
shapes, no names), and by the content of its weights, which is looked at when they are used
(`csrc/artefact/artefact_module.cc`). What does not match is compiled, and a warning says why.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.base.forks import ForkSafeLock, Recent
from ngraph_mxnet.frontends.mxnet.symbol_json import parse_symbol
from ngraph_mxnet.ir import TensorType
from ngraph_mxnet.ir.graph import Graph, fingerprint
from ngraph_mxnet.program.artefact import Origin, origins_of
from ngraph_mxnet.program.backend import canonical_name, file_digests, unlike
from ngraph_mxnet.program.backend import check_options as check_backend_options
from ngraph_mxnet.program.executable import Executable
from ngraph_mxnet.program.ranges import (
    Attempt,
    ChangingShapes,
    RangePrograms,
    RangeVerdict,
    Told,
    are_wanted,
    told_by_place,
)

PREFIX = "ngraph_"
_MXNETS_OPTIONS = frozenset({"dedup_subgraph"})
BACKEND = "ngraph_backend"
STRUCTURE = "ngraph_structure"

DATA = "ngraph_data"
"""A JSON list of the model's inputs that are data wherever they are read: no weights, though they stand in a weight's
slot. A region's attribute of that name lists places among its inputs."""


def settings_key(structure: str, options: Mapping[str, str]) -> str:
    """Return what a compiled region depends on, beside shapes, types and options: its structure, the CPU settings, and
    digests of the files that options name."""
    return f"{structure} {config.compile_settings()} {file_digests(options) or ''}".rstrip()


def chosen_backend(options: Mapping[str, str]) -> str:
    """The name of the backend that the options ask for, or the environment.

    Raises:
        ConfigError: there is no such backend.
    """
    return canonical_name(options.get(BACKEND) or None)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options of `optimize_for` and `hybridize` that are neither MXNet's own nor the chosen backend's.

    Raises:
        ConfigError: an option is unknown, or its value not allowed.
    """
    if not options:
        return
    try:
        backend = chosen_backend({BACKEND: str(options[BACKEND])} if BACKEND in options else {})
        check_backend_options(backend, {})
    except ConfigError:
        if BACKEND in options:
            raise
        return  # it is the environment's, and told when something is to be compiled
    own = {name.removeprefix(PREFIX): value for name, value in own_options(options).items()
           if name not in (BACKEND, DATA)}
    others = sorted(name for name in options if not name.startswith(PREFIX) and name not in _MXNETS_OPTIONS)
    try:
        check_backend_options(backend, {**own, **dict.fromkeys(others)})
    except ConfigError as error:
        raise ConfigError(f"{error}. Here names begin with {PREFIX}, and {BACKEND} chooses the backend") from None
    if others:
        raise ConfigError(f"found the option {others[0]}, expected {PREFIX}{others[0]}")


def own_options(options: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in options.items() if key.startswith(PREFIX)}


def backend_options(attrs: Mapping[str, str]) -> dict[str, Any]:
    """A region's options for its backend, by the backend's names."""
    return {name.removeprefix(PREFIX): value for name, value in own_options(attrs).items()
            if name not in (BACKEND, STRUCTURE, DATA)}


_told = Recent(1024)


def remember(subgraph_json: str, attrs: Mapping[str, str], precision: str) -> None:
    """`precision`: as text for people."""
    _told.put(_key(subgraph_json, attrs), precision)


def told_of(executable: Executable) -> str:
    """The precision of convolutions and matrix products; with a recipe, how many are in 8 bits."""
    return f"{executable.precision}, {executable.quantised}" if executable.quantised else executable.precision


def precision_of(subgraph_json: str, attrs: Mapping[str, str]) -> str:
    """Return the precision that was remembered of the region, or an empty text if none was."""
    found: str = _told.get(_key(subgraph_json, attrs)) or ""
    return found


def _key(subgraph_json: str, attrs: Mapping[str, str]) -> Any:
    return subgraph_json, tuple(sorted(attrs.items()))


logger = config.logger("ngraph_mxnet")


@dataclass(frozen=True)
class _File:
    path: str
    artefact: Any
    """A `_core.Artefact`."""
    precision: str
    origins: list[Origin]


@dataclass(frozen=True)
class Region:
    """The facts that a region is matched by: its inputs' types, and which inputs are the fingerprint's parameters.

    Plain data, so that it can be kept for the next process.
    """

    name: str
    digest: str
    inputs: list[tuple[str, str, tuple[int, ...], bool]]
    """The name, element and shape of each input, and whether it is a weight."""
    order: list[int]

    @staticmethod
    def of(graph: Graph) -> Region:
        digest, parameters = fingerprint(graph)
        places = {value: place for place, value in enumerate(graph.parameters)}
        inputs = [(value.name, value.type.element.name, value.shape, value.is_weight) for value in graph.parameters]
        return Region(graph.name, digest, inputs, [places[value] for value in parameters])

    def to_bytes(self) -> bytes:
        return json.dumps(vars(self)).encode()

    @staticmethod
    def from_bytes(content: bytes) -> Region:
        found = json.loads(content)
        found["inputs"] = [(name, element, tuple(shape), weight) for name, element, shape, weight in found["inputs"]]
        return Region(**found)


def is_wanted() -> bool:
    """True if NGRAPH_PACKAGE is set, so that there may be a file for a region."""
    return bool(config.get("NGRAPH_PACKAGE"))


def packaged(region: Region, attrs: Mapping[str, str], compile: Callable[[], Any]) -> tuple[Any, str] | None:
    """The `_core.PackagedGraph` of the first file that has the region's graph, and the file's precision; None, and a
    warning, if none has.

    Args:
        attrs: the region's attributes.
        compile: gives the `_core.CompiledGraph` of the region, for other weights than the file's.
    """
    reasons = []
    for file in open_files(config.get("NGRAPH_PACKAGE")):
        reason = unlike(chosen_backend(attrs), backend_options(attrs), file.artefact.instruction_set, file.precision)
        if reason is None:
            found = _graph(file, region, compile)
            if found is not None:
                logger.info("graph %s runs what is in %s", region.name, file.path)
                return found, file.precision
            sets = "; ".join(_shapes(inputs) for inputs, _ in file.artefact.shape_sets)
            reason = f"it has another graph, for {sets}" if sets else "it is for ranges of sizes alone"
        reasons.append(f"{file.path}: {reason}")
    data = _shapes([(name, element, shape) for name, element, shape, is_weight in region.inputs if not is_weight])
    if reasons:
        logger.warning("NGRAPH_PACKAGE: graph %s, for %s, is compiled, for no file has it. %s", region.name, data,
                       ". ".join(reasons))
    return None


@functools.cache
def open_files(paths: str) -> list[_File]:
    """Open the files that can be read. A warning tells of each other file."""
    from ngraph_mxnet import _core

    found = []
    for path in filter(None, paths.split(os.pathsep)):
        try:
            artefact = _core.Artefact(path)
            meta = json.loads(artefact.metadata)
            found.append(_File(path, artefact, str(meta["precision"]), origins_of(meta)))
        except (OSError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            logger.warning("NGRAPH_PACKAGE: %s is not used, graphs are compiled: %s", path, error)
    return found


def _graph(file: _File, region: Region, compile: Callable[[], Any]) -> Any:
    """None if the file has not the graph."""
    from ngraph_mxnet import _core

    for number, origin in enumerate(file.origins[:len(file.artefact.shape_sets)]):
        if origin.graph != region.digest or len(origin.parameters) != len(region.order):
            continue
        told = list(zip(origin.parameters, region.order, strict=True))
        places = {one: place for one, place in told if isinstance(one, str)}
        weights = [(place, one) for one, place in told if isinstance(one, bytes)]
        names = [name for name, _, _ in file.artefact.shape_sets[number][0]]
        if places.keys() != set(names):
            continue  # it reads what no result depends on

        def compiled(differing: int) -> Any:
            logger.warning("NGRAPH_PACKAGE: graph %s is compiled, for its weights are not those that %s was made of: "
                           "%s differs", region.name, file.path, region.inputs[differing][0])
            return compile()

        inputs = [(element, shape) for _, element, shape, _ in region.inputs]
        return _core.PackagedGraph(file.artefact, number, [places[name] for name in names], weights, inputs,
                                   config.threads(), region.name, compiled)
    return None


def _shapes(inputs: list[tuple[str, str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name} {element}{list(shape)}" for name, element, shape in inputs)


_SMALL_NODES = 16


def is_small(symbol_json: str) -> bool:
    """True if a graph has so few nodes, variables included, that nothing takes long to find out of it.

    Counted in the text: a region that is on disk is loaded without its JSON being parsed. Graphs within nodes count.
    """
    return symbol_json.count('"op"') <= _SMALL_NODES


_ranges = {"region": Recent(256), "step": Recent(32)}
"""`RangePrograms` by kind, and by what tells graphs of this kind apart. C++ keeps the templates of regions."""
_verdicts = Recent(64)
_lock = ForkSafeLock()


def ranges_of(kind: str, key: Hashable, ranks: tuple[int, ...],
              names: Callable[[], Sequence[str]]) -> RangePrograms | None:
    """What is compiled for ranges of sizes of what `key` tells apart, with arrays of these ranks and names. None where
    NGRAPH_DYNAMIC is off, and while there is an audit."""
    if not are_wanted():
        return None
    axes = config.told_axes()
    told: Told = told_by_place(axes, [(name, (None,) * rank) for name, rank in zip(names(), ranks, strict=True)]) \
        if axes else {}
    with _lock:
        found: RangePrograms = _ranges[kind].get_or_make(
            (key, ranks, tuple(told)), lambda: RangePrograms(ChangingShapes(told, at_once=True).symbolic))
    return found


def add(subgraph_json: str, types: Sequence[TensorType], made: Attempt) -> None:
    """Put what became of a region with these types into the log that `report` reads."""
    symbol = parse_symbol(subgraph_json)
    names = [node.argument for node in symbol.arguments()]
    add_named(symbol.nodes[symbol.heads[0].node].name, dict(zip(names, types, strict=True)), made)


def add_named(name: str, types: Mapping[str, TensorType], made: Attempt) -> None:
    """Put what became of something called `name` into the log that `report` reads. `types`: those of its arrays, by
    their names."""
    inputs = [f"{argument}: {type_}" for argument, type_ in types.items() if type_.is_symbolic]
    _verdicts.put((name, tuple(inputs)), RangeVerdict.of(name, inputs, made))


def range_verdicts() -> list[RangeVerdict]:
    """On the latest regions whose shapes have changed, the oldest first."""
    return _verdicts.values()


def forget() -> None:
    """Forget all shapes and verdicts so far, for tests."""
    for table in (*_ranges.values(), _verdicts):
        table.clear()
