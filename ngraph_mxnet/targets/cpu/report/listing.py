"""A compiled graph's Programs as text: what runs in which level, on what memory, in how many tasks."""

from __future__ import annotations

from ngraph_mxnet.ir.module import Flow
from ngraph_mxnet.targets.cpu.program.instruction import Space
from ngraph_mxnet.targets.cpu.program.program_code import ProgramCode


def listing(flow: Flow, main: ProgramCode, prepare: ProgramCode | None, prepared_bytes: int) -> str:
    """The prepare Program, which runs once for each set of weights, then the main one, which runs with each call."""
    parts = []
    if prepare is not None:
        parts += _program("prepare", prepare, prepared_bytes)
    parts += _program("main", main, prepared_bytes)
    for kind, values in (("input", flow.inputs), ("output", flow.results)):
        parts += [f"{kind} {number}: {value.type}" for number, value in enumerate(values)]
    return "\n".join(parts) + "\n"


def _program(name: str, program: ProgramCode, prepared: int) -> list[str]:
    count = sum(map(len, program.levels))
    constants = sum(array.nbytes for array in program.constants)
    lines = [f"{name}: {count} instructions in {len(program.levels)} levels; bytes: arena {program.arena_bytes}, "
             f"prepared {prepared}, constants {constants}"]
    for number, level in enumerate(program.levels):
        lines.append(f"  level {number}")
        for kernel, operands, _, _, tasks, origin, *_ in level:
            where = ", ".join(_operand(*operand) for operand in operands)
            lines.append(f"    {kernel}({where}) in {tasks} task{'s' if tasks > 1 else ''}"
                         + (f"  # {origin}" if origin else ""))
    return lines


def _operand(space: int, index: int, offset: int) -> str:
    """As in `input 1`, `arena+64`; inputs, outputs and constants have numbers."""
    name = Space(space).name.lower()
    numbered = Space(space) in (Space.INPUT, Space.OUTPUT, Space.CONSTANT)
    place = f"{name} {index}" if numbered else name
    return f"{place}+{offset}" if offset or not numbered else place
