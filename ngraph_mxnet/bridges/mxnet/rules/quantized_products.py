"""Convolutions and matrix products of 8-bit numbers, summed in 32 bits.

As MXNet 1.9 computes them with MKL-DNN on a processor with VNNI. (One without it saturates the sums of two products in
16 bits, so that MXNet's results are wrong there where weights need more than 7 bits.) Data and weights are widened, and
their products of whole numbers, which the CPU multiplies as bytes, with exact sums; those of float32 are so up to 2^24.
"""

from __future__ import annotations

from ngraph_mxnet.bridges.mxnet.rules.convolution import IGNORED, convolved, with_bias
from ngraph_mxnet.bridges.mxnet.rules.linear import dense
from ngraph_mxnet.bridges.mxnet.rules.quantized_values import (
    QUANTIZED,
    REACH,
    magnitude,
    number,
    product_range,
    scale,
)
from ngraph_mxnet.bridges.mxnet.rules.registry import rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.quantized import rounded, widened
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import f32, i8, i32, u8

Outputs = list[Value]


def as_i32(b: Builder, whole: Value) -> Value:
    """Whole numbers, which a product adds as the integers that they are."""
    return b.convert(b.convert(whole, element=i32), element=f32)


def _operands(inputs: list[Value], attrs: Attrs) -> tuple[Value, Value, Value | None, list[Value]]:
    """Data, weight, bias if there is one, and the ranges of each."""
    count = 2 if attrs.bool("no_bias", False) else 3
    if len(inputs) != 3 * count:
        raise UnsupportedError(f"found {len(inputs)} inputs, expected {3 * count}")
    for x in inputs[1:count]:
        if x.type.element is not i8:
            raise UnsupportedError(f"found a weight or bias {x.type}, expected i8")
    return inputs[0], inputs[1], inputs[2] if count == 3 else None, inputs[count:]


@rule("_contrib_quantized_conv", operands=(6, 9), parameters=[1, 2, 4, 5, 6, 7, 8], types=QUANTIZED, ignored=IGNORED)
def quantized_conv(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Outputs:
    """Convolves uint8, in 32 bits. MXNet adds the bias as it is, in any range, and tells the range for int8 data."""
    x, weight, bias, bounds = _operands(inputs, attrs)
    if x.type.element is not u8:
        raise UnsupportedError(f"found data {x.type}: MXNet's quantized_conv takes uint8 only, and raises")
    out = convolved(b, widened(b, x), widened(b, weight), attrs)
    if bias is not None:
        out = with_bias(b, out, b.convert(bias, element=f32))
    return [rounded(b, out, i32), *product_range(b, i8, magnitude(b, *bounds[:2]), magnitude(b, *bounds[2:4]))]


@rule("_contrib_quantized_fully_connected", operands=(6, 9), parameters=[1, 2, 4, 5, 6, 7, 8], types=QUANTIZED)
def quantized_fully_connected(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Outputs:
    """A product of uint8 or int8, in 32 bits; the bias is rescaled to the product's scale, and cut off to integers."""
    x, weight, bias, bounds = _operands(inputs, attrs)
    element = x.type.element
    size, weight_size = magnitude(b, *bounds[:2]), magnitude(b, *bounds[2:4])
    added = None
    if bias is not None:
        steps = b.multiply(scale(b, element, size), scale(b, i8, weight_size))
        factor = b.divide(b.multiply(steps, magnitude(b, *bounds[4:])), number(b, REACH["i8"]))
        added = as_i32(b, b.trunc(b.multiply(widened(b, bias), factor)))
    out = dense(b, widened(b, x), widened(b, weight), added, attrs)
    return [rounded(b, out, i32), *product_range(b, element, size, weight_size)]
