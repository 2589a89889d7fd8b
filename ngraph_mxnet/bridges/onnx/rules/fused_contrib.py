"""The operators of `com.microsoft` that stand for several: ONNX Runtime's optimiser and its converters write them.

(onnxruntime's docs/ContribOperators.md.)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ngraph_mxnet.bridges.onnx.rules.convolution import convolution
from ngraph_mxnet.bridges.onnx.rules.elementwise import hard_sigmoid_of, tanh_gelu
from ngraph_mxnet.bridges.onnx.rules.linear import gemm, product
from ngraph_mxnet.bridges.onnx.rules.normalization import over_root_mean_square
from ngraph_mxnet.bridges.onnx.rules.quantization import MICROSOFT
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.compositions.tensors import scalar
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import i32

_EPSILON = 1e-12
"""What normalisations here add to the variance unless they say else."""


@rule("Gelu", "BiasGelu", "FastGelu", "QuickGelu", domain=MICROSOFT)
def gelu(b: Builder, call: Call) -> Value:
    """Of x, or of x and a bias: by erf; Fast by tanh; Quick is x sigmoid(alpha x)."""
    x, bias = call.input(0), call.optional(1)
    if bias is not None:
        x = b.add(x, bias)
    if call.op == "FastGelu":
        return tanh_gelu(b, x)
    if call.op == "QuickGelu":
        return b.multiply(x, b.sigmoid(b.multiply(x, scalar(b, call.attrs.float("alpha", 1.702), x))))
    return b.gelu(x)


# ---- products ------------------------------------------------------------------------------------------------


def _turned(b: Builder, x: Value, last: bool, batch: bool) -> Value:
    """With the first axis behind those of the batch, and then with the last two exchanged."""
    order = list(range(x.type.rank))
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
    out, alpha = product(b, left, right), call.attrs.float("alpha", 1.0)
    return out if alpha == 1 else b.multiply(out, scalar(b, alpha, out))


def _activated(b: Builder, x: Value, name: str, parameters: tuple[float, ...]) -> Value:
    if name in ("", "Relu", "Sigmoid", "Tanh"):
        return b.apply(name.lower(), x) if name else x
    if name == "LeakyRelu" and len(parameters) == 1:
        return b.leaky_relu(x, slope=parameters[0])
    if name == "Clip" and len(parameters) == 2:
        return b.clamp(x, lower=parameters[0], upper=parameters[1])
    if name == "HardSigmoid" and len(parameters) == 2:
        return hard_sigmoid_of(b, x, *parameters)
    raise UnsupportedError(f"activation {name} of {len(parameters)} parameters; supported: Relu, Sigmoid, Tanh, "
                           "LeakyRelu of one, Clip and HardSigmoid of two")


@rule("FusedConv", domain=MICROSOFT)
def fused_convolution(b: Builder, call: Call) -> Value:
    """A convolution, plus a tensor of the result's shape, and an activation."""
    out, added = convolution(b, call), call.optional(3)
    if added is not None:
        out = b.add(out, added)
    return _activated(b, out, call.attrs.string("activation", ""), call.attrs.floats("activation_params", ()))


@rule("FusedGemm", domain=MICROSOFT)
def fused_gemm(b: Builder, call: Call) -> Value:
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    given = tuple(call.attrs.float(name, None) for name in names)
    out = gemm(b, replace(call, opset=13))  # as Gemm is since it takes any C that broadcasts
    return _activated(b, out, call.attrs.string("activation", ""), tuple(each for each in given if each is not None))


# ---- normalisations ------------------------------------------------------------------------------------------


def _normalized(b: Builder, x: Value, gamma: Value, beta: Value | None, epsilon: float) -> Value:
    shift = b.constant(np.zeros(gamma.shape), gamma.type.element) if beta is None else beta
    return b.layer_norm(x, gamma, shift, epsilon=epsilon)


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(b: Builder, call: Call) -> list[Value | None]:
    """The sum of the first two inputs and a bias, normalised along the last axis; Simplified takes no mean off. The sum
    is the last output; the statistics between, which only training reads, are not computed."""
    simplified, epsilon = call.op.startswith("SkipS"), call.attrs.float("epsilon", _EPSILON)
    total, gamma = b.add(call.input(0), call.input(1)), call.input(2)
    bias = call.optional(3 if simplified else 4)
    if bias is not None:
        total = b.add(total, bias)
    if simplified:
        out = b.multiply(over_root_mean_square(b, total, total.type.rank - 1, epsilon), gamma)
    else:
        out = _normalized(b, total, gamma, call.optional(3), epsilon)
    return [out, None, None, total]


@rule("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(b: Builder, call: Call) -> list[Value]:
    """The embeddings of words, places and segments, summed and normalised; how many places the mask leaves; the sum."""
    words, segments, mask, places = call.input(0), *(call.optional(position) for position in (1, 7, 8))
    call.attrs.ignore("mask_index_type")
    if words.type.rank != 2:
        raise ModelError(f"input 0: found {words.type}, expected [batch, places]")
    if places is None:
        places = b.constant(np.arange(words.shape[1])[None], i32)
    total = b.add(b.gather(call.input(2), words, axis=0), b.gather(call.input(3), places, axis=0))
    if segments is not None:
        total = b.add(total, b.gather(call.input(4), segments, axis=0))
    out = _normalized(b, total, call.input(5), call.input(6), call.attrs.float("epsilon", _EPSILON))
    if mask is None:
        left = b.constant(np.zeros(words.shape[0]), i32)
    else:
        left = b.reduce_sum(b.convert(b.equal(mask, scalar(b, 1, mask)), element=i32), axes=(1,))
    return [out, left, total]
