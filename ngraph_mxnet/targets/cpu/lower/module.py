"""Lowers a module: the graph that prepares weights, and the main one, which reads what that makes; results are made in
the caller's memory where that is possible, else copied."""

from __future__ import annotations

from typing import Any

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import BrokenPromiseError
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.module import Module
from ngraph_mxnet.ir.ranges import because
from ngraph_mxnet.ir.sizes import are_same, is_one, is_true, is_zero
from ngraph_mxnet.ir.types import TensorType
from ngraph_mxnet.passes.clusters import MAIN, PREPARE
from ngraph_mxnet.targets.cpu.lower import RULES, Lowering, Settings
from ngraph_mxnet.targets.cpu.lower.blocked import shuffle
from ngraph_mxnet.targets.cpu.microkernels.params import CONTRACTION, CONTRACTIONS
from ngraph_mxnet.targets.cpu.microkernels.tables import PixelRecipe, StepRecipe
from ngraph_mxnet.targets.cpu.microkernels.variants import variants
from ngraph_mxnet.targets.cpu.options import tell_once
from ngraph_mxnet.targets.cpu.params import KERNELS
from ngraph_mxnet.targets.cpu.planning.view import PlainView, plain_view
from ngraph_mxnet.targets.cpu.program.disturbed import disturb
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Instruction, Space
from ngraph_mxnet.targets.cpu.program.promises import DEFECT
from ngraph_mxnet.targets.cpu.program.stored import StoredValues

_WAVE_BYTES = 8 << 20
"""Bytes of the intermediates in a wave of the prepare Program: about what a cache holds."""


def lower_module(module: Module, settings: Settings) -> tuple[Lowering, Lowering]:
    """The main and the prepare graph, which stay as they are.

    Where a plan is not kept, which is a defect that a warning tells, each node is lowered by itself.

    Raises:
        BrokenPromiseError: that doesn't help.
    """
    try:
        with because("layouts"):
            return _lowered(module, settings)
    except BrokenPromiseError as error:
        if not settings.as_planned:
            raise
        tell_once(f"graph {module.name} is compiled another way, which is slower: {error}")
        return lower_module(module, settings._replace(as_planned=False))


def _lowered(module: Module, settings: Settings) -> tuple[Lowering, Lowering]:
    first, second = module.flow.step(PREPARE), module.flow.step(MAIN)
    graph, made = module.graphs[MAIN], dict(zip(first.outputs, module.graphs[PREPARE].results, strict=True))
    places = {value: place for place, value in enumerate(module.flow.inputs)}
    prepare = Lowering(module.graphs[PREPARE], settings, wave_bytes=_WAVE_BYTES)
    # One thread takes branches in turn: together their weights may not fit its caches.
    branches = config.get("NGRAPH_INTER_OP_PARALLELISM") or int(settings.threads == 1)
    main = Lowering(graph, settings, prepare, branches=branches)
    _lower(prepare, list(zip(prepare.graph.parameters, map(places.__getitem__, first.inputs), strict=True)))
    for value, shared in zip(graph.parameters, second.inputs, strict=True):
        if shared in made:
            main.bind_prepared(value, made[shared])
        else:
            main.bind_input(value, places[shared])
    _lower(main, [])
    for index, value in enumerate(graph.results):
        write_result(main, value, plain_view(value.type, Buffer(Space.OUTPUT, value.type.bytes, index=index)))
    for each in (main, prepare):
        each.builder.promises.close()
        disturb(each.builder, settings.symbol)
    return main, prepare


def _lower(ctx: Lowering, inputs: list[tuple[Value, int]]) -> None:
    for value, index in inputs:
        ctx.bind_input(value, index)
    for node in ctx.graph.nodes:
        ctx.origin = str(node)
        ctx.builder.node += 1
        with because(f"lowering of {ctx.origin}"):
            if node in ctx.shuffles:
                shuffle(ctx, node)
            elif node not in ctx.within_shuffles:
                RULES[node.op.name].lower(ctx, node)
                require_made(ctx, node)


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
