"""The facts that reports tell of a Program: kernels, numbers, listings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ngraph_mxnet.ir.module import Flow
from ngraph_mxnet.runtime.executable import KernelCall, Lowered, PlannedBuffer
from ngraph_mxnet.targets.cpu.lower import Lowering
from ngraph_mxnet.targets.cpu.machine.peak import Peak
from ngraph_mxnet.targets.cpu.microkernels.params import CONTRACTION, DEPTHWISE, ORDER_PIXELS, STRIDES, depthwise_symbol
from ngraph_mxnet.targets.cpu.microkernels.tiles import loop_nest
from ngraph_mxnet.targets.cpu.microkernels.variants import ISAS, symbol, variants
from ngraph_mxnet.targets.cpu.planning.algorithm import ALGORITHMS
from ngraph_mxnet.targets.cpu.planning.view import BF16, BlockedView, View
from ngraph_mxnet.targets.cpu.program.builder import MemoryUse, ProgramBuilder
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Instruction, Space

__all__ = ["Contraction", "contractions"]


_VARIANTS = {symbol(variant, isa): (variant, isa) for isa in ISAS for variant in variants(isa)}
_ROWS: dict[str, int] = {depthwise_symbol(s, isa): s for isa in ISAS for s in STRIDES}
_TRANSFORM = "ng_winograd_input_"


@dataclass(frozen=True)
class Contraction:
    """Equal instructions of one node."""

    node: str
    """The IR's op with the framework's names."""
    algorithm: str
    """One of `ALGORITHMS`."""
    kernel: str
    """Name of the microkernel's variant."""
    tile: str
    """Pixels (rows of a matrix) by output channels that a kernel keeps in registers."""
    order: str
    """Outermost of the tasks: `channels` or `pixels`."""
    chunk: int
    """Tiles in a task; of the depthwise row kernels rows."""
    tasks: int
    """In an instruction."""
    calls: int
    """Instructions: matrices of a batch, strips of an image."""
    parameters: str = field(compare=False)
    """Parameters that the first of the instructions gives the kernel, by name."""
    loops: str = field(default="", compare=False)
    """The loops of the first instruction, see `tiles.loop_nest`."""


def contractions(instructions: Sequence[Instruction]) -> list[Contraction]:
    """One entry for each node and kind of call, in the order of the instructions."""
    found: dict[Contraction, int] = {}
    before = ""
    for instruction in instructions:
        entry = _describe(instruction, before)
        if entry is not None:
            found[entry] = found.get(entry, 0) + 1
        before = instruction.kernel
    return [replace(entry, calls=calls) for entry, calls in found.items()]


