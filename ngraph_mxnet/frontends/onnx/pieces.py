"""The pieces of a divided model, and the values that a piece computes itself instead of being given."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ngraph_mxnet.base.errors import ModelError, UnsupportedError, listed
from ngraph_mxnet.base.forks import ForkSafeLock
from ngraph_mxnet.frontends.onnx.inputs import ModelPort
from ngraph_mxnet.frontends.onnx.model import Model, names_from_outside, subgraphs
from ngraph_mxnet.frontends.onnx.values import (
    FEW_ELEMENTS,
    Between,
    EmptyOptional,
    Item,
    Ragged,
    Statics,
    TensorSequence,
    parts_of,
)
from ngraph_mxnet.ir import Value
from ngraph_mxnet.ir.types import TensorType
from ngraph_mxnet.program.executable import Executable

_OF_SIZES = {"Add", "Cast", "Concat", "Div", "Gather", "Identity", "Mul", "Slice", "Squeeze", "Sub", "Unsqueeze"}
"""Operators that are cheap to compute again, of sizes."""


class Recomputed:
    """Initialisers of a model, those of its nodes that compute from nothing else, and those that compute with the sizes
    of values only: so each piece knows them when it is compiled, be it as symbols."""

    def __init__(self, initializers: Iterable[onnx.TensorProto], nodes: Iterable[onnx.NodeProto]) -> None:
        self._tensors = {tensor.name: tensor for tensor in initializers}
        self._makers: dict[str, onnx.NodeProto] = {}
        self._sizes: set[str] = set()
        for node in nodes:
            read = list(filter(None, node.input))
            is_fixed = all(name in self and name not in self._sizes for name in read)
            is_size = node.op_type in ("Shape", "Size") or (
                node.op_type in _OF_SIZES and all(name in self for name in read))
            if (is_fixed and not subgraphs(node)) or (is_size and not node.domain):
                self._makers.update(dict.fromkeys(filter(None, node.output), node))
                self._sizes.update(() if is_fixed else filter(None, node.output))

    def __contains__(self, name: str) -> bool:
        return name in self._tensors or name in self._makers

    def is_size(self, name: str) -> bool:
        """True if the value of this name depends on the sizes of values."""
        return name in self._sizes

    def tensor(self, name: str) -> onnx.TensorProto | None:
        """The initialiser of this name, if there is one."""
        return self._tensors.get(name)

    def needed(self, names: Iterable[str]) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        """The nodes, in order, and the initialisers that make these names, as far as they are here."""
        waiting, wanted = list(names), set[str]()
        while waiting:
            name = waiting.pop()
            if name in self and name not in wanted:
                wanted.add(name)
                waiting += self._makers[name].input if name in self._makers else ()
        makers = {id(node): node for name, node in self._makers.items() if name in wanted}
        return list(makers.values()), [tensor for name, tensor in self._tensors.items() if name in wanted]


Types = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
"""dtypes and shapes by name."""
Values = Mapping[str, Any]
"""Arrays, lists of arrays, and None for empty optionals, by name."""


class CompiledModel(Protocol):
    """The interface of `ModelExecutable` that pieces use; the methods are described there."""

    inputs: tuple[ModelPort, ...]

    def run_shared(self, arrays: Sequence[Any]) -> list[Any]: ...

    def result_types(self, arrays: Sequence[Any]) -> Types: ...

    def program(self, inputs: Mapping[str, Any]) -> Executable: ...


Make = Callable[[Model, Between], CompiledModel]


class Piece:
    """Nodes, called with values by name. Outputs that are given are passed on.

    model: whose piece it is; `initializers` are the piece's own, beside what is `recomputed`.
    inputs: names that stand for what it is given, in front of those from outside.
    stable: names whose elements a program may be for; None: all.

    Raises:
        ModelError: a name stands for two values.
    """

    def __init__(self, model: Model, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], recomputed: Recomputed,
                 make: Make, *, inputs: Sequence[str] = (), initializers: Sequence[onnx.TensorProto] = (),
                 stable: Iterable[str] | None = None) -> None:
        own = {tensor.name for tensor in initializers}
        computed = {name for node in nodes for name in node.output}
        read = names_from_outside(nodes, own)
        read.update(dict.fromkeys(name for name in outputs if name not in own and name not in computed
                                  and (name in recomputed and name not in inputs)))
        makers, held = recomputed.needed(name for name in read if name not in inputs)
        there = {*(name for node in makers for name in node.output), *(tensor.name for tensor in held)}
        around = {*names_from_outside(makers), *there}
        twice = around.intersection((*inputs, *own, *computed))
        if twice:
            raise ModelError(f"its subgraph calls other values {listed(sorted(twice))} than the graph around it does")
        read = {**names_from_outside(makers), **read}
        self.names = [name for name in read if name not in there]
        self.outputs = list(outputs)
        self._wanted = [name for name in dict.fromkeys(outputs) if name in computed or name in own or name in there]
        self._model, self._nodes, self._tensors = model, [*makers, *nodes], [*held, *initializers]
        kept = set(self.names if stable is None else stable)
        varying = None if stable is None else frozenset(name for name in self.names if name not in kept)
        self._between, self._make = Between(varying, lists=True), make
        self._made: dict[tuple[Any, ...], CompiledModel] = {}
        self._lock = ForkSafeLock()

    def __call__(self, values: Values) -> list[Any]:
        """The outputs, in order; one may be a value that was given.

        Raises:
            UnsupportedError, ModelError: it can't be compiled for these values; the text names the node.
        """
        if not self._wanted:
            return _given(values, self.outputs)
        arrays = _given(values, self.names)
        found = dict(zip(self._wanted, self.executable(arrays).run_shared(arrays), strict=True))
        return [found[name] if name in found else _given(values, [name])[0] for name in self.outputs]

    def types(self, values: Values) -> Types:
        """The dtypes and shapes of those outputs that are tensors, as far as they are known before a call."""
        found = {name: (values[name].dtype, values[name].shape) for name in self.outputs
                 if name not in self._wanted and isinstance(values.get(name), np.ndarray)}
        if self._wanted:
            arrays = _given(values, self.names)
            found.update(self.executable(arrays).result_types(arrays))
        return found

    def executable(self, arrays: Sequence[Any]) -> CompiledModel:
        """Return the executable for values of these kinds and dtypes, in the order of `names`."""
        key = tuple(map(_kind, arrays))
        made = self._made.get(key)
        if made is None:
            with self._lock:
                made = self._made.get(key)
                if made is None:
                    made = self._made[key] = self._make(self._model_for(arrays), self._between)
        return made

    def _model_for(self, arrays: Sequence[Any]) -> Model:
        infos = [helper.make_value_info(name, type_for(value)) for name, value in zip(self.names, arrays, strict=True)]
        outputs = [onnx.ValueInfoProto(name=name) for name in self._wanted]
        return self._model.part(self._nodes, infos, outputs, self._tensors)


def _given(values: Values, names: Sequence[str]) -> list[Any]:
    try:
        return [values[name] for name in names]
    except KeyError as error:  # a damaged file's doing
        raise ModelError(f"{error.args[0]!r} is read, which is no input, initialiser or output of a node") from None


def _kind(value: Any) -> Any:
    if isinstance(value, list):
        return ("sequence", value[0].dtype) if value else "sequence"
    return None if value is None else value.dtype


def type_for(value: Any, *, like: bool = False) -> onnx.TypeProto:
    """The type of a value, a tensor's of its shape if it is to be `like` it, and of any shape else. What holds no
    element to tell its type is of float32."""
    if value is None:
        return helper.make_optional_type_proto(helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None))
    if isinstance(value, list):
        element = type_for(value[0] if value else np.empty(0, np.float32))
        return helper.make_sequence_type_proto(element)
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape if like else None)


def rest_of(model: Model, nodes: Sequence[onnx.NodeProto], initializers: Iterable[onnx.TensorProto],
            scope: Mapping[str, Item | None], inputs: Container[str], statics: Statics) -> Model:
    """The model of `nodes`, its last ones. Its inputs are what they read of `scope`; what is constant there stays so.

    Args:
        initializers: those beside the model's.
        inputs: names of the model's own inputs.
    """
    whole = model.proto.graph
    read = {*names_from_outside(nodes), *(output.name for output in whole.output)}
    given = {value.name: value for value in model.inputs}
    held = [tensor for tensor in (*whole.initializer, *initializers) if tensor.name in read]
    names = {tensor.name for tensor in held}
    infos: list[onnx.ValueInfoProto] = []
    for name, item in scope.items():
        if name not in read or name in names or item is None:
            continue
        known = statics.find(item) if isinstance(item, Value) and name not in inputs else None
        if known is not None and known.size <= FEW_ELEMENTS:
            held.append(numpy_helper.from_array(np.asarray(known), name))
        else:
            infos.append(given[name] if name in inputs else helper.make_value_info(name, _type(name, item)))
    return model.part(nodes, infos, whole.output, held)


def tensor_type(type_: TensorType, shape: Iterable[int | None] | None = None) -> onnx.TypeProto:
    """`shape` in place of the type's own."""
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(type_.element.numpy),
                                         list(type_.shape if shape is None else shape))


def proto_type(item: Item) -> onnx.TypeProto:
    """The type of an item, its shape included; of a sequence that of its first element."""
    parts = parts_of(item)
    tensor = tensor_type(parts[0].type) if parts else onnx.TypeProto()
    return helper.make_sequence_type_proto(tensor) if isinstance(item, TensorSequence) else tensor


def _type(name: str, item: Item) -> onnx.TypeProto:
    if isinstance(item, Ragged):
        type_ = item.value.type
        return tensor_type(type_, [None if i == item.axis else size for i, size in enumerate(type_.shape)])
    if isinstance(item, TensorSequence) and item.items:
        first = item.items[0].type
        return helper.make_sequence_type_proto(tensor_type(first, [None] * first.rank))
    if isinstance(item, (EmptyOptional, TensorSequence)):
        raise UnsupportedError(f"{name!r}, which is empty, is read behind a node whose shapes depend on the data")
    return tensor_type(item.type)
