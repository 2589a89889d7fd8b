"""Operators of transformers: projections of all heads in one tensor, scaling, positions.

A projection is (length, batch, heads x parts x units): the parts, such as queries, keys and values, interleave head by
head. Heads are handed on as (batch x heads, length, units).
"""

from __future__ import annotations

import math
from math import prod

import numpy as np

from ngraph_mxnet.bridges.mxnet.rules.common import normal_axis, positive
from ngraph_mxnet.bridges.mxnet.rules.registry import rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import iota, scalar, slice_axis
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import is_symbolic


def _heads(b: Builder, x: Value, heads: int, parts: int, part: int) -> Value:
    """Part number `part` of a projection, as (batch x heads, length, units)."""
    if x.type.rank != 3 or x.shape[2] % (heads * parts):
        raise UnsupportedError(f"{x.type} is no projection of {parts} parts for each of {heads} heads")
    length, batch, width = x.shape
    units = width // (heads * parts)
    split = b.reshape(x, shape=(length, batch, heads, parts, units))
    own = b.reshape(slice_axis(b, split, 3, part, part + 1), shape=(length, batch, heads, units))
    return b.reshape(b.transpose(own, order=(1, 2, 0, 3)), shape=(batch * heads, length, units))


def _scores(b: Builder, queries: Value, keys: Value) -> Value:
    """Queries by keys over the square root of a head's units."""
    scale = scalar(b, 1 / math.sqrt(queries.shape[2]), queries)
    return b.matmul(b.multiply(queries, scale), keys, transpose_b=True)


def _joined(b: Builder, weights: Value, values: Value, heads: int) -> Value:
    """Weights by values, as (length, batch, heads x units)."""
    if weights.shape[0] != values.shape[0]:
        raise UnsupportedError(f"weights {weights.type} for {values.shape[0]} matrices of values")
    out = b.matmul(weights, values)
    count, length, units = out.shape
    split = b.reshape(out, shape=(count // heads, heads, length, units))
    return b.reshape(b.transpose(split, order=(2, 0, 1, 3)), shape=(length, count // heads, heads * units))


def _head_count(attrs: Attrs) -> int:
    return positive(attrs.int("heads"), "heads")


@rule("_contrib_interleaved_matmul_selfatt_qk", operands=1)
def selfatt_qk(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Scores of queries and keys out of a projection of three parts, scaled."""
    heads = _head_count(attrs)
    return _scores(b, *(_heads(b, inputs[0], heads, 3, part) for part in (0, 1)))


@rule("_contrib_interleaved_matmul_selfatt_valatt", operands=2)
def selfatt_valatt(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Attention weights by the values out of a projection of three parts."""
    heads = _head_count(attrs)
    return _joined(b, inputs[1], _heads(b, inputs[0], heads, 3, 2), heads)


@rule("_contrib_interleaved_matmul_encdec_qk", operands=2)
def encdec_qk(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Scores of queries, and of keys out of a projection of two parts, scaled."""
    heads = _head_count(attrs)
    return _scores(b, _heads(b, inputs[0], heads, 1, 0), _heads(b, inputs[1], heads, 2, 0))


@rule("_contrib_interleaved_matmul_encdec_valatt", operands=2)
def encdec_valatt(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Attention weights by the values out of a projection of two parts."""
    heads = _head_count(attrs)
    return _joined(b, inputs[1], _heads(b, inputs[0], heads, 2, 1), heads)


@rule("_contrib_div_sqrt_dim", operands=1)
def div_sqrt_dim(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """x over the square root of its last axis' size."""
    (x,) = inputs
    return b.divide(x, scalar(b, math.sqrt(x.shape[-1]), x))


@rule("_contrib_arange_like", operands=1, ignored=["ctx"])
def arange_like(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """start + step * (i // repeat), as long as an axis of the input, or of its shape; a constant where the size is
    known."""
    (x,), axis = inputs, attrs.int("axis", None)
    shape = x.shape if axis is None else (x.shape[normal_axis(axis, x.type.rank)],)
    dtype, repeat = x.type.element.numpy, positive(attrs.int("repeat", 1), "repeat")
    start, step = dtype.type(attrs.float("start", 0.0)), dtype.type(attrs.float("step", 1.0))
    if repeat == 1 and len(shape) == 1 and is_symbolic(shape[0]):
        steps = b.multiply(iota(b, shape[0], 0, 1, x.type.element.name), scalar(b, step, x))
        return b.add(steps, scalar(b, start, x))
    places = (np.arange(prod(shape)) // repeat).astype(dtype)
    return b.constant((start + places * step).astype(dtype).reshape(shape))