def _describe(instruction: Instruction, before: str) -> Contraction | None:
    """`before`: the instruction before, an input transform if these are Winograd's products."""
    if instruction.kernel in _ROWS:
        stride = _ROWS[instruction.kernel]
        record = DEPTHWISE[stride]
        rows = record.read(instruction.ints).chunk_rows
        return Contraction(instruction.origin, ALGORITHMS[0], f"depthwise3x3_s{stride}", "row x 16", "channels", rows,
                           instruction.tasks, 0, record.text(instruction.ints, instruction.floats))
    if instruction.kernel not in _VARIANTS:
        return None
    variant, isa = _VARIANTS[instruction.kernel]
    n = CONTRACTION.read(instruction.ints)
    tile = int(before.removeprefix(_TRANSFORM).partition("__")[0]) if before.startswith(_TRANSFORM) else 0
    pixels = -(-n.row_pixels // n.row_tiles)
    order = "pixels" if n.order == ORDER_PIXELS else "channels"
    return Contraction(instruction.origin, ALGORITHMS[tile], variant.name, f"{pixels} x {variant.oc_tile}", order,
                       n.chunk_tiles, instruction.tasks, 0,
                       CONTRACTION.text(instruction.ints, instruction.floats),
                       loop_nest(variant, isa, instruction.ints))


def lowered(main: Lowering, builder: ProgramBuilder) -> Lowered:
    """Describe what `main` made of its graph. `builder` is the builder of `main`, and is planned."""
    nodes = main.graph.nodes
    spans: dict[Buffer, list[Instruction]] = {}
    calls = []
    for instruction in builder.instructions:
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
    return Lowered(main.graph, tuple(calls), tuple(buffers), layouts, levels, builder.memory.planned)


def _view_text(view: View) -> str:
    """For people."""
    if not isinstance(view, BlockedView):
        return "plain"
    narrow = ", bf16" if view.type.element is BF16 else ""
    halo = f", halo {view.halo.top} {view.halo.bottom} {view.halo.left} {view.halo.right}" if view.halo else ""
    return f"blocked{narrow}{halo}"


def listing(flow: Flow, main: Any, prepare: Any, prepared_bytes: int) -> str:
    """The prepare Program, which runs once for each set of weights, then the main one, which runs with each call; both
    are of `_core.BoundProgram`."""
    parts = []
    if prepare is not None:
        parts += _program("prepare", prepare, prepared_bytes)
    parts += _program("main", main, prepared_bytes)
    for kind, values in (("input", flow.inputs), ("output", flow.results)):
        parts += [f"{kind} {number}: {value.type}" for number, value in enumerate(values)]
    return "\n".join(parts) + "\n"


def _program(name: str, program: Any, prepared: int) -> list[str]:
    levels, arena_bytes, constants = program.listed()
    lines = [f"{name}: {sum(map(len, levels))} instructions in {len(levels)} levels; bytes: arena {arena_bytes}, "
             f"prepared {prepared}, constants {sum(array.nbytes for array in constants)}"]
    for number, level in enumerate(levels):
        lines.append(f"  level {number}")
        for kernel, operands, _, _, tasks, origin, *_ in level:
            where = ", ".join(_operand(*operand) for operand in operands)
            lines.append(f"    {kernel}({where}) in {tasks} task{'s' if tasks > 1 else ''}"
                         + (f"  # {origin}" if origin else ""))
    return lines


def _operand(space: int, index: int, offset: int) -> str:
    """Format an operand, as in `input 1`, `arena+64`. Inputs, outputs and constants have numbers."""
    name = Space(space).name.lower()
    numbered = Space(space) in (Space.INPUT, Space.OUTPUT, Space.CONSTANT)
    place = f"{name} {index}" if numbered else name
    return f"{place}+{offset}" if offset or not numbered else place


@dataclass(frozen=True)
class Row:
    """A kernel at one node: per forward pass. `calls` are instructions of the Program."""

    kernel: str
    origin: str
    calls: int
    ms: float
    gflop: float
    megabytes: float

    @property
    def gflops(self) -> float:
        """GFLOP a second."""
        return self.gflop / self.ms * 1e3 if self.ms else 0.0

    @property
    def gigabytes(self) -> float:
        """A second."""
        return self.megabytes / self.ms if self.ms else 0.0


@dataclass(frozen=True)
class ProfileData:
    """Medians over the forward passes. `waiting_ms` is the threads' time inside calls but in no kernel: barriers,
    phases with too few tasks for all, a core taken by another process. `outside_ms` is what is left: Python, and MXNet
    with what it runs itself. `memory`: of each region."""

    threads: int
    isa: str
    rounds: int
    peak: Peak
    rows: list[Row]
    wall_ms: float
    waiting_ms: float
    outside_ms: float
    dropped: int = 0
    memory: tuple[MemoryUse, ...] = ()

    @property
    def total_ms(self) -> float:
        """The sum of the parts, which shares refer to; medians of parts differ a little from the whole's."""
        return sum(row.ms for row in self.rows) + self.waiting_ms + self.outside_ms

    def kinds(self) -> list[Row]:
        """One row a kernel, over all nodes."""
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            groups[row.kernel].append(row)
        return slowest_first(total(kernel, "", rows) for kernel, rows in groups.items())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        def row(r: Row) -> dict[str, Any]:
            return {**asdict(r), "share": r.ms / self.total_ms,
                    "gflops": r.gflops, "of_peak": r.gflops / self.peak.gflops,
                    "gigabytes": r.gigabytes, "of_copy": r.gigabytes / self.peak.gigabytes}

        return {**asdict(self), "rows": [row(r) for r in self.rows], "kinds": [row(r) for r in self.kinds()]}


def total(kernel: str, origin: str, rows: Sequence[Row]) -> Row:
    """The rows as one."""
    return Row(kernel, origin, sum(r.calls for r in rows), sum(r.ms for r in rows), sum(r.gflop for r in rows),
               sum(r.megabytes for r in rows))


def slowest_first(rows: Iterable[Row]) -> list[Row]:
    """The rows, those first that take the most time."""
    return sorted(rows, key=lambda row: -row.ms)
