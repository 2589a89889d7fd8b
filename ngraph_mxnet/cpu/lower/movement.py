"""Ops that move elements: mostly views, else strided copies."""

from __future__ import annotations

from ngraph_mxnet.cpu import abi
from ngraph_mxnet.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.cpu.view import PlainView, contiguous_strides, plain_view
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import Shape, TensorType


@lowers("constant")
def constant(ctx: Lowering, node: Node) -> None:
    """Stored in the Program."""
    ctx.set_plain(node.output, plain_view(node.output.type, ctx.builder.constant(node.attrs["value"])))


@lowers("identity", "dropout")
def identity(ctx: Lowering, node: Node) -> None:
    """The same memory."""
    ctx.alias(node.output, node.inputs[0])


@lowers("reshape")
def reshape(ctx: Lowering, node: Node) -> None:
    """The same memory, if only dimensions of 1 come and go or the operand has no gaps."""
    source = ctx.plain(node.inputs[0])
    strides = _moved_strides(source, node.output.shape)
    if strides is None:
        source = ctx.contiguous(node.inputs[0])
        strides = contiguous_strides(node.output.shape)
    ctx.set_plain(node.output, _see(source, node.output.type, strides))


def _moved_strides(source: PlainView, shape: Shape) -> tuple[int, ...] | None:
    """Strides of the reshaped view when the dimensions other than 1 stay the same."""
    kept = [(d, s) for d, s in zip(source.type.shape, source.strides, strict=True) if d != 1]
    if [d for d, _ in kept] != [d for d in shape if d != 1]:
        return None
    steps = iter([s for _, s in kept])
    return tuple(1 if d == 1 else next(steps) for d in shape)


@lowers("transpose")
def transpose(ctx: Lowering, node: Node) -> None:
    """A view; whoever needs contiguous memory copies."""
    source = ctx.plain(node.inputs[0])
    ctx.set_plain(node.output, _see(source, node.output.type, tuple(source.strides[i] for i in node.attrs["order"])))


@lowers("broadcast")
def broadcast(ctx: Lowering, node: Node) -> None:
    """A view with strides of 0."""
    source = ctx.plain(node.inputs[0])
    ctx.set_plain(node.output, _see(source, node.output.type, broadcast_strides(source, node.output.shape)))


def broadcast_strides(view: PlainView, shape: Shape) -> tuple[int, ...]:
    """The view's strides over `shape`, to which it broadcasts as in NumPy."""
    missing = len(shape) - view.type.rank
    own = [0 if d == 1 and target != 1 else s
           for d, s, target in zip(view.type.shape, view.strides, shape[missing:], strict=True)]
    return (0,) * missing + tuple(own)


@lowers("slice")
def slice_(ctx: Lowering, node: Node) -> None:
    """A view, also for negative steps."""
    source = ctx.plain(node.inputs[0])
    begin, steps = node.attrs["begin"], node.attrs["strides"]
    offset = sum(b * s for b, s in zip(begin, source.strides, strict=True)) if node.output.type.size else 0
    strides = tuple(step * s for step, s in zip(steps, source.strides, strict=True))
    ctx.set_plain(node.output, _see(source, node.output.type, strides, offset))


def _see(view: PlainView, type_: TensorType, strides: tuple[int, ...], first: int = 0) -> PlainView:
    """The same memory with another shape and strides, starting `first` elements further."""
    return PlainView(type_, view.buffer, view.offset + first * type_.element.size, view.writers, strides)


def plain_concat(ctx: Lowering, node: Node) -> None:
    """One strided copy an operand."""
    out, axis = ctx.new_plain(node.output.type), node.attrs["axis"]
    first = 0
    for value in node.inputs:
        part = PlainView(value.type, out.buffer, out.offset + first * out.strides[axis] * value.type.element.size,
                         out.writers, out.strides)
        ctx.copy(ctx.plain(value), part)
        first += value.shape[axis]
    ctx.set_plain(node.output, out)


def _check_pad(node: Node) -> str | None:
    return None if node.attrs["mode"] == "constant" else f"pad in mode {node.attrs['mode']} has no CPU kernel yet"


@lowers("pad", check=_check_pad)
def pad(ctx: Lowering, node: Node) -> None:
    """A fill, then a copy inside."""
    source, out = ctx.plain(node.inputs[0]), ctx.new_plain(node.output.type)
    size = node.output.type.element.size
    ctx.strided(f"fill_{abi.SIZE_SUFFIX[size]}", out.type.shape, [], (out, out.strides), [node.attrs["value"]])
    first = sum(p * s for p, s in zip(node.attrs["pads_begin"], out.strides, strict=True))
    inside = PlainView(source.type, out.buffer, first * size, strides=out.strides)
    ctx.strided(f"copy_{abi.SIZE_SUFFIX[size]}", source.type.shape, [(source, source.strides)],
                (inside, inside.strides), after=[out])
    ctx.set_plain(node.output, PlainView(out.type, out.buffer, 0, [*out.writers, *inside.writers], out.strides))


def write_result(ctx: Lowering, value: Value, destination: PlainView) -> None:
    """Copy a result to the caller's memory, out of whichever layout it is in."""
    ctx.origin = "result"
    ctx.copy(ctx.plain(value), destination)
