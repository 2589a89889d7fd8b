"""The backend that defines what a graph computes: it runs the ops' references one by one.

It is slow, and what other backends are tested against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import PackageError, UnsupportedError
from ngraph_mxnet.ir.graph import Graph, Node, last_reads
from ngraph_mxnet.ir.module import single_step
from ngraph_mxnet.program.backend import Backend
from ngraph_mxnet.program.executable import Executable, input_ports, output_ports
from ngraph_mxnet.program.package import Package, decode_module, encode_graph

_MAIN = "main"


class InterpreterBackend(Backend):
    """Has no options and runs every op that has a reference."""

    name = "INTERPRETER"

    def supports(self, node: Node) -> str | None:
        return None if node.op.has_reference else f"op {node.op.name} has no reference"

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> InterpreterExecutable:
        self.check_options(options)
        self.require_support(graph)
        graph.remove_dead()
        return InterpreterExecutable(graph, self.name)

    def load(self, package: Package) -> InterpreterExecutable:
        module = decode_module(package)
        graph = module.graphs[_MAIN]
        try:
            self.require_support(graph)
        except UnsupportedError as error:
            raise PackageError(f"package {package.name}: {error}") from error
        if module.flow != single_step(graph, _MAIN):
            raise PackageError(f"package {package.name}: its steps are not one call of a graph")
        return InterpreterExecutable(graph, self.name)


class GraphValues:
    """Runs a graph node by node; a value is dropped after its last reader. See `Executable.values`."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._dies_after = graph, last_reads(graph)

    def run(self, native: None, arrays: Sequence[np.ndarray],
            observe: Callable[[Node, int, np.ndarray], None] | None = None) -> list[np.ndarray]:
        values = dict(zip(self._graph.parameters, arrays, strict=True))
        for node in self._graph.nodes:
            results = node.op.evaluate([values[operand] for operand in node.inputs], node.attrs)
            values.update(zip(node.outputs, results, strict=True))
            if observe is not None and node.op.name != "constant":
                for index, result in enumerate(results):
                    observe(node, index, result)
            for value in self._dies_after.get(node, ()):
                del values[value]
        # A reference may return its operand or a view of it, so every result is copied.
        return [np.array(values[result], order="C") for result in self._graph.results]


class InterpreterExecutable(Executable):
    """Keeps the graph. `target` is the backend's name."""

    def __init__(self, graph: Graph, target: str = InterpreterBackend.name) -> None:
        super().__init__(input_ports(graph), output_ports(graph))
        self._graph, self._target = graph, target
        self.values: GraphValues = GraphValues(graph)

    def package(self) -> Package:
        flow = single_step(self._graph, _MAIN)
        return Package(self._target, self._graph.name, flow, {_MAIN: encode_graph(self._graph)})

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return self.values.run(None, arrays)
