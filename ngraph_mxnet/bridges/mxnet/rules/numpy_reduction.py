"""Reductions under MXNet's NumPy semantics: `axis` None or any axes, result types of their own.

A result of rank 0 stays with MXNet (the importer sees to it): its partitioner takes that for an unknown shape.
"""

from __future__ import annotations

import math
from math import prod

from ngraph_mxnet.bridges.mxnet.rules.common import as_type, normal_axes, normal_axis, truth
from ngraph_mxnet.bridges.mxnet.rules.reduction import dtype_of
from ngraph_mxnet.bridges.mxnet.rules.registry import FLOATS, LOGIC, NUMBERS, Lowering, add_rule, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.norms import euclidean_norm, power_norm
from ngraph_mxnet.compositions.tensors import scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import boolean, f16, f32


def _axes(attrs: Attrs, rank: int) -> tuple[int, ...]:
    given = attrs.ints("axis", None)
    return tuple(range(rank)) if given is None else normal_axes(given, rank)


def _no_initial(attrs: Attrs) -> None:
    if attrs.has("initial"):
        raise UnsupportedError("initial, which MXNet itself refuses")
    attrs.ignore("initial")


def _total(op: str) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        """Computed in `dtype`, else bool in int64. If `dtype` names integers, floats are converted when added up."""
        _no_initial(attrs)
        (x,) = inputs
        axes, keep, element = _axes(attrs, x.type.rank), attrs.bool("keepdims", False), dtype_of(x, attrs)
        if element.is_float or not x.type.element.is_float:
            x = as_type(b, x, element)
        return b.apply(op, x, axes=axes, keep_dims=keep)

    return lower


def _extreme(op: str) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        _no_initial(attrs)
        (x,) = inputs
        return b.apply(op, x, axes=_axes(attrs, x.type.rank), keep_dims=attrs.bool("keepdims", False))

    return lower


def _truth_of(op: str) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        (x,) = inputs
        found = b.convert(truth(b, x), element="u8")
        found = b.apply(op, found, axes=_axes(attrs, x.type.rank), keep_dims=attrs.bool("keepdims", False))
        return b.convert(found, element=boolean)

    return lower


add_rule(_total("reduce_sum"), "_np_sum", operands=1, types=LOGIC, result="dtype")
add_rule(_total("reduce_prod"), "_np_prod", operands=1, types=LOGIC, result="dtype")
add_rule(_extreme("reduce_max"), "_np_max", operands=1, types=NUMBERS)
add_rule(_extreme("reduce_min"), "_np_min", operands=1, types=NUMBERS)
add_rule(_truth_of("reduce_max"), "_np_any", operands=1, types=LOGIC)
add_rule(_truth_of("reduce_min"), "_np_all", operands=1, types=LOGIC)


