"""Runners of nodes between programs: Loop and Scan run by their bodies' programs, a function by those of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.base.forks import Recent
from ngraph_mxnet.frontends.onnx.inputs import dimensions
from ngraph_mxnet.frontends.onnx.model import (
    Model,
    domain_of,
    element_of,
    function_of,
    names_around,
    names_from_outside,
    naming,
    renamed,
    to_array,
    type_of,
)
from ngraph_mxnet.frontends.onnx.pieces import Make, Piece, Recomputed, Values, type_for
from ngraph_mxnet.frontends.onnx.rules.control_flow import scan_axes
from ngraph_mxnet.frontends.onnx.rules.registry import find_rule, normal_axis
from ngraph_mxnet.frontends.onnx.values import Attributes, Between, CutError, Direct, find_direct


class _Body:
    """A loop's subgraph: its program for what it is given, and what it says of its outputs."""

    def __init__(self, model: Model, body: onnx.GraphProto, given: int, recomputed: Recomputed, make: Make,
                 stable: Collection[str] | None) -> None:
        self.inputs = [value.name for value in body.input]
        if len(self.inputs) != given:
            raise ModelError(f"its subgraph has {len(self.inputs)} inputs, expected {given}")
        if body.sparse_initializer:
            raise UnsupportedError("sparse initialisers")
        self._outputs = list(body.output)
        around = names_around(body)
        kept = [name for name in around if stable is None or name in stable]
        self._piece = Piece(model, body.node, [value.name for value in self._outputs], recomputed, make,
                            inputs=self.inputs, initializers=body.initializer, stable=kept)

    def run(self, values: dict[str, Any], given: Sequence[Any], trip: int) -> list[Any]:
        """One trip. `values` are those around the body; they get its inputs, too."""
        values.update(zip(self.inputs, given, strict=True))
        with naming(f"trip {trip}"):
            return self._piece(values)

    def stacked(self, rows: list[np.ndarray], output: int, values: dict[str, Any], axis: int = 0) -> np.ndarray:
        """Stack the rows that the trips gave for a scan output along a new axis. Without trips, return an empty array
        of the shape that the body would give for `values`, as far as that shape is known. Else the shape is the
        declared one, with 0 where nothing is declared."""
        name = self._outputs[output].name
        for row in rows:
            if not isinstance(row, np.ndarray):
                raise ModelError(f"scan output {name!r} of its subgraph is a sequence or optional, expected a tensor")
            if row.shape != rows[0].shape or row.dtype != rows[0].dtype:
                raise ModelError(f"scan output {name!r} of its subgraph: found {row.dtype}{list(row.shape)} after "
                                 f"{rows[0].dtype}{list(rows[0].shape)}, expected one type in all trips")
        if rows:
            return np.stack(rows, normal_axis(axis, rows[0].ndim + 1))
        dtype, shape = self._type(output, values)
        place = normal_axis(axis, len(shape) + 1)
        return np.empty((*shape[:place], 0, *shape[place:]), dtype)

    def _type(self, output: int, values: dict[str, Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
        name = self._outputs[output].name
        found = self._piece.types(values).get(name)
        if found is not None:
            return found
        _, tensor = type_of(self._outputs[output])
        if tensor is None or not tensor.elem_type:
            raise UnsupportedError(f"no trip, and its subgraph does not say the type of its output {name!r}")
        dims = dimensions(tensor) or ()
        return element_of(tensor.elem_type).numpy, tuple(dim if isinstance(dim, int) else 0 for dim in dims)


class LoopRunner:
    """Runs a Loop.

    Raises:
        ModelError, UnsupportedError: its body does not fit it.
    """

    def __init__(self, model: Model, node: onnx.NodeProto, recomputed: Recomputed, make: Make,
                 stable: Collection[str] | None) -> None:
        attrs = Attributes(node)
        body = attrs.graph("body")
        attrs.require_all_read()
        self._trips, self._going, *self._state = [*node.input, "", ""][: max(2, len(node.input))]
        _require_names(self._state, 2)
        self._body = _Body(model, body, 2 + len(self._state), recomputed, make, stable)
        self._rows = range(1 + len(self._state), len(body.output))
        if len(body.output) < 1 + len(self._state):
            raise ModelError(f"its subgraph has {len(body.output)} outputs, expected {1 + len(self._state)} or more")
        self._shapes = [_declared_shape(value) for value in body.input[:2]]

    def __call__(self, values: Values) -> list[Any]:
        trips = None if not self._trips else int(_one(values[self._trips], "the trip count"))
        going = not self._going or bool(_one(values[self._going], "the condition"))
        state = [values[name] for name in self._state]
        rows: list[list[Any]] = [[] for _ in self._rows]
        local, trip, holds = dict(values), 0, np.full(self._shapes[1], True)
        while going and (trips is None or trip < trips):
            number = np.array(trip if not self._shapes[0] else [trip], np.int64)
            going_on, *results = self._body.run(local, [number, holds, *state], trip)
            going, state, trip = bool(_one(going_on, "the condition")), results[: len(state)], trip + 1
            for row, result in zip(rows, results[len(state) :], strict=True):
                row.append(result)
        if not trip:
            local.update(zip(self._body.inputs, [np.zeros(self._shapes[0], np.int64), holds, *state], strict=True))
        return [*state, *(self._body.stacked(row, output, local)
                          for row, output in zip(rows, self._rows, strict=True))]


def _require_names(names: Sequence[str], first: int) -> None:
    """Raises ModelError where one is left out. `first`: which input the first one is."""
    if "" in names:
        raise ModelError(f"input {first + names.index('')} is missing")


def _one(value: Any, what: str) -> Any:
    """The element of what must have one."""
    if not isinstance(value, np.ndarray) or value.size != 1:
        found = f"shape {value.shape}" if isinstance(value, np.ndarray) else "a sequence or optional"
        raise ModelError(f"{what}: found {found}, expected one element")
    return value.reshape(())[()]


def _declared_shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """How the body takes the number of the trip, or the condition: as a scalar, or as one element of rank 1."""
    _, tensor = type_of(value)
    return (1,) if tensor is not None and len(dimensions(tensor) or ()) == 1 else ()


def _tensor(value: Any, name: str) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise ModelError(f"input {name!r} is a sequence or optional, expected a tensor")
    return value


class ScanRunner:
    """Runs a Scan; in opset 8 once for each element of the batch.

    Raises:
        ModelError, UnsupportedError: its body or attributes do not fit it.
    """

    def __init__(self, model: Model, node: onnx.NodeProto, recomputed: Recomputed, make: Make,
                 stable: Collection[str] | None) -> None:
        attrs, opset = Attributes(node), model.opsets[""]
        body, scanned = attrs.graph("body"), attrs.int("num_scan_inputs")
        names = list(node.input)
        self._lengths = names.pop(0) if opset < 9 else ""
        _require_names(names, len(node.input) - len(names))
        if not 0 < scanned <= len(names):
            raise ModelError(f"num_scan_inputs={scanned} of {len(names)} inputs")
        self._state, self._scanned = names[: len(names) - scanned], names[len(names) - scanned :]
        self._outputs = range(len(self._state), len(body.output))
        if len(body.output) < len(self._state):
            raise ModelError(f"its subgraph has {len(body.output)} outputs, expected {len(self._state)} or more")
        self._axes = scan_axes(attrs, scanned, len(self._outputs), opset)
        attrs.require_all_read()
        self._body = _Body(model, body, len(names), recomputed, make, stable)

    def __call__(self, values: Values) -> list[Any]:
        state, scanned = ([_tensor(values[name], name) for name in names] for names in (self._state, self._scanned))
        return self._batch(values, state, scanned) if self._axes.is_batched else self._run(values, state, scanned)

    def _run(self, values: Values, state: list[Any], scanned: list[np.ndarray]) -> list[Any]:
        axes = self._axes
        sides = [normal_axis(axis, value.ndim) for axis, value in zip(axes.in_axes, scanned, strict=True)]
        # A copy: what a trip passes on is not the caller's.
        moved = [np.moveaxis(value, side, 0).copy(order="C") for value, side in zip(scanned, sides, strict=True)]
        lengths = {len(value) for value in moved}
        if len(lengths) > 1:
            raise ModelError(f"the scanned inputs have {sorted(lengths)} places, expected the same number")
        trips, local = lengths.pop(), dict(values)
        rows: list[list[Any]] = [[] for _ in self._outputs]
        for trip in range(trips):
            places = [trips - 1 - trip if back else trip for back in axes.in_back]
            slices = [value[place, ...] for value, place in zip(moved, places, strict=True)]
            results = self._body.run(local, [*state, *slices], trip)
            state = results[: len(state)]
            for row, result in zip(rows, results[len(state) :], strict=True):
                row.append(result)
        if not trips:
            slices = [np.zeros(value.shape[1:], value.dtype) for value in moved]
            local.update(zip(self._body.inputs, [*state, *slices], strict=True))
        ordered = [row[::-1] if back else row for row, back in zip(rows, axes.out_back, strict=True)]
        return [*state, *(self._body.stacked(row, output, local, axis)
                          for row, output, axis in zip(ordered, self._outputs, axes.out_axes, strict=True))]

    def _batch(self, values: Values, state: list[Any], scanned: list[np.ndarray]) -> list[Any]:
        """Each element by itself; what a shorter sequence leaves of the scan outputs is 0."""
        batch, most = (*scanned[0].shape, 0, 0)[:2]
        if any(value.shape[:2] != (batch, most) for value in scanned) or not batch:
            raise ModelError(f"scanned inputs of shapes {[value.shape for value in scanned]}, expected the same batch "
                             "and length")
        lengths = _tensor(values[self._lengths], self._lengths).reshape(-1) if self._lengths else np.full(batch, most)
        if len(lengths) != batch or (lengths < 0).any() or (lengths > most).any():
            raise ModelError(f"sequence_lens={lengths.tolist()}: expected {batch} numbers from 0 to {most}")
        elements = [self._run(values, [value[i, ...].copy() for value in state],
                              [value[i, :length] for value in scanned]) for i, length in enumerate(lengths)]
        for results in elements:
            for output in range(len(state), len(results)):
                row = results[output]
                results[output] = np.pad(row, [(0, most - len(row)), *[(0, 0)] * (row.ndim - 1)])
        return [np.stack(parts) for parts in zip(*elements, strict=True)]


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
    with naming(where):
        runner = _plain_runner(model, node, recomputed, make, reference, stable)
    held = {name: tensor for name in node.input if (tensor := recomputed.tensor(name)) is not None}
    others = [name for name in node.input if name in recomputed and name not in held]
    sizes, fixed = (Piece(model, [], [name for name in others if recomputed.is_size(name) == is_size], recomputed,
                          reference) for is_size in (True, False))
    arrays = {name: to_array(tensor, model.folder) for name, tensor in held.items()}
    return _NamedRunner(where, runner, node.output, arrays, fixed, sizes)


def _plain_runner(model: Model, node: onnx.NodeProto, recomputed: Recomputed, make: Make, reference: Make,
                stable: Stable) -> Runner:
    domain = domain_of(node)
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
        with naming(self._where):
            if not self._is_complete:
                fixed = dict(zip(self._fixed.outputs, map(_kept, self._fixed({})), strict=True))
                self._held, self._is_complete = {**self._held, **fixed}, True  # another thread may read it
            sizes = zip(self._sizes.outputs, self._sizes(values), strict=True)
            results = self._runner({**values, **self._held, **dict(sizes)})
            if any(self._outputs[len(results) :]):
                raise UnsupportedError(f"output {len(results)} is read, which is not computed")
            return results


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
        made = self._pieces.get_or_make(key, lambda: self._made(types))
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
    return model.part(nodes, infos, outputs, held)
