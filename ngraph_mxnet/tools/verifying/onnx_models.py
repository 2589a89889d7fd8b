"""ONNX models that are verified: against ONNX Runtime, or the interpreter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from ngraph_mxnet.base.errors import ModelError, NGraphError, UnsupportedError
from ngraph_mxnet.frontends.onnx.executable import ModelExecutable, OnnxModel
from ngraph_mxnet.frontends.onnx.importer import Imported, import_model
from ngraph_mxnet.frontends.onnx.inputs import flat_arrays, input_ports, shape_of
from ngraph_mxnet.frontends.onnx.model import Model as ModelFile
from ngraph_mxnet.frontends.onnx.model import names_from_outside, read_model, to_array
from ngraph_mxnet.frontends.onnx.pieces import type_for
from ngraph_mxnet.frontends.onnx.reference import (
    import_for_inputs,
    runtime_results,
    runtime_version,
    with_all_outputs,
    with_weights_of,
)
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.program.feeds import fitting_inputs, named_shapes
from ngraph_mxnet.tools.verifying.models import (
    INTERPRETER,
    Given,
    Point,
    PointArrays,
    Runner,
    Traced,
    TracedGraph,
    Verified,
    drawn,
    marked_lines,
)


class TracedModel(Traced):
    """The points of a model with its inputs; a point is a name that a node of the model's graph computes."""

    def __init__(self, model: ModelFile, inputs: Mapping[str, Any], backend: str, options: Mapping[str, Any]) -> None:
        self._model, self._inputs, self._backend, self._options = model, inputs, backend, options
        self._makers = {name: node for node in model.proto.graph.node for name in node.output if name}
        points = {name: Point(name, f"onnx:{node.name or name} {node.op_type}", name)
                  for name, node in self._makers.items()}
        super().__init__(list(points.values()), [points.get(value.name) for value in model.proto.graph.output])

    def reads(self, value: Any) -> Iterable[str]:
        return names_from_outside([self._makers[value]]) if value in self._makers else ()

    def run(self, results: Sequence[Point], given: PointArrays) -> list[Any]:
        model, values = self._part(results, given)
        compiled = ModelExecutable(model, self._backend, None, self._options)
        found = dict(zip((port.name for port in compiled.outputs), compiled(values), strict=True))
        return [found[point.name] for point in results]

    def parameters(self, point: Point, given: Collection[Point]) -> list[str]:
        return [name for name in names_from_outside(self._nodes([point], given)) if name not in self._makers]

    def text(self, point: Point, given: PointArrays) -> str:
        """The IR, or the model's own nodes, where there is none before their data."""
        model, values = self._part([point], given)
        try:
            graph = import_model(model, {name: shape_of(value) for name, value in values.items()}, values).graph
            return marked_lines(graph, graph.nodes)
        except NGraphError:
            return "\n".join(f"> {onnx.printer.to_text(node)}" for node in model.proto.graph.node)

    def _part(self, results: Sequence[Point], given: PointArrays) -> tuple[ModelFile, dict[str, Any]]:
        """The part as a model, and values for its inputs."""
        nodes = self._nodes(results, given)
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
        return ModelFile(proto, self._model.opsets, self._model.folder), inputs

    def _nodes(self, results: Sequence[Point], given: Iterable[Point]) -> list[onnx.NodeProto]:
        way = self.way([point.value for point in results], given)
        return [node for node in self._model.proto.graph.node if way.intersection(node.output)]


