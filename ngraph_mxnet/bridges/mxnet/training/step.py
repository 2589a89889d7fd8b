"""Forward and backward of a whole symbol, compiled, on an executor's arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.ndarray import NDArray

from ngraph_mxnet.autodiff import differentiate, split
from ngraph_mxnet.autodiff.reverse import HEAD
from ngraph_mxnet.bridges.mxnet.importer import own_results
from ngraph_mxnet.bridges.mxnet.training.dropping import STATE
from ngraph_mxnet.bridges.mxnet.training.graph import import_training
from ngraph_mxnet.bridges.mxnet.training.seeds import seeds
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, TensorType, element_type
from ngraph_mxnet.ir.roles import Role
from ngraph_mxnet.runtime.backend import canonical_name
from ngraph_mxnet.runtime.compile import compile as compile_graph

Arrays = Mapping[str, NDArray]
_BACKEND = canonical_name("CPU")
_BLOCKS = 16
"""Channels that lie together in the CPU's layout of images."""


class TrainingStep:
    """What runs in the place of MXNet's forward and backward; both return at once, as MXNet's.

    Attributes:
        outputs: the symbol's, written by each forward.
        saved_bytes: what is kept from forward to backward.

    Args:
        text: the symbol's JSON.
        arrays: of its arguments and states, by name, which are read, and of the states written.
        gradients: those that are wanted, by the arguments' names, to be written.
        added: names of gradients that are added to what is there.
        apart: names of arrays that the backward pass must not touch, for others may have asked to write them by then:
            of those, what it needs is copied by the forward one, which then writes the moving statistics, too.

    Raises:
        UnsupportedError: it can't be trained as a whole, or not on these arrays; the text says why.
    """

    def __init__(self, text: str, arrays: Arrays, gradients: Arrays, added: Sequence[str] = (), *,
                 apart: Sequence[str] = ()) -> None:
        types = {name: TensorType(element_type(np.dtype(array.dtype)), array.shape) for name, array in arrays.items()}
        for name, array in gradients.items():
            if not types[name].element.is_float or array.dtype != arrays[name].dtype:
                raise UnsupportedError(f"the gradient of {name} is {array.dtype}, of an array of {types[name]}")
        training = import_training(text, types)
        outputs = training.graph.results[:training.outputs]
        heads = [number for number, value in enumerate(outputs) if value.type.element.is_float]
        early = training.outputs + (len(training.updated) if apart else 0)
        halves = split(differentiate(training.graph, list(gradients), heads), early, blocks=_BLOCKS)
        self.saved_bytes = halves.saved_bytes
        self._device = next(iter(arrays.values())).context
        self.outputs = [_new(value.type) for value in outputs]
        read = {parameter.name for parameter in halves.backward.parameters}
        self._heads = {number: _new(outputs[number].type) for number in heads if f"{HEAD}{number}" in read}
        saved = {p.name: _new(p.type) for p in halves.backward.parameters if p.name in halves.saved}
        self._state: NDArray | None = None
        """What random numbers follow from, if there are any."""
        if any(p.name == STATE for p in halves.forward.parameters):
            self._state = mx.nd.empty((4,), dtype=np.int32)
            arrays = {**arrays, STATE: self._state}
        known = {**arrays, **saved, **{f"{HEAD}{number}": array for number, array in self._heads.items()}}
        # MXNet writes moving statistics in the backward pass, too.
        self._copies = [(_new(types[name]), arrays[name]) for name in training.updated]
        self._sums = [(_new(types[name]), gradients[name]) for name in added]
        sums = dict(zip(added, (source for source, _ in self._sums), strict=True))
        states = [source for source, _ in self._copies]
        self._early = bool(apart)
        self._forward = _bound(halves.forward, known, [*self.outputs, *(states if apart else ()),
                                                       *(saved[name] for name in halves.saved)])
        kept = {name: _new(types[name]) for name in sorted(read & set(apart))}
        self._kept = [(arrays[name], array) for name, array in kept.items()]
        self._backward = _bound(halves.backward, {**known, **kept}, [
            *(() if apart else states), *(sums.get(name, array) for name, array in gradients.items())])

    def forward(self) -> bool:
        """False: nothing was done."""
        if self._state is not None:
            drawn = seeds.next((self._device.device_typeid, self._device.device_id))
            _set(self._state, np.array(drawn, np.int64).view(np.int32))
        if not self._forward.run():
            return False
        with autograd.pause():
            for source, target in (*self._kept, *(self._copies if self._early else ())):
                source.copyto(target)
        return True

    def backward(self, heads: Sequence[NDArray] | None) -> bool:
        """After a forward. False: nothing was done.

        Args:
            heads: the gradients of the outputs; loss layers need none.

        Raises:
            MXNetError: one is missing.
        """
        if heads is None and self._heads:
            raise MXNetError(f"Because output {min(self._heads)} is not made by a loss function, head_gradient is "
                             "required in calling backward: pass out_grads")
        with autograd.pause():
            for number, array in self._heads.items():
                assert heads is not None
                heads[number].copyto(array)
            if not self._backward.run():
                return False
            for source, target in () if self._early else self._copies:
                source.copyto(target)
            for source, target in self._sums:
                target += source
        return True


def _set(target: NDArray, numbers: np.ndarray) -> None:
    """By an array of its own: what is under way may still read the target, and is not awaited."""
    from ngraph_mxnet import _core

    with autograd.pause():
        source = mx.nd.array(numbers, dtype=numbers.dtype)
        if not _core.copy_now(source.handle.value, target.handle.value):
            source.copyto(target)


def _new(type_: TensorType) -> NDArray:
    array: NDArray = mx.nd.empty(type_.shape or (1,), dtype=type_.element.numpy)
    return array


def _bound(graph: Graph, arrays: Arrays, outputs: Sequence[NDArray]) -> Any:
    from ngraph_mxnet import _core

    for parameter in graph.parameters:
        parameter.role = Role.INPUT  # weights change with every step: nothing is derived from them in advance
    graph.results = own_results(Builder(graph), graph.results)
    native: Any = compile_graph(graph, _BACKEND)
    bound = _core.BoundGraph(native.native, [arrays[p.name].handle.value for p in graph.parameters],
                             [array.handle.value for array in outputs])
    if not bound.possible:
        raise UnsupportedError("an array is none of MXNet's plain ones, or shares its memory with another")
    return bound
