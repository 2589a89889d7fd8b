"""Results, which lie in the caller's memory: made there where that is possible, else copied."""

from __future__ import annotations

from typing import Any

from ngraph_mxnet.base.errors import BrokenPromiseError
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import are_same, is_one, is_true, is_zero
from ngraph_mxnet.ir.types import TensorType
from ngraph_mxnet.targets.cpu.lower.context import Lowering
from ngraph_mxnet.targets.cpu.microkernels.params import CONTRACTION, CONTRACTIONS
from ngraph_mxnet.targets.cpu.microkernels.tables import PixelRecipe, StepRecipe
from ngraph_mxnet.targets.cpu.microkernels.variants import variants
from ngraph_mxnet.targets.cpu.params import KERNELS
from ngraph_mxnet.targets.cpu.planning.view import BlockedView, Halo, PlainView, View
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Instruction, Space
from ngraph_mxnet.targets.cpu.program.promises import DEFECT
from ngraph_mxnet.targets.cpu.program.stored import StoredValues


def write_result(ctx: Lowering, value: Value, destination: PlainView) -> None:
    """Have a result in the caller's memory, out of either layout."""
    ctx.origin = "result"
    source = ctx.plain(value)
    ctx.builder.promises.require_written(source, f"the result {value.node or value.name}")
    if not _made_there(ctx, source, destination):
        ctx.copy(source, destination)


def stored_values(ctx: Lowering, outputs: list[TensorType]) -> StoredValues:
    """The values that the main Program, whose outputs have these types, stores."""
    views = [(node, index, ctx.views(value)) for node in ctx.graph.nodes for index, value in enumerate(node.outputs)]
    return StoredValues(views, ctx.builder.steps, outputs)


def _made_there(ctx: Lowering, source: PlainView, destination: PlainView) -> bool:
    """Give the whole buffer of `source` the place of `destination`, if no kernel needs more than the caller's memory
    has. Who reads it reads it there."""
    buffer = source.buffer
    whole = (buffer.space is Space.ARENA and buffer.region is None and is_zero(source.offset)
             and are_same(buffer.bytes, destination.type.bytes)
             and all(is_one(size) or are_same(own, its) for size, own, its in zip(
                 destination.type.shape, source.strides, destination.strides, strict=True)))
    if not whole:
        return False
    if not all((each in source.writers and each.exact) or _stays_inside(ctx, each, buffer)
               for each in ctx.builder.touching.get(buffer, ())):
        return False
    buffer.space, buffer.index = destination.buffer.space, destination.buffer.index
    return True


def _stays_inside(ctx: Lowering, each: Instruction, buffer: Buffer) -> bool:
    """True if the instruction touches no byte outside the buffer, does not want the buffer aligned, and keeps nothing
    there that it relies on."""
    record = KERNELS.get(each.name)
    if record is None:
        return False
    numbers = record.read(each.ints)
    places = dict(zip(record.tensors, each.operands, strict=True))
    own = {name for name, (other, _) in places.items() if other is buffer}
    if own & {*record.keeps, *(record.aligned(numbers) if record.aligned else ())}:
        return False
    spans = record.reach(numbers, _told(ctx, each))
    return all(is_true(places[name][1] + first >= 0) and is_true(places[name][1] + last <= buffer.bytes)
               for name, first, last in spans if name in own)


def _told(ctx: Lowering, each: Instruction) -> Any:
    """Return what the kernel's reach function asks for: the variant and the tables, or the bytes of an element."""
    if each.name not in CONTRACTIONS:
        return KERNELS[each.name].element_bytes[each.name]

    def table(operand: str, count: int) -> PixelRecipe | StepRecipe:
        constant, _ = each.operands[CONTRACTION.tensors.index(operand)]
        found = ctx.builder.constants[constant.index]
        assert isinstance(found, PixelRecipe | StepRecipe)
        return found

    return next(v for v in variants(ctx.settings.isa) if f"contraction_{v.name}" == each.name), table


def require_made(ctx: Lowering, node: Node) -> None:
    """That there are the results of a node that was lowered, or what others read in their place.

    Raises:
        BrokenPromiseError: there are none.
    """
    if node.op.name == "constant":
        return
    for value in node.outputs:
        if ctx.is_at_hand(value) or _is_made(ctx, value):
            continue
        reader = ctx.activations.get(node)
        if reader is None or not _is_made(ctx, reader.output):
            raise BrokenPromiseError(f"{node}: {_how(ctx, value)}, and there is nothing. {DEFECT}")


def _is_made(ctx: Lowering, value: Value) -> bool:
    if ctx.is_at_hand(value):
        return True
    return value in ctx.stores and any(view.type.element is ctx.stores[value][0].type.element
                                       for view in ctx.views(ctx.stores[value][0]))


def _how(ctx: Lowering, value: Value) -> str:
    if value in ctx.stores:
        return f"its result was to be stored as {ctx.stores[value][0].type.element} by a kernel of another node"
    return "its result was to be made"


def require_border(ctx: Lowering, view: View, halo: Halo, fill: int = 0) -> None:
    """That there is the border around an image that a reader wants. A view that is no blocked image has its own.

    Raises:
        BrokenPromiseError: there is none, it is too small, or it is filled with something else.
    """
    if not halo or not isinstance(view, BlockedView):
        return
    is_there = view.halo == halo or view.halo.cover(halo) == view.halo
    if not is_there or view.fill != fill or not (fill or view.buffer.zeroing):
        raise BrokenPromiseError(f"{ctx.origin}: expected a border of {fill} around its data, {halo}, found "
                                 f"{view.halo or 'none'} of {view.fill}. {DEFECT}")
