"""ONNX operators with bodies, of sequences and optionals, and of signals."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from fuzzing.values import sizes
from fuzzing.values.closeness import EXACT, Closeness
from fuzzing.values.drawing import Draw, chance, integer, pick
from fuzzing.values.nets import CONTRIB, Net, Value, normal, scaled_weights, whole
from fuzzing.values.operators import SUMS, Drawn, draw_shape, elements, operators
from fuzzing.values.trials import Trial, family

_FLOAT, _INT, _BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def _info(name: str, kind: int, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _steps(draw: Draw, source: str, target: str, side: str | None) -> list[onnx.NodeProto]:
    """Elementwise nodes from one name to another, with a value from outside if there is one."""
    nodes, last = [], source
    for number in range(integer(draw, 1, 3)):
        op = pick(draw, "Tanh", "Sigmoid", "Relu", "Neg", *(["Add", "Mul"] if side else []))
        inputs = [last, side] if op in ("Add", "Mul") else [last]
        last = f"{target}_{number}"
        nodes.append(helper.make_node(op, inputs, [last]))
    return [*nodes, helper.make_node("Identity", [last], [target])]


@operators("Loop")
def loop(net: Net, op: str) -> Drawn:
    """Trips that are known, or brought; a condition that the state decides; results of each step."""
    draw = net.draw
    shape = (pick(draw, 1, 3), pick(draw, 4, 16, 17))
    x, side = net.input(shape), net.input(shape)
    trips = integer(draw, 0, 5)
    count = net.constant(np.array(trips, np.int64)) if chance(draw) else net.input(
        (), lambda rng, given: np.array(rng.integers(0, 6), np.int64))
    nodes = [*_steps(draw, "state", "next", side.name), helper.make_node("Identity", ["next"], ["each"])]
    if chance(draw, 3):
        few = helper.make_tensor("few", _FLOAT, [], [pick(draw, 0.2, 3.0)])
        nodes += [helper.make_node("ReduceSum", ["next"], ["sum"], keepdims=0),
                  helper.make_node("Constant", [], ["few"], value=few),
                  helper.make_node("Less", ["sum", "few"], ["on"])]
    else:
        nodes.append(helper.make_node("Identity", ["go"], ["on"]))
    given = [_info("i", _INT, []), _info("go", _BOOL, []), _info("state", _FLOAT, shape)]
    made = [_info("on", _BOOL, []), _info("next", _FLOAT, shape), _info("each", _FLOAT, shape)]
    body = helper.make_graph(nodes, "body", given, made)
    return net.several(op, count, None, x, outputs=2, like=[x, Value("", (trips, *shape), x.dtype)], body=body), SUMS


@operators("Scan")
def scan(net: Net, op: str) -> Drawn:
    draw = net.draw
    width, steps = pick(draw, 4, 16, 17), integer(draw, 1, 6)
    state, xs = net.input((2, width)), net.input((steps, 2, width))
    nodes = [helper.make_node("Add", ["s", "x"], ["both"]), *_steps(draw, "both", "next", None),
             helper.make_node("Identity", ["next"], ["y"])]
    body = helper.make_graph(nodes, "body", [_info("s", _FLOAT, (2, width)), _info("x", _FLOAT, (2, width))],
                             [_info("next", _FLOAT, (2, width)), _info("y", _FLOAT, (2, width))])
    attrs: dict[str, Any] = {}
    if chance(draw):
        attrs = {"scan_input_directions": [integer(draw, 0, 1)], "scan_output_directions": [integer(draw, 0, 1)]}
    return net.several(op, state, xs, outputs=2, like=[state, xs], body=body, num_scan_inputs=1, **attrs), SUMS


@operators("If")
def if_(net: Net, op: str) -> Drawn:
    draw = net.draw
    x = net.input((2, pick(draw, 4, 16)))
    condition = net.input((), elements(bool)) if chance(draw) else net.node(
        "Greater", net.node("ReduceSum", x, keepdims=0), net.constant(np.float32(0)))
    branches = {}
    for name in ("then_branch", "else_branch"):
        target = f"{name}_y"
        branches[name] = helper.make_graph(_steps(draw, x.name, target, x.name), name, [], [_info(target, _FLOAT)])
    return [net.node(op, condition, like=[x], **branches)], SUMS


@operators("SequenceConstruct", "ConcatFromSequence", "SequenceAt", "SplitToSequence", "SequenceInsert",
           "SequenceErase", "SequenceLength", "SequenceEmpty")
def sequences(net: Net, op: str) -> Drawn:
    draw = net.draw
    x = net.input((2, pick(draw, 3, 16), 4))
    parts = [net.node(pick(draw, "Relu", "Neg"), x) for _ in range(3)]

    def made(op: str, *inputs: Value, **attrs: Any) -> Value:
        return net.node(op, *inputs, like=[x], **attrs)

    if op == "SplitToSequence":
        found = made(op, x, axis=1, keepdims=integer(draw, 0, 1))
        return [made("SequenceAt", found, net.constant(np.array(pick(draw, 0, -1), np.int64)))], EXACT
    found = made("SequenceEmpty") if op == "SequenceEmpty" else made("SequenceConstruct", *parts)
    if op in ("SequenceInsert", "SequenceEmpty"):
        found = made("SequenceInsert", found, x)
    if op == "SequenceErase":
        found = made(op, found, net.constant(np.array(pick(draw, 0, 1, -1), np.int64)))
    if op == "SequenceLength":
        return [made(op, found)], EXACT
    if op == "SequenceAt":
        return [made(op, found, net.constant(np.array(pick(draw, 0, 1, -1), np.int64)))], EXACT
    return [made("ConcatFromSequence", found, axis=pick(draw, 0, 1, -1), new_axis=integer(draw, 0, 1))], EXACT


@operators("NonMaxSuppression")
def non_max(net: Net, op: str) -> Drawn:
    count = pick(net.draw, 1, 5, 17)

    def boxes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        corners = rng.uniform(0, 4, (*shape[:-1], 2))
        ends = corners + rng.uniform(1, 3, corners.shape)
        return np.concatenate([corners, ends], -1).astype(np.float32)[..., :shape[-1]]

    operands = [net.input((1, count, 4), boxes), net.input((1, 2, count), elements(np.float32, low=0, high=1)),
                net.constant([pick(net.draw, 1, 3)], np.int64), net.constant([pick(net.draw, 0.3, 0.7)], np.float32),
                net.constant([0.2], np.float32)]
    return [net.node(op, *operands, center_point_box=0)], EXACT


@operators("DFT")
def dft(net: Net, op: str) -> Drawn:
    draw, size = net.draw, pick(net.draw, 4, 5, 16)
    inverse = integer(draw, 0, 1)
    x = net.input((2, size, 2 if inverse or chance(draw) else 1))
    one_sided = 1 if x.shape[-1] == 1 and chance(draw) else 0
    return [net.node(op, x, None, net.constant(np.array(1, np.int64)), inverse=inverse, onesided=one_sided)], SUMS


@operators("STFT")
def stft(net: Net, op: str) -> Drawn:
    x, step = net.input((1, 33, 1)), net.constant(np.array(pick(net.draw, 3, 8), np.int64))
    window = net.weight((16,), normal)
    return [net.node(op, x, step, window, onesided=integer(net.draw, 0, 1))], SUMS


@operators("MelWeightMatrix")
def mel(net: Net, op: str) -> Drawn:
    numbers = [net.constant(np.array(each, np.int64)) for each in (8, 64, 8192)]
    ends = [net.constant(np.array(each, np.float32)) for each in (0, 4096)]
    return [net.node("Add", net.node(op, *numbers, *ends, like=[Value("", (33, 8), np.dtype(np.float32))]),
                     net.input((33, 8)))], EXACT


@operators("AffineGrid")
def affine_grid(net: Net, op: str) -> Drawn:
    size = net.constant([2, 3, pick(net.draw, 2, 5), 4], np.int64)
    return [net.node(op, net.input((2, 2, 3)), size, align_corners=integer(net.draw, 0, 1))], SUMS


@operators("com.microsoft:FusedConv", "com.microsoft:FusedGemm")
def fused(net: Net, op: str) -> Drawn:
    draw, name = net.draw, op.partition(":")[2]
    inputs, outputs = sizes.draw_channels(draw, 64), sizes.draw_channels(draw, 64)
    activation = pick(draw, "Relu", "Sigmoid", "Tanh", "LeakyRelu")
    if name == "FusedGemm":
        like = [Value("", (5, outputs), np.dtype(np.float32))]
        return [net.node(name, net.input((5, inputs)), net.weight((inputs, outputs), scaled_weights),
                         net.weight((outputs,), normal), domain=CONTRIB, like=like, activation=activation,
                         activation_alpha=0.1 if activation == "LeakyRelu" else None)], SUMS
    like = [Value("", (1, outputs, 6, 6), np.dtype(np.float32))]
    operands = [net.input((1, inputs, 6, 6)), net.weight((outputs, inputs, 3, 3)), net.weight((outputs,), normal)]
    if chance(draw):
        operands.append(net.input((1, outputs, 6, 6)))
    return [net.node(name, *operands, domain=CONTRIB, like=like, activation=activation, pads=[1] * 4,
                     activation_params=[0.1] if activation == "LeakyRelu" else None)], SUMS


@operators("com.microsoft:QGemm")
def qgemm(net: Net, op: str) -> Drawn:
    draw = net.draw
    rows, steps, columns = integer(draw, 1, 20), sizes.draw_channels(draw), sizes.draw_channels(draw)
    turned = integer(draw, 0, 1)
    weights = net.weight((columns, steps) if turned else (steps, columns), whole(-20, 20, np.int8))
    operands: list[Value | None] = [
        net.input((rows, steps), whole(0, 255, np.uint8)), net.constant(np.float32(0.25)), net.constant(np.uint8(120)),
        weights, net.constant(np.float32(0.125)), net.constant(np.int8(0)),
        net.weight((columns,), whole(-900, 900, np.int32)) if chance(draw) else None]
    kind = np.dtype(np.float32)
    if chance(draw):
        operands += [net.constant(np.float32(32.0)), net.constant(np.uint8(100))]
        kind = np.dtype(np.uint8)
    while operands[-1] is None:
        operands.pop()
    return [net.node("QGemm", *operands, domain=CONTRIB, like=[Value("", (rows, columns), kind)], transB=turned)], EXACT


@operators("com.microsoft:MatMulNBits")
def few_bits(net: Net, op: str) -> Drawn:
    draw, block = net.draw, pick(net.draw, 16, 32)
    steps, columns = pick(draw, 16, 33, 64), sizes.draw_channels(draw, 48)
    blocks = -(-steps // block)
    operands = [net.input((3, steps)), net.weight((columns, blocks, block // 2), whole(0, 255, np.uint8)),
                net.weight((columns, blocks), elements(np.float32, low=0.01, high=0.1))]
    return [net.node("MatMulNBits", *operands, domain=CONTRIB, like=[Value("", (3, columns), np.dtype(np.float32))],
                     K=steps, N=columns, bits=4, block_size=block)], Closeness(2e-3, 2e-3)


@operators("com.microsoft:QLinearSoftmax")
def qlinear_softmax(net: Net, op: str) -> Drawn:
    x = net.input((2, pick(net.draw, 3, 16, 17)), whole(0, 255, np.uint8))
    operands = [x, net.constant(np.float32(0.0625)), net.constant(np.uint8(128)), net.constant(np.float32(1 / 256)),
                net.constant(np.uint8(0))]
    return [net.node("QLinearSoftmax", *operands, domain=CONTRIB, like=[x], axis=1, opset=13)], Closeness(steps=1)


@operators("TensorScatter")
def tensor_scatter(net: Net, op: str) -> Drawn:
    past, update = net.input((2, 3, 8, 5)), net.input((2, 3, 2, 5))
    at = net.input((2,), lambda rng, shape: rng.integers(0, 6, shape).astype(np.int64))
    return [net.node(op, past, update, at, like=[past], mode=pick(net.draw, "linear", "circular"))], EXACT


@operators("OptionalHasElement", "OptionalGetElement")
def optional(net: Net, op: str) -> Drawn:
    x = net.input(draw_shape(net.draw, 1))
    return [net.node(op, net.node("Optional", x, like=[x]), like=[x])], EXACT


@family("recurrent nets", weight=3)
def recurrent_nets(draw: Draw) -> Trial:
    """Layers upon each other, of sequences whose length and batch may be open."""
    net = Net(draw)
    inputs = sizes.draw_channels(draw, 48)
    axes = {0: "T"} if chance(draw) else {}
    if chance(draw, 3):
        axes[1] = "B"
    x = net.input((integer(draw, 1, 7), pick(draw, 1, 2, 4), inputs), normal, axes)
    for _ in range(integer(draw, 1, 3)):
        op, hidden = pick(draw, "LSTM", "GRU", "RNN"), pick(draw, 8, 16, 17, 32)
        gates = {"RNN": 1, "LSTM": 4, "GRU": 3}[op]
        direction = pick(draw, "forward", "bidirectional", "reverse")
        ways = 2 if direction == "bidirectional" else 1
        weights = [net.weight((ways, gates * hidden, width), scaled_weights) for width in (x.shape[2], hidden)]
        y = net.several(op, x, *weights, outputs=1, hidden_size=hidden, direction=direction,
                        linear_before_reset=integer(draw, 0, 1) if op == "GRU" else None)[0]
        turned = net.node("Transpose", y, perm=[0, 2, 1, 3])
        x = net.node("Reshape", turned, net.constant([0, 0, -1], np.int64))
        if chance(draw, 3):
            x = net.node(pick(draw, "Tanh", "Relu"), x)
    return net.trial([x], Closeness(2e-3, 2e-3))
