"""Small graphs whose programs hold kernels of every family, for mutants of what the cache keeps."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import ngraph_mxnet
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.ir.sizes import symbol
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.program.compile import Ranged, Weighted
from ngraph_mxnet.program.export import compile_to_file
from ngraph_mxnet.targets.cpu.planning import algorithm
from ngraph_mxnet.targets.cpu.program import builder

HELD = {name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        for name, shape in (("w", (32, 16, 3, 3)), ("dense", (64, 32)))}
"""Weights that a kept program names instead of holding them."""


def _held(b: Builder, name: str) -> Value:
    return b.weight(name, HELD[name].shape)


def _convolutions(batch: int) -> Graph:
    b = Builder()
    x = b.parameter("x", (batch, 16, 8, 8))
    w, dense = _held(b, "w"), _held(b, "dense")
    hidden = b.reduce_max(b.maximum(b.convolution(x, w), b.constant(0.0)), axes=(2, 3))
    return b.results(b.matmul(hidden, dense, transpose_b=True), b.reduce_sum(x, axes=(1,)))


def convolutions() -> Graph:
    return _convolutions(1)


def batches() -> Graph:
    return _convolutions(3)


def depthwise() -> Graph:
    """Rows of both strides behind a convolution of few channels, a shuffle, and factors that a call brings."""
    b = Builder()
    x, vector = b.parameter("x", (1, 3, 20, 20)), b.parameter("vector", (32,))
    stem, taps = (b.weight(name, shape) for name, shape in (("stem", (32, 3, 3, 3)),
                                                                               ("taps", (32, 1, 3, 3))))
    x = b.convolution(x, stem, pads_begin=(1, 1), pads_end=(1, 1))
    parts = b.transpose(b.reshape(x, shape=(1, 2, 16, 20, 20)), order=(0, 2, 1, 3, 4))
    x = b.reshape(parts, shape=(1, 32, 20, 20))
    for stride in (1, 2):
        x = b.relu(b.convolution(x, taps, groups=32, strides=(stride, stride), pads_begin=(1, 1), pads_end=(1, 1)))
    return b.results(b.batch_norm(x, *(vector,) * 4), b.scale_shift(x, vector, vector))


def quantized() -> Graph:
    """Products of bytes with a border of another number than 0, residual and second output, stored as bytes."""
    b = Builder()
    scale, zero_point = b.constant(np.float32(0.1)), b.constant(np.uint8(7))
    x = b.quantize(b.parameter("x", (2, 48, 6, 6)), scale, zero_point)

    def operands(*shape: int) -> list[Value]:
        types = ((shape, "i8"), (shape[:1], "i32"), (shape[:1], "f32"), (shape[:1], "f32"))
        return [b.parameter(f"w{len(b.graph.parameters)}", *type_, Role.WEIGHT) for type_ in types]

    padded = {"pads_begin": (1, 1), "pads_end": (1, 1), "pad_value": 7}
    table, tables = (b.constant(np.arange(size, dtype=np.uint8).reshape(shape)[..., ::-1]) for size, shape in
                     ((256, (256,)), (20 * 256, (20, 256))))
    looked = [b.lookup(x, table), b.lookup(b.quantize(b.quantized_convolution(x, *operands(20, 48, 1, 1)), scale,
                                                      zero_point), tables)]
    thin = b.quantize(b.quantized_convolution(x, *operands(48, 1, 3, 3), groups=48, **padded), scale, zero_point)
    vectors = [b.weight(f"v{i}", (48,)) for i in range(2)]
    node = b.node("quantized_convolution",
                  [thin, *operands(48, 48, 3, 3), b.dequantize(x, scale, zero_point), *vectors],
                  {**padded, "short_sums": True})
    scaled = b.quantize(b.scale_shift(node.outputs[0], *vectors), scale, zero_point)
    last = b.quantized_convolution(b.max_pool(scaled, kernel=(2, 2)), *operands(16, 48, 1, 1))
    means = [b.avg_pool(b.dequantize(scaled, scale, zero_point), kernel=(2, 2)),
             b.quantize(b.avg_pool(b.dequantize(scaled, scale, zero_point), kernel=(3, 2)), scale, zero_point),
             b.quantize(b.avg_pool(b.relu(last), kernel=(2, 2)), scale, zero_point)]
    return b.results(node.outputs[0], b.quantize(node.outputs[1], scale, zero_point), last, *means, *looked)


def winograd() -> Graph:
    """A dilated one, with a residual and a second output; a weight gradient."""
    b = Builder()
    x, w = b.parameter("x", (1, 16, 11, 9)), _held(b, "w")
    y = b.convolution(x, w, pads_begin=(2, 2), pads_end=(2, 2), dilations=(2, 2))
    vector = b.weight("v", (32,))
    operands = (x, w, vector, b.max_pool(y, kernel=(1, 1)), vector, vector)
    both = b.node("convolution", operands, {"pads_begin": (1, 1), "pads_end": (1, 1)})
    head = b.parameter("head", (1, 17, 9, 7))
    return b.results(y, *both.outputs, b.convolution_weight_gradient(x, head, kernel=(3, 3)))


def images() -> Graph:
    """Pools, resizing, sampling, regions."""
    b = Builder()
    x = b.parameter("x", (2, 20, 9, 8))
    regions, grid = b.parameter("regions", (3, 5)), b.parameter("grid", (2, 2, 4, 3))
    window = {"kernel": (3, 2), "strides": (2, 1), "pads_begin": (1, 0), "pads_end": (1, 1)}
    return b.results(
        b.max_pool(x, **window), b.avg_pool(x, **window, include_pad=True), b.resize(x, sizes=(5, 11)),
        b.max_pool(b.reshape(x, shape=(1, 2, 20, 9, 8)), kernel=(3, 2, 2), strides=(2, 1, 1), pads_begin=(1, 0, 1)),
        b.adaptive_avg_pool(x, sizes=(4, 3)), b.bilinear_sample(x, grid),
        b.roi_align(x, regions, sizes=(2, 3), samples=2), b.roi_max_pool(x, regions, sizes=(3, 2)),
        b.lrn(x, size=3, alpha=1e-2, beta=0.5, bias=2.0))


def positions() -> Graph:
    """What is read or written where data says, and in which order."""
    b = Builder()
    x, at = b.parameter("x", (6, 5, 7)), b.parameter("at", (2, 4), "i64")
    updates, wide = b.parameter("updates", (4, 7)), b.convert(x, element="f64")
    state = b.parameter("state", (4,), "i32")
    boxes = {"coordinates": 3, "score": 2, "id": 1, "topk": 4}
    return b.results(
        b.random_mask(state, shape=(9, 7), keep=0.5), b.random_uniform(state, shape=(9, 7)),
        b.gather(x, at, axis=1), b.gather_nd(x, at), b.scatter_nd(x, at, updates),
        b.scatter_nd(x, at, updates, reduction="add"), b.box_nms(x, **boxes), b.box_nms(x, **boxes, in_place=True),
        b.gather_elements(x, b.argsort(x, axis=1), axis=1), b.argmax(x, axis=2),
        b.argsort(x, axis=0), b.argsort(b.reshape(x, shape=(2, 105)), count=3, descending=True), b.cumsum(x, axis=0),
        b.matmul(wide, wide, transpose_b=True), b.reduce_max(wide, axes=(1,)),
        b.argsort(b.reshape(b.concat(x, x, axis=0), shape=(420,)), axis=0))


def sequences() -> Graph:
    """Attention with masks of both kinds, and cells."""
    b = Builder()
    q, k, v = (b.parameter(name, (2, 3, length, 20)) for name, length in (("q", 7), ("k", 9), ("v", 9)))
    mask = b.parameter("mask", (7, 9))
    one, row = b.slice(q, begin=(0, 0, 2, 0), end=(2, 3, 3, 20)), b.slice(mask, begin=(2, 0), end=(3, 9))
    found = [b.attention(queries, k, v, *masks, fill=-1e4, zeroed=bool(masks) and masks[0].type.element.name == "bool")
             for queries, added in ((q, mask), (one, row))
             for masks in ([], [added], [b.greater(added, b.constant(0.0))])]
    for cell, gates in (("lstm", 4), ("gru", 3), ("relu", 1), ("tanh", 1)):
        shapes = {"x": (2, 3, 5 * gates), "w": (5 * gates, 5), "b": (5 * gates,), "h": (3, 5)}
        x, w, bias, h = (b.parameter(f"{cell}_{name}", shape) for name, shape in shapes.items())
        operands = (x, w, bias, h, *(h,) * (cell == "lstm"))
        found += b.node("rnn", operands, {"cell": cell}).outputs
        *results, slopes = b.node("rnn_training", operands, {"cell": cell}).outputs
        found += b.node("rnn_gradient", (w, slopes, *results), {"cell": cell}).outputs
    shapes = {"x": (2, 3, 15), "w": (10, 5), "b": (10,), "own": (5, 5), "own_b": (5,), "h": (3, 5)}
    operands = [b.parameter(f"first_{name}", shape) for name, shape in shapes.items()]
    found += b.node("gru_reset_first", operands, {}).outputs
    vector = b.parameter("vector", (20,))
    head = b.parameter("head", (2, 3, 7, 20))
    for masks in ([], [mask], [b.greater(mask, b.constant(0.0))]):
        found += b.node("attention_gradient", [q, k, v, head, *masks], {"fill": -1e4}).outputs
    labels = b.parameter("labels", (2, 3, 7, 1), "i64")
    _, *sums = picked = b.node("log_softmax_pick", [q, labels], {}).outputs
    found += [*picked, *b.node("log_softmax_pick_gradient", [q, labels, *sums, picked[0]], {}).outputs]
    return b.results(*found, b.layer_norm(q, vector, vector), b.softmax(k, axis=2),
                     *b.node("layer_norm_gradient", [q, vector, head], {}).outputs, b.gelu_gradient(q, head))


def gradients() -> Graph:
    """By the weights of convolutions of all kinds; of batch norm with relu, clamp, max pool."""
    b = Builder()
    x, head, picture = (b.parameter(name, (1, channels, 5, 4)) for name, channels in (
        ("x", 17), ("head", 17), ("picture", 3)))
    taps = {"kernel": (3, 3), "pads_begin": (1, 1), "pads_end": (1, 1)}
    vector = b.parameter("vector", (17,))
    y, mean, variance = b.node("batch_norm_training", [x, vector, vector], {}).outputs
    volume, small, made = (b.parameter(name, (2, channels, *size)) for name, channels, size in (
        ("volume", 17, (4, 5, 3)), ("small", 3, (4, 5, 3)), ("made", 20, (2, 5, 3))))
    cube = {"kernel": (3, 3, 3), "strides": (2, 1, 1), "pads_begin": (1, 1, 1), "pads_end": (1, 1, 1)}
    return b.results(b.convolution_weight_gradient(volume, made, **cube),
                     b.convolution_weight_gradient(small, made, **cube),
                     b.convolution_weight_gradient(x, b.parameter("wide", (1, 20, 10, 8)), kernel=(2, 2),
                                                   data_dilations=(2, 2), pads_begin=(1, 1), pads_end=(1, 1)),
                     b.max_pool_gradient(volume, b.slice(made, begin=(0,) * 5, end=(2, 17, 2, 5, 3)), kernel=(2, 3, 2),
                                         strides=(2, 1, 1), pads_begin=(0, 1, 0), pads_end=(0, 1, 1)),
                     b.clamp_gradient(volume, volume, lower=0.0),
                     b.convolution_weight_gradient(x, head, kernel=(1, 2), pads_end=(0, 1)),
                     b.convolution_weight_gradient(x, head, **taps, groups=17),
                     *(b.convolution_weight_gradient(x, head, kernel=(side, side), pads_begin=(side // 2,) * 2,
                                                     pads_end=(side // 2,) * 2, groups=17) for side in (5, 7)),
                     b.convolution_weight_gradient(picture, head, **taps),
                     b.clamp_gradient(x, head, lower=0.0),
                     *b.node("batch_norm_relu_gradient", [x, vector, mean, variance, b.relu(y), head], {}).outputs,
                     b.max_pool_gradient(x, b.slice(head, begin=(0,) * 4, end=(1, 17, 4, 3)), kernel=(2, 2)))


def in_bf16() -> Graph:
    """What convolutions and their weight gradients take in bf16: made of scale and shift, of gradients and of pools.
    Attention, too."""
    b = Builder()
    x, y, head, plain = (b.parameter(name, (2, 17, 6, 5)) for name in ("x", "y", "head", "plain"))
    vector, wide = b.parameter("vector", (17,)), b.weight("wide", (20, 17, 3, 3))
    thin, square, short = (b.weight(name, shape) for name, shape in (
        ("thin", (16, 20, 1, 1)), ("square", (16, 16, 1, 1)), ("short", (16,))))
    taps = {"pads_begin": (1, 1), "pads_end": (1, 1)}
    made = [b.scale_shift(x, vector, vector, lower=0.0), b.clamp_gradient(x, head, lower=0.0),
            b.node("batch_norm_relu_gradient", [x, vector, vector, vector, y, head], {}).outputs[0]]
    found = [b.convolution(plain, wide)]
    for value in made:
        small = b.max_pool(b.convolution(b.convolution(value, wide, **taps), thin), kernel=(2, 2))
        mean = b.avg_pool(small, kernel=(2, 1))
        found += [b.convolution(mean, square), b.convolution(b.scale_shift(small, short, short), square),
                  b.reduce_mean(mean, axes=(2, 3)), b.convolution_weight_gradient(value, head, kernel=(3, 3), **taps)]
    queries, keys = (b.parameter(name, (2, 3, length, 20)) for name, length in (("queries", 7), ("keys", 9)))
    return b.results(*found, b.attention(queries, keys, keys))


def chains() -> Graph:
    """Elementwise ops with four results, and numbers that stand for all elements."""
    b = Builder()
    x, y, scale = b.parameter("x", (5, 700)), b.parameter("y", (5, 700)), b.parameter("scale", (1,))
    total = b.add(b.multiply(x, scale), y)
    return b.results(total, b.sqrt(b.abs(total)), b.maximum(b.subtract(x, y), scale), b.divide(scale, b.square(y)))


GRAPHS: tuple[Callable[[], Graph], ...] = (convolutions, batches, depthwise, winograd, images, positions, sequences,
                                           gradients, chains, in_bf16, quantized)


@contextmanager
def _as_if_larger(make: Callable[[], Graph]) -> Iterator[None]:
    """Winograd's algorithm pays, and so does memory that images with a halo share with others."""
    tile = 4 if make is winograd else 0
    with (mock.patch.object(algorithm, "choose_tile", return_value=tile),
          mock.patch.object(builder, "SHARING_GAIN", 1)):
        yield


