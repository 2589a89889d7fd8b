"""Operators that order elements. Equal ones keep their order; MXNet leaves them in any."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.bridges.mxnet.rules.common import as_type, normal_axis
from ngraph_mxnet.bridges.mxnet.rules.registry import EXACT, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import reshaped, scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import boolean, i64


def _line(b: Builder, x: Value, attrs: Attrs) -> tuple[Value, int]:
    """The tensor and the axis to order; without an axis the flat tensor."""
    if attrs.is_none("axis"):
        return reshaped(b, x, (x.type.size,)), 0
    return x, normal_axis(attrs.int("axis", -1), len(x.shape))


@rule("topk", operands=1, types=EXACT)
def topk(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value | list[Value]:
    """The `k` extremes along an axis, all when k < 1: values, positions, both, or 1 at their places (mask)."""
    x, axis = _line(b, inputs[0], attrs)
    kind = attrs.choice("ret_typ", "indices", ("indices", "value", "both", "mask"))
    element = attrs.element("dtype", "f32")
    size, count = x.shape[axis], attrs.int("k", 1)
    if count > size:
        raise UnsupportedError(f"k={count} of {size} elements")
    first = b.argsort(x, axis=axis, descending=not attrs.bool("is_ascend", False), count=max(count, 0))
    if kind == "indices":
        return b.convert(first, element=element)
    if kind == "mask":
        return reshaped(b, _mask(b, x, first, axis), inputs[0].shape)
    values = b.gather_elements(x, first, axis=axis)
    return values if kind == "value" else [values, b.convert(first, element=element)]


def _mask(b: Builder, x: Value, places: Value, axis: int) -> Value:
    """A tensor of x's type: 1 at the places, else 0."""
    rank = len(x.shape)
    order = [i for i in range(rank) if i != axis] + [axis]
    lines, count = x.type.size // x.shape[axis], places.shape[axis]
    columns = b.reshape(b.transpose(places, order=order), shape=(1, lines * count))
    rows = b.constant(np.repeat(np.arange(lines, dtype=np.int64), count)[None])
    zeros = b.broadcast(scalar(b, 0, x), shape=(lines, x.shape[axis]))
    ones = b.broadcast(scalar(b, 1, x), shape=(lines * count,))
    mask = b.scatter_nd(zeros, b.concat(rows, columns, axis=0), ones)
    back = [order.index(i) for i in range(rank)]
    return b.transpose(b.reshape(mask, shape=[x.shape[i] for i in order]), order=back)


@rule("sort", operands=1, types=EXACT)
def sort(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The elements in order along an axis."""
    x, axis = _line(b, inputs[0], attrs)
    return b.gather_elements(x, b.argsort(x, axis=axis, descending=not attrs.bool("is_ascend", True)), axis=axis)


@rule("argsort", operands=1, types=EXACT)
def argsort(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The positions of the elements in order along an axis."""
    x, axis = _line(b, inputs[0], attrs)
    places = b.argsort(x, axis=axis, descending=not attrs.bool("is_ascend", True))
    return b.convert(places, element=attrs.element("dtype", "f32"))


@rule("_np_cumsum", operands=1, types=EXACT)
def cumsum(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Sums up to each element along an axis; without one, of the flat tensor. Those of bool are int64."""
    (x,), axis = inputs, attrs.int("axis", None)
    own = x.type.element
    x = as_type(b, x, attrs.element("dtype", i64 if own is boolean else own))
    if axis is None:
        return b.cumsum(reshaped(b, x, (x.type.size,)), axis=0)
    return b.cumsum(x, axis=normal_axis(axis, len(x.shape)))
