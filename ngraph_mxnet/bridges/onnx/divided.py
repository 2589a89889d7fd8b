"""A model that is divided at a node which is run between programs: what is before it, the node, what follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ngraph_mxnet.bridges.onnx.model import Model
from ngraph_mxnet.bridges.onnx.names import names_from_outside
from ngraph_mxnet.bridges.onnx.pieces import Make, Piece
from ngraph_mxnet.bridges.onnx.recomputed import Recomputed
from ngraph_mxnet.bridges.onnx.runners import Runner, runner_for
from ngraph_mxnet.bridges.onnx.values import Between, CutError
from ngraph_mxnet.errors import UnsupportedError


class DividedModel:
    """Called with values by name; gives the model's outputs, of which one may be a value that was given.

    between: of the model.
    make: compiles a model.
    reference: does so with the definitions of the operators, for what is run once for its elements.

    Raises:
        UnsupportedError, ModelError: the node can't be run; the text names it.
    """

    def __init__(self, model: Model, cut: CutError, between: Between, make: Make, reference: Make) -> None:
        nodes, graph = cut.nodes, model.proto.graph
        following = nodes[cut.position + cut.runs_node :]
        given = [value.name for value in model.inputs]
        self._outputs = [value.name for value in graph.output]
        recomputed = _recomputed(model, cut)
        first = first_part(model, cut)
        if first is None and not cut.runs_node:
            raise UnsupportedError(str(cut))  # what follows would be the same model again
        self.first = make(first, between) if first is not None else None
        self._passed = [value.name for value in first.proto.graph.output] if first is not None else []
        stable = None if between.varying is None else set(given) - between.varying
        self._runner: Runner | None = None
        self._made: list[str] = []
        if cut.runs_node:
            node = nodes[cut.position]
            self._runner = runner_for(model, node, recomputed, make, reference, stable)
            self._made = list(node.output)
        there = {*given, *self._passed, *self._made}
        missing = [name for name in self._outputs if name not in there]
        self._last = Piece(model, following, missing, recomputed, make, stable=stable) if missing else None

    def __call__(self, given: Mapping[str, Any]) -> list[Any]:
        """The outputs.

        Raises:
            UnsupportedError, ModelError: a part can't be compiled for these values; the text names the node.
        """
        values = dict(given)
        if self.first is not None:
            results = self.first.run_shared([values[port.name] for port in self.first.inputs])
            values.update(zip(self._passed, results, strict=True))
        if self._runner is not None:
            values.update(zip(self._made, self._runner(values), strict=False))
        if self._last is not None:
            values.update(zip(self._last.outputs, self._last(values), strict=True))
        return [values[name] for name in self._outputs]

    @staticmethod
    def owned(results: list[Any], given: Mapping[str, Any]) -> list[Any]:
        """The results, with copies of what is the caller's, a constant, or a result before."""
        seen: set[int] = set()
        for value in given.values():
            seen.update(map(id, value if isinstance(value, list) else [value]))

        def own(array: Any) -> Any:
            if array is None:
                return None
            if id(array) in seen or not array.flags.writeable or not array.flags.c_contiguous or array.base is not None:
                array = np.array(array, order="C")
            seen.add(id(array))
            return array

        return [[own(each) for each in value] if isinstance(value, list) else own(value) for value in results]


def _recomputed(model: Model, cut: CutError) -> Recomputed:
    return Recomputed([*model.proto.graph.initializer, *cut.initializers], cut.nodes[: cut.position])


def first_part(model: Model, cut: CutError) -> Model | None:
    """What is before the cut, called with what it reads of the model's inputs; it gives what is read behind the cut.
    None if that is only what the other parts compute themselves."""
    recomputed, nodes, behind = _recomputed(model, cut), cut.nodes[: cut.position], cut.nodes[cut.position :]
    made = {name for node in nodes for name in node.output if name and name not in recomputed}
    later = dict.fromkeys([*names_from_outside(behind), *(value.name for value in model.proto.graph.output)])
    makers, _ = recomputed.needed(later)
    outputs = [onnx.ValueInfoProto(name=name) for name in {**later, **names_from_outside(makers)} if name in made]
    if not outputs:
        return None
    read = names_from_outside(nodes)
    _, held = recomputed.needed(read)
    infos = [value for value in model.inputs if value.name in read]
    proto = onnx.ModelProto(ir_version=model.proto.ir_version, opset_import=model.proto.opset_import)
    proto.graph.CopyFrom(helper.make_graph(nodes, model.name, infos, outputs, held))
    return Model(proto, model.opsets, model.folder)