def kept(make: Callable[[], Graph], held: dict[str, np.ndarray] = HELD) -> bytes:
    """What the cache keeps of a graph's program, with these of the weights `HELD`."""
    graph = make()
    with _as_if_larger(make):
        weights = {p.name: held[p.name] for p in graph.parameters if p.name in held}
        options: dict[str, Any] = {chains: {"chains": 1}, in_bf16: {"precision": "bf16"}}.get(make, {})
        return ngraph_mxnet.compile(graph, "CPU", weights=weights, threads=2, **options).package().to_bytes(HELD)


def artefact(make: Callable[[], Graph], isas: Sequence[str] = (), precision: str = "f32") -> bytes:
    """The file of the compiled model of a graph, with the weights `HELD`."""
    graph = make()
    with _as_if_larger(make):
        weights = {p.name: HELD[p.name] for p in graph.parameters if p.name in HELD}
        return _file([lambda: (graph, weights)], isas=isas, options={"precision": precision})


def whole_artefact() -> bytes:
    """The file of a small model for two sets of shapes and all instruction sets, with references."""
    graphs = [lambda: (convolutions(), HELD), lambda: (batches(), HELD)]
    return _file(graphs, metadata={"key": "value"}, with_references=True)


def ranged_convolutions() -> Graph:
    """For any number of images of any height."""
    b = Builder()
    x = b.parameter("x", (symbol("N", 1, 32), 16, symbol("H", 3, 99), 8))
    y = b.convolution(x, _held(b, "w"), pads_begin=(1, 1), pads_end=(1, 1))
    return b.results(b.matmul(b.reduce_max(b.relu(y), axes=(2, 3)), _held(b, "dense"), transpose_b=True))


