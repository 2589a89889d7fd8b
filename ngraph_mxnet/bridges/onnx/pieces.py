"""Nodes of a model as a model of their own, compiled for the kinds of values that it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import helper

from ngraph_mxnet.bridges.onnx.model import Model
from ngraph_mxnet.bridges.onnx.names import names_from_outside
from ngraph_mxnet.bridges.onnx.ports import ModelPort
from ngraph_mxnet.bridges.onnx.recomputed import Recomputed
from ngraph_mxnet.bridges.onnx.values import Between
from ngraph_mxnet.errors import ModelError, listed
from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.runtime.executable import Executable

Values = Mapping[str, Any]
"""Arrays, lists of arrays, and None for empty optionals, by name."""


class CompiledModel(Protocol):
    """What pieces ask of a `ModelExecutable`, which says what its methods do."""

    inputs: tuple[ModelPort, ...]

    def run_shared(self, arrays: Sequence[Any]) -> list[Any]: ...

    def result_types(self, arrays: Sequence[Any]) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]: ...

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

    def types(self, values: Values) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The dtypes and shapes of those outputs that are tensors, as far as they are known before a call."""
        found = {name: (values[name].dtype, values[name].shape) for name in self.outputs
                 if name not in self._wanted and isinstance(values.get(name), np.ndarray)}
        if self._wanted:
            arrays = _given(values, self.names)
            found.update(self.executable(arrays).result_types(arrays))
        return found

    def executable(self, arrays: Sequence[Any]) -> CompiledModel:
        """What runs values of these kinds and dtypes, in the order of `names`."""
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
        proto = onnx.ModelProto(ir_version=self._model.proto.ir_version, opset_import=self._model.proto.opset_import)
        outputs = [onnx.ValueInfoProto(name=name) for name in self._wanted]
        proto.graph.CopyFrom(helper.make_graph(self._nodes, self._model.name, infos, outputs, self._tensors))
        return Model(proto, self._model.opsets, self._model.folder)


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
