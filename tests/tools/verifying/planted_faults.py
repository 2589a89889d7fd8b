"""Models in which faults are planted: a weight that is changed, or a node that a backend computes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import mxnet as mx
import numpy as np
import onnx
from mxnet.gluon import nn
from onnx import TensorProto, helper, numpy_helper
from onnx_models import model, network, value

import ngraph_mxnet
from ngraph_mxnet.frontends.mxnet.model import random_weights
from ngraph_mxnet.ir.graph import Graph, make_node
from ngraph_mxnet.targets.cpu.backend import CPUBackend

BACKEND = "FAULTY"


class FaultyBackend(CPUBackend):
    """The CPU, but for one node: the results of the one of this origin and op, `at`, are scaled and shifted."""

    name = BACKEND
    options: ClassVar = {**CPUBackend.options, "at": "origin|op"}

    def check_options(self, options: Mapping[str, Any]) -> None:
        super().check_options({name: given for name, given in options.items() if name != "at"})

    def precision(self, options: Mapping[str, Any]) -> str:
        return super().precision({name: given for name, given in options.items() if name != "at"})

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Any:
        options = dict(options)
        _break(graph, options.pop("at"))
        return super().compile(graph, options)


def _break(graph: Graph, at: str) -> None:
    place = next((place for place, node in enumerate(graph.nodes) if f"{node.origin}|{node.op.name}" == at), None)
    if place is None:
        return  # a part of the model without it
    node = graph.nodes[place]
    element = node.output.type.element.numpy
    made = [make_node("constant", [], {"value": np.asarray(number, element)}) for number in (1.25, 0.5)]
    scaled = make_node("multiply", [node.output, made[0].output], {})
    shifted = make_node("add", [scaled.output, made[1].output], {})
    graph.replace({node.output: shifted.output})
    scaled.inputs[0] = node.output
    graph.nodes[place + 1 : place + 1] = [*made, scaled, shifted]


@dataclass(frozen=True)
class Subject:
    """A model, its weights by name, the origins of the nodes that read each, and origins and ops of nodes to break."""

    name: str
    model: Any
    weights: Mapping[str, np.ndarray]
    readers: Mapping[str, Sequence[str]]
    places: list[tuple[str, str]]
    shapes: Mapping[str, tuple[int, ...]]

    def with_weight(self, name: str, array: np.ndarray, **options: Any) -> Any:
        """Verified with another weight than the reference's."""
        if isinstance(self.model, onnx.ModelProto):
            changed = onnx.ModelProto()
            changed.CopyFrom(self.model)
            for tensor in changed.graph.initializer:
                if tensor.name == name:
                    tensor.CopyFrom(numpy_helper.from_array(array, name))
            return ngraph_mxnet.verify(changed, reference_params=self.model, shapes=self.shapes, **options)
        return ngraph_mxnet.verify(self.model, params={**self.weights, name: array}, reference_params=self.weights,
                                   shapes=self.shapes, **options)

    def with_fault(self, at: tuple[str, str], **options: Any) -> Any:
        """Verified on a backend that computes a node wrong."""
        params = {} if isinstance(self.model, onnx.ModelProto) else {"params": self.weights}
        return ngraph_mxnet.verify(self.model, shapes=self.shapes, backend=BACKEND, at="|".join(at), **params,
                                   **options)


def of_symbol(name: str, symbol: mx.sym.Symbol, **shapes: tuple[int, ...]) -> Subject:
    from ngraph_mxnet.frontends.mxnet.importer import import_symbol
    from ngraph_mxnet.frontends.mxnet.symbol_json import parse_symbol
    from ngraph_mxnet.plugin.inference import inferred_shapes

    weights = random_weights({key: shape for key, shape in inferred_shapes(symbol, shapes).items()
                              if key not in shapes})
    graph = import_symbol(symbol.tojson(), {**shapes, **{key: array.shape for key, array in weights.items()}})
    parsed = parse_symbol(symbol.tojson())
    readers = {key: [node.origin for node in parsed.operators()
                     if any(parsed.nodes[edge.node].name == key for edge in node.inputs)] for key in weights}
    return Subject(name, symbol, weights, readers, _places(graph), shapes)


def of_onnx(name: str, proto: onnx.ModelProto, **shapes: tuple[int, ...]) -> Subject:
    from ngraph_mxnet.frontends.onnx.importer import import_model
    from ngraph_mxnet.frontends.onnx.model import read_model

    imported = import_model(read_model(proto), shapes)
    readers = {key: [f"onnx:{node.name} {node.op_type}" for node in proto.graph.node if key in node.input]
               for key in imported.weights}
    return Subject(name, proto, imported.weights, readers, _places(imported.graph), shapes)


