"""Graphs lowered for a device, perhaps a smaller one, checked, and run on the functional simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from nnp_checks import check

from ngraph_mxnet.ir import Graph
from ngraph_mxnet.targets.nnp.device import load_device
from ngraph_mxnet.targets.nnp.hazards import order
from ngraph_mxnet.targets.nnp.lowering import Version, lower
from ngraph_mxnet.targets.nnp.places import Resources, convert_views, resources_of
from ngraph_mxnet.targets.nnp.program import Program
from ngraph_mxnet.targets.nnp.program import check as check_instruction
from ngraph_mxnet.targets.nnp.quantization import uniform

_FEW = 200
"""Instructions, beyond which the hazards' independent check takes long; `order` has tests of its own."""


def resources(device: str = "nnp-i-1100", /, **changes) -> Resources:
    """The device with, say, fewer `engines` or `local_bytes`."""
    made = load_device(device)
    found = resources_of(made, "f16" if "f16" in made.grids else "bf16")
    return replace(found, **changes)


def version(graph: Graph, on: Resources, instances: int = 1) -> Version:
    """The graph in the device's own element. Every instruction is one that the device has, and none begins too early;
    memories are as small as said."""
    graph = graph.clone()
    weights = frozenset(p for p in graph.parameters if p.is_weight)
    quantization = uniform(graph, {p: np.zeros(()) for p in weights}, on.element)
    convert_views(graph, quantization)
    found = lower(graph, weights, on, quantization, instances=instances)
    program = order(found.program)
    check_program(program, on)
    return Version(graph, weights, quantization, found)


def check_program(program: Program, on: Resources) -> None:
    device = load_device(program.device)
    for number, instruction in enumerate(program.instructions):
        check_instruction(instruction, device, number)
        for tile in (*instruction.reads, *instruction.writes):
            assert tile.buffer.end <= program.sizes[tile.memory]
    if len(program.instructions) <= _FEW:
        check(program)
    for engine in on.engines:
        assert program.sizes[on.local_memory(engine)] <= on.local_bytes
    assert all(program.sizes[name] <= size for name, size in on.shared)


def results(found: Version, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """What the simulated program gives for `arrays`, one for each parameter."""
    graph, store = found.graph, found.quantization.store
    contents = dict(zip(graph.parameters, arrays, strict=True))
    contents |= {node.output: node.attrs["value"] for node in graph.nodes if node.op.name == "constant"}
    inputs = [store(p, contents[p]) for p in graph.parameters]
    outputs = found.loaded(contents).run(inputs)
    return [found.quantization.load(value, output) for value, output in zip(graph.results, outputs, strict=True)]
