"""Operators of com.microsoft: fused ones, and quantised ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx.rules.elementwise import ACTIVATIONS, softmax, tanh_gelu
from ngraph_mxnet.frontends.onnx.rules.linear import (
    MICROSOFT,
    at_scale,
    convolution,
    dequantized,
    dynamically_quantized,
    gemm,
    integer_product,
    product,
    quantized,
)
from ngraph_mxnet.frontends.onnx.rules.recurrent import Products, recurrent_of
from ngraph_mxnet.frontends.onnx.rules.reduction import over_root_mean_square, pool
from ngraph_mxnet.frontends.onnx.rules.registry import Call, normal_axis, rule
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, f32, i32, u8
from ngraph_mxnet.ops.compositions import (
    channels_first,
    channels_last,
    converted,
    place_of,
    reshaped,
    scalar,
    slice_axis,
    stacked,
    times,
)

_EPSILON = 1e-12
"""The number that normalisations here add to the variance, unless an attribute gives another."""


@rule("Gelu", "BiasGelu", "FastGelu", "QuickGelu", domain=MICROSOFT)
def gelu(b: Builder, call: Call, x: Value, bias: Value | None = None) -> Value:
    """Lower Gelu of x, or of x plus a bias. Gelu and BiasGelu use erf, FastGelu uses tanh.
    QuickGelu is x sigmoid(alpha x)."""
    if bias is not None:
        x = x + bias
    if call.op == "FastGelu":
        return tanh_gelu(b, x)
    if call.op == "QuickGelu":
        return x * b.sigmoid(x * call.attrs.float("alpha", 1.702))
    return b.gelu(x)


# ---- products ------------------------------------------------------------------------------------------------


def _turned(b: Builder, x: Value, last: bool, batch: bool) -> Value:
    """With the first axis behind those of the batch, and then with the last two exchanged."""
    order = list(range(x.rank))
    if batch and len(order) < 3:
        raise ModelError(f"found {x.type}, expected rank 3 or more with transBatchA or transBatchB")
    if batch:
        order = [*order[1:-1], 0, order[-1]]
    if last and len(order) > 1:
        order[-2:] = order[:-3:-1]
    return x if order == sorted(order) else b.transpose(x, order=tuple(order))


@rule("FusedMatMul", domain=MICROSOFT)
def fused_matmul(b: Builder, call: Call) -> Value:
    """alpha A B, of either transposed."""
    left, right = (
        _turned(b, call.input(place), call.attrs.bool(f"trans{name}"), call.attrs.bool(f"transBatch{name}"))
        for place, name in enumerate("AB"))
    return times(product(b, left, right), call.attrs.float("alpha", 1.0))


def _activated(b: Builder, x: Value, name: str, parameters: tuple[float, ...]) -> Value:
    if name in ("", "Relu", "Sigmoid", "Tanh"):
        return b.apply(name.lower(), x) if name else x
    if name == "Clip" and len(parameters) == 2:
        return b.clamp(x, lower=parameters[0], upper=parameters[1])
    if (name, len(parameters)) in (("LeakyRelu", 1), ("HardSigmoid", 2)):
        return ACTIVATIONS[name][0](b, x, *parameters)
    raise UnsupportedError(f"activation {name} of {len(parameters)} parameters; supported: Relu, Sigmoid, Tanh, "
                           "LeakyRelu of one, Clip and HardSigmoid of two")


@rule("FusedConv", domain=MICROSOFT)
def fused_convolution(b: Builder, call: Call) -> Value:
    """A convolution, plus a tensor of the result's shape, and an activation."""
    out, added = convolution(b, call), call.optional(3)
    if added is not None:
        out = out + added
    return _activated(b, out, call.attrs.string("activation", ""), call.attrs.floats("activation_params", ()))


@rule("FusedGemm", domain=MICROSOFT)
def fused_gemm(b: Builder, call: Call) -> Value:
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    given = tuple(call.attrs.float(name, None) for name in names)
    out = gemm(b, replace(call, opset=13))  # as Gemm is since it takes any C that broadcasts
    return _activated(b, out, call.attrs.string("activation", ""), tuple(each for each in given if each is not None))


# ---- normalisations ------------------------------------------------------------------------------------------


