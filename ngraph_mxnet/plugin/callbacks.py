"""Callbacks of the C++ plugin. The plugin asks for the compiled region when an op is created and no compiled region
fits."""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.base.forks import Recent, collector_paused
from ngraph_mxnet.frontends.mxnet.importer import lower_graph
from ngraph_mxnet.frontends.mxnet.judgement import crossing_bool, pins_of
from ngraph_mxnet.frontends.mxnet.symbol_json import mxnet_element, parse_symbol
from ngraph_mxnet.ir import Graph, TensorType
from ngraph_mxnet.ir.ranges import described
from ngraph_mxnet.ir.sizes import Binding
from ngraph_mxnet.plugin import regions
from ngraph_mxnet.plugin.binding import interrupts
from ngraph_mxnet.plugin.regions import (
    DATA,
    STRUCTURE,
    Region,
    backend_options,
    chosen_backend,
    is_small,
)
from ngraph_mxnet.program import program_cache
from ngraph_mxnet.program.audit import active
from ngraph_mxnet.program.backend import get_backend, names_matter
from ngraph_mxnet.program.cache import get_or_make
from ngraph_mxnet.program.executable import Executable, NativeExecutable, input_ports, output_ports
from ngraph_mxnet.program.program_cache import Made, program_key
from ngraph_mxnet.program.ranges import Shapes, Template, require_fixed_weights
from ngraph_mxnet.program.trace import span

logger = config.logger("ngraph_mxnet")

lowered = Recent(8)
"""A cache of what the latest partitionings lowered, by `region_key`. It serves the compilation that mostly follows."""


def region_key(structure: str, types: Sequence[TensorType], data: Sequence[int]) -> Any:
    """Return the key of a region: its structure, the types of its arguments, and the places of data. The sizes in the
    types are numbers. The types are plain tuples, because a table compares thousands of types with each other."""
    return structure, tuple((type_.element.name, type_.shape) for type_ in types), tuple(data)


@interrupts.told_apart
@collector_paused
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
        return (_for_range(subgraph_json, in_shapes, in_types, attrs)
                or _cached_or_compiled(subgraph_json, in_shapes, in_types, attrs))

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
    key = repr((subgraph_json, sorted(attrs.items()), in_shapes, in_types))
    return Region.from_bytes(get_or_make(
        "region", key, lambda: Region.of(region_graph(subgraph_json, in_shapes, in_types, attrs)).to_bytes(),
        small=is_small(subgraph_json), of_build=True))


def _key(subgraph_json: str, shapes: Any, in_types: Sequence[int], attrs: Mapping[str, str]) -> str:
    """The key of a region's programs. The structure among its attributes tells graphs apart, names of nodes beside."""
    backend = chosen_backend(attrs)
    by_text = names_matter(backend) or STRUCTURE not in attrs
    named = hashlib.sha256(subgraph_json.encode()).hexdigest() if by_text else ""
    return program_key(("region", named, sorted(attrs.items()), shapes, in_types), backend, backend_options(attrs))


def _cached_or_compiled(subgraph_json: str, in_shapes: Sequence[Sequence[int]], in_types: Sequence[int],
                        attrs: Mapping[str, str]) -> Any:
    made = program_cache.get_or_make(
        lambda: _key(subgraph_json, in_shapes, in_types, attrs),
        lambda: Made([_compile(subgraph_json, in_shapes, in_types, chosen_backend(attrs), attrs)]),
        small=is_small(subgraph_json))
    regions.remember(subgraph_json, attrs, regions.told_of(made.programs[0]))
    return _native(made.programs[0])


def _for_range(subgraph_json: str, in_shapes: Sequence[Sequence[int]], in_types: Sequence[int],
               attrs: Mapping[str, str]) -> tuple[Any, Any] | None:
    """Compile a region for a range of shapes. Return the program for these shapes and the template for all that are
    alike. Return None for the first shapes that the region comes with, and where that is impossible."""
    ranges = regions.ranges_of(
        "region", (attrs.get(STRUCTURE) or subgraph_json, tuple(in_types), tuple(sorted(attrs.items()))),
        tuple(map(len, in_shapes)), lambda: [node.argument for node in parse_symbol(subgraph_json).arguments()])
    if ranges is None:
        return None

    def types_of(shapes: Shapes) -> list[TensorType]:
        return [TensorType(mxnet_element(number), tuple(shape))
                for number, shape in zip(in_types, shapes, strict=True)]

    def compiled(shapes: Shapes) -> Made | None:
        graph = _lowered(subgraph_json, types_of(shapes), attrs)
        require_fixed_weights(graph)
        template = get_backend(chosen_backend(attrs)).template(graph, backend_options(attrs))
        return None if template is None else Made([template])

    def template(shapes: Shapes, hint: Binding) -> Template | None:
        told = described({str(place): shape for place, shape in enumerate(shapes)})
        made = program_cache.get_or_make(lambda: _key(subgraph_json, told, in_types, attrs), lambda: compiled(shapes),
                                         hint=hint, small=is_small(subgraph_json))
        found: Template | None = None if made is None else made.programs[0]
        return found

    found, bound = ranges.compile(tuple(map(tuple, in_shapes)), template, "a region",
                                  lambda made: regions.add(subgraph_json, types_of(made.shapes), made))
    if found is None or found.native is None:
        return None
    regions.remember(subgraph_json, attrs, regions.told_of(bound))
    return _native(bound), found.native


def _compile(subgraph_json: str, in_shapes: Sequence[Sequence[int]], in_types: Sequence[int], backend: str,
             attrs: Mapping[str, str]) -> Executable:
    from ngraph_mxnet.program.compile import compile_own

    with span("import", "compile"):
        graph = region_graph(subgraph_json, in_shapes, in_types, attrs)
    passed, chosen = backend_options(attrs), get_backend(backend)
    if chosen.devices and "pins" not in passed:
        passed["pins"] = pins_of(parse_symbol(subgraph_json), chosen.devices)
    chosen.check_options(passed)
    return compile_own(graph, chosen, passed)


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
