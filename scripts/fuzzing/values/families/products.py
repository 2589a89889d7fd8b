"""Matrix products of floats, integers and quantised bytes; attention; recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzzing.values import sizes
from fuzzing.values.closeness import EXACT, Closeness
from fuzzing.values.drawing import Draw, chance, integer, pick
from fuzzing.values.families.convolutions import byte_type, bytes_of, narrow_weights, scale
from fuzzing.values.nets import CONTRIB, Net, Value, normal, scaled_weights, whole
from fuzzing.values.operators import SUMS, Drawn, allowed, draw_type, elements, exact_if_whole, operators
from fuzzing.values.trials import Trial, family

_F32, _U8 = np.dtype(np.float32), np.dtype(np.uint8)


def matrices(draw: Draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of two that are multiplied, with batches or without."""
    steps, columns = sizes.draw_channels(draw), sizes.draw_channels(draw)
    rows = sizes.draw_rows(draw, columns, steps, 80)
    batch = pick(draw, (), (), (), (2,), (3, 1), (1, 2))
    return (*batch, rows, steps), (*(batch if chance(draw, 3) else ()), steps, columns)


@operators("MatMul")
def matmul(net: Net, op: str) -> Drawn:
    first, second = matrices(net.draw)
    dtype = draw_type(net.draw, allowed(op, net.opset))
    x = net.input(first, elements(dtype), {len(first) - 2: "R"} if chance(net.draw, 5) else None)
    if chance(net.draw, 8) and len(second) == 2:
        second = second[:1]
    y = net.node(op, x, net.maybe_input(second, elements(dtype), 3))
    return [y], exact_if_whole(y.dtype, SUMS)


@operators("Gemm")
def gemm(net: Net, op: str) -> Drawn:
    draw = net.draw
    steps, columns = sizes.draw_channels(draw), sizes.draw_channels(draw)
    rows = sizes.draw_rows(draw, columns, steps, 80)
    turned = [integer(draw, 0, 1) for _ in range(2)]
    x = net.input((steps, rows) if turned[0] else (rows, steps), normal, {turned[0]: "R"} if chance(draw, 5) else None)
    operands = [x, net.maybe_input((columns, steps) if turned[1] else (steps, columns), scaled_weights)]
    if chance(draw):
        operands.append(net.maybe_input(pick(draw, (columns,), (1, columns), (), (1, 1)), normal))
    return [net.node(op, *operands, transA=turned[0], transB=turned[1], alpha=pick(draw, None, 0.5),
                     beta=pick(draw, None, 0.25, 0.0))], SUMS


@operators("Einsum")
def einsum(net: Net, op: str) -> Drawn:
    text, *shapes = pick(net.draw, ("ij,jk->ik", (5, 16), (16, 17)), ("bij,bjk->bik", (2, 3, 33), (2, 33, 5)),
                         ("bhid,bhjd->bhij", (1, 2, 5, 16), (1, 2, 7, 16)), ("ij->ji", (3, 17)), ("ii->i", (5, 5)),
                         ("ij,ij->", (4, 9), (4, 9)), ("...ij,...jk", (2, 3, 4), (2, 4, 5)), ("i,j->ij", (16,), (33,)))
    return [net.node(op, *(net.input(shape) for shape in shapes), equation=text)], SUMS


@operators("Det")
def det(net: Net, op: str) -> Drawn:
    return [net.node(op, net.input((pick(net.draw, 1, 3), 4, 4)))], Closeness(1e-3, 1e-3)


@operators("MatMulInteger")
def matmul_integer(net: Net, op: str) -> Drawn:
    draw, (first, second) = net.draw, matrices(net.draw)
    kind, own = byte_type(draw), byte_type(draw)
    operands = [net.input(first, bytes_of(kind)), net.maybe_input(second, narrow_weights(draw, own))]
    for dtype, columns in ((kind, 0), (own, second[-1])):
        if not chance(draw, 3):
            break
        shape = (columns,) if columns and chance(draw) else ()
        operands.append(net.weight(shape, whole(0, 9, dtype)))
    return [net.node(op, *operands)], EXACT


