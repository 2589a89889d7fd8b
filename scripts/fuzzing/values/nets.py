"""Builds ONNX models node by node, and knows the type of each value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from fuzzing.values.closeness import Closeness
from fuzzing.values.drawing import Draw, chance, generator, pick
from fuzzing.values.setups import draw_setup
from fuzzing.values.trials import Feeds, Trial

Make = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
CONTRIB = "com.microsoft"
_IR = 10
_NEWEST = 21
"""What ONNX Runtime computes, too."""


@dataclass(frozen=True)
class Value:
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def whole(low: int, high: int, dtype: Any = np.float32) -> Make:
    """Whole numbers from `low` to `high`: sums of few products of them are exact in float32."""
    return lambda rng, shape: rng.integers(low, high + 1, shape).astype(dtype)


def scaled_weights(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Such that a product keeps its data's size."""
    return (rng.standard_normal(shape) / max(1.0, np.prod(shape[1:])) ** 0.5).astype(np.float32)


class Net:
    """A model in the making. Inputs and initialisers have elements at once; other calls get others."""

    def __init__(self, draw: Draw, opset: int | None = None) -> None:
        self.draw = draw
        self.rng = generator(draw)
        self.opset = opset if opset is not None else _NEWEST
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: dict[str, tuple[Value, Make, dict[int, str]]] = {}
        self._data: dict[str, onnx.TensorProto] = {}
        self._count = 0

    def name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def input(self, shape: Sequence[int], make: Make = normal, open_axes: dict[int, str] | None = None) -> Value:
        """An input of the model. `open_axes`: the axes whose sizes are symbols, with their names."""
        found = make(np.random.default_rng(0), (1,) * len(shape))
        value = Value(self.name("x"), tuple(shape), found.dtype)
        self.inputs[value.name] = value, make, open_axes or {}
        return value

    def constant(self, array: Any, dtype: Any = None) -> Value:
        """An initialiser."""
        array = np.asarray(array, dtype)
        value = Value(self.name("c"), array.shape, array.dtype)
        tensor = numpy_helper.from_array(array, value.name)
        self.initializers.append(tensor)
        self._data[value.name] = tensor
        return value

    def weight(self, shape: Sequence[int], make: Make = scaled_weights) -> Value:
        return self.constant(make(self.rng, tuple(shape)))

    def maybe_input(self, shape: Sequence[int], make: Make, one_in: int = 6) -> Value:
        """A weight; rarely an input, which every call brings."""
        return self.input(shape, make) if chance(self.draw, one_in) else self.weight(shape, make)

    def node(self, op: str, *inputs: Value | None, outputs: int = 1, domain: str = "", like: Sequence[Value] = (),
             **attrs: Any) -> Value:
        return self.several(op, *inputs, outputs=outputs, domain=domain, like=like, **attrs)[0]

    def several(self, op: str, *inputs: Value | None, outputs: int = 1, domain: str = "", like: Sequence[Value] = (),
                **attrs: Any) -> list[Value]:
        """The outputs of a new node. `like` has their types, where ONNX does not infer them."""
        names = [self.name("v") for _ in range(outputs)]
        node = helper.make_node(op, [value.name if value else "" for value in inputs], names, domain=domain,
                                **{name: value for name, value in attrs.items() if value is not None})
        if like:
            found = [replace(each, name=name) for each, name in zip(like, names, strict=True)]
        else:
            found = self._inferred(node, [value for value in inputs if value])
        self.nodes.append(node)
        return found

    def _inferred(self, node: onnx.NodeProto, inputs: Sequence[Value]) -> list[Value]:
        types = {value.name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                 for value in inputs}
        data = {name: self._data[name] for name in types if name in self._data}
        schema = onnx.defs.get_schema(node.op_type, self.opset, node.domain)
        made = shape_inference.infer_node_outputs(schema, node, types, data,
                                                  opset_imports=[helper.make_opsetid("", self.opset)])
        found = []
        for name in node.output:
            tensor = made[name].tensor_type
            shape = tuple(dim.dim_value for dim in tensor.shape.dim)
            found.append(Value(name, shape, helper.tensor_dtype_to_np_dtype(tensor.elem_type)))
        return found

    def model(self, outputs: Sequence[Value]) -> bytes:
        """The model with these outputs, without what none of them needs."""
        wanted, kept = {value.name for value in outputs}, []
        for node in reversed(self.nodes):
            if wanted.intersection(node.output):
                kept.append(node)
                wanted.update(_reads(node))
        infos = [helper.make_tensor_value_info(
            value.name, helper.np_dtype_to_tensor_dtype(value.dtype),
            [axes.get(axis, size) for axis, size in enumerate(value.shape)])
            for value, _, axes in self.inputs.values() if value.name in wanted]
        tensors = [tensor for tensor in self.initializers if tensor.name in wanted]
        graph = helper.make_graph(kept[::-1], "net", infos, [onnx.ValueInfoProto(name=value.name) for value in outputs],
                                  tensors)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(CONTRIB, 1),
                  helper.make_opsetid("ai.onnx.ml", 3)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR).SerializeToString()

    def feeds(self, sizes: dict[str, int] | None = None) -> Feeds:
        """Arrays for a call, with open sizes as told."""
        made = {}
        for name, (value, make, axes) in self.inputs.items():
            shape = [(sizes or {}).get(axes.get(axis, ""), size) for axis, size in enumerate(value.shape)]
            made[name] = make(self.rng, tuple(shape))
        return made

    def trial(self, outputs: Sequence[Value], closeness: Closeness, **environment: str) -> Trial:
        """With other elements at each call, and other sizes where they are open: the second one is odd. The setup has
        `environment`, too."""
        outputs = list(dict.fromkeys(outputs))
        symbols = {symbol: value.shape[axis] for value, _, axes in self.inputs.values()
                   for axis, symbol in axes.items()}
        model = self.model(outputs)
        calls = [self.feeds()]
        if symbols:
            for _ in range(pick(self.draw, 1, 1, 2, 3)):
                more = 2 * pick(self.draw, 0, 0, 1, 2, 5)
                calls.append(self.feeds({name: size + more + 1 - size % 2 for name, size in symbols.items()}))
                if chance(self.draw, 3):
                    calls.append(self.feeds({name: size + pick(self.draw, 1, 2, 3, 16)
                                             for name, size in symbols.items()}))
        elif chance(self.draw, 4):
            calls.append(self.feeds())
        proto = onnx.load_model_from_string(model)
        known = {given.name for given in proto.graph.input}
        calls = [{name: array for name, array in feeds.items() if name in known} for feeds in calls]
        setup = draw_setup(self.draw, open_sizes=bool(symbols))
        setup = replace(setup, environment={**setup.environment, **environment})
        return Trial("onnx", model, calls, setup, closeness, tuple(node.op_type for node in proto.graph.node))


def _reads(node: onnx.NodeProto) -> list[str]:
    """What a node reads, its subgraphs included."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            found += [name for inner in graph.node for name in _reads(inner)]
            found += [output.name for output in graph.output]
    return found