def _normalized(b: Builder, x: Value, gamma: Value, beta: Value | None, epsilon: float) -> Value:
    shift = b.constant(np.zeros(gamma.shape), gamma.element) if beta is None else beta
    return b.layer_norm(x, gamma, shift, epsilon=epsilon)


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(b: Builder, call: Call) -> list[Value | None]:
    """The sum of the first two inputs and a bias, normalised along the last axis; Simplified takes no mean off. The sum
    is the last output; the statistics between, which only training reads, are not computed."""
    simplified, epsilon = call.op.startswith("SkipS"), call.attrs.float("epsilon", _EPSILON)
    total, gamma = call.input(0) + call.input(1), call.input(2)
    bias = call.optional(3 if simplified else 4)
    if bias is not None:
        total = total + bias
    if simplified:
        out = over_root_mean_square(b, total, total.rank - 1, epsilon) * gamma
    else:
        out = _normalized(b, total, gamma, call.optional(3), epsilon)
    return [out, None, None, total]


@rule("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(b: Builder, call: Call) -> list[Value]:
    """The embeddings of words, places and segments, summed and normalised; how many places the mask leaves; the sum."""
    words, segments, mask, places = call.input(0), *(call.optional(position) for position in (1, 7, 8))
    call.attrs.ignore("mask_index_type")
    if words.rank != 2:
        raise ModelError(f"input 0: found {words.type}, expected [batch, places]")
    if places is None:
        places = b.constant(np.arange(words.shape[1])[None], i32)
    total = b.gather(call.input(2), words, axis=0) + b.gather(call.input(3), places, axis=0)
    if segments is not None:
        total = total + b.gather(call.input(4), segments, axis=0)
    out = _normalized(b, total, call.input(5), call.input(6), call.attrs.float("epsilon", _EPSILON))
    if mask is None:
        left = b.constant(np.zeros(words.shape[0]), i32)
    else:
        left = b.reduce_sum(b.convert(b.equal(mask, 1), element=i32), axes=(1,))
    return [out, left, total]


MOST_ROUNDED_STEPS = 256
"""The most steps, of both directions together, of an LSTM whose state is quantised, for which each step is repeated in
the graph: half a dozen such are within the bound on a model's nodes."""


def _read(b: Builder, call: Call, position: int, axis: int = 1) -> Value:
    """The reals of the tensor that is input `position`; the two inputs behind it are its scale and zero point."""
    return dequantized(b, call.input(position), call.input(position + 1), call.optional(position + 2), axis)


def _written(b: Builder, call: Call, x: Value, position: int, element: ElementType, axis: int = 1) -> Value:
    """x quantised: input `position` is the scale, the one behind it the zero point."""
    return quantized(b, x, call.input(position), call.optional(position + 1), element, axis)


@rule("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def arithmetic(b: Builder, call: Call) -> Value:
    """ONNX Runtime rounds these with the zero point: of halves an odd one turns those that are even then."""
    out = b.apply("add" if call.op == "QLinearAdd" else "multiply", _read(b, call, 0), _read(b, call, 3))
    element, zero = call.input(0).element, call.optional(7)
    known = None if zero is None else call.static_value(zero)
    if zero is None or (known is not None and not (known % 2).any()):
        return _written(b, call, out, 6, element)
    steps = out / reshaped(b, call.input(6), ())
    moved = steps + reshaped(b, b.convert(zero, element=f32), ())
    return quantized(b, moved, b.constant(np.float32(1)), None, element)


@rule("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def activation(b: Builder, call: Call) -> Value:
    x = _read(b, call, 0)
    out = b.sigmoid(x) if call.op == "QLinearSigmoid" else b.leaky_relu(x, slope=call.attrs.float("alpha", 0.01))
    return _written(b, call, out, 3, call.input(0).element)


@rule("QLinearSoftmax", domain=MICROSOFT)
def quantized_softmax(b: Builder, call: Call) -> Value:
    """Softmax as the operator set defines it that the attribute `opset` names."""
    inner = replace(call, op="Softmax", inputs=[_read(b, call, 0)], opset=call.attrs.int("opset"))
    return _written(b, call, softmax(b, inner), 3, call.input(0).element)


@rule("QLinearConcat", domain=MICROSOFT)
def quantized_concat(b: Builder, call: Call) -> Value:
    """Inputs are the result's scale and zero point, then three for each tensor."""
    if len(call.inputs) < 5 or len(call.inputs) % 3 != 2:
        raise ModelError(f"found {len(call.inputs)} inputs, expected 2 and 3 for each tensor")
    parts = [_read(b, call, position) for position in range(2, len(call.inputs), 3)]
    out = b.concat(*parts, axis=normal_axis(call.attrs.int("axis"), parts[0].rank))
    return _written(b, call, out, 0, call.input(2).element)


@rule("QLinearGlobalAveragePool", "QLinearAveragePool", domain=MICROSOFT)
def quantized_pool(b: Builder, call: Call) -> Value:
    x, last = _read(b, call, 0), call.attrs.bool("channels_last")
    if last:
        x = channels_first(b, x)
    if call.op == "QLinearGlobalAveragePool":
        out: Value = b.reduce_mean(x, axes=tuple(range(2, x.rank)), keep_dims=True)
    else:
        pooled = pool(b, replace(call, inputs=[x]))
        assert isinstance(pooled, Value)
        out = pooled
    if last:
        out = channels_last(b, out)
    return _written(b, call, out, 3, call.input(0).element)


# ---- recurrence ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Gates:
    """A weight [D, I, 4 H] of 8 bits, less its zero point, and the scales [D, 1, 4 H], or of one column."""

    whole: Value
    scale: Value

    def product(self, b: Builder) -> Callable[[int, Value, Value], Value]:
        """Return a function of a direction, rows of whole numbers and the rows' scale: the scaled product of the rows
        and the direction's weight. Float32 sums whole numbers up to 2^24 without rounding."""
        parts = [[place_of(b, value, 0, number) for value in (self.whole, self.scale)]
                 for number in range(self.whole.shape[0])]

        def multiplied(number: int, rows: Value, step: Value) -> Value:
            whole, scale = parts[number]
            return b.matmul(rows, whole) * (scale * step)

        return multiplied


def _gates(b: Builder, call: Call, position: int, scales: int) -> _Gates:
    """Read the gates' weight from input `position`, its scale from input `scales`, and its zero point from the input
    after that."""
    weight = call.input(position)
    if weight.rank != 3:
        raise ModelError(f"input {position}: found {weight.type}, expected directions, rows and the gates' columns")
    count, _, columns = weight.shape

    def ready(parameter: Value) -> Value:
        if parameter.shape not in ((count,), (count, columns)):
            raise ModelError(f"scale or zero point {parameter.type} for weights {weight.type}, expected one for each "
                             "direction or for each of its columns")
        return b.reshape(parameter, shape=(count, 1, parameter.size // count))

    wide, zero = b.convert(weight, element=f32), call.optional(scales + 1)
    if zero is not None:
        wide = wide - b.convert(ready(zero), element=f32)
    return _Gates(wide, ready(call.input(scales)))


def _rounding(b: Builder, like: Value) -> Callable[[Value], tuple[Value, Value]]:
    """Return a function that quantises a tensor to 8 bits by the range of all its elements. The function gives the
    quantised numbers less the zero point, and their scale. The function has fewer nodes than `dynamically_quantized`,
    because each step repeats them."""
    nought, levels, smallest = (scalar(b, number, like) for number in (0, 255, float(np.finfo(np.float32).tiny)))

    def rounded(x: Value) -> tuple[Value, Value]:
        axes = tuple(range(x.rank))
        least, most = b.minimum(b.reduce_min(x, axes=axes), nought), b.maximum(b.reduce_max(x, axes=axes), nought)
        step = b.maximum((most - least) / levels, smallest)
        zero = b.round(-least / step)
        return b.clamp(b.round(x / step) + zero, lower=0.0, upper=255.0) - zero, step

    return rounded


@rule("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(b: Builder, call: Call, x: Value) -> list[Value]:
    """An LSTM whose data are quantised by their range, all steps together, and its state before each step. (ONNX
    Runtime does the latter for the rows of each of its threads; here it is for all rows of the batch.) In longer
    sequences the state stays as it is."""
    of_inputs, of_state = _gates(b, call, 1, 8), _gates(b, call, 2, 10)
    rounded = _rounding(b, x)
    whole, step = rounded(x)
    weights = [b.transpose(gates.whole * gates.scale, order=(0, 2, 1)) for gates in (of_inputs, of_state)]
    steps = weights[0].shape[0] * x.shape[0] if x.rank else 0
    if steps > MOST_ROUNDED_STEPS:
        return recurrent_of(b, replace(call, op="LSTM", inputs=[whole * step, *weights, *call.inputs[3:8]]), None)
    first, later = of_inputs.product(b), of_state.product(b)
    products = Products(lambda number, rows: first(number, rows, step),
                        lambda number, hidden: later(number, *rounded(hidden)))
    return recurrent_of(b, replace(call, op="LSTM", inputs=[whole, *weights, *call.inputs[3:8]]), products)


# ---- products ------------------------------------------------------------------------------------------------


def _real(b: Builder, sums: Value, scales: Sequence[Value], bias: Value | None) -> Value:
    """i32 sums times both scales, each one number or one for each column, plus a bias."""
    out = at_scale(b, b.convert(sums, element=f32), scales)
    return out if bias is None else out + bias


@rule("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(b: Builder, call: Call) -> Value:
    """The left operand quantised by its range, a product of integers, float32 again."""
    left, scale, zero = dynamically_quantized(b, call.input(0))
    return _real(b, integer_product(b, left, call.input(1), zero, call.optional(3)), [scale, call.input(2)],
                   call.optional(4))


@rule("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(b: Builder, call: Call) -> Value:
    sums = integer_product(b, call.input(0), call.input(1), call.optional(4), call.optional(5))
    return _real(b, sums, [call.input(2), call.input(3)], call.optional(6))


def _turned_matrix(b: Builder, call: Call, position: int, name: str) -> Value:
    """A matrix, transposed if the attribute says so."""
    x = call.input(position)
    return b.transpose(x, order=(1, 0)) if call.attrs.bool(name) else x


@rule("QGemm", domain=MICROSOFT)
def quantized_gemm(b: Builder, call: Call) -> Value:
    """alpha (A B + C), where C has whole numbers at the scale of A B; quantised if there is a scale for the result."""
    left, right, bias = _turned_matrix(b, call, 0, "transA"), _turned_matrix(b, call, 3, "transB"), call.optional(6)
    sums = integer_product(b, left, right, call.optional(2), call.optional(5))
    if bias is not None:
        sums = sums + bias
    out = times(_real(b, sums, [call.input(1), call.input(4)], None), call.attrs.float("alpha", 1.0))
    if call.optional(7) is None:
        return out
    return _written(b, call, out, 7, call.input(0).element, -1)


def _digits(b: Builder, x: Value, bits: int) -> Value:
    """The numbers of `bits` bits of which the last axis' bytes are made, lowest first, in float32."""
    base, left = 1 << bits, b.convert(x, element=f32)
    parts = []
    for _ in range(8 // bits):
        higher = b.floor(left * (1 / base))
        parts.append(left - higher * base)
        left = higher
    return b.reshape(stacked(b, parts, x.rank), shape=(*x.shape[:-1], x.shape[-1] * len(parts)))


@rule("MatMulNBits", domain=MICROSOFT)
def matmul_of_bits(b: Builder, call: Call, x: Value, packed: Value) -> Value:
    """A product with a matrix [columns, rows] of 2, 4 or 8 bits, which has a scale and a zero point for each block of a
    column."""
    attrs = call.attrs
    rows, columns, bits, block = (attrs.int(name) for name in ("K", "N", "bits", "block_size"))
    attrs.ignore("accuracy_level")
    if bits not in (2, 4, 8) or block < 1 or call.optional(4) is not None:
        raise UnsupportedError(f"bits={bits}, block_size={block}, g_idx {'not ' * (call.optional(4) is None)}given; "
                               "supported: 2, 4 or 8 bits, without g_idx")
    blocks = -(-rows // block)
    if packed.shape != (columns, blocks, block * bits // 8):
        raise ModelError(f"found weights {packed.type}, expected {columns} columns of {blocks} blocks of "
                         f"{block * bits // 8} bytes")
    zero = call.optional(3)
    if zero is None:
        offset: Value = b.constant(float(1 << bits - 1), f32)
    elif zero.element == u8:
        each = _digits(b, b.reshape(zero, shape=(columns, -(-blocks * bits // 8))), bits)
        offset = b.reshape(slice_axis(b, each, 1, 0, blocks), shape=(columns, blocks, 1))
    else:
        offset = b.convert(b.reshape(zero, shape=(columns, blocks, 1)), element=f32)
    scale = b.convert(b.reshape(call.input(2), shape=(columns, blocks, 1)), element=f32)
    whole = (_digits(b, packed, bits) - offset) * scale
    weight = slice_axis(b, b.reshape(whole, shape=(columns, blocks * block)), 1, 0, rows)
    out = product(b, x, converted(b, b.transpose(weight, order=(1, 0)), x))
    bias = call.optional(5)
    return out if bias is None else out + bias