class VerifiedOnnx(Verified):
    """A model, and its reference with the initialisers of another one if there is one."""

    framework = "onnxruntime"

    def __init__(self, model: OnnxModel, given: Given) -> None:
        """Raises:
            ModelError, UnsupportedError: a model can't be read; an input is missing, or one given belongs to none.
        """
        self._model, arrays, shapes = model.model, given.inputs, given.shapes
        other = None if given.reference_params is None else read_model(given.reference_params)
        self._reference = self._model if other is None else with_weights_of(self._model, other)
        self.draws = model.draws({**named_shapes(arrays), **shapes})
        self.inputs = fitting_inputs(input_ports(self._model, shapes), arrays, shapes, given.seed, self.draws)
        self.drawn = drawn(self.inputs, arrays)
        self.output_names = [value.name for value in self._model.proto.graph.output]

    def results(self, backend: str, options: Mapping[str, Any]) -> list[np.ndarray]:
        return ModelExecutable(self._model, backend, None, options)(self.inputs)

    def expected(self, against: str) -> list[np.ndarray]:
        if against == INTERPRETER:
            return ModelExecutable(self._reference, "INTERPRETER", None, {})(self.inputs)
        return runtime_results(self._reference, self.inputs, self.output_names)

    def traced(self, against: str, backend: str, options: Mapping[str, Any]) -> tuple[Traced, list[Any]]:
        try:
            graph = self._imported.graph
        except UnsupportedError:  # its shapes depend on data, or loops are run between programs
            found = TracedModel(self._model, self.inputs, backend, options)
            return found, self._expected_values(against, found)
        runner = self._runner(backend, options, self._imported)
        if against == INTERPRETER:
            whole = TracedGraph.everywhere(import_for_inputs(self._model, self.inputs).graph, runner)
            return whole, self._interpreted(whole)
        values = {value.name: value for value in graph.results}
        named = {name for node in self._model.proto.graph.node for name in node.output}
        outputs = [values.get(name) for name in self.output_names]
        known = TracedGraph(graph, [(name, values[name]) for name in values if name in named], outputs, runner)
        return known, self._expected_values(against, known)

    def _expected_values(self, against: str, traced: Traced) -> list[Any]:
        """Return the reference's values at points that have the names of the model's values."""
        names, every = [point.name for point in traced.points], with_all_outputs(self._reference)
        if against != INTERPRETER:
            return runtime_results(every, self.inputs, names)
        found = ModelExecutable(every, "INTERPRETER", None, {})
        values = dict(zip((port.name for port in found.outputs), found(self.inputs), strict=True))
        return [values[name] for name in names]

    def _interpreted(self, traced: TracedGraph) -> list[np.ndarray]:
        """Return the interpreter's values at points that are values of the graph."""
        imported = import_for_inputs(self._reference, self.inputs)
        if _ops(imported.graph) != _ops(traced.graph):
            raise ModelError("with the reference's weights the model has another graph, since numbers among them are "
                             "shapes, axes or conditions")
        runner = self._runner("INTERPRETER", {}, imported)
        reference = TracedGraph.everywhere(imported.graph, runner)
        return reference.run(reference.points, {})

    def _runner(self, backend: str, options: Mapping[str, Any], imported: Imported) -> Runner:
        return Runner(backend, options, {**imported.weights, **flat_arrays(self.inputs)}, frozenset(imported.weights))

    @cached_property
    def _imported(self) -> Imported:
        """With all values as results: it has the weights that any of them needs."""
        return import_for_inputs(with_all_outputs(self._model), self.inputs)

    @property
    def has_halves(self) -> bool:
        graph = self._model.proto.graph
        stored = {tensor.data_type for tensor in graph.initializer}
        stored.update(attribute.i for node in graph.node for attribute in node.attribute if attribute.name == "to")
        return TensorProto.FLOAT16 in stored or any(
            isinstance(array, np.ndarray) and array.dtype == np.float16 for array in self.inputs.values())

    def default_reference(self) -> str:
        return self.framework if runtime_version() is not None else INTERPRETER

    def reference_title(self, against: str) -> str:
        return super().reference_title(against) if against == INTERPRETER else f"ONNX Runtime {runtime_version()}"

    def differing_weights(self, names: Sequence[str]) -> list[str]:
        if self._reference is self._model:
            return []
        ours, theirs = ({tensor.name: to_array(tensor, model.folder) for tensor in model.proto.graph.initializer
                         if tensor.name in names} for model in (self._model, self._reference))
        return [name for name in ours if not np.array_equal(ours[name], theirs[name])]


def _ops(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]
