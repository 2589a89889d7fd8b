"""Runners of nodes between programs: a loop runs by the programs of its body, a function by the programs of its
nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ngraph_mxnet.bridges.onnx.attributes import Attributes
from ngraph_mxnet.bridges.onnx.lists import Direct, find_direct
from ngraph_mxnet.bridges.onnx.loops import LoopRunner, ScanRunner
from ngraph_mxnet.bridges.onnx.model import Model, function_of, names_from_outside, renamed, to_array
from ngraph_mxnet.bridges.onnx.pieces import Make, Piece, Recomputed, Values, type_for
from ngraph_mxnet.bridges.onnx.rules.registry import find_rule
from ngraph_mxnet.bridges.onnx.values import Between, CutError
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.recent import Recent

Runner = Callable[[Mapping[str, Any]], Sequence[Any]]
"""Gives the node's outputs for the values around it by name."""
Stable = Collection[str] | None
"""Names whose elements a program may be for; None: all."""
MOST_FUNCTIONS = 16
"""Bodies of a function that are kept, one for each set of types."""


def runner_for(model: Model, node: onnx.NodeProto, recomputed: Recomputed, make: Make, reference: Make,
             stable: Stable) -> Runner:
    """Return the function that runs a node of the model.

    make, reference: compile models, the latter for elements of their inputs.

    Raises:
        UnsupportedError, ModelError: nothing can run the node; the text names the node.
    """
    where = f"node {node.name or next(filter(None, node.output), '?')} {node.op_type}"
    try:
        runner = _plain_runner(model, node, recomputed, make, reference, stable)
    except (ModelError, UnsupportedError) as error:
        raise type(error)(f"{where}: {error}") from None
    held = {name: tensor for name in node.input if (tensor := recomputed.tensor(name)) is not None}
    others = [name for name in node.input if name in recomputed and name not in held]
    sizes, fixed = (Piece(model, [], [name for name in others if recomputed.is_size(name) == is_size], recomputed,
                          reference) for is_size in (True, False))
    arrays = {name: to_array(tensor, model.folder) for name, tensor in held.items()}
    return _NamedRunner(where, runner, node.output, arrays, fixed, sizes)


def _plain_runner(model: Model, node: onnx.NodeProto, recomputed: Recomputed, make: Make, reference: Make,
                stable: Stable) -> Runner:
    domain = "" if node.domain == "ai.onnx" else node.domain
    if not domain and node.op_type == "Loop":
        return LoopRunner(model, node, recomputed, make, stable)
    if not domain and node.op_type == "Scan":
        return ScanRunner(model, node, recomputed, make, stable)
    direct = find_direct(node, domain, model.opsets[domain])
    if direct is not None:
        return _DirectRunner(node, direct)
    if find_rule(node.op_type, domain) is None:
        return _FunctionRunner(model, node, domain, recomputed, make, stable)
    return _ReferenceRunner(model, node, recomputed, reference)


class _NamedRunner:
    """A runner with what the node reads beside the values, and its name in what it raises.

    outputs: the node's, by name.
    held: arrays; `fixed` computes others, which are always the same, and `sizes` those that depend on shapes.
    """

    def __init__(self, where: str, runner: Runner, outputs: Sequence[str], held: dict[str, Any], fixed: Piece,
                 sizes: Piece) -> None:
        self._where, self._runner, self._outputs = where, runner, list(outputs)
        self._fixed, self._sizes = fixed, sizes
        self._held = {name: _kept(array) for name, array in held.items()}
        self._is_complete = False

    def __call__(self, values: Values) -> Sequence[Any]:
        try:
            if not self._is_complete:
                fixed = dict(zip(self._fixed.outputs, map(_kept, self._fixed({})), strict=True))
                self._held, self._is_complete = {**self._held, **fixed}, True  # another thread may read it
            sizes = zip(self._sizes.outputs, self._sizes(values), strict=True)
            results = self._runner({**values, **self._held, **dict(sizes)})
            if any(self._outputs[len(results) :]):
                raise UnsupportedError(f"output {len(results)} is read, which is not computed")
            return results
        except (ModelError, UnsupportedError) as error:
            raise type(error)(f"{self._where}: {error}") from None


def _kept(value: Any) -> Any:
    """Not to be written to, by whoever gets it as a result."""
    if isinstance(value, list):
        return [_kept(array) for array in value]
    if value is not None:
        value = value.view()
        value.flags.writeable = False
    return value


class _DirectRunner:
    def __init__(self, node: onnx.NodeProto, direct: Direct) -> None:
        self._node, self._direct = node, direct

    def __call__(self, values: Values) -> Sequence[Any]:
        given = [values[name] if name else None for name in self._node.input]
        try:
            return [self._direct(Attributes(self._node), given)]
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # a damaged file's doing
            raise ModelError(f"its inputs or attributes do not fit: {error}") from error


class _ReferenceRunner:
    """A node by the definition of what it lowers to, made for the elements at hand."""

    def __init__(self, model: Model, node: onnx.NodeProto, recomputed: Recomputed, reference: Make) -> None:
        self._names = list(node.output)
        self._piece = Piece(model, [node], list(filter(None, self._names)), recomputed, reference)

    def __call__(self, values: Values) -> Sequence[Any]:
        found = dict(zip(self._piece.outputs, self._piece(values), strict=True))
        return [found.get(name) for name in self._names]


class _FunctionRunner:
    """A node that ONNX defines as a function: its nodes as a model."""

    def __init__(self, model: Model, node: onnx.NodeProto, domain: str, recomputed: Recomputed, make: Make,
                 stable: Stable) -> None:
        self._model, self._node, self._domain, self._recomputed, self._make = model, node, domain, recomputed, make
        self._stable = None if stable is None else ()
        self._pieces = Recent(MOST_FUNCTIONS)

    def __call__(self, values: Values) -> Sequence[Any]:
        types = [type_for(values[name], like=True) if name else None for name in self._node.input]
        key = tuple(None if type_ is None else type_.SerializeToString(deterministic=True) for type_ in types)
        made = self._pieces.get(key)
        if made is None:
            made = self._made(types)
            self._pieces.put(key, made)
        inputs, piece = made
        given = {inner: values[name] for inner, name in zip(inputs, self._node.input, strict=False) if name}
        return piece({**values, **given})  # its subgraphs read what is around the node, too

    def _made(self, types: Sequence[onnx.TypeProto | None]) -> tuple[list[str], Piece]:
        opset = self._model.opsets[self._domain]
        function = function_of(self._node, self._domain, opset, types)
        if function is None:
            raise UnsupportedError(f"no rule for the operator {self._domain} {self._node.op_type}")
        there = {inner for inner, name in zip(function.input, self._node.input, strict=False) if name}
        nodes = renamed(function.nodes, {name: "" for name in function.input if name not in there})
        opsets = {**self._model.opsets, **function.opsets}
        proto = onnx.ModelProto(ir_version=self._model.proto.ir_version,
                                opset_import=[helper.make_opsetid(name, version) for name, version in opsets.items()])
        proto.graph.name = self._model.name
        outputs = function.output[: len(self._node.output)]
        return function.input, Piece(Model(proto, opsets, self._model.folder), nodes, outputs, self._recomputed,
                                     self._make, inputs=function.input, stable=self._stable)


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
    """Return the model before the cut; None if its outputs would be only values that the other parts compute
    themselves. Its inputs are those inputs of the whole model that it reads. Its outputs are the values that are read
    behind the cut."""
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
