"""The numbers that MXNet's int8 operators share: 8 bits each, with the range of reals that they stand for.

A tensor travels with two others of one element each, the least and the greatest real. Its scale is the reach of its
type over the larger magnitude of these two; there is no zero point. (src/operator/quantization/quantization_utils.h of
MXNet 1.9.) Scales are computed in float32 in MXNet's order of operations: where a number lies halfway between two
integers, the last bit of a scale decides which one it becomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs
from ngraph_mxnet.frontends.mxnet.rules.images import quantized_pooled
from ngraph_mxnet.frontends.mxnet.rules.linear import IGNORED, convolved, dense
from ngraph_mxnet.frontends.mxnet.rules.registry import EXACT, Types, as_indices, axis_of, image_shape, rule
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, f32, i8, i32, u8
from ngraph_mxnet.ops.compositions import affine, reshaped, rounded, widened, with_bias

QUANTIZED = Types(("f32", "i8", "u8", "i32"), in_f32=())
"""Every type that int8 operators have, as it is: a rule sees to the types of its results."""

CALIBRATED = ("min_calib_range", "max_calib_range")
REACH = {"i8": 127.5, "u8": 255.5}
"""The value of the range's larger end before rounding. It is half a step more, so that the last integer stands for a
whole step of reals, as the others do."""
REACH_I32 = 2.0**31

Range = tuple[Value, Value]


def number(b: Builder, value: float) -> Value:
    return b.constant(np.float32(value))


def calibration(attrs: Attrs) -> tuple[float, float] | None:
    """The range that calibration found, if both ends are set."""
    low, high = (attrs.float(name, None) for name in CALIBRATED)
    return None if low is None or high is None else (low, high)


def ends(b: Builder, least: Value | float, greatest: Value | float) -> Range:
    """A range as MXNet hands it on: two tensors of one element."""
    low, high = (b.constant(np.full(1, end, np.float32)) if isinstance(end, float) else reshaped(b, end, (1,))
                 for end in (least, greatest))
    return low, high


def magnitude(b: Builder, least: Value | float, greatest: Value | float) -> Value:
    """The larger absolute value of two ends, of rank 0."""
    if isinstance(least, float) and isinstance(greatest, float):
        return number(b, max(abs(least), abs(greatest)))
    low, high = (number(b, end) if isinstance(end, float) else reshaped(b, end, ()) for end in (least, greatest))
    return b.maximum(b.abs(low), b.abs(high))


def scale(b: Builder, element: ElementType, size: Value) -> Value:
    """How many steps of the integer type make up 1.0, for reals up to `size`; 2^31 if `size` is 0.

    (MXNet's GetQuantizeScale.)
    """
    if element.name not in REACH:
        raise UnsupportedError(f"found {element.name}, expected i8 or u8")
    steps = REACH[element.name] / size
    return b.select(b.equal(size, 0), REACH_I32, steps)


def product_range(b: Builder, element: ElementType, size: Value, weight_size: Value) -> Range:
    """The range of 32-bit sums of products of data in `element`, up to `size`, and weights in i8, up to `weight_size`.

    (MXNet's QuantizationRangeForMultiplication. Unlike in `REACH`, the last integer of a type is the end of the range.)
    """
    step = size / (255 if element is u8 else 127) * (weight_size / 127)
    top = step * REACH_I32
    return ends(b, -top, top)


def out_element(attrs: Attrs, default: str, calibrated: tuple[float, float] | None) -> ElementType:
    """Return the element type that the attribute `out_type` names. The type `auto` is unsigned where calibration found
    nothing negative."""
    kind = attrs.choice("out_type", default, ("int8", "uint8", "auto"))
    if kind == "auto":
        return u8 if calibrated is not None and calibrated[0] >= 0 else i8
    return u8 if kind == "uint8" else i8


Outputs = list[Value]


def _is(x: Value, *elements: ElementType) -> None:
    if x.element not in elements:
        raise UnsupportedError(f"found {x.type}, expected {' or '.join(element.name for element in elements)}")


# ---- to 8 bits and back ----------------------------------------------------------------------------------------


@rule("_contrib_quantize_v2", operands=1, types=QUANTIZED)
def quantize_v2(b: Builder, attrs: Attrs, x: Value) -> Outputs:
    """By the calibrated range, else by that of the data; 8-bit data pass through."""
    known = calibration(attrs)
    element = out_element(attrs, "int8", known)
    if x.element is not f32:
        _is(x, element)
        reach = REACH[element.name]
        return [b.identity(x), *ends(b, *(known or (0.0 if element is u8 else -reach, reach)))]
    axes = tuple(range(x.rank))
    least, greatest = known or (b.reduce_min(x, axes=axes), b.reduce_max(x, axes=axes))
    size = magnitude(b, least, greatest)
    result = rounded(b, x * scale(b, element, size), element)
    return [result, *(ends(b, least, greatest) if element is u8 else ends(b, -size, size))]


@rule("_contrib_quantize", operands=3, parameters=[1, 2], types=QUANTIZED)
def quantize(b: Builder, attrs: Attrs, x: Value, least: Value, greatest: Value) -> Outputs:
    """By the range of the second and third input."""
    _is(x, f32)
    element = u8 if attrs.choice("out_type", "uint8", ("int8", "uint8")) == "uint8" else i8
    size = magnitude(b, least, greatest)
    steps = (255 if element is u8 else 127) / size
    result = rounded(b, x * steps, element)
    return [result, *(ends(b, least, greatest) if element is u8 else ends(b, -size, size))]


@rule("_contrib_dequantize", operands=3, types=QUANTIZED)
def dequantize(b: Builder, attrs: Attrs, x: Value, least: Value, greatest: Value) -> Value:
    """To float32."""
    attrs.choice("out_type", "float32", ("float32",))
    _is(x, i8, u8)
    return widened(b, x) * (magnitude(b, least, greatest) / REACH[x.element.name])


@rule("_contrib_requantize", operands=3, types=QUANTIZED)
def requantize(b: Builder, attrs: Attrs, x: Value, least: Value, greatest: Value) -> Outputs:
    """32-bit numbers to 8 bits: by the calibrated range, else by the largest number there is."""
    _is(x, i32)
    known = calibration(attrs)
    element = out_element(attrs, "int8", known)
    data, given = widened(b, x), magnitude(b, least, greatest)
    if known is not None:
        size = magnitude(b, *known)
    else:
        largest = b.reduce_max(b.abs(data), axes=tuple(range(x.rank)))
        size = largest * given / REACH_I32
    steps = (255 if element is u8 else 127) / size
    factor = given / REACH_I32 * steps
    result = rounded(b, data * factor, element)
    return [result, *ends(b, number(b, 0) if element is u8 else -size, size)]


# ---- 8 bits as they are ----------------------------------------------------------------------------------------


@rule("_contrib_quantized_act", operands=3, types=QUANTIZED)
def activation(b: Builder, attrs: Attrs, x: Value, *ranges: Value) -> Outputs:
    """`relu` of int8. That of uint8 stays with MXNet, which takes the bits for int8."""
    attrs.choice("act_type", None, ("relu",))
    _is(x, i8)
    data = b.clamp(widened(b, x), lower=0.0, upper=127.0)
    return [rounded(b, data, i8), *map(b.identity, ranges)]


@rule("_contrib_quantized_flatten", operands=3, types=QUANTIZED)
def flatten(b: Builder, attrs: Attrs, x: Value, *ranges: Value) -> Outputs:
    """All axes but the first become one."""
    _is(x, i8, u8)
    flat = reshaped(b, x, (x.shape[0], prod(x.shape[1:])))
    return [flat if flat is not x else b.identity(x), *map(b.identity, ranges)]


@rule("_contrib_quantized_pooling", operands=3, types=QUANTIZED, ignored=["cudnn_off"])
def pooling(b: Builder, attrs: Attrs, x: Value, *ranges: Value) -> Outputs:
    """max and avg over two axes, channels first; means are rounded, halves to even."""
    _is(x, i8, u8)
    image_shape(x)
    data = quantized_pooled(b, widened(b, x), attrs)
    return [rounded(b, data, x.element), *map(b.identity, ranges)]


@rule("_contrib_quantized_embedding", operands=4, parameters=[1, 2, 3], types=EXACT,
      ignored=["input_dim", "output_dim", "sparse_grad", "dtype"])
def embedding(b: Builder, attrs: Attrs, indices: Value, weight: Value, *ranges: Value) -> Outputs:
    """Rows of a weight in int8."""
    _is(weight, i8)
    return [b.gather(weight, as_indices(b, indices), axis=0), *map(b.identity, ranges)]


# ---- to another range ------------------------------------------------------------------------------------------


@rule("_contrib_quantized_concat", operands=(3, 1 << 20), types=QUANTIZED, ignored=["num_args"])
def concat(b: Builder, attrs: Attrs, *inputs: Value) -> Outputs:
    """Along `dim`, each rescaled to a range that holds 0 and all their ranges; int8 if one input is int8."""
    count = len(inputs) // 3
    if len(inputs) % 3:
        raise UnsupportedError(f"found {len(inputs)} inputs, expected a tensor and a range, times num_args")
    parts, bounds = inputs[:count], [reshaped(b, end, ()) for end in inputs[count:]]
    for part in parts:
        _is(part, i8, u8)
    element = i8 if any(part.element is i8 for part in parts) else u8
    least = greatest = number(b, 0)
    for low, high in zip(bounds[::2], bounds[1::2], strict=True):
        least, greatest = b.minimum(least, low), b.maximum(greatest, high)
    own = REACH[element.name] / magnitude(b, least, greatest)
    rescaled = []
    for position, part in enumerate(parts):
        size = magnitude(b, bounds[2 * position], bounds[2 * position + 1])
        factor = own / (REACH[part.element.name] / size)
        rescaled.append(widened(b, part) * factor)
    axis = axis_of(attrs, parts[0], 1, "dim")
    return [rounded(b, b.concat(*rescaled, axis=axis), element), *ends(b, least, greatest)]


@rule("_contrib_quantized_elemwise_add", operands=6, types=QUANTIZED)
def elemwise_add(b: Builder, attrs: Attrs, left: Value, right: Value, *bounds: Value) -> Outputs:
    """With a calibrated range in 8 bits, else in 32.

    Where one is int8 and one uint8, MXNet first makes int8 of the unsigned one, at the result's scale, and saturates it
    there.
    """
    for x in (left, right):
        _is(x, i8, u8)
    sizes = magnitude(b, *bounds[:2]), magnitude(b, *bounds[2:])
    mixed = left.element is not right.element
    known = calibration(attrs)
    element = i32 if known is None else i8 if mixed else left.element
    both = b.add(*sizes)
    terms = []
    for x, size in zip((left, right), sizes, strict=True):
        reach = REACH[x.element.name]
        if known is None:
            factor = size * REACH_I32 / (both * reach)
        else:
            steps = REACH[element.name] / magnitude(b, *known)
            factor = steps / (reach / size)
        term = widened(b, x) * factor
        if mixed and x.element is u8:
            term = b.clamp(b.round(term), lower=-128.0, upper=127.0)
        terms.append(term)
    result = rounded(b, b.add(*terms), element)
    return [result, *(ends(b, -both, both) if known is None else ends(b, *known))]


@rule("_contrib_quantized_batch_norm", operands=7, parameters=[1, 2, 3, 4], types=QUANTIZED,
      ignored=["fix_gamma", "momentum", "use_global_stats", "output_mean_var", "cudnn_off"])
def batch_norm(b: Builder, attrs: Attrs, x: Value, gamma: Value, beta: Value, mean: Value, variance: Value,
               least: Value, greatest: Value) -> Outputs:
    """Calibrated only, to int8; channels on axis 1. gamma counts whatever `fix_gamma` says."""
    known = calibration(attrs)
    if known is None:
        raise UnsupportedError("it is not calibrated, and MXNet raises")
    if axis_of(attrs, x, 1) != 1:
        raise UnsupportedError(f"axis={attrs.int('axis', 1)}: MXNet takes axis 1")
    _is(x, i8, u8)
    data, size = widened(b, x), magnitude(b, *known)
    if x.element is u8:
        data = b.clamp(b.round(data * (REACH["i8"] / REACH["u8"])), lower=-128.0, upper=127.0)
    inverse = b.rsqrt(variance + attrs.float("eps", 1e-3))
    slope = gamma * inverse
    weight = slope * magnitude(b, least, greatest) / size
    shift = (beta - mean * slope) * REACH["i8"] / size
    return [rounded(b, affine(b, data, weight, shift), i8), *ends(b, *known)]


@rule("_contrib_quantized_elemwise_mul", operands=6, types=QUANTIZED)
def elemwise_mul(b: Builder, attrs: Attrs, left: Value, right: Value, *bounds: Value) -> Outputs:
    """Multiplies int8: in 8 bits by the calibrated range, fractions cut off; else in 32 bits or, if asked, float32."""
    _is(left, i8)
    _is(right, i8)
    if left.shape != right.shape:
        raise UnsupportedError(f"{left.type} and {right.type} differ in shape")
    sizes = magnitude(b, *bounds[:2]), magnitude(b, *bounds[2:])
    reach, known, real = REACH["i8"], calibration(attrs), attrs.bool("enable_float_output", False)
    product = widened(b, left) * widened(b, right)
    if known is None and not real:
        return [b.convert(product, element=i32), *product_range(b, i8, *sizes)]
    factor = number(b, 1) if real or known is None else reach / magnitude(b, *known)
    for size in sizes:
        factor = factor / (reach / size)
    product = product * factor
    if real or known is None:
        return [product]
    return [b.convert(b.convert(product, element=i32), element=i8), *ends(b, *known)]


def as_i32(b: Builder, whole: Value) -> Value:
    """Whole numbers, which a product adds as the integers that they are."""
    return b.convert(b.convert(whole, element=i32), element=f32)


def _operands(inputs: Sequence[Value], attrs: Attrs) -> tuple[Value, Value, Value | None, Sequence[Value]]:
    """Data, weight, bias if there is one, and the ranges of each."""
    count = 2 if attrs.bool("no_bias", False) else 3
    if len(inputs) != 3 * count:
        raise UnsupportedError(f"found {len(inputs)} inputs, expected {3 * count}")
    for x in inputs[1:count]:
        if x.element is not i8:
            raise UnsupportedError(f"found a weight or bias {x.type}, expected i8")
    return inputs[0], inputs[1], inputs[2] if count == 3 else None, inputs[count:]


@rule("_contrib_quantized_conv", operands=(6, 9), parameters=[1, 2, 4, 5, 6, 7, 8], types=QUANTIZED, ignored=IGNORED)
def quantized_conv(b: Builder, attrs: Attrs, *inputs: Value) -> Outputs:
    """Convolves uint8, in 32 bits. MXNet adds the bias as it is, in any range, and tells the range for int8 data."""
    x, weight, bias, bounds = _operands(inputs, attrs)
    if x.element is not u8:
        raise UnsupportedError(f"found data {x.type}: MXNet's quantized_conv takes uint8 only, and raises")
    out = convolved(b, widened(b, x), widened(b, weight), attrs)
    if bias is not None:
        out = with_bias(b, out, b.convert(bias, element=f32))
    return [rounded(b, out, i32), *product_range(b, i8, magnitude(b, *bounds[:2]), magnitude(b, *bounds[2:4]))]


@rule("_contrib_quantized_fully_connected", operands=(6, 9), parameters=[1, 2, 4, 5, 6, 7, 8], types=QUANTIZED)
def quantized_fully_connected(b: Builder, attrs: Attrs, *inputs: Value) -> Outputs:
    """A product of uint8 or int8, in 32 bits; the bias is rescaled to the product's scale, and cut off to integers."""
    x, weight, bias, bounds = _operands(inputs, attrs)
    element = x.element
    size, weight_size = magnitude(b, *bounds[:2]), magnitude(b, *bounds[2:4])
    added = None
    if bias is not None:
        steps = scale(b, element, size) * scale(b, i8, weight_size)
        factor = steps * magnitude(b, *bounds[4:]) / REACH["i8"]
        added = as_i32(b, b.trunc(widened(b, bias) * factor))
    out = dense(b, widened(b, x), widened(b, weight), added, attrs)
    return [rounded(b, out, i32), *product_range(b, element, size, weight_size)]