@operators("QLinearMatMul")
def qlinear_matmul(net: Net, op: str) -> Drawn:
    draw, (first, second) = net.draw, matrices(net.draw)
    kind = byte_type(draw)
    own = np.int8 if kind is np.int8 else byte_type(draw)
    most = max(1, min(60, 2**23 // (255 * first[-1])))
    exact = chance(draw)

    def point(dtype: Any) -> Value:
        return net.constant(np.array(pick(draw, 0, 3, 120), dtype))

    shift = int(np.log2(first[-1]) / 2)
    y = net.node(op, net.input(first, bytes_of(kind)), scale(net, exact, -5, -3), point(kind),
                 net.maybe_input(second, whole(0 if own is np.uint8 else -most, most, own)),
                 scale(net, exact, -5, -3), net.constant(np.array(pick(draw, 0, 3), own)),
                 scale(net, exact, shift - 5, shift - 3), point(kind))
    return [y], EXACT if exact else Closeness(steps=1)


@operators("RNN", "LSTM", "GRU")
def recurrent(net: Net, op: str) -> Drawn:
    draw = net.draw
    gates = {"RNN": 1, "LSTM": 4, "GRU": 3}[op]
    steps, batch = integer(draw, 1, 6), pick(draw, 1, 2, 5)
    inputs, hidden = min(sizes.draw_channels(draw), 64), min(sizes.draw_channels(draw), 64)
    direction = pick(draw, "forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    x = net.input((steps, batch, inputs), normal, {axis: "TB"[axis] for axis in (0, 1) if chance(draw)}
                  if chance(draw, 4) else None)
    is_open = bool(net.inputs[x.name][2])
    operands: list[Value | None] = [x, net.weight((ways, gates * hidden, inputs), _small),
                                    net.weight((ways, gates * hidden, hidden), _small)]
    operands.append(net.weight((ways, 2 * gates * hidden), _small) if chance(draw) else None)
    lengths = not is_open and chance(draw, 3)
    operands.append(net.input((batch,), lambda rng, shape: rng.integers(1, steps + 1, shape).astype(np.int32))
                    if lengths else None)
    state = not is_open and chance(draw)
    operands.append(net.input((ways, batch, hidden)) if state else None)
    if op == "LSTM":
        operands.append(net.input((ways, batch, hidden)) if state else None)
        operands.append(net.weight((ways, 3 * hidden), _small) if chance(draw, 3) else None)
    while operands[-1] is None:
        operands.pop()
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if chance(draw, 4):
        attrs["clip"] = 0.5
    if op == "GRU":
        attrs["linear_before_reset"] = integer(draw, 0, 1)
    if op == "LSTM" and chance(draw, 6):
        attrs["input_forget"] = 1
    if chance(draw, 4):
        each = {"RNN": [pick(draw, "Tanh", "Relu", "Sigmoid")], "GRU": ["Sigmoid", pick(draw, "Tanh", "Relu")],
                "LSTM": ["Sigmoid", pick(draw, "Tanh", "Relu"), pick(draw, "Tanh", "Softsign")]}[op]
        attrs["activations"] = each * ways
    values = net.several(op, *operands, outputs=3 if op == "LSTM" else 2, **attrs)
    return values, Closeness(1e-3, 1e-4)


def _small(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (rng.uniform(-1, 1, shape) / max(1, shape[-1]) ** 0.5).astype(np.float32)


@family("attention", weight=2)
def attention(draw: Draw) -> Trial:
    """Scores, a mask, a softmax, and what they weigh, as exporters write it."""
    net = Net(draw)
    batch, heads, width = pick(draw, 1, 2), pick(draw, 1, 2, 4), pick(draw, 8, 16, 33, 64)
    queries, keys = pick(draw, 1, 5, 17, 33), sizes.draw_keys(draw)
    q = net.input((batch, heads, queries, width))
    k, v = (net.input((batch, heads, keys, width)) for _ in range(2))
    scale = net.constant(np.float32(width**-0.5))
    if chance(draw):
        q = net.node("Mul", q, scale)
    scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 1, 3, 2]))
    if chance(draw):
        scores = net.node(*(("Div", scores, net.constant(np.float32(width**0.5))) if chance(draw)
                            else ("Mul", scores, scale)))
    masked = integer(draw, 0, 3)
    if masked == 1:
        scores = net.node("Add", scores, net.input((batch, 1, pick(draw, 1, queries), keys), _mask))
    if masked == 2:
        scores = net.node("Where", net.input((1, 1, queries, keys), _truth), scores, net.constant(np.float32(-1e9)))
    y = net.node("MatMul", net.node("Softmax", scores, axis=-1), v)
    if chance(draw):
        y = net.node("Transpose", y, perm=[0, 2, 1, 3])
    return net.trial([y], Closeness(1e-3, 1e-4))


