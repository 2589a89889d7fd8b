"""Data movement: reshapes, transposes, slices, pads, broadcasts, concats and reductions that need not be."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.op_table import all_ops, ops_of
from ngraph_mxnet.ir.sizes import are_same, are_same_shape, is_one, is_symbolic
from ngraph_mxnet.ir.types import Shape
from ngraph_mxnet.ops.common import broadcast_shape, normal_axes, normal_axis
from ngraph_mxnet.ops.reduction import reduced_shape
from ngraph_mxnet.passes.pattern import Answer, Rewrite, RewritePass, Rewriter


def same_type(node: Node, rw: Rewriter) -> Answer:
    """reshape, broadcast or pad to the operand's own shape -> the operand."""
    return node.inputs[0] if node.inputs[0].type == node.output.type else None


def reshape_of_reshape(node: Node, rw: Rewriter) -> Answer:
    """reshape(reshape(x)) -> reshape(x)."""
    inner = rw.producer(node.inputs[0], "reshape")
    return rw.reshape(inner.inputs[0], node.output.shape) if inner else None


def reshape_behind(node: Node, rw: Rewriter) -> Answer:
    """op(reshape(x), v) -> reshape(op(x, v)) for an elementwise op of a product's rows: so a bias, a clamp and what
    follows them meet the product.

    The reshape only groups leading axes anew, it has no other reader, and v is one number, or one for each place of the
    last axis. x is a product, or elementwise itself.
    """
    for position, operand in enumerate(node.inputs):
        inner = rw.producer(operand, "reshape")
        source = rw.producer(inner.inputs[0]) if inner is not None else None
        if inner is None or source is None or not (source.op.kind == "product" or source.op.elementwise):
            continue
        x, shape = inner.inputs[0], node.output.shape
        if not x.shape or not shape or not are_same(x.shape[-1], shape[-1]) or not are_same_shape(operand.shape, shape):
            continue
        others = [_along_last(v, rw) for at, v in enumerate(node.inputs) if at != position]
        if None in others:
            continue
        if not rw.single(operand):
            return f"{inner} has other readers"
        operands = [*others[:position], x, *others[position:]]
        return rw.reshape(rw.make(node.op.name, *operands, **node.attrs, origin=(node,)), shape)  # type: ignore[arg-type]
    return None


def _along_last(value: Value, rw: Rewriter) -> Value | None:
    """`value` as T[] or T[C], if it is one number, or one for each place of its last axis."""
    if is_one(value.type.size):
        return rw.reshape(value, ())
    return rw.reshape(value, value.shape[-1:]) if all(map(is_one, value.shape[:-1])) else None


def reshape_of_reduction(node: Node, rw: Rewriter) -> Answer:
    """reshape(reduce(x)) that only drops or restores the reduced axes -> reduce(x) with the other keep_dims.

    Any other reshape stays, and so does one after a reduction that has other readers: it would run twice.
    """
    inner = rw.producer(node.inputs[0])
    if inner is None or inner.op.kind != "reduction":
        return None
    x, keep = inner.inputs[0], not inner.attrs["keep_dims"]
    reduced = reduced_shape(x.shape, normal_axes(inner.attrs["axes"], x.type.rank), keep)
    if not are_same_shape(node.output.shape, reduced):
        return None
    if not rw.single(node.inputs[0]):
        return f"{inner.op.name} has other readers"
    return rw.make(inner.op.name, x, **{**inner.attrs, "keep_dims": keep}, origin=(inner, node))


def transpose_nothing(node: Node, rw: Rewriter) -> Answer:
    """transpose in the axes' own order -> the operand; one that moves axes of size 1 only -> reshape."""
    (x,), order = node.inputs, node.attrs["order"]
    if order == tuple(range(x.type.rank)):
        return x
    moved = [axis for axis in order if not is_one(x.shape[axis])]
    return rw.reshape(x, node.output.shape) if moved == sorted(moved) else None


def transpose_of_transpose(node: Node, rw: Rewriter) -> Answer:
    """transpose(transpose(x)) -> transpose(x)."""
    inner = rw.producer(node.inputs[0], "transpose")
    if inner is None:
        return None
    first = inner.attrs["order"]
    return rw.make("transpose", inner.inputs[0], order=tuple(first[axis] for axis in node.attrs["order"]))


def slice_nothing(node: Node, rw: Rewriter) -> Answer:
    """slice of everything -> the operand. A negative stride reverses: it stays."""
    everything = node.inputs[0].type == node.output.type and all(s > 0 for s in node.attrs["strides"])
    return node.inputs[0] if everything else None


def broadcast_of_broadcast(node: Node, rw: Rewriter) -> Answer:
    """broadcast(broadcast(x)) -> broadcast(x)."""
    inner = rw.producer(node.inputs[0], "broadcast")
    return rw.make("broadcast", inner.inputs[0], shape=node.output.shape) if inner else None


def implicit_broadcast(node: Node, rw: Rewriter) -> Answer:
    """op(x, broadcast(y)) -> op(x, y) for elementwise ops, when x has the full shape by itself."""
    inputs = list(node.inputs)
    for position, operand in enumerate(inputs):
        source = rw.producer(operand, "broadcast")
        if source is not None:
            shorter = [*inputs[:position], source.inputs[0], *inputs[position + 1:]]
            if _broadcasts_to(shorter, node.output.shape):
                inputs = shorter
    return rw.make(node.op.name, *inputs, **node.attrs) if inputs != node.inputs else None


