"""Reductions. A reduction over all axes without `keepdims` has shape (1,): MXNet has no rank 0 here."""

from __future__ import annotations

from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.mxnet_bridge.attrs import Attrs
from ngraph_mxnet.mxnet_bridge.rules.common import (
    as_number,
    at_least_1d,
    normal_axes,
    normal_axis,
    scalar,
)
from ngraph_mxnet.mxnet_bridge.rules.registry import Lowering, add_rule, rule
from ngraph_mxnet.mxnet_bridge.symbol_json import SymbolNode

# MXNet's names: the IR's op.
REDUCTIONS: dict[tuple[str, ...], str] = {
    ("sum", "sum_axis"): "reduce_sum", ("mean",): "reduce_mean", ("prod",): "reduce_prod",
    ("max", "max_axis"): "reduce_max", ("min", "min_axis"): "reduce_min",
}


def _axes(attrs: Attrs, rank: int) -> tuple[int, ...]:
    """`axis` unset or empty: all axes, whatever `exclude` says, which otherwise means the axes not named."""
    given = normal_axes(attrs.ints("axis", ()), rank)
    exclude = attrs.bool("exclude", False)
    if not given:
        return tuple(range(rank))
    return tuple(axis for axis in range(rank) if axis not in given) if exclude else given


def _reduction(op: str) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        (x,) = inputs
        axes = _axes(attrs, len(x.shape))
        return at_least_1d(b, b.apply(op, x, axes=axes, keep_dims=attrs.bool("keepdims", False)))

    return lower


for _names, _op in REDUCTIONS.items():
    add_rule(_reduction(_op), *_names, operands=1)


@rule("norm", operands=1)
def norm(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The 1- and 2-norm over any axes (matrix norms, which two axes mean elsewhere, MXNet does not have)."""
    (x,) = inputs
    order = attrs.choice("ord", "2", ("1", "2"))
    attrs.choice("out_dtype", None, ("float32",))
    axes, keep = _axes(attrs, len(x.shape)), attrs.bool("keepdims", False)
    total = b.reduce_sum(b.abs(x) if order == "1" else b.square(x), axes=axes, keep_dims=keep)
    return at_least_1d(b, total if order == "1" else b.sqrt(total))


def _arg_reduction(op: str) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        (x,) = inputs
        axis, keep = attrs.int("axis", None), attrs.bool("keepdims", False)
        if axis is None:
            shape = (1,) * len(x.shape) if keep else (1,)
            flat = b.apply(op, b.reshape(x, shape=(x.type.size,)), axis=0, keep_dims=True)
            return as_number(b, b.reshape(flat, shape=shape), x)
        place = b.apply(op, x, axis=normal_axis(axis, len(x.shape)), keep_dims=keep)
        return as_number(b, at_least_1d(b, place), x)

    return lower


add_rule(_arg_reduction("argmax"), "argmax", operands=1)
add_rule(_arg_reduction("argmin"), "argmin", operands=1)


@rule("argmax_channel", operands=1)
def argmax_channel(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """argmax over axis 1."""
    return as_number(b, b.argmax(inputs[0], axis=1), inputs[0])


@rule("L2Normalization", operands=1)
def l2_normalization(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """x / sqrt(sum of squares + eps): over all axes but 0 (instance), 1 (channel), the others (spatial)."""
    (x,) = inputs
    rank = len(x.shape)
    mode = attrs.choice("mode", "instance", ("instance", "channel", "spatial"))
    axes = {"instance": range(1, rank), "channel": (1,), "spatial": range(2, rank)}[mode]
    total = b.reduce_sum(b.square(x), axes=tuple(axes), keep_dims=True)
    return b.divide(x, b.sqrt(b.add(total, scalar(b, attrs.float("eps", 1e-10), x))))
