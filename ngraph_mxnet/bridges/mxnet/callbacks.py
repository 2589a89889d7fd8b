"""Callbacks of the C++ plugin. The plugin asks for the compiled region when an op is created and no compiled region
fits."""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.auditing.audit import active
from ngraph_mxnet.bridges.mxnet import regions
from ngraph_mxnet.bridges.mxnet.binding import interrupts
from ngraph_mxnet.bridges.mxnet.importer import lower_graph
from ngraph_mxnet.bridges.mxnet.judging.judgement import crossing_bool, pins_of
from ngraph_mxnet.bridges.mxnet.regions import (
    DATA,
    STRUCTURE,
    Region,
    backend_options,
    cached_for_range,
    cached_programs,
    chosen_backend,
    is_small,
)
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import mxnet_element, parse_symbol
from ngraph_mxnet.cache import cpu_features, place_for
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.forks import Recent
from ngraph_mxnet.ir import Graph, TensorType
from ngraph_mxnet.ir.sizes import described
from ngraph_mxnet.registry import build_of
from ngraph_mxnet.runtime.backend import get_backend, names_matter
from ngraph_mxnet.runtime.executable import Executable, NativeExecutable, input_ports, output_ports
from ngraph_mxnet.runtime.garbage import collector_paused
from ngraph_mxnet.runtime.ranges import Template, for_range, require_fixed_weights
from ngraph_mxnet.runtime.trace import span

logger = config.logger("ngraph_mxnet")

lowered = Recent(8)
"""A cache of what the latest partitionings lowered, by `region_key`. It serves the compilation that mostly follows."""


def region_key(structure: str, types: Sequence[TensorType], data: Sequence[int]) -> Any:
    """Return the key of a region: its structure, the types of its arguments, and the places of data. The sizes in the
    types are numbers. The types are plain tuples, because a table compares thousands of types with each other."""
    return structure, tuple((type_.element.name, type_.shape) for type_ in types), tuple(data)


@interrupts.told_apart
def compile_subgraph(subgraph_json: str, in_shapes: Sequence[Sequence[int]], in_types: Sequence[int],
                     attrs: Mapping[str, str]) -> Any:
    """The `_core.Executable` (or `_core.PythonExecutable`) of a region.

    Its inputs are the JSON's arguments, in order.

    Raises:
        NGraphError: the region can't be compiled for these shapes and types; MXNet shows the user the text.
    """
    from ngraph_mxnet import _core

    _core.limit_compile_cache(config.get("NGRAPH_SHAPES"))
    if active() is not None:
        _finish_before_exit()

    def compiled() -> Any:
        types = regions.types_of(subgraph_json, in_shapes, in_types, attrs)
        found = None if types is None else _for_range(subgraph_json, in_shapes, in_types, types, attrs)
        return found or _cached_or_compiled(subgraph_json, in_shapes, in_types, attrs)

    if regions.is_wanted():
        region = _region(subgraph_json, in_shapes, in_types, attrs)
        ours = regions.packaged(region, attrs, compiled)
        if ours is not None:
            found, precision = ours
            regions.remember(subgraph_json, attrs, precision)
            _finish_before_forks()  # with other weights it needs Python, to compile
            audit = active()
            if audit is not None:
                graph = region_graph(subgraph_json, in_shapes, in_types, attrs)
                audit.watch(graph, {}, chosen_backend(attrs)).attach(
                    NativeExecutable(input_ports(graph), output_ports(graph), found))
            return found
    return compiled()


def _region(subgraph_json: str, in_shapes: Sequence[Sequence[int]], in_types: Sequence[int],
            attrs: Mapping[str, str]) -> Region:
    place = place_for("region", repr((subgraph_json, sorted(attrs.items()), in_shapes, in_types)),
                      small=is_small(subgraph_json))
    content = place.get() if place is not None else None
    if content is not None:
        return Region.from_bytes(content)
    region = Region.of(region_graph(subgraph_json, in_shapes, in_types, attrs))
    if place is not None:
        place.put(region.to_bytes())
    return region


