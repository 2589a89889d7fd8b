"""A compiled graph's main Program as `runtime.lowered` tells it."""

from __future__ import annotations

from ngraph_mxnet.runtime.lowered import KernelCall, Lowered, PlannedBuffer
from ngraph_mxnet.targets.cpu.lower import Lowering
from ngraph_mxnet.targets.cpu.planning.view import BF16, BlockedView, View
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Instruction, Space


def lowered(main: Lowering) -> Lowered:
    """What `main` made of its graph; its levels are assigned and its arena is planned."""
    nodes = main.graph.nodes
    spans: dict[Buffer, list[Instruction]] = {}
    calls = []
    for instruction in main.builder.instructions:
        calls.append(KernelCall(instruction.name, instruction.node - 1, instruction.level, instruction.tasks,
                                instruction.operations, instruction.bytes))
        for buffer in dict.fromkeys(buffer for buffer, _ in instruction.operands):
            if buffer.space is Space.ARENA:
                spans.setdefault(buffer, []).append(instruction)
    buffers = []
    for buffer, touching in spans.items():
        first = min(touching, key=lambda instruction: instruction.level)
        last = max(instruction.level for instruction in touching)
        buffers.append(PlannedBuffer(buffer.offset, buffer.bytes, first.level, last, first.node - 1))
    layouts = tuple("; ".join(map(_view_text, main.views(node.outputs[0]))) for node in nodes)
    levels = 1 + max((call.level for call in calls), default=-1)
    return Lowered(main.graph, tuple(calls), tuple(buffers), layouts, levels, main.builder.memory.planned)


def _view_text(view: View) -> str:
    """For people."""
    if not isinstance(view, BlockedView):
        return "plain"
    narrow = ", bf16" if view.type.element is BF16 else ""
    halo = f", halo {view.halo.top} {view.halo.bottom} {view.halo.left} {view.halo.right}" if view.halo else ""
    return f"blocked{narrow}{halo}"
