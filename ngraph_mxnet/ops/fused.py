"""Ops that passes make of several: each is defined by the core ops it stands for.

All end in a clamp to [lower, upper], which stands for the activation: relu is lower=0, none is -inf and inf.
An f16 reference is computed in f32 throughout and cast back once.
"""

from __future__ import annotations

import math

import numpy as np

from ngraph_mxnet.ir.opdef import by_result, register_op
from ngraph_mxnet.ir.types import Float
from ngraph_mxnet.ops.common import (
    CLAMP,
    FLOAT,
    along_axis,
    clamp_array,
    in_f32,
    require,
    require_clamp,
    require_domain,
    require_rank,
    require_shape,
)
from ngraph_mxnet.ops.convolution import CONVOLUTION_ATTRS, convolution_array, convolution_type, convolution_work
from ngraph_mxnet.ops.linear import MATMUL_ATTRS, matmul_array, matmul_type, matmul_work
from ngraph_mxnet.ops.normalization import require_channel_vectors


def _clamped(array: np.ndarray, attrs) -> np.ndarray:
    return clamp_array(array, attrs["lower"], attrs["upper"])


def _convolution_bias_type(types, attrs):
    """Data, weights and bias T[O], and perhaps a residual of the result's type."""
    require_domain(types, FLOAT)
    require_clamp(attrs)
    result = convolution_type(types, attrs)
    require_shape(types[2], (result.shape[1],), position=2)
    if len(types) > 3:
        require_shape(types[3], result.shape, position=3)
    return result


def _convolution_bias(inputs, attrs) -> np.ndarray:
    return convolution_array(inputs, attrs) + along_axis(inputs[2], 1, inputs[0].ndim)


@register_op("convolution_bias", operands=3, attrs={**CONVOLUTION_ATTRS, **CLAMP}, kind="convolution",
             work=convolution_work(3))
def convolution_bias(types, attrs):
    """clamp(convolution(data, weights) + bias[O])."""
    return _convolution_bias_type(types, attrs)


@convolution_bias.reference
@in_f32
def _(inputs, attrs):
    return _clamped(_convolution_bias(inputs, attrs), attrs)


@register_op("convolution_bias_add", operands=4, attrs={**CONVOLUTION_ATTRS, **CLAMP}, kind="convolution",
             work=convolution_work(4))
def convolution_bias_add(types, attrs):
    """clamp(convolution(data, weights) + bias[O] + residual), the residual of the result's type."""
    return _convolution_bias_type(types, attrs)


@convolution_bias_add.reference
@in_f32
def _(inputs, attrs):
    return _clamped(_convolution_bias(inputs, attrs) + inputs[3], attrs)


@register_op(
    "convolution_bias_add_scale_shift",
    operands=6,
    attrs={
        **CONVOLUTION_ATTRS,
        **CLAMP,
        "lower2": Float(-math.inf),
        "upper2": Float(math.inf),
    },
    kind="convolution",
    work=convolution_work(7),
)
def convolution_bias_add_scale_shift(types, attrs):
    """(sum, clamp2(sum * scale[O] + shift[O])).

    sum = clamp(convolution(data, weights) + bias[O] + residual); clamp2 is to [lower2, upper2].
    """
    result = _convolution_bias_type(types[:4], attrs)
    require(
        attrs["lower2"] <= attrs["upper2"],
        "lower2 and upper2",
        f"{attrs['lower2']} and {attrs['upper2']}",
        "lower2 <= upper2",
    )
    require_channel_vectors([result, *types[4:]], 1)
    return [result, result]


@convolution_bias_add_scale_shift.reference
@in_f32
def _(inputs, attrs):
    total = _clamped(_convolution_bias(inputs, attrs) + inputs[3], attrs)
    scale, shift = (along_axis(v, 1, total.ndim) for v in inputs[4:])
    return [total, clamp_array(total * scale + shift, attrs["lower2"], attrs["upper2"])]


@register_op("matmul_bias", operands=3, attrs={**MATMUL_ATTRS, **CLAMP}, kind="product", work=matmul_work(3))
def matmul_bias(types, attrs):
    """clamp(matmul(a, b) + bias[N]), N the last axis of the product."""
    require_domain(types, FLOAT)
    require_clamp(attrs)
    result = matmul_type(types, attrs)
    require_shape(types[2], result.shape[-1:], position=2)
    return result


@matmul_bias.reference
@in_f32
def _(inputs, attrs):
    return _clamped(matmul_array(inputs, attrs) + inputs[2], attrs)


@register_op("scale_shift", operands=3, attrs=CLAMP, work=by_result(simple=3), tolerant=True, by_channel=True)
def scale_shift(types, attrs):
    """T[N, C, ...], T[C], T[C] -> T[N, C, ...]: clamp(data * scale + shift), per channel on axis 1."""
    require_rank(types[0], 2)
    require_clamp(attrs)
    require_channel_vectors(types, 1)
    return types[0]


@scale_shift.reference
@in_f32
def _(inputs, attrs):
    data = inputs[0]
    scale, shift = (along_axis(v, 1, data.ndim) for v in inputs[1:])
    return _clamped(data * scale + shift, attrs)
