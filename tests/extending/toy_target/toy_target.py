"""A toy target: it runs the references, in float32 at most, and is quick at the toy op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from toy_pass import toy_pass

from ngraph_mxnet.base.errors import PackageError
from ngraph_mxnet.ir.graph import Graph, Node
from ngraph_mxnet.ir.module import single_step
from ngraph_mxnet.passes.base import FixedPoint, Pass, PassManager
from ngraph_mxnet.passes.pipelines import simplifying
from ngraph_mxnet.program.backend import Backend, DeviceCosts
from ngraph_mxnet.program.executable import Executable, input_ports, output_ports
from ngraph_mxnet.program.package import Package, decode_module, encode_graph

STEP = "toy"


class ToyBackend(Backend):
    """See `Backend`."""

    name = "TOY"

    def supports(self, node: Node) -> str | None:
        if not node.op.has_reference and node.op.name != "constant":
            return f"op {node.op.name} has no reference"
        wide = any(value.type.element.name == "f64" for value in (*node.inputs, *node.outputs))
        return "the toy has no float64" if wide else None

    def pipeline(self) -> Sequence[Pass | FixedPoint]:
        return [*simplifying(), toy_pass()]

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        self.check_options(options)
        self.require_support(graph)
        PassManager(self.pipeline()).run(graph)
        return ToyExecutable(graph)

    def load(self, package: Package) -> Executable:
        module = decode_module(package)
        graph = module.graphs.get(STEP)
        if graph is None or module.flow != single_step(graph, STEP):
            raise PackageError(f"package {package.name}: its steps are not one call of a graph {STEP}")
        self.require_support(graph)
        return ToyExecutable(graph)

    def costs(self, graph: Graph, options: Mapping[str, Any]) -> DeviceCosts:
        return DeviceCosts(lambda node: 1e-9 if node.op.name == "image_to_tensor" else 1.0, 1e-9, lambda type_: 1e-9,
                           "made up")


class ToyExecutable(Executable):
    """Keeps the graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(input_ports(graph), output_ports(graph))
        self.graph = graph

    def package(self) -> Package:
        flow = single_step(self.graph, STEP)
        return Package(ToyBackend.name, self.graph.name, flow, {STEP: encode_graph(self.graph)})

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        values = dict(zip(self.graph.parameters, arrays, strict=True))
        for node in self.graph.nodes:
            results = node.op.evaluate([values[operand] for operand in node.inputs], node.attrs)
            values.update(zip(node.outputs, results, strict=True))
        return [np.array(values[result], order="C") for result in self.graph.results]