def _places(graph: Graph) -> list[tuple[str, str]]:
    """Of nodes that compute what a node of the framework's gives, in floats."""
    last = {node.origin: node for node in graph.nodes if node.inputs and node.origin}
    found = [(origin, node.op.name) for origin, node in last.items()
             if len(node.outputs) == 1 and node.output.type.element.is_float]
    every = [(node.origin, node.op.name) for node in graph.nodes]
    return [place for place in found if every.count(place) == 1]


# ---- the models ---------------------------------------------------------------------------------------------


def residual() -> Subject:
    net = nn.HybridSequential(prefix="")
    net.add(nn.Conv2D(8, 3, padding=1, prefix="stem_"), nn.BatchNorm(prefix="stem_bn_"), nn.Activation("relu"))
    x = net(mx.sym.var("data"))
    for number in range(3):
        with mx.name.Prefix(f"block{number}_"):
            y = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=8, name="a")
            y = mx.sym.Activation(mx.sym.BatchNorm(y, fix_gamma=False, name="bn"), act_type="relu", name="relu")
            y = mx.sym.Convolution(y, kernel=(1, 1), num_filter=8, name="b")
            x = mx.sym.elemwise_add(x, y, name="sum")
    x = mx.sym.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1), name="pool")
    return of_symbol("residual", mx.sym.FullyConnected(x, num_hidden=5, name="dense"), data=(2, 3, 10, 10))


def attention() -> Subject:
    """Two blocks of a transformer, over [batch, tokens, 16]."""
    x = mx.sym.var("data")
    for number in range(2):
        with mx.name.Prefix(f"block{number}_"):
            q, k, v = (mx.sym.FullyConnected(x, num_hidden=16, flatten=False, name=name) for name in "qkv")
            weights = mx.sym.softmax(mx.sym.batch_dot(q * 0.25, k, transpose_b=True, name="scores"), name="softmax")
            x = mx.sym.LayerNorm(x + mx.sym.batch_dot(weights, v, name="mixed"), name="norm")
            y = mx.sym.LeakyReLU(mx.sym.FullyConnected(x, num_hidden=32, flatten=False, name="wide"),
                                 act_type="gelu", name="gelu")
            x = x + mx.sym.FullyConnected(y, num_hidden=16, flatten=False, name="narrow")
    return of_symbol("attention", x, data=(2, 6, 16))


def recurrent() -> Subject:
    cells = mx.rnn.SequentialRNNCell()
    for number in range(2):
        cells.add(mx.rnn.LSTMCell(12, prefix=f"lstm{number}_"))
    outputs, _ = cells.unroll(3, mx.sym.var("data"), layout="NTC", merge_outputs=True,
                              begin_state=[mx.sym.var(f"state{number}") for number in range(4)])
    states = {f"state{number}": (2, 12) for number in range(4)}
    return of_symbol("recurrent", mx.sym.FullyConnected(outputs, num_hidden=4, name="dense"), data=(2, 3, 7), **states)


def partitioned() -> Subject:
    """MXNet runs an operator in its midst, and ours those around it."""
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=16, name="first")
    x = mx.sym.reshape(mx.sym.Activation(x, act_type="tanh", name="tanh"), shape=(1, 1, 8, 8), name="image")
    x = mx.sym.Correlation(x, mx.sym.sin(x, name="sin"), kernel_size=1, max_displacement=1, stride1=1, stride2=1,
                           pad_size=1, name="correlation")
    x = mx.sym.FullyConnected(mx.sym.sigmoid(x * 4, name="sigmoid"), num_hidden=5, name="second")
    symbol = mx.sym.softmax(x, name="softmax")
    weights = random_weights({"first_weight": (16, 3), "first_bias": (16,), "second_weight": (5, 576),
                              "second_bias": (5,)})
    readers = {name: [f"mx:{name.partition('_')[0]} FullyConnected"] for name in weights}
    places = [("mx:first FullyConnected", "add"), ("mx:tanh Activation", "tanh"), ("mx:sin sin", "sin"),
              ("mx:sigmoid sigmoid", "sigmoid"), ("mx:second FullyConnected", "add")]
    return Subject("partitioned", symbol, weights, readers, places, {"data": (4, 3)})


def convolutional_onnx() -> Subject:
    return of_onnx("convolutional_onnx", network(2))


