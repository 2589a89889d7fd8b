"""Lowers a module: the graph that prepares weights, and the main one, which reads what that makes."""

from __future__ import annotations

from dataclasses import replace

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import BrokenPromiseError
from ngraph_mxnet.ir.graph import Value
from ngraph_mxnet.ir.module import Module
from ngraph_mxnet.ir.ranges import because
from ngraph_mxnet.passes.clusters import MAIN, PREPARE
from ngraph_mxnet.targets.cpu.lower import RULES, Lowering, Settings
from ngraph_mxnet.targets.cpu.lower.blocked import shuffle
from ngraph_mxnet.targets.cpu.lower.results import require_made, write_result
from ngraph_mxnet.targets.cpu.options import tell_once
from ngraph_mxnet.targets.cpu.planning.view import plain_view
from ngraph_mxnet.targets.cpu.program.disturbed import disturb
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Space

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
        return lower_module(module, replace(settings, as_planned=False))


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
