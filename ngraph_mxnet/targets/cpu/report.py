"""What users are told of CPU programs: contractions, memory, listings, and the time of a forward pass by kernel.

A kernel's time is that of all threads together, divided by their number: so the kernels and the time outside of them
add up to the whole, and a kernel's rate compares with the peak of all threads.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.base.rendered import Facts
from ngraph_mxnet.ir.module import Flow
from ngraph_mxnet.program.executable import KernelCall, Lowered, PlannedBuffer
from ngraph_mxnet.program.trace import Event, recorder
from ngraph_mxnet.targets.cpu.lower import Lowering
from ngraph_mxnet.targets.cpu.machine.peak import Peak
from ngraph_mxnet.targets.cpu.microkernels.params import CONTRACTION, DEPTHWISE, ORDER_PIXELS, STRIDES, depthwise_symbol
from ngraph_mxnet.targets.cpu.microkernels.tiles import loop_nest
from ngraph_mxnet.targets.cpu.microkernels.variants import ISAS, Isa, symbol, variants
from ngraph_mxnet.targets.cpu.planning.algorithm import ALGORITHMS
from ngraph_mxnet.targets.cpu.planning.view import BF16, BlockedView, View
from ngraph_mxnet.targets.cpu.program.builder import MemoryUse, ProgramBuilder
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Instruction, Space
from ngraph_mxnet.targets.cpu.program.trace import Label, Spans

_VARIANTS = {symbol(variant, isa): (variant, isa) for isa in ISAS for variant in variants(isa)}
_ROWS: dict[str, int] = {depthwise_symbol(s, isa): s for isa in ISAS for s in STRIDES}
_TRANSFORM = "ng_winograd_input_"


@dataclass(frozen=True)
class Contraction:
    """Equal instructions of one node.

    Attributes:
        node: the IR's op with the framework's names.
        algorithm: one of `ALGORITHMS`.
        kernel: the name of the microkernel's variant.
        tile: pixels (rows of a matrix) by output channels that a kernel keeps in registers.
        order: outermost of the tasks: `channels` or `pixels`.
        chunk: tiles in a task; of the depthwise row kernels rows.
        tasks: in an instruction.
        calls: instructions: matrices of a batch, strips of an image.
        parameters: those that the first of the instructions gives the kernel, by name.
        loops: the loops of the first instruction, see `tiles.loop_nest`.
    """

    node: str
    algorithm: str
    kernel: str
    tile: str
    order: str
    chunk: int
    tasks: int
    calls: int
    parameters: str = field(compare=False)
    loops: str = field(default="", compare=False)


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


@dataclass(frozen=True, repr=False)
class Explained(Facts):
    """The facts about what each of some graphs compiles to. `threads`: as many as a call asks for before experience
    says otherwise."""

    kernels: list[list[Contraction]]
    memory: list[MemoryUse]
    threads: list[int]

    layout = "contractions"

    @classmethod
    def of(cls, compiled: Sequence[Any]) -> Explained:
        """Collect the facts about these `targets.cpu.backend.CPUExecutable`s."""
        return cls([contractions(each.main.instructions) for each in compiled], [each.memory for each in compiled],
                   [each.threads for each in compiled])


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


@dataclass(frozen=True, repr=False)
class Profile(Facts):
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

    layout = "profile"

    @property
    def total_ms(self) -> float:
        """The sum of the parts, which shares refer to; medians of parts differ a little from the whole's."""
        return sum(row.ms for row in self.rows) + self.waiting_ms + self.outside_ms

    @property
    def note(self) -> str | None:
        """What to know of rates above the peak; None if there are none."""
        above = any(row.gflops > self.peak.gflops > 0 for row in self.rows)
        return ("Above 100 % of the peak: operations are counted as the model has them, and Winograd's algorithm needs "
                "fewer; kernels of bf16 and bytes do more at once than those of float32, whose peak it is."
                ) if above else None

    def kinds(self) -> list[Row]:
        """One row a kernel, over all nodes."""
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            groups[row.kernel].append(row)
        return slowest_first(total(kernel, "", rows) for kernel, rows in groups.items())

    def shares(self, row: Row) -> dict[str, float]:
        """Return the row's rates, and its shares of the time and of the machine's peak."""
        return {"share": row.ms / self.total_ms, "gflops": row.gflops, "of_peak": row.gflops / self.peak.gflops,
                "gigabytes": row.gigabytes, "of_copy": row.gigabytes / self.peak.gigabytes}

    def to_dict(self) -> dict[str, Any]:
        rows, kinds = ([{**asdict(row), **self.shares(row)} for row in each] for each in (self.rows, self.kinds()))
        return {**super().to_dict(), "rows": rows, "kinds": kinds, "note": self.note}


