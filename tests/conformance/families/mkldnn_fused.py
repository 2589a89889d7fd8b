"""What MXNet's MKL-DNN backend fuses, quantised and not.

A processor without VNNI saturates the sums of two products in 16 bits, and halves the weights for signed data. So
unsigned data stay within 7 bits here, and weights for signed data are multiples of 2 when they are quantised.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, dims, maybe, pick

Body = list[tuple[str, dict[str, Any], int]]
_RELU: tuple[str, dict[str, Any], int] = ("Activation", {"act_type": "relu"}, 0)


def _data(shape: tuple[int, ...], dtype: str) -> Operand:
    return Operand(shape, dtype, 0, 127) if dtype == "uint8" else Operand(shape, dtype, -128, 127)


def _end(value: float) -> Operand:
    return Operand((1,), values=[value])


def _range(draw: Draw, dtype: str) -> list[Operand]:
    low = 0.0 if dtype == "uint8" else -draw(st.floats(0.125, 8.0, width=32))
    return [_end(low), _end(draw(st.floats(0.125, 8.0, width=32)))]


def _even(draw: Draw, shape: tuple[int, ...]) -> Operand:
    """A weight whose rows quantise to multiples of 2, the largest of them to -128."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    weight = rng.integers(-31, 32, shape) * 2 / 127.5
    weight.reshape(shape[0], -1)[:, 0] = -1
    return Operand(shape, values=weight)


def _calibrated(draw: Draw, unsigned: bool = False) -> dict[str, Any]:
    least = 0.0 if unsigned else pick(draw, -2.0, -40.0)
    return {"min_calib_range": least, "max_calib_range": draw(st.floats(1.0, 60.0))}