@rule("_npi_mean", operands=1, types=LOGIC, result="dtype")
def mean(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Computed in `dtype`, else integers and bool in float32."""
    _no_initial(attrs)
    x = _as_float(b, inputs[0], attrs)
    return b.reduce_mean(x, axes=_axes(attrs, x.type.rank), keep_dims=attrs.bool("keepdims", False))


def _as_float(b: Builder, x: Value, attrs: Attrs) -> Value:
    """x in the floating-point type that `dtype` names, else its own or float32; unchanged where `dtype` names
    integers."""
    own = x.type.element
    element = attrs.element("dtype", own if own.is_float else f32)
    if not element.is_float:
        if not own.is_float:
            raise UnsupportedError(f"of {own} in {element}, which MXNet divides in {element}")
        return x
    return as_type(b, x, f32 if element is f16 else element)


def _spread(*, root: bool) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        """The divisor is the count less `ddof`. Integers without `dtype` stay with MXNet, which rounds in each step."""
        if not (inputs[0].type.element.is_float or attrs.has("dtype")):
            raise UnsupportedError(f"of {inputs[0].type.element} without dtype")
        x = _as_float(b, inputs[0], attrs)
        axes, keep = _axes(attrs, x.type.rank), attrs.bool("keepdims", False)
        centred = b.subtract(x, b.reduce_mean(x, axes=axes, keep_dims=True))
        divisor = prod(x.shape[axis] for axis in axes) - attrs.int("ddof", 0)
        total = b.reduce_sum(b.square(centred), axes=axes, keep_dims=keep)
        variance = b.divide(total, scalar(b, divisor, x))
        return b.sqrt(variance) if root else variance

    return lower


add_rule(_spread(root=False), "_npi_var", operands=1, types=NUMBERS, result="dtype")
add_rule(_spread(root=True), "_npi_std", operands=1, types=NUMBERS, result="dtype")


@rule("_npi_average", operands=(1, 2))
def average(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> list[Value]:
    """Weighted along `axis`, or by weights of the data's shape; the sum of weights too, if it is asked for."""
    x, weights = inputs[0], inputs[1] if len(inputs) > 1 else None
    axes, weighted = _axes(attrs, x.type.rank), attrs.bool("weighted", True)
    returned = attrs.bool("returned", False)
    if returned:
        raise UnsupportedError("returned=True: the sum of weights has a type of its own in MXNet")
    if not weighted or weights is None:
        return [b.reduce_mean(x, axes=axes)]
    if weights.shape != x.shape:
        if len(axes) != 1 or weights.shape != (x.shape[axes[0]],):
            raise UnsupportedError(f"weights {weights.type} of {x.type} along {axes}")
        shape = [size if axis in axes else 1 for axis, size in enumerate(x.shape)]
        weights = b.broadcast(b.reshape(weights, shape=shape), shape=x.shape)
    # Shares first: products with small weights would be 0, and what goes back to the weights one-sided.
    shares = b.divide(weights, b.reduce_sum(weights, axes=axes, keep_dims=True))
    return [b.reduce_sum(b.multiply(x, shares), axes=axes)]


@rule("_npi_norm", operands=1, types=FLOATS)
def norm(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Frobenius's norm (flag 1, and -2 over all axes). Of one axis any order but 0 and the infinities; of two axes,
    which make matrices, the orders 1 and -1: the greatest or least sum over the first of them."""
    (x,) = inputs
    kind, order, keep = attrs.int("flag", -1), attrs.float("ord", 2.0), attrs.bool("keepdims", False)
    axes = _axes(attrs, x.type.rank)
    if kind not in (-2, -1, 1):
        raise UnsupportedError(f"flag={kind}: norms by singular values are MXNet's")
    if kind != -1 or (order == 2 and len(axes) == 1):
        return euclidean_norm(b, x, axes, keep=keep)
    if order == 0 or math.isinf(order) or len(axes) != 1:
        if abs(order) != 1 or len(axes) != 2:
            raise UnsupportedError(f"ord={order} over {len(axes)} axes")
        first = normal_axis((attrs.ints("axis", None) or (0, 1))[0], x.type.rank)
        sums = b.reduce_sum(b.abs(x), axes=(first,), keep_dims=True)
        return b.apply("reduce_max" if order == 1 else "reduce_min", sums, axes=axes, keep_dims=keep)
    if order == 1:
        return b.reduce_sum(b.abs(x), axes=axes, keep_dims=keep)
    return power_norm(b, x, order, axes, keep=keep)


def _position(op: str) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        """int64; without an axis, of the flat tensor."""
        (x,) = inputs
        axis, keep = attrs.int("axis", None), attrs.bool("keepdims", False)
        if axis is not None:
            return b.apply(op, x, axis=normal_axis(axis, x.type.rank), keep_dims=keep)
        flat = b.apply(op, b.reshape(x, shape=(x.type.size,)), axis=0)
        return b.reshape(flat, shape=(1,) * x.type.rank) if keep else flat

    return lower


add_rule(_position("argmax"), "_npi_argmax", operands=1, types=NUMBERS)
add_rule(_position("argmin"), "_npi_argmin", operands=1, types=NUMBERS)