def ranged_steps() -> Graph:
    """A loop, of any number of rounds."""
    b = Builder()
    steps, rows = symbol("T"), symbol("N", 1, 32)
    x, states = b.parameter("x", (steps, rows, 64)), [b.parameter(name, (rows, 16)) for name in ("h", "c")]
    weights = [b.constant(np.full(shape, 0.1, np.float32)) for shape in ((64, 16), (64,))]
    return b.results(*b.node("rnn", [x, *weights, *states], {"cell": "lstm", "reverse": False}).outputs)


def range_artefact(make: Callable[[], Graph], isas: Sequence[str]) -> bytes:
    """The file of a graph for a range of sizes, with the weights `HELD`."""
    def made() -> tuple[Graph, dict[str, np.ndarray]]:
        graph = make()
        return graph, {p.name: HELD[p.name] for p in graph.parameters if p.name in HELD}

    return _file([Ranged(made, make().symbols())], isas=isas)


def _file(graphs: Sequence[Weighted | Ranged], **options: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fuzzed.ngraph"
        compile_to_file(path, graphs, "CPU", **options)
        return path.read_bytes()


def others() -> list[bytes]:
    """Packages of the other backends, of one graph."""
    made = [ngraph_mxnet.compile(_convolutions(2), backend) for backend in ("INTERPRETER", "NNP", "HYBRID")]
    made.append(ngraph_mxnet.compile(_convolutions(2), "NNP", devices=2))
    return [executable.package().to_bytes(HELD) for executable in made]


def seeds() -> list[bytes]:
    """The programs of all graphs, with weights that are held and with those that a call brings; other backends'."""
    return [*(kept(make, held) for make in GRAPHS for held in (HELD, {})), *others()]