def _convolution(draw: Draw) -> Case:
    quantized, channels, filters = draw(st.integers(0, 4)) > 0, pick(draw, 3, 8, 16), pick(draw, 4, 8, 20)
    dtype = pick(draw, "uint8", "int8") if quantized else "float32"
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(2))
    sizes = tuple(size + draw(st.integers(0, 5)) for size in kernel)
    stride = pick(draw, (1, 1), (2, 2))
    image = (pick(draw, 1, 2), channels, *sizes)
    inner = {"kernel": kernel, "num_filter": filters, "stride": stride, "no_bias": draw(st.booleans())}
    shape = (filters, channels, *kernel)
    operands = [_data(image, dtype) if quantized else Operand(image),
                _even(draw, shape) if dtype == "int8" else Operand(shape)]
    body: Body = [("Convolution", inner, 1 if inner["no_bias"] else 2)]
    attrs: dict[str, Any] = {"quantized": "true"} if quantized else {}
    if not inner["no_bias"]:
        operands.append(Operand((filters,)))
    if dtype != "int8" and draw(st.booleans()):
        attrs["with_bn"] = "true"
        body.append(("BatchNorm", maybe(draw, fix_gamma=draw(st.booleans()), eps=1e-4), 4))
        operands += [Operand((filters,), low=low) for low in (0.2, -2.0, -2.0, 0.2)]
    act, total = draw(st.booleans()), draw(st.booleans())
    if act:
        attrs["with_act"] = "true"
        clip = ("clip", {"a_min": 0, "a_max": 6}, 0)
        leaky = ("LeakyReLU", {"act_type": "leaky", "slope": 0.1}, 0)
        body.append(pick(draw, _RELU, leaky, *([] if total else [clip])))
    ranges = _range(draw, dtype) if quantized else []
    relu = False
    if total:
        attrs["with_sum"] = "true"
        body.append(("elemwise_add", {}, 1))
        result = (image[0], filters, *((size - k) // s + 1 for size, k, s in zip(sizes, kernel, stride, strict=True)))
        other = pick(draw, "uint8", "int8")
        operands.append(_data(result, other) if quantized else Operand(result))
        ranges += _range(draw, other) if quantized else []
        relu = (not act or not quantized) and draw(st.booleans())
        if relu:
            attrs["with_postsum_act"] = "true"
            body.append(_RELU)
    if quantized and draw(st.booleans()):
        attrs |= _calibrated(draw, relu)
    return Case([*operands, *ranges], attrs, body=body, outputs=3 if quantized else 1)


def _fully_connected(draw: Draw) -> Case:
    quantized, dtype, units = draw(st.integers(0, 4)) > 0, pick(draw, "uint8", "int8"), pick(draw, 1, 5, 16, 33)
    shape, no_bias = dims(draw, 2), draw(st.booleans())
    width = int(np.prod(shape[1:]))
    body: Body = [("FullyConnected", {"num_hidden": units, "no_bias": no_bias}, 1 if no_bias else 2)]
    if not quantized:
        return Case([Operand(shape), Operand((units, width)), *([] if no_bias else [Operand((units,))])], body=body)
    attrs: dict[str, Any] = {"quantized": "true"}
    by_row = dtype == "uint8" and draw(st.integers(0, 2)) == 2
    kind = pick(draw, "float", "8 bits", *([] if by_row else ["32 bits"]))
    outputs = 1 if kind == "float" else 3
    if kind == "float":
        attrs["enable_float_output"] = "true"
        if draw(st.booleans()):
            attrs["with_eltwise"] = "true"
            body.append(pick(draw, _RELU, ("Activation", {"act_type": "tanh"}, 0), ("abs", {}, 0)))
    else:
        relu = draw(st.booleans())
        attrs |= _calibrated(draw, relu) if kind == "8 bits" else {}
        if relu:
            attrs["with_eltwise"] = "true"
            body.append(_RELU)
    if by_row:
        attrs["channel_wise_quantize"] = "true"
        operands = [_data(shape, dtype), Operand((units, width)), *([] if no_bias else [Operand((units,))])]
        return Case([*operands, *_range(draw, dtype)], attrs, body=body, outputs=outputs)
    operands = [_data(shape, dtype), Operand((units, width), "int8", -63, 63)]
    ranges = _range(draw, dtype) + _range(draw, "int8")
    if not no_bias:
        operands, ranges = [*operands, Operand((units,), "int8", -128, 127)], ranges + _range(draw, "int8")
    return Case(operands + ranges, attrs, body=body, outputs=outputs)


RECORDS = [
    Record("_sg_mkldnn_conv", _convolution, steps=1),
    Record("_sg_mkldnn_fully_connected", _fully_connected, steps=1),
]

_IMAGE = [Operand((1, 4, 5, 5), "uint8", 0, 127), Operand((4, 4, 1, 1))]
_ENDS = [_end(0.0), _end(1.0)]
_ONE = {"kernel": (1, 1), "num_filter": 4, "no_bias": True}
LEFT = [
    Left("_sg_mkldnn_conv",
         Case([*_IMAGE, *_ENDS], {"quantized": "true", "with_act": "true"}, outputs=3,
              body=[("Convolution", _ONE, 1), ("Activation", {"act_type": "sigmoid"}, 0)]), "act_type=sigmoid"),
    Left("_sg_mkldnn_conv",
         Case([*_IMAGE, Operand((1, 4, 5, 5), "uint8"), *_ENDS, *_ENDS],
              {"quantized": "true", "with_act": "true", "with_sum": "true", "with_postsum_act": "true"}, outputs=3,
              body=[("Convolution", _ONE, 1), _RELU, ("elemwise_add", {}, 1), _RELU]), "both sides of a sum"),
    Left("_sg_mkldnn_fully_connected",
         Case([Operand((2, 3), "uint8", 0, 127), Operand((4, 3), "int8", -63, 63), *_ENDS, *_ENDS],
              {"quantized": "true", "min_calib_range": 0, "max_calib_range": 1, "with_eltwise": "true"}, outputs=3,
              body=[("FullyConnected", {"num_hidden": 4, "no_bias": True}, 1), ("square", {}, 0)]),
         "square at a quantised scale"),
]
