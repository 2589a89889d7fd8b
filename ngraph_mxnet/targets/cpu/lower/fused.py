"""A cluster as one call of the kernel `chain`, for which nothing is generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.opdef import get_op
from ngraph_mxnet.ir.sizes import are_same_shape, is_one
from ngraph_mxnet.ir.types import f32
from ngraph_mxnet.targets.cpu.codegen.clusters import Description, Read, describe
from ngraph_mxnet.targets.cpu.codegen.generator import Generator
from ngraph_mxnet.targets.cpu.codegen.spec import SCRATCH_BYTES, LoopKernel, Tensor, collapse, saved, tile_of
from ngraph_mxnet.targets.cpu.lower.context import RULES, Lowering, lowers
from ngraph_mxnet.targets.cpu.params.record import GRAIN
from ngraph_mxnet.targets.cpu.params.strided import (
    CHAIN,
    CHAIN_INPUTS,
    CHAIN_MEMORY,
    CHAIN_OUTPUTS,
    CHAIN_REGISTERS,
    CHAIN_STEPS,
)
from ngraph_mxnet.targets.cpu.planning.view import (
    BLOCK,
    BlockedView,
    PlainView,
    View,
    as_plain,
    contiguous_strides,
    images_of,
)

Steps = list[int]


def chain(ctx: Lowering, node: Node) -> bool:
    """Emit the call for a `fused` node; False, and nothing is emitted, where it does not fit the kernel."""
    body, shape = node.attrs["body"], node.outputs[0].shape
    constants = [inner.output for inner in body.nodes if inner.op.name == "constant"]
    read = [*body.parameters, *constants]
    values = (*read, *node.outputs, *(value for inner in body.nodes for value in inner.outputs))
    if len(read) > CHAIN_INPUTS or len(node.outputs) > CHAIN_OUTPUTS or any(v.type.element is not f32 for v in values):
        return False
    if not all(is_one(v.type.size) or are_same_shape(v.shape, shape) for v in read) or not all(
            are_same_shape(v.shape, shape) for v in node.outputs):
        return False
    if not all(_is_dense(ctx, value) for value in node.inputs):
        return False
    steps = _steps(body, {value: CHAIN_MEMORY + number for number, value in enumerate(read)})
    if steps is None:
        return False
    views = [ctx.contiguous(value) for value in (*node.inputs, *constants)]
    counts = [view.type.size for view in views] + [1] * (CHAIN_INPUTS - len(views))
    outputs = [ctx.new_plain(value.type) for value in node.outputs]
    params = CHAIN(size=node.outputs[0].type.size, chunk=GRAIN, steps=len(steps), outputs=len(outputs),
                   **{f"count_{number}": count for number, count in enumerate(counts)})
    operands: dict[str, Any] = {f"{kind}{number}": view for kind, found in (("i", views), ("o", outputs))
                                for number, view in enumerate(found)}
    # All that is written is written behind the last step that reads: it may be an input's memory.
    ctx.emit("chain", params.followed_by(number for step in steps for number in step), exact=True,
             operations=float(len(body.nodes) * node.outputs[0].type.size), **operands)
    ctx.set_views(node.outputs, outputs)
    return True


def _is_dense(ctx: Lowering, value: Value) -> bool:
    """True if the value is at hand without gaps, or is not in blocks of channels. Blocks of channels would be turned
    first."""
    views = [as_plain(view) if isinstance(view, BlockedView) else view for view in ctx.views(value)]
    return not ctx.has_blocked(value) or any(isinstance(view, PlainView) and view.is_contiguous for view in views)


def _steps(body: Graph, place: dict[Value, int]) -> list[Steps] | None:
    """The ints of each step, in order, those that write the results last; None where an op is no step, or there are
    too few registers.

    Args:
        place: where a step reads each parameter and constant.
    """
    nodes = [node for node in body.nodes if node.op.name != "constant"]
    if any(node.op.name not in CHAIN_STEPS for node in nodes):
        return None
    last = {value: number for number, node in enumerate(nodes) for value in node.inputs}
    last.update(dict.fromkeys(body.results, len(nodes)))
    if any(value in place for value in body.results):
        return None  # a parameter returned as it is
    free, steps = list(range(CHAIN_REGISTERS)), []
    for number, node in enumerate(nodes):
        if not free:
            return None
        register = free.pop()  # not one of its operands', which are given back below
        operands = [place[value] for value in node.inputs]
        steps.append([CHAIN_STEPS[node.op.name], operands[0], operands[-1], register])
        place[node.output] = register
        for value in {*node.inputs, node.output}:
            if place[value] < CHAIN_MEMORY and last.get(value, number) == number:
                free.append(place[value])
    for number, value in enumerate(body.results):
        steps.append([CHAIN_STEPS["identity"], place[value], place[value], CHAIN_MEMORY + number])
    return steps


Strides = tuple[int, ...]
Placed = tuple[View, Strides]


@lowers("fused")
def fused(ctx: Lowering, node: Node) -> None:
    """In the blocked layout when an operand is there and the others fit, else plain."""
    if ctx.settings.generator is None:
        if not chain(ctx, node):
            _expand(ctx, node)
        return
    description = describe(node.attrs["body"])
    if description is None:
        _expand(ctx, node)
        return
    reads = _blocked_reads(ctx, node, description)
    if reads is not None:
        outputs = [ctx.new_blocked(value) for value in node.outputs]
        _emit(ctx, ctx.settings.generator, description, outputs[0].dims, reads,
              [(view, view.strides) for view in outputs])
        ctx.set_views(node.outputs, outputs)
    elif not _plain(ctx, ctx.settings.generator, node, description):
        _expand(ctx, node)


def _emit(ctx: Lowering, generator: Generator, description: Description, shape: tuple[int, ...],
          reads: Sequence[Placed], writes: Sequence[Placed]) -> bool:
    """One call of the generated kernel; False when there can't be one over these strides."""
    collapsed = collapse(shape, [strides for _, strides in (*reads, *writes)], description.rows)
    if collapsed is None:
        return False
    sizes, strides = collapsed
    elements = [step.element for step in description.steps if step.op == "load"]
    elements += [description.steps[number].element for number in description.results]
    kernel = LoopKernel(sizes, tile_of(sizes, description.rows > 0), tuple(map(Tensor, elements, strides)),
                        tuple(description.steps), tuple(description.results))
    if len(saved(kernel)) * sizes[-1] * 4 > SCRATCH_BYTES:
        return False
    views = [view for view, _ in reads]
    outputs = [view for view, _ in writes]
    ctx.builder.emit(generator.symbol(kernel), [view.operand for view in (*views, *outputs)], [], [], kernel.tasks,
                     reads=views, writes=outputs, origin=ctx.origin)
    return True