def perceptron_onnx() -> Subject:
    random = np.random.default_rng(8)
    names = [f"layer{number}" for number in range(4)]
    nodes, weights, x = [], {}, "x"
    for name in names:
        weights[f"{name}_w"] = random.standard_normal((12, 12)) / 3
        weights[f"{name}_scale"], weights[f"{name}_bias"] = random.uniform(0.5, 1.5, 12), random.standard_normal(12)
        nodes += [helper.make_node("MatMul", [x, f"{name}_w"], [f"{name}_p"], name=f"{name}_product"),
                  helper.make_node("LayerNormalization", [f"{name}_p", f"{name}_scale", f"{name}_bias"], [f"{name}_n"],
                                   name=f"{name}_norm"),
                  helper.make_node("Tanh", [f"{name}_n"], [f"{name}_t"], name=f"{name}_tanh"),
                  helper.make_node("Add", [f"{name}_t", x], [f"{name}_y"], name=f"{name}_sum")]
        x = f"{name}_y"
    proto = model(nodes, [value("x", [3, 12])], [value(x, [3, 12])],
                  {name: array.astype(np.float32) for name, array in weights.items()})
    return of_onnx("perceptron_onnx", proto)


def divided_onnx() -> Subject:
    """It is compiled in parts: how many elements are picked depends on data, and so does how often the loop runs."""
    random = np.random.default_rng(9)
    weights = {"w": random.standard_normal((6, 6)), "scale": random.uniform(0.5, 1.5, 1)}
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Neg", ["a"], ["b"])], "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("a", ["n"])],
        [value("on", [], TensorProto.BOOL), value("b", ["n"])])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Tanh", ["h"], ["t"], name="tanh"),
        helper.make_node("NonZero", ["x"], ["places"], name="places"),
        helper.make_node("Transpose", ["places"], ["rows"], name="rows"),
        helper.make_node("GatherND", ["t", "rows"], ["picked"], name="picked"),
        helper.make_node("Mul", ["picked", "scale"], ["scaled"], name="scaled"),
        helper.make_node("ReduceSum", ["rows"], ["trips"], name="trips", keepdims=0),
        helper.make_node("Loop", ["trips", "", "scaled"], ["looped"], name="loop", body=body),
        helper.make_node("Sin", ["looped"], ["y"], name="sin"),
    ]
    proto = model(nodes, [value("x", [4, 6])], [value("y", ["n"])],
                  {name: array.astype(np.float32) for name, array in weights.items()})
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    return Subject("divided_onnx", proto, held, {"w": ["onnx:product MatMul"], "scale": ["onnx:scaled Mul"]},
                   [("onnx:product MatMul", "matmul"), ("onnx:tanh Tanh", "tanh"), ("onnx:scaled Mul", "multiply"),
                    ("onnx:sin Sin", "sin")], {"x": (4, 6)})


SMALL: list[Callable[[], Subject]] = [residual, attention, recurrent, convolutional_onnx, perceptron_onnx,
                                      divided_onnx, partitioned]


def zoo(name: str) -> Callable[[], Subject]:
    """A model of Gluon's, for images of 64 pixels."""
    def make() -> Subject:
        net = mx.gluon.model_zoo.vision.get_model(name, prefix="net_")
        return of_symbol(name, net(mx.sym.var("data")), data=(1, 3, 64, 64))

    make.__name__ = name
    return make


LARGE = [zoo(name) for name in ("resnet18_v2", "mobilenetv2_0.25", "vgg11_bn", "mobilenet0.25", "resnet18_v1")]


# ---- faults -------------------------------------------------------------------------------------------------


MOST_DRAWS = 100
Found = Iterator[tuple[Sequence[str], Any]]


def weight_faults(subject: Subject, random: np.random.Generator, **options: Any) -> Found:
    """The nodes that read a weight of which an element is changed, and what `verify` finds; of changes that show in
    the outputs: a relu or a softmax may hide one."""
    for _ in range(MOST_DRAWS):
        name = str(random.choice(list(subject.readers)))
        array = np.array(subject.weights[name])
        array[tuple(int(random.integers(size)) for size in array.shape)] += 3 * float(np.abs(array).max())
        found = subject.with_weight(name, array, **options)
        if not found.agrees:
            yield subject.readers[name], found


def kernel_faults(subject: Subject, random: np.random.Generator, **options: Any) -> Found:
    """The node that is computed wrong, and what `verify` finds; of faults that show in the outputs."""
    for _ in range(MOST_DRAWS):
        at = subject.places[random.integers(len(subject.places))]
        found = subject.with_fault(at, **options)
        if not found.agrees:
            yield at[:1], found
