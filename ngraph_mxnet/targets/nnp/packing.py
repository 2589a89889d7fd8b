"""Conversion of a compilation's settings and versions to plain data, as parts of a package, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ngraph_mxnet.errors import NGraphError, PackageError
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.package import decode_graph, encode_graph
from ngraph_mxnet.package.pack import count, text
from ngraph_mxnet.targets.nnp.device import load_device
from ngraph_mxnet.targets.nnp.isa.assembler import parse_program, print_program
from ngraph_mxnet.targets.nnp.isa.formats import FORMATS
from ngraph_mxnet.targets.nnp.lower.lowering import Lowered
from ngraph_mxnet.targets.nnp.lower.places import resources_of
from ngraph_mxnet.targets.nnp.quantization import Quantization
from ngraph_mxnet.targets.nnp.version import Arrays, Settings, Version

Result = TypeVar("Result")


def encode_settings(settings: Settings, samples: Sequence[Arrays]) -> dict[str, Any]:
    """Plain data (see `package.pack`), with these samples.

    Raises:
        PackageError: a number of the device, or of lowering, is not the usual one.
    """
    device, resources = settings.resources.device, settings.resources
    usual = resources_of(load_device(device.name), resources.element).with_engines(len(resources.engines))
    if usual.device.numbers != device.numbers or replace(resources, device=usual.device) != usual:
        raise PackageError(f"only what was compiled for {device.name} as it is can be kept, not with other numbers")
    return {"device": device.name, "element": resources.element, "engines": len(resources.engines),
            "instances": settings.instances, "narrow": settings.narrow, "devices": settings.devices,
            "samples": [list(sample) for sample in samples]}


def decode_settings(found: Any) -> Settings:
    """Return the settings that `encode_settings` encoded.

    Raises:
        PackageError: the data are something else, or there is no such device.
    """

    def settings() -> Settings:
        resources = resources_of(load_device(text(found["device"])), text(found["element"]))
        engines, samples = count(found["engines"]), tuple(tuple(sample) for sample in found["samples"])
        real = resources.element in resources.device.grids and FORMATS[resources.element].is_float
        if not real or not 1 <= engines <= len(resources.engines):
            raise ValueError(f"{resources.device.name} with {engines} engines and {resources.element}")
        if not all(isinstance(array, np.ndarray) for sample in samples for array in sample):
            raise TypeError("a sample is no list of arrays")
        return Settings(resources.with_engines(engines), count(found["instances"]), bool(found["narrow"]), samples,
                        count(found["devices"]))

    return _read("settings", settings)


def encode_version(version: Version) -> dict[str, Any]:
    """Plain data; the Program is text, in which what it holds before a call is empty."""
    values = {value: number for number, value in enumerate(version.graph.values())}
    nodes = {node: number for number, node in enumerate(version.graph.nodes)}
    stored, lowered = version.quantization, version.lowered
    empty = dict.fromkeys((*lowered.weights.values(), *lowered.scales.values()), b"")
    return {
        "graph": encode_graph(version.graph),
        "known": sorted(values[value] for value in version.weights),
        "elements": [stored.elements.get(value) for value in values],
        "scales": [(values[value], scale) for value, scale in stored.scales.items() if value in values],
        "channel_scales": [(values[value], scales) for value, scales in stored.weights.items() if value in values],
        "products": sorted(nodes[node] for node in stored.products if node in nodes),
        "program": print_program(replace(lowered.program, constants=empty)),
        "weights": [values[value] for value in lowered.weights],
        "sum_scales": [nodes[node] for node in lowered.scales],
    }


def decode_version(found: Any, main: Graph, settings: Settings) -> Version:
    """Return the version of the graph `main` that `encode_version` encoded.

    Raises:
        PackageError: the data are something else.
    """

    def version() -> Version:
        graph = decode_graph(found["graph"])
        ports = [[value.type for value in (*each.parameters, *each.results)] for each in (graph, main)]
        if ports[0] != ports[1]:
            raise ValueError("its inputs or results are not the graph's")
        values, nodes = list(graph.values()), graph.nodes
        quantization = Quantization(
            {value: element for value, element in zip(values, found["elements"], strict=True) if element is not None},
            {values[count(number)]: float(scale) for number, scale in found["scales"]},
            {values[count(number)]: _array(scales) for number, scales in found["channel_scales"]},
            {nodes[count(number)] for number in found["products"]},
        )
        program = parse_program(text(found["program"]))
        if program.device != settings.resources.device.name:
            raise ValueError(f"its program is for {program.device}")
        buffers = list(program.constants)
        program.constants = {}
        weights = [values[count(number)] for number in found["weights"]]
        scales = [nodes[count(number)] for number in found["sum_scales"]]
        if len(buffers) != len(weights) + len(scales):
            raise ValueError(f"its program has {len(buffers)} constants, expected {len(weights)} and {len(scales)}")
        lowered = Lowered(program, dict(zip(weights, buffers, strict=False)),
                          dict(zip(scales, buffers[len(weights):], strict=True)))
        return Version(graph, frozenset(values[count(number)] for number in found["known"]), quantization, lowered)

    return _read("version", version)


def _array(value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{value!r} is no array")
    return value


def _read(what: str, read: Callable[[], Result]) -> Result:
    try:
        return read()
    except PackageError:
        raise
    except (ArithmeticError, AttributeError, LookupError, NGraphError, TypeError, ValueError) as error:
        raise PackageError(f"these are no data of a {what} of the NNP: {error}") from error