def _plain(ctx: Lowering, generator: Generator, node: Node, description: Description) -> bool:
    views = [ctx.plain(node.inputs[read.parameter]) for read in description.reads]
    if description.rows:
        # Rows must be at one stride each.
        views = [ctx.contiguous(node.inputs[read.parameter]) if read.shape == description.shape else view
                 for read, view in zip(description.reads, views, strict=True)]
    reads = [(view, _plain_strides(view, read, description)) for view, read in
             zip(views, description.reads, strict=True)]
    outputs = [ctx.new_plain(value.type) for value in node.outputs]
    writes = [(view, _output_strides(view, description)) for view in outputs]
    if not _emit(ctx, generator, description, description.shape, reads, writes):
        return False
    ctx.set_views(node.outputs, outputs)
    return True


def _plain_strides(view: PlainView, read: Read, description: Description) -> Strides:
    """Strides over the space."""
    rest = len(read.shape) - view.type.rank
    return view.seen(view.type.with_shape(read.shape), (*view.strides, *(0,) * rest)).over(description.shape)


def _output_strides(view: PlainView, description: Description) -> Strides:
    outer = len(description.outer)
    if view.type.shape == description.shape:
        return view.strides
    return (*view.strides[:outer], *(0,) * description.rows)


def _blocked_reads(ctx: Lowering, node: Node, description: Description) -> list[Placed] | None:
    """Views and strides over (image, block, row, pixel, lane); None when plain is the way."""
    shape = description.shape
    if description.rows or len(shape) not in (3, 4, 5):
        return None
    if not any(ctx.has_blocked(node.inputs[r.parameter]) and r.shape == shape for r in description.reads):
        return None
    if any(value.type.element.name != "f32" for value in (*node.inputs, *node.outputs)):
        return None
    ragged = shape[1] % BLOCK != 0
    if ragged and not all(step.op in ("load", "constant") or get_op(step.op).keeps_finite
                          for step in description.steps):
        return None
    placed = [_blocked_read(ctx, node.inputs[read.parameter], read, description, ragged) for read in description.reads]
    return None if None in placed else placed  # type: ignore[return-value]


def _blocked_read(ctx: Lowering, value: Value, read: Read, description: Description, ragged: bool) -> Placed | None:
    shape = (1,) * (len(description.shape) - len(read.shape)) + read.shape
    images, channels, *pixels = shape
    if channels == 1:
        if value.type.size == 1:
            return ctx.contiguous(value), (0, 0, 0, 0, 0)
        plain = ctx.contiguous(value)
        steps = plain.seen(plain.type.with_shape(shape), contiguous_strides(shape)).over(description.shape)
        if len(shape) == 5:
            return None
        row, pixel = (0, *steps[2:])[-2:]
        return plain, (steps[0], 0, row, pixel, 0)
    if value.shape == shape and (len(shape) < 5 or shape == description.shape):
        view = ctx.blocked(value)
        images, row, pixel = images_of(shape), *(1, *pixels)[-2:]
        return view, (_if(images > 1, view.image), view.block, _if(row > 1, view.row), _if(pixel > 1, BLOCK), 1)
    if all(p == 1 for p in pixels) and not ragged and (len(shape) < 5 or images == 1):
        return ctx.contiguous(value), (_if(images > 1, channels), BLOCK, 0, 0, 1)
    return None


def _if(condition: bool, stride: int) -> int:
    return stride if condition else 0


def _expand(ctx: Lowering, node: Node) -> None:
    """Lower the body's nodes one by one: all are elementwise or work on rows, so that none needs a layout plan."""
    body = node.attrs["body"]
    for parameter, operand in zip(body.parameters, node.inputs, strict=True):
        ctx.alias(parameter, operand)
    for inner in body.nodes:
        RULES[inner.op.name].lower(ctx, inner)
    for output, result in zip(node.outputs, body.results, strict=True):
        ctx.alias(output, result)
