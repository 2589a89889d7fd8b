"""A compiled graph's Programs as text: what runs in which level, on what memory, in how many tasks."""

from __future__ import annotations

from ngraph_mxnet.cpu.instruction import Space
from ngraph_mxnet.cpu.program_recipe import ProgramRecipe
from ngraph_mxnet.cpu.recipe import Recipe, Spec


def listing(recipe: Recipe) -> str:
    """The prepare Program, which runs once for each set of weights, then the main one, which runs with each call."""
    parts = []
    if recipe.prepare is not None:
        parts += _program("prepare", recipe.prepare, recipe.prepared_bytes)
    parts += _program("main", recipe.main, recipe.prepared_bytes)
    for kind, specs in (("input", recipe.inputs), ("output", recipe.outputs)):
        parts += [f"{kind} {number}: {_type(spec)}" for number, spec in enumerate(specs)]
    return "\n".join(parts) + "\n"


def _program(name: str, program: ProgramRecipe, prepared: int) -> list[str]:
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


def _type(spec: Spec) -> str:
    element, shape = spec
    return f"{element}[{','.join(map(str, shape))}]"
