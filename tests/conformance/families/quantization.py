"""Numbers of 8 bits.

Weights stay within 7 bits, as a processor without VNNI saturates what MKL-DNN sums of larger ones.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, dims, maybe, pick, strides_and_pads

_BITS = {"int8": (-128, 127), "uint8": (0, 255)}


def _data(shape: tuple[int, ...], dtype: str) -> Operand:
    low, high = _BITS[dtype]
    return Operand(shape, dtype, low, high)


def _weight(shape: tuple[int, ...]) -> Operand:
    return Operand(shape, "int8", -63, 63)


def _range(draw: Draw, dtype: str = "int8") -> list[Operand]:
    """Its ends: of unsigned data, not below 0."""
    least = 0.0 if dtype == "uint8" else -draw(st.floats(0.125, 8.0, width=32))
    return [Operand((1,), values=[end]) for end in (least, draw(st.floats(0.125, 8.0, width=32)))]


def _calibrated(draw: Draw, always: bool = False, largest: float = 4.0) -> dict[str, Any]:
    if not always and draw(st.booleans()):
        return {}
    return {"min_calib_range": pick(draw, 0.0, -1.5, -3.25, -0.01), "max_calib_range": draw(st.floats(0.5, largest))}


# ---- to 8 bits and back ----------------------------------------------------------------------------------------


def _quantize_v2(draw: Draw) -> Case:
    if draw(st.integers(0, 3)) == 3:
        dtype = pick(draw, *_BITS)
        return Case([_data(dims(draw), dtype)], {"out_type": dtype} | _calibrated(draw))
    attrs = _calibrated(draw) | maybe(draw, out_type=st.sampled_from(["int8", "uint8", "auto"]))
    return Case([Operand(dims(draw), low=-4, high=4)], attrs)


def _quantize(draw: Draw) -> Case:
    return Case([Operand(dims(draw), low=-6, high=6), *_range(draw)], maybe(draw, out_type=pick(draw, *_BITS)))


def _dequantize(draw: Draw) -> Case:
    dtype = pick(draw, *_BITS)
    return Case([_data(dims(draw), dtype), *_range(draw)], maybe(draw, out_type="float32"))


def _requantize(draw: Draw) -> Case:
    size = pick(draw, 1000, 2**20, 2**30)
    ranges = [Operand((1,), values=[end]) for end in (-draw(st.floats(1.0, 1e5)), draw(st.floats(1.0, 1e5)))]
    attrs = _calibrated(draw) | maybe(draw, out_type=st.sampled_from(["int8", "uint8", "auto"]))
    return Case([Operand(dims(draw), "int32", -size, size), *ranges], attrs)


# ---- 8 bits as they are ----------------------------------------------------------------------------------------


def _activation(draw: Draw) -> Case:
    return Case([_data(dims(draw), "int8"), *_range(draw)], {"act_type": "relu"})


def _flatten(draw: Draw) -> Case:
    dtype = pick(draw, *_BITS)
    return Case([_data(dims(draw, 2), dtype), *_range(draw, dtype)])


def _pooling(draw: Draw) -> Case:
    dtype, kind = pick(draw, *_BITS), pick(draw, "max", "avg")
    attrs: dict[str, Any] = {"pool_type": kind} | maybe(draw, count_include_pad=draw(st.booleans()))
    sizes = [draw(st.integers(3, 9)) for _ in range(2)]
    if draw(st.integers(0, 3)) == 3:
        attrs |= {"global_pool": True, "kernel": (1, 1)}
    else:
        attrs |= maybe(draw, pooling_convention=pick(draw, "valid", "full"))
        kernel = tuple(draw(st.integers(1, 3)) for _ in range(2))
        stride, pad = strides_and_pads(draw, kernel, rounded_up=attrs.get("pooling_convention") == "full")
        attrs |= {"kernel": kernel, "stride": stride} | maybe(draw, pad=pad)
    return Case([_data((pick(draw, 1, 2), pick(draw, 1, 3, 16), *sizes), dtype), *_range(draw, dtype)], attrs)


def _embedding(draw: Draw) -> Case:
    rows, width = draw(st.integers(1, 9)), draw(st.integers(1, 20))
    index = Operand(dims(draw, most=3), pick(draw, "float32", "int32"), 0, rows - 1)
    index = Operand(index.shape, "int32", 0, rows - 1) if index.dtype == "int32" else Operand(
        index.shape, values=[draw(st.integers(0, rows - 1)) for _ in range(_size(index.shape))])
    return Case([index, _weight((rows, width)), *_range(draw)], {"input_dim": rows, "output_dim": width})


def _size(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


# ---- to another range ------------------------------------------------------------------------------------------


def _concat(draw: Draw) -> Case:
    shape = dims(draw, 2)
    axis = draw(st.integers(0, len(shape) - 1))
    tensors, ranges = [], []
    for _ in range(draw(st.integers(1, 4))):
        dtype = pick(draw, *_BITS)
        sizes = (*shape[:axis], draw(st.integers(1, 20)), *shape[axis + 1:])
        tensors.append(_data(sizes, dtype))
        ranges += _range(draw, dtype)
    return Case([*tensors, *ranges], {"dim": axis, "num_args": len(tensors)})


def _add(draw: Draw) -> Case:
    shape, dtypes = dims(draw), [pick(draw, *_BITS) for _ in range(2)]
    tensors = [_data(shape, dtype) for dtype in dtypes]
    return Case([*tensors, *(end for dtype in dtypes for end in _range(draw, dtype))], _calibrated(draw))


def _mul(draw: Draw) -> Case:
    shape = dims(draw)
    attrs = _calibrated(draw) | maybe(draw, enable_float_output=draw(st.booleans()))
    return Case([_data(shape, "int8"), _data(shape, "int8"), *_range(draw), *_range(draw)], attrs)


def _batch_norm(draw: Draw) -> Case:
    channels, dtype = pick(draw, 1, 3, 16, 20), pick(draw, *_BITS)
    shape = (pick(draw, 1, 2), channels, draw(st.integers(1, 6)), draw(st.integers(1, 6)))
    vectors = [Operand((channels,)) for _ in range(3)]
    return Case([_data(shape, dtype), *vectors, Operand((channels,), low=0.1), *_range(draw, dtype)],
                _calibrated(draw, always=True) | maybe(draw, fix_gamma=draw(st.booleans()), eps=1e-4))


# ---- sums of products ------------------------------------------------------------------------------------------


def _convolution(draw: Draw) -> Case:
    channels, filters = pick(draw, 4, 3, 16), pick(draw, 4, 8, 20)
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(2))
    sizes = tuple(size + draw(st.integers(0, 5)) for size in kernel)
    no_bias = draw(st.booleans())
    attrs = {"kernel": kernel, "num_filter": filters, "no_bias": no_bias}
    attrs |= maybe(draw, stride=pick(draw, (1, 1), (2, 2)), pad=pick(draw, (0, 0), (1, 1)), layout="NCHW")
    operands = [_data((pick(draw, 1, 2), channels, *sizes), "uint8"), _weight((filters, channels, *kernel))]
    ranges = _range(draw, "uint8") + _range(draw)
    if not no_bias:
        operands, ranges = [*operands, _data((filters,), "int8")], ranges + _range(draw)
    return Case(operands + ranges, attrs)


def _fully_connected(draw: Draw) -> Case:
    dtype, units, no_bias = pick(draw, *_BITS), pick(draw, 1, 5, 16, 33), draw(st.booleans())
    shape = dims(draw, 2)
    attrs = {"num_hidden": units, "no_bias": no_bias}
    operands = [_data(shape, dtype), _weight((units, _size(shape[1:])))]
    ranges = _range(draw, dtype) + _range(draw)
    if not no_bias:
        operands, ranges = [*operands, _data((units,), "int8")], ranges + _range(draw)
    return Case(operands + ranges, attrs)


RECORDS = [
    Record("_contrib_quantize_v2", _quantize_v2, steps=1),
    Record("_contrib_quantize", _quantize, steps=1),
    Record("_contrib_dequantize", _dequantize),
    Record("_contrib_requantize", _requantize, steps=1),
    Record("_contrib_quantized_act", _activation),
    Record("_contrib_quantized_flatten", _flatten),
    Record("_contrib_quantized_pooling", _pooling, steps=1),
    Record("_contrib_quantized_embedding", _embedding),
    Record("_contrib_quantized_concat", _concat, steps=1),
    Record("_contrib_quantized_elemwise_add", _add, steps=1),
    Record("_contrib_quantized_elemwise_mul", _mul, steps=1),
    Record("_contrib_quantized_batch_norm", _batch_norm, steps=1),
    Record("_contrib_quantized_conv", _convolution),
    Record("_contrib_quantized_fully_connected", _fully_connected, steps=1),
]

_ENDS = [Operand((1,), values=[-1.0]), Operand((1,), values=[1.0])]
LEFT = [
    Left("_contrib_quantized_conv",
         Case([Operand((1, 4, 5, 5), "int8"), Operand((4, 4, 1, 1), "int8"), *_ENDS, *_ENDS],
              {"kernel": (1, 1), "num_filter": 4, "no_bias": True}), "uint8 only"),
    Left("_contrib_quantized_act", Case([Operand((2, 3), "uint8"), *_ENDS], {"act_type": "relu"}), "expected i8"),
    Left("_contrib_quantized_batch_norm",
         Case([Operand((2, 3, 4, 4), "int8"), *[Operand((3,), low=0.1)] * 4, *_ENDS]), "not calibrated"),
    Left("_contrib_quantize_v2", Case([Operand((2, 3), "uint8")], {"out_type": "int8"}), "expected i8"),
]
