"""NGRAPH_PACKAGE: regions that run what is in a compiled file.

A region is matched by its graph (`ir.fingerprint`: nodes, attributes, types and shapes, no names), and by the content
of its weights, which is looked at when they are used (`csrc/artefact/packaged_graph.h`). What does not match is
compiled, and a warning says why.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet import config
from ngraph_mxnet.auditing.audit import active
from ngraph_mxnet.bridges.mxnet.options import backend_options, chosen_backend
from ngraph_mxnet.cache import place_for
from ngraph_mxnet.errors import PackageError
from ngraph_mxnet.ir.graph import Graph, fingerprint
from ngraph_mxnet.package import Package
from ngraph_mxnet.package.artefact import Origin
from ngraph_mxnet.package.artefact_reader import origins_of
from ngraph_mxnet.package.pack import pack, unpack
from ngraph_mxnet.runtime.backend import load, load_template, unlike
from ngraph_mxnet.runtime.executable import Executable
from ngraph_mxnet.runtime.ranges import Template, cached_template
from ngraph_mxnet.runtime.trace import recorder, span

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


Made = tuple[dict[str, Any], list[Executable]]
"""Facts, which are plain data of JSON, and programs."""


def cached_programs(key: str, make: Callable[[], Made], *, small: bool) -> Made:
    """Return the result of `make`, made once for `key`. The key holds all that the result depends on.

    Args:
        small: making takes no time.
    """
    place = None if recorder() or active() else place_for("program", key, small=small)
    content = place.get() if place is not None else None
    if content is not None:
        try:
            with span("load", "compile"):
                found = unpack(content)
                return found["facts"], [load(Package.from_bytes(each.tobytes())) for each in found["programs"]]
        except Exception as error:  # whatever is in the folder, the model runs
            logger.warning("a cached program does not load, it is compiled anew: %r", error)
    facts, programs = make()
    if place is not None:
        place.put(_packed(facts, programs))
    return json.loads(json.dumps(facts)), programs


def cached_for_range(key: str, hint: Mapping[str, int], make: Callable[[], Template | None], *, small: bool,
                     decode: Callable[[bytes], Any] = Package.from_bytes,
                     load: Callable[[Any], Template] = load_template) -> Template | None:
    """The template that the cache has for `key` and these sizes, else what `make` gives, which goes to the cache.

    Args:
        key: holds all that it depends on, beside the sizes that it is compiled for.
        small: making takes no time.
        decode, load: as of `cached_template`.
    """
    return cached_template(lambda number: place_for("template", f"{key} {number}", small=small), hint, make,
                           lambda template: bytes(template.package().to_bytes()), decode, load)


def _packed(facts: dict[str, Any], programs: list[Executable]) -> bytes | None:
    try:
        packages = [np.frombuffer(program.package().to_bytes(), np.uint8) for program in programs]
        return b"".join(pack({"facts": facts, "programs": packages}))
    except PackageError as error:
        logger.info("not cached: %s", error)
        return None


_SMALL_NODES = 16


def is_small(symbol_json: str) -> bool:
    """True if a graph has so few nodes, variables included, that nothing takes long to find out of it.

    Counted in the text: a region that is on disk is loaded without its JSON being parsed. Graphs within nodes count.
    """
    return symbol_json.count('"op"') <= _SMALL_NODES