def total(kernel: str, origin: str, rows: Sequence[Row]) -> Row:
    """The rows as one."""
    return Row(kernel, origin, sum(r.calls for r in rows), sum(r.ms for r in rows), sum(r.gflop for r in rows),
               sum(r.megabytes for r in rows))


def slowest_first(rows: Iterable[Row]) -> list[Row]:
    """The rows, those first that take the most time."""
    return sorted(rows, key=lambda row: -row.ms)


_WARM_UP = 3
_EVENTS_PER_THREAD = 1 << 17


def profiled(forward: Callable[[], Any], rounds: int, isa: Isa, threads: int, memory: tuple[MemoryUse, ...]) -> Profile:
    """Run `forward`, which runs Programs on `threads` threads, and compare with the machine's peak. Raises ConfigError:
    NGRAPH_PROFILE is set."""
    from ngraph_mxnet.targets.cpu.machine.peak import (
        measure_peak,  # its kernels need a compiler, which running a graph does not
    )

    _require_recorder()
    peak = measure_peak(isa, threads)
    return replace(measure(forward, threads, rounds), isa=isa, peak=peak, memory=memory)


def seconds_by_origin(forward: Callable[[], Any], threads: int, rounds: int) -> dict[str, float]:
    """Return the seconds of `seconds_by_node` by the nodes' origins."""
    found: dict[str, float] = defaultdict(float)
    for node, seconds in seconds_by_node(forward, threads, rounds).items():
        found[node.partition(" (")[2].removesuffix(")")] += seconds
    return dict(found)


def seconds_by_node(forward: Callable[[], Any], threads: int, rounds: int) -> dict[str, float]:
    """Return the seconds that the kernels of each node take, by the node as it is printed: op (origin). Measure as
    `profiled` does, without the machine's peak."""
    _require_recorder()
    found: dict[str, float] = defaultdict(float)
    for row in measure(forward, threads, rounds).rows:
        found[row.origin] += row.ms / 1e3
    return dict(found)


def traced(forward: Callable[[], Any]) -> list[Event]:
    """The spans of one call of `forward`, after a few that are not recorded, as events of a Chrome trace. Raises
    ConfigError: NGRAPH_PROFILE is set."""
    _require_recorder()
    return _spans(forward, 1)[0].chrome_events()


def _spans(forward: Callable[[], Any], rounds: int) -> tuple[Spans, list[tuple[int, int]]]:
    """The spans of some calls, and when each began and ended, in nanoseconds."""
    from ngraph_mxnet import _core

    for _ in range(_WARM_UP):
        forward()
    _core.trace_start(_EVENTS_PER_THREAD)
    limits = []
    try:
        for _ in range(rounds):
            begin = time.perf_counter_ns()
            forward()
            limits.append((begin, time.perf_counter_ns()))
    finally:
        _core.trace_stop()
        spans = Spans.take()
    return spans, limits


def _require_recorder() -> None:
    if recorder() is not None:
        raise ConfigError("NGRAPH_PROFILE is set: a process has one recorder; unset it")


def measure(forward: Callable[[], Any], threads: int, rounds: int) -> Profile:
    """Run `forward` and sort its time; peak and instruction set are left to the caller."""
    return profile_of(*_spans(forward, rounds), threads)


def profile_of(spans: Spans, limits: Sequence[tuple[int, int]], threads: int) -> Profile:
    """Medians over the rounds, which last from one limit to the other, in nanoseconds."""
    events = spans.events
    busy = np.zeros((len(limits), len(spans.labels)))
    for number, (begin, end) in enumerate(limits):
        inside = events[(events["begin"] >= begin) & (events["end"] <= end)]
        np.add.at(busy[number], inside["label"], (inside["end"] - inside["begin"]) / 1e6)
    kernels = [i for i, label in enumerate(spans.labels) if label.category == "kernel"]
    calls = [i for i, label in enumerate(spans.labels) if label.category == "call"]
    in_kernels, in_calls = busy[:, kernels].sum(1) / threads, busy[:, calls].sum(1)
    wall = np.array([(end - begin) / 1e6 for begin, end in limits])
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for i in kernels:
        if busy[:, i].any():
            row = _row(spans.labels[i], float(np.median(busy[:, i])) / threads)
            groups[row.kernel, row.origin].append(row)
    rows = slowest_first(total(*key, parts) for key, parts in groups.items())
    return Profile(threads, "", len(limits), Peak(threads, 0, 0), rows, float(np.median(wall)),
                   float(np.median(in_calls - in_kernels)), float(np.median(wall - in_calls)), spans.dropped)


def _row(label: Label, ms: float) -> Row:
    return Row(label.kernel, label.origin, 1, ms, label.operations / 1e9, label.bytes / 1e6)
