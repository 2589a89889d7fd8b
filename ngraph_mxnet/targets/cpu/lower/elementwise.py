"""Elementwise ops, in whichever layout their operands have."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.opdef import ops_of
from ngraph_mxnet.ir.sizes import are_same, are_same_shape, is_one, is_zero
from ngraph_mxnet.targets.cpu.lower import movement
from ngraph_mxnet.targets.cpu.lower.context import Lowering, Placed, lowers
from ngraph_mxnet.targets.cpu.lower.contraction import channel_blocks
from ngraph_mxnet.targets.cpu.params import KERNELS
from ngraph_mxnet.targets.cpu.planning.view import BLOCK


def check_f32(node: Node) -> str | None:
    found = {v.type.element.name for v in node.inputs}
    return None if found <= {"f32"} else f"{node.op.name} of {', '.join(sorted(found))} has no CPU kernel, only f32"


def _check_arithmetic(node: Node) -> str | None:
    return None if _has_own_kernel(node) else movement.missing(node.op, node.inputs[0].type.element)


def _has_own_kernel(node: Node) -> bool:
    """True if the op runs in float32 as it is. Other ops are computed in a wider type."""
    return node.inputs[0].type.element.name == "f32" and node.op.name in KERNELS


def _check_bool(node: Node) -> str | None:
    if node.op.name not in KERNELS:
        return f"{node.op.name} has no CPU kernel"
    return None if all(v.type.element.name == "bool" for v in node.inputs) else "logical ops take bool on the CPU"


@lowers(*ops_of("arithmetic"), check=_check_arithmetic)
def arithmetic(ctx: Lowering, node: Node) -> None:
    """float32 in the blocked layout when an operand is there and the others fit, else plain."""
    if not _has_own_kernel(node):
        movement.elementwise(ctx, node)
        return
    if node in ctx.merged:
        return
    floats = [node.attrs[name] for name in node.op.schema]
    operands = _blocked_operands(ctx, node)
    if operands is None:
        _plain(ctx, node, floats)
        return
    out = ctx.new_blocked(node.output)
    ctx.strided(node.op.name, out.dims, operands, out, floats)
    ctx.set_blocked(node.output, out)


def _blocked_operands(ctx: Lowering, node: Node) -> list[Placed] | None:
    """Views and strides over (image, block, row, pixel, lane); None when plain is the way."""
    shape = node.output.shape
    if len(shape) < 3 or not any((ctx.has_blocked(v) or v in ctx.quantized) and are_same_shape(v.shape, shape)
                                 for v in node.inputs):
        return None
    if shape[1] % BLOCK and not node.op.keeps_finite:
        return None  # what stands in the lanes beyond the channels must stay finite: later zero weights cancel it
    kinds = [_kind(v, shape) for v in node.inputs]
    return None if None in kinds else [_operand(ctx, v, kind) for v, kind in zip(node.inputs, kinds, strict=True)]


def _kind(value: Value, shape: tuple[int, ...]) -> str | None:
    """How an operand meets a result of `shape`: `full`, per `channel`, per channel of each `image`, as one `scalar`,
    or not by blocks (None)."""
    if are_same_shape(value.shape, shape):
        return "full"
    if is_one(value.type.size):
        return "scalar"
    padded = (1,) * (len(shape) - value.type.rank) + value.shape
    if not are_same(padded[1], shape[1]):
        return None
    if are_same(shape[1], value.type.size):
        return "channel"
    by_image = len(shape) < 5 and are_same_shape(value.shape, (*shape[:2], *(1,) * (len(shape) - 2)))
    return "image" if by_image else None  # in three dimensions the images of a block are slices


def _operand(ctx: Lowering, value: Value, kind: str | None) -> Placed:
    if kind == "full":
        return ctx.blocked(value)
    if kind == "image":
        view = ctx.blocked(value)
        return view, (view.image, view.block, 0, 0, 1)
    if kind == "channel":
        whole = is_zero(value.type.size % BLOCK)
        return ctx.contiguous(value) if whole else channel_blocks(ctx, value), (0, BLOCK, 0, 0, 1)
    return ctx.contiguous(value), (0, 0, 0, 0, 0)


def _plain(ctx: Lowering, node: Node, floats: list[float], kernel: str = "") -> None:
    views = [ctx.plain(value) for value in node.inputs]
    ctx.set_plain(node.output, ctx.computed(kernel or node.op.name, views, node.output.type, floats))


@lowers(*ops_of("comparison"), check=_check_arithmetic)
def comparison(ctx: Lowering, node: Node) -> None:
    """A comparison takes any element type and gives bool."""
    if _has_own_kernel(node):
        _plain(ctx, node, [])
    else:
        movement.elementwise(ctx, node)


@lowers(*ops_of("logical"), check=_check_bool)
def logical(ctx: Lowering, node: Node) -> None:
    """bool to bool."""
    _plain(ctx, node, [])


@lowers("select")
def select(ctx: Lowering, node: Node) -> None:
    """bool and two of any element type to one of these."""
    element = node.output.type.element
    _plain(ctx, node, [], "select" if element.name == "f32" else f"select_{element.size}")


@lowers("convert")
def convert(ctx: Lowering, node: Node) -> None:
    """Between any two element types."""
    source, target = node.inputs[0], node.output
    if source.type.element == target.type.element:
        ctx.alias(target, source)
    else:
        ctx.set_plain(target, movement.converted(ctx, ctx.plain(source), target.type.element))