def _key(subgraph_json: str, shapes: Any, in_types: Sequence[int], attrs: Mapping[str, str]) -> str:
    """All that what is compiled depends on, beside this package."""
    backend = chosen_backend(attrs)
    named = hashlib.sha256(subgraph_json.encode()).hexdigest() if names_matter(backend) else ""
    build = build_of(backend, backend_options(attrs).get("devices", ""))
    return repr((backend, named, build, sorted(attrs.items()), shapes, in_types, cpu_features()))


def _cached_or_compiled(subgraph_json: str, in_shapes: Sequence[Sequence[int]], in_types: Sequence[int],
                        attrs: Mapping[str, str]) -> Any:
    backend, key = chosen_backend(attrs), _key(subgraph_json, in_shapes, in_types, attrs)
    programs = cached_programs(key, lambda: ({}, [_compile(subgraph_json, in_shapes, in_types, backend, attrs)]),
                               small=is_small(subgraph_json))[1]
    regions.remember(subgraph_json, attrs, regions.told_of(programs[0]))
    return _native(programs[0])


def _for_range(subgraph_json: str, in_shapes: Sequence[Sequence[int]], in_types: Sequence[int],
               types: regions.Types, attrs: Mapping[str, str]) -> tuple[Any, Any] | None:
    """Compile a region for a range of shapes. Return the program for these shapes and the template for all that are
    alike, or None where that is impossible."""
    backend = get_backend(chosen_backend(attrs))

    def template() -> Template | None:
        graph = _lowered(subgraph_json, types.types, attrs)
        require_fixed_weights(graph)
        return backend.template(graph, backend_options(attrs))

    shapes = described({str(place): type_.shape for place, type_ in enumerate(types.types)})
    key = _key(subgraph_json, shapes, in_types, attrs)
    cached = partial(cached_for_range, key, types.hint, template, small=is_small(subgraph_json))
    made, found = for_range(types.hint, cached, lambda _: in_shapes, "a region", types.changing)
    regions.add(subgraph_json, types, made)
    if made.template is None or made.template.native is None or found is None:
        return None
    regions.remember(subgraph_json, attrs, regions.told_of(found))
    return _native(found), made.template.native


def _compile(subgraph_json: str, in_shapes: Sequence[Sequence[int]], in_types: Sequence[int], backend: str,
             attrs: Mapping[str, str]) -> Executable:
    from ngraph_mxnet.runtime.compile import compile as compile_graph

    with span("import", "compile"):
        graph = region_graph(subgraph_json, in_shapes, in_types, attrs)
    passed = backend_options(attrs)
    devices = get_backend(backend).devices
    if devices and "pins" not in passed:
        passed["pins"] = pins_of(parse_symbol(subgraph_json), devices)
    return compile_graph(graph, backend, **passed)


@collector_paused
def region_graph(subgraph_json: str, in_shapes: Sequence[Sequence[int]], in_types: Sequence[int],
                  attrs: Mapping[str, str]) -> Graph:
    """The region's IR: the review's, if it was for these types, else lowered anew."""
    types = [TensorType(mxnet_element(number), tuple(shape))
             for number, shape in zip(in_types, in_shapes, strict=True)]
    data = json.loads(attrs.get(DATA, "[]"))
    graph = lowered.take(region_key(attrs.get(STRUCTURE, "").partition(" ")[0], types, data))
    if graph is None:
        graph = _lowered(subgraph_json, types, attrs)
    return graph


def _lowered(subgraph_json: str, types: Sequence[TensorType], attrs: Mapping[str, str]) -> Graph:
    symbol = parse_symbol(subgraph_json)
    graph = lower_graph(symbol, types, name=symbol.nodes[symbol.heads[0].node].name,
                        data=json.loads(attrs.get(DATA, "[]")))
    unfit = crossing_bool(graph)
    if unfit is not None:
        raise UnsupportedError(unfit)  # now, in the caller's thread: MXNet's own error would come out of its worker
    return graph


def _native(executable: Executable) -> Any:
    from ngraph_mxnet import _core

    native = getattr(executable, "native", None)
    if native is not None and executable.watch is None:
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

    os.register_at_fork(before=_finish)


@functools.cache
def _finish_before_exit() -> None:
    """From now on all that was asked of MXNet runs before an audit ends with the process."""
    atexit.register(_finish)


def _finish() -> None:
    from mxnet import nd

    nd.waitall()