def _mask(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.where(rng.random(shape) < 0.3, -10000.0, 0.0).astype(np.float32)


def _truth(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    found = rng.random(shape) < 0.8
    found[..., :1] = True
    return found


# ---- operators of ONNX Runtime ---------------------------------------------------------------------------------


@operators("com.microsoft:QLinearAdd", "com.microsoft:QLinearMul")
def qlinear_binary(net: Net, op: str) -> Drawn:
    draw, kind, exact = net.draw, byte_type(net.draw), chance(net.draw)
    shape = (pick(draw, 1, 2), sizes.draw_channels(draw, 48), integer(draw, 1, 9), integer(draw, 1, 9))
    operands = []
    for each in (shape, pick(draw, shape, (shape[1], 1, 1), (1,))):
        operands += [net.input(each, bytes_of(kind)), scale(net, exact, -6, -2), _point(net, kind)]
    operands += [scale(net, exact, -5, -1), _point(net, kind)]
    y = net.node(op.partition(":")[2], *operands, domain=CONTRIB, like=[Value("", shape, np.dtype(kind))])
    return [y], EXACT if exact else Closeness(steps=1)


def _point(net: Net, dtype: Any) -> Value:
    return net.constant(np.array(pick(net.draw, 0, 3, 127, *((128, 255) if dtype is np.uint8 else (-5, -128))), dtype))


@operators("com.microsoft:QLinearSigmoid", "com.microsoft:QLinearLeakyRelu")
def qlinear_unary(net: Net, op: str) -> Drawn:
    kind, shape = byte_type(net.draw), (2, sizes.draw_channels(net.draw, 48), 5)
    exact = op.endswith("LeakyRelu") and chance(net.draw)
    y = net.node(op.partition(":")[2], net.input(shape, bytes_of(kind)), scale(net, exact, -6, -3), _point(net, kind),
                 scale(net, exact, -7, -5), _point(net, kind), domain=CONTRIB, like=[Value("", shape, np.dtype(kind))],
                 alpha=0.25 if op.endswith("LeakyRelu") else None)
    return [y], EXACT if exact else Closeness(steps=1)


@operators("com.microsoft:QLinearConcat")
def qlinear_concat(net: Net, op: str) -> Drawn:
    draw, kind = net.draw, byte_type(net.draw)
    parts = [net.input((1, sizes.draw_channels(draw, 48), 3, 4), bytes_of(kind)) for _ in range(integer(draw, 1, 3))]
    same = chance(draw)
    out = scale(net, True, -5, -3), _point(net, kind)
    operands: list[Value] = list(out)
    for part in parts:
        operands += [part, *(out if same else (scale(net, True, -5, -3), _point(net, kind)))]
    like = [Value("", (1, sum(part.shape[1] for part in parts), 3, 4), np.dtype(kind))]
    return [net.node(op.partition(":")[2], *operands, domain=CONTRIB, like=like, axis=1)], EXACT


@operators("com.microsoft:QLinearGlobalAveragePool", "com.microsoft:QLinearAveragePool")
def qlinear_pool(net: Net, op: str) -> Drawn:
    draw, kind = net.draw, byte_type(net.draw)
    channels, size = sizes.draw_channels(draw, 48), integer(draw, 2, 9)
    x = net.input((1, channels, size, size), bytes_of(kind))
    operands = [x, scale(net, False, -5, -3), _point(net, kind), scale(net, False, -5, -3), _point(net, kind)]
    attrs: dict[str, Any] = {}
    if op.endswith("QLinearAveragePool"):
        attrs = {"kernel_shape": [2, 2], "strides": [pick(draw, 1, 2)] * 2}
        size = (size - 2) // attrs["strides"][0] + 1
    else:
        size = 1
    like = [Value("", (1, channels, size, size), np.dtype(kind))]
    return [net.node(op.partition(":")[2], *operands, domain=CONTRIB, like=like, **attrs)], Closeness(steps=1)


@operators("com.microsoft:MatMulIntegerToFloat", "com.microsoft:DynamicQuantizeMatMul")
def products_to_float(net: Net, op: str) -> Drawn:
    draw, own = net.draw, byte_type(net.draw)
    rows, steps, columns = integer(draw, 1, 20), sizes.draw_channels(draw), sizes.draw_channels(draw)
    weights, scale = net.weight((steps, columns), narrow_weights(draw, own)), net.constant([0.01], np.float32)
    zero = net.constant([pick(draw, 0, 3)], own)
    like = [Value("", (rows, columns), _F32)]
    if op.endswith("ToFloat"):
        operands = [net.input((rows, steps), bytes_of(np.uint8)), weights, net.constant([0.02], np.float32), scale,
                    net.constant([pick(draw, 0, 128)], np.uint8), zero]
    else:
        operands = [net.input((rows, steps)), weights, scale, zero]
    if chance(draw):
        operands.append(net.weight((columns,), normal))
    return [net.node(op.partition(":")[2], *operands, domain=CONTRIB, like=like)], Closeness(1e-3, 2e-3)


@operators("com.microsoft:Gelu", "com.microsoft:FastGelu", "com.microsoft:QuickGelu", "com.microsoft:BiasGelu")
def gelus(net: Net, op: str) -> Drawn:
    x = net.input((2, 3, pick(net.draw, 8, 16, 17)))
    operands = [x, net.weight(x.shape[-1:], normal)] if op.endswith("BiasGelu") else [x]
    return [net.node(op.partition(":")[2], *operands, domain=CONTRIB, like=[x])], SUMS


@operators("com.microsoft:FusedMatMul")
def fused_matmul(net: Net, op: str) -> Drawn:
    steps, columns = (sizes.draw_channels(net.draw) for _ in range(2))
    turned = [integer(net.draw, 0, 1) for _ in range(2)]
    shapes = [(2, steps, 5) if turned[0] else (2, 5, steps), (columns, steps) if turned[1] else (steps, columns)]
    like = [Value("", (2, 5, columns), _F32)]
    return [net.node(op.partition(":")[2], net.input(shapes[0]), net.weight(shapes[1]), domain=CONTRIB, like=like,
                     transA=turned[0], transB=turned[1], alpha=pick(net.draw, 1.0, 0.5))], SUMS


@operators("com.microsoft:SkipLayerNormalization", "com.microsoft:SkipSimplifiedLayerNormalization")
def skip_norm(net: Net, op: str) -> Drawn:
    shape = (2, 3, pick(net.draw, 8, 16, 33))
    x, skip = net.input(shape), net.input(shape)
    count = 1 if "Simplified" in op else integer(net.draw, 1, 3)
    return [net.node(op.partition(":")[2], x, skip, *(net.weight(shape[-1:], normal) for _ in range(count)),
                     domain=CONTRIB, like=[x], epsilon=1e-3)], Closeness(2e-3, 2e-3)


@operators("com.microsoft:DynamicQuantizeLSTM")
def dynamic_lstm(net: Net, op: str) -> Drawn:
    draw, own = net.draw, byte_type(net.draw)
    steps, batch, inputs, hidden = integer(draw, 1, 4), 1, sizes.draw_channels(draw, 48), pick(draw, 4, 16, 17)
    x = net.input((steps, batch, inputs))
    operands: list[Value | None] = [x, net.weight((1, inputs, 4 * hidden), narrow_weights(draw, own)),
                                    net.weight((1, hidden, 4 * hidden), narrow_weights(draw, own)),
                                    net.weight((1, 8 * hidden), _small), None, None, None, None]
    for _ in range(2):
        operands += [net.constant([0.01], np.float32), net.constant([0], own)]
    like = [Value("", (steps, 1, batch, hidden), _F32), *[Value("", (1, batch, hidden), _F32)] * 2]
    return net.several(op.partition(":")[2], *operands, outputs=3, domain=CONTRIB, like=like, hidden_size=hidden,
                       direction="forward"), Closeness(5e-3, 5e-3)


# ---- quantisation ----------------------------------------------------------------------------------------------


@operators("QuantizeLinear", "DequantizeLinear")
def linear(net: Net, op: str) -> Drawn:
    draw = net.draw
    shape, exact = (pick(draw, 1, 2), sizes.draw_channels(draw, 48), integer(draw, 1, 9)), chance(draw)
    kind = pick(draw, np.uint8, np.int8, np.uint16, np.int16) if op == "QuantizeLinear" else byte_type(draw)
    per_axis = chance(draw, 3)
    count = shape[1] if per_axis else None
    factors = 2.0 ** (net.rng.integers(-4, 1, count) if exact else net.rng.uniform(-4, 0, count))
    operands = [net.constant(np.asarray(factors, np.float32))]
    if chance(draw):
        points = net.rng.integers(0, 100, count)
        operands.append(net.constant(np.asarray(points, kind)))
    elif op == "QuantizeLinear":
        kind = np.uint8
    if op == "DequantizeLinear":
        return [net.node(op, net.input(shape, bytes_of(kind)), *operands, axis=1)], EXACT
    x = net.input(shape, elements(np.float32, low=-9, high=9) if not exact else _halves)
    return [net.node(op, x, *operands, axis=1)], EXACT if exact else Closeness(steps=1)


def _halves(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Multiples of 1/32, among them ties."""
    return (rng.integers(-400, 400, shape) / 32).astype(np.float32)


@operators("DynamicQuantizeLinear")
def dynamic(net: Net, op: str) -> Drawn:
    x = net.input((2, pick(net.draw, 1, 3, 16), pick(net.draw, 1, 5, 17)))
    like = [Value("", x.shape, _U8), Value("", (), _F32), Value("", (), _U8)]
    return net.several(op, x, outputs=3, like=like), Closeness(steps=1)