def _broadcasts_to(values: list, shape: Shape) -> bool:
    return are_same_shape(broadcast_shape([v.shape for v in values]), shape)


def concat_of_one(node: Node, rw: Rewriter) -> Answer:
    """concat of one operand -> that operand; operands that are known to have no elements are dropped."""
    if len(node.inputs) == 1:
        return node.inputs[0]
    axis = normal_axis(node.attrs["axis"], node.output.type.rank)
    filled = [v for v in node.inputs if is_symbolic(v.shape[axis]) or v.shape[axis]]
    if len(filled) == len(node.inputs) or not filled:
        return None
    return rw.make("concat", *filled, axis=axis)


def concat_of_slices(node: Node, rw: Rewriter) -> Answer:
    """concat of adjacent slices of one tensor that make up all of it -> that tensor.

    Only when they are all the operands, have stride 1, and take everything on the other axes.
    """
    slices = [rw.producer(v, "slice") for v in node.inputs]
    first = slices[0]
    if first is None or first.inputs[0].type != node.output.type:
        return None
    x, reached, axis = first.inputs[0], 0, normal_axis(node.attrs["axis"], node.output.type.rank)
    for part in slices:
        if part is None or part.inputs[0] is not x or any(s != 1 for s in part.attrs["strides"]):
            return None
        if part.attrs["begin"][axis] != reached:
            return "the slices are not adjacent"
        reached = part.attrs["end"][axis]
        # The types agree (checked above), so the slices are whole on the other axes.
    return x if are_same(reached, x.shape[axis]) else "the slices leave a part out"


def sum_of_pads(node: Node, rw: Rewriter) -> Answer:
    """pad(x) + pad(y), zeros around neighbours along one axis -> pad(concat(x, y)); also with the same reshape behind
    both.

    So gradients of slices become one tensor. A pad with other readers stays, and so does the sum.
    """
    one, other = (_zeros_around(value, rw) for value in node.inputs)
    if one is None or other is None or any(value.type != node.output.type for value in node.inputs):
        return None
    pairs = sorted((one, other), key=lambda pair: pair[0].attrs["pads_begin"][pair[1]])
    (first, axis), (second, own_axis) = pairs
    behind = first.attrs["pads_begin"][axis] + first.inputs[0].shape[axis]
    if axis != own_axis or first.output.type != second.output.type or behind != second.attrs["pads_begin"][axis]:
        return None
    parts: list[Value] = []
    for pad in (first, second):
        inner = rw.producer(pad.inputs[0], "concat")
        joined = inner is not None and normal_axis(inner.attrs["axis"], pad.output.type.rank) == axis
        parts += inner.inputs if inner is not None and joined and rw.single(pad.inputs[0]) else [pad.inputs[0]]
    whole = rw.make("concat", *parts, axis=axis, origin=(first, second))
    ends = {"pads_begin": first.attrs["pads_begin"], "pads_end": second.attrs["pads_end"]}
    return rw.reshape(rw.make("pad", whole, **ends), node.output.shape)


def _zeros_around(value: Value, rw: Rewriter) -> tuple[Node, int] | None:
    """The pad with zeros, along a single axis, that makes a value or that it is a reshape of; and the axis."""
    reshape = rw.producer(value, "reshape")
    inner = reshape.inputs[0] if reshape is not None and rw.single(value) else value
    pad = rw.producer(inner, "pad")
    if pad is None or not rw.single(inner) or pad.attrs["mode"] != "constant" or pad.attrs["value"] != 0:
        return None
    ends = zip(pad.attrs["pads_begin"], pad.attrs["pads_end"], strict=True)
    axes = [axis for axis, (before, after) in enumerate(ends) if before or after]
    return (pad, axes[0]) if len(axes) == 1 else None


def reduce_nothing(node: Node, rw: Rewriter) -> Answer:
    """reduce over no axis, or over axes of size 1 only -> reshape: of one element each is that element.

    Axes of size 1 among others stay: they cost nothing.
    """
    x = node.inputs[0]
    if any(not is_one(x.shape[axis]) for axis in normal_axes(node.attrs["axes"], x.type.rank)):
        return None
    return rw.reshape(x, node.output.shape)


def movement() -> RewritePass:
    """The pass."""
    return RewritePass("movement", _table())


@cache
def _table() -> dict[str, Sequence[Rewrite]]:
    broadcasting = [name for name, op in all_ops().items() if op.elementwise and op.least > 1]
    table: dict[str, Sequence[Rewrite]] = {name: [reshape_behind] for name, op in all_ops().items() if op.elementwise}
    table |= {name: [implicit_broadcast, reshape_behind] for name in broadcasting}
    table |= {name: [reduce_nothing] for name in ops_of("reduction")}
    return {
        **table,
        "add": [*table["add"], sum_of_pads],
        "reshape": [same_type, reshape_of_reshape, reshape_of_reduction],
        "transpose": [transpose_nothing, transpose_of_transpose],
        "slice": [slice_nothing],
        "pad": [same_type],
        "broadcast": [same_type, broadcast_of_broadcast],
        "concat": [concat_of_one, concat_of_slices],
    }
