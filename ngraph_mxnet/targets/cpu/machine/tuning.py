"""Autotuning (NGRAPH_AUTOTUNE=1): measures other ways to run an instruction on this machine and keeps the best.

A way is another set of the kernel's `ints` over the same operands: for contractions the order of the tasks, their
size, and how the sum is split. `CANDIDATES` has a function for each kind of kernel that has such ways; `measure`
serves whoever chooses between whole sequences of instructions, such as algorithms.

An instruction is measured alone, on memory of its own of the same sizes, after other memory was written. The kernel
library's content, the processor, the team and the instruction's parameters are the key of a result.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from ngraph_mxnet.base import config
from ngraph_mxnet.base.rendered import progress
from ngraph_mxnet.program.cache import open_store
from ngraph_mxnet.targets.cpu.microkernels.params import (
    CONTRACTION,
    CONTRACTIONS,
    FLAG_OUTPUT_NARROW,
    FLAG_RESIDUAL,
    Operand,
)
from ngraph_mxnet.targets.cpu.params.strided import strided
from ngraph_mxnet.targets.cpu.program.builder import ProgramBuilder
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Instruction, Space

logger = config.logger(__name__)

_KIND = "tuning"
_ROUNDS = 9
_FINALISTS = 3
_FLUSH_BYTES = 8 << 20
"""Written between measurements: in a model, other layers' data come between."""
_GAIN = 0.95
"""A candidate replaces the model's choice when its time is at most this share of it, in the median of the rounds."""

Ints = list[int]


def contraction_candidates(instruction: Instruction) -> list[Ints]:
    """Both orders with chunks from one tile to all, and other splits of the sum; the present way is left out."""
    params = CONTRACTION.read(instruction.ints)
    tiles, chunks = params.rows * params.row_tiles, {params.chunk_tiles}
    size = 1
    while size < 4 * tiles:
        chunks.add(-(-tiles // -(-tiles // min(size, tiles))))
        size *= 4
    ways = [params._replace(order=order, chunk_tiles=chunk) for order in (0, 1) for chunk in sorted(chunks)]
    shares = instruction.operands[Operand.RESIDUAL] == instruction.operands[Operand.OUTPUT]
    splits = not (params.flags & FLAG_RESIDUAL and shares) and not params.flags & FLAG_OUTPUT_NARROW
    splits = splits and not CONTRACTIONS[instruction.name].u8
    if splits and "depthwise" not in instruction.kernel:
        blocks = {params.steps, -(-params.steps // 2), -(-params.steps // 4)}
        ways += [params._replace(step_block=block) for block in sorted(blocks)]
    return [CONTRACTION.flat(way) for way in ways if way != params]


CANDIDATES: dict[str, tuple[Callable[[Instruction], list[Ints]], Callable[[Sequence[int]], int]]] = {
    "ng_contraction_": (contraction_candidates, CONTRACTION.tasks_of),
}
"""By the symbol's beginning: other `ints` for an instruction, and the tasks that `ints` make."""


def tune(builder: ProgramBuilder, threads: int) -> int:
    """Give the instructions of `builder` their fastest known `ints`; how many were measured now."""
    groups: dict[str, list[Instruction]] = {}
    for instruction in builder.instructions:
        if _candidates_for(instruction) is not None:
            groups.setdefault(_signature(instruction, threads), []).append(instruction)
    store, measured = open_store(), 0
    with progress("autotuning", len(groups)) as advance:
        for key, instructions in groups.items():
            entry = store.get(_KIND, key) if store else None
            ints = _read(entry, instructions[0]) if entry else None
            if ints is None:
                ints = _fastest(builder, instructions[0], threads)
                measured += 1
                if store:
                    store.put(_KIND, key, json.dumps(ints).encode())
            _, tasks = _candidates_for(instructions[0])
            for instruction in instructions:
                instruction.ints, instruction.tasks = list(ints), tasks(ints)
            advance()
    logger.info("autotuning: %d layers measured, %d known", measured, len(groups) - measured)
    return measured


def measure(builder: ProgramBuilder, instructions: Sequence[Instruction], threads: int) -> float:
    """Seconds that `instructions` of `builder` take one after the other, on memory of their own: the least of a few."""
    run = _runner(builder, instructions, threads)
    run()
    return min(run() for _ in range(_ROUNDS))


def _fastest(builder: ProgramBuilder, instruction: Instruction, threads: int) -> Ints:
    """The best by one look at all, if a longer one at the best few confirms it; else the present `ints`."""
    candidates, tasks = _candidates_for(instruction)
    ways = [instruction.ints, *candidates(instruction)]
    runs = [_runner(builder, [replace(instruction, ints=way, tasks=tasks(way), waits=[])], threads) for way in ways]
    first = [min(run() for _ in range(2)) for run in runs]
    few = sorted(range(1, len(ways)), key=first.__getitem__)[:_FINALISTS]
    rounds = [[runs[number]() for number in (0, *few)] for _ in range(_ROUNDS)]
    shares = {number: median(times[at] / times[0] for times in rounds) for at, number in enumerate(few, 1)}
    best = min(shares, key=shares.__getitem__, default=0)
    return ways[best] if shares.get(best, 1.0) <= _GAIN else ways[0]


def _runner(builder: ProgramBuilder, instructions: Sequence[Instruction], threads: int) -> Callable[[], float]:
    """Runs copies of the instructions once, with nothing in the cores' own caches; the seconds."""
    from ngraph_mxnet import _core

    own = ProgramBuilder()
    buffers: dict[Buffer, Buffer] = {}

    def place(buffer: Buffer) -> Buffer:
        if buffer not in buffers:
            constant = buffer.space is Space.CONSTANT
            buffers[buffer] = own.constant(builder.constants[buffer.index]) if constant else own.arena(buffer.bytes)
        return buffers[buffer]

    isa = instructions[0].kernel.rpartition("__")[2]
    fill = strided("fill_4", [_FLUSH_BYTES // 4], [1], floats=[0.0])
    last = Instruction(f"ng_fill_4__{isa}", [(own.arena(_FLUSH_BYTES), 0)], fill.ints(), fill.floats(), fill.tasks, [])
    own.instructions.append(last)
    for instruction in instructions:
        operands = [(place(buffer), offset) for buffer, offset in instruction.operands]
        last = replace(instruction, operands=operands, waits=[last])
        own.instructions.append(last)
    native = _core.Executable(own.program().native(_core.kernel_address).bind(), None, 0, [], [], [], threads)
    return lambda: sum(seconds for _, seconds in native.profile([], [])[1:])


def _candidates_for(instruction: Instruction) -> Any:
    return next((found for prefix, found in CANDIDATES.items() if instruction.kernel.startswith(prefix)), None)


def _read(entry: bytes, instruction: Instruction) -> Ints | None:
    ints = json.loads(entry)
    return ints if isinstance(ints, list) and len(ints) == len(instruction.ints) else None


def _signature(instruction: Instruction, threads: int) -> str:
    sizes = [(buffer.bytes, offset) for buffer, offset in instruction.operands]
    return f"{machine_identity()} {threads} {instruction.kernel} {instruction.ints} {instruction.floats} {sizes}"


@functools.cache
def machine_identity() -> str:
    """The processor's name and the kernel library."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    from ngraph_mxnet import _core

    library = Path(_core.__file__).with_name("libngraph_kernels.so")
    return f"{model} {hashlib.sha256(library.read_bytes()).hexdigest()}"
