"""Points of an ONNX model that is compiled in parts, since shapes depend on data or loops are run: its own values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

from ngraph_mxnet.bridges.onnx.executable import ModelExecutable
from ngraph_mxnet.bridges.onnx.importer import import_model
from ngraph_mxnet.bridges.onnx.inputs import shape_of
from ngraph_mxnet.bridges.onnx.model import Model, names_from_outside
from ngraph_mxnet.bridges.onnx.pieces import type_for
from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.verifying.traced import Arrays, Point, Traced, marked_lines


class TracedModel(Traced):
    """The points of a model with its inputs; a point is a name that a node of the model's graph computes."""

    def __init__(self, model: Model, inputs: Mapping[str, Any], backend: str, options: Mapping[str, Any]) -> None:
        self._model, self._inputs, self._backend, self._options = model, inputs, backend, options
        self._makers = {name: node for node in model.proto.graph.node for name in node.output if name}
        points = {name: Point(name, f"onnx:{node.name or name} {node.op_type}", name)
                  for name, node in self._makers.items()}
        super().__init__(list(points.values()), [points.get(value.name) for value in model.proto.graph.output])

    def reads(self, value: Any) -> Iterable[str]:
        return names_from_outside([self._makers[value]]) if value in self._makers else ()

    def run(self, results: Sequence[Point], given: Arrays) -> list[Any]:
        model, values = self._part(results, given)
        compiled = ModelExecutable(model, self._backend, None, self._options)
        found = dict(zip((port.name for port in compiled.outputs), compiled(values), strict=True))
        return [found[point.name] for point in results]

    def parameters(self, point: Point, given: Collection[Point]) -> list[str]:
        nodes = self._nodes([point], {one.name for one in given})
        return [name for name in names_from_outside(nodes) if name not in self._makers]

    def text(self, point: Point, given: Arrays) -> str:
        """The IR, or the model's own nodes, where there is none before their data."""
        model, values = self._part([point], given)
        try:
            graph = import_model(model, {name: shape_of(value) for name, value in values.items()}, values).graph
            return marked_lines(graph, graph.nodes)
        except NGraphError:
            return "\n".join(f"> {onnx.printer.to_text(node)}" for node in model.proto.graph.node)

    def _part(self, results: Sequence[Point], given: Arrays) -> tuple[Model, dict[str, Any]]:
        """The part as a model, and values for its inputs."""
        names = {point.name for point in given}
        nodes = self._nodes(results, names)
        read = names_from_outside(nodes)
        values = {**self._inputs, **{point.name: array for point, array in given.items()}}
        inputs = {name: values[name] for name in read if name in values}
        proto = onnx.ModelProto(ir_version=self._model.proto.ir_version, opset_import=self._model.proto.opset_import)
        proto.graph.CopyFrom(helper.make_graph(
            nodes, self._model.name,
            [helper.make_value_info(name, type_for(value, like=True)) for name, value in inputs.items()],
            [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(point.name for point in results)],
            [tensor for tensor in self._model.proto.graph.initializer
             if tensor.name in read and tensor.name not in inputs]))
        return Model(proto, self._model.opsets, self._model.folder), inputs

    def _nodes(self, results: Sequence[Point], given: Collection[str]) -> list[onnx.NodeProto]:
        needed, stack = set[str](), [point.name for point in results]
        while stack:
            name = stack.pop()
            if name in self._makers and name not in needed and name not in given:
                needed.update(self._makers[name].output)
                stack.extend(self.reads(name))
        return [node for node in self._model.proto.graph.node if needed.intersection(node.output)]
