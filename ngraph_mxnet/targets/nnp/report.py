"""Reports of simulated runs: tables for people, a dict for programs, a Chrome trace. Every time is simulated."""

from __future__ import annotations

import atexit
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rich.console import Console
from rich.table import Table

from ngraph_mxnet.base import config
from ngraph_mxnet.base.forks import ForkSafeLock
from ngraph_mxnet.base.rendered import Facts, table
from ngraph_mxnet.targets.nnp.device import owner
from ngraph_mxnet.targets.nnp.program import Program
from ngraph_mxnet.targets.nnp.timing import Timeline, capacity, simulate

Event = dict[str, Any]
"""One event of Chrome's trace format; `ts` and `dur` are simulated microseconds."""


@dataclass
class NodeRow:
    """One IR node: its first begin and last end, and for how long units of each kind were busy with it, all summed."""

    origin: str
    begin: float
    end: float
    instructions: int = 0
    grid: float = 0.0
    vector: float = 0.0
    dma: float = 0.0


@dataclass(frozen=True)
class LevelRow:
    """One level of memory, or a kind of link: bytes in all, the part of the capacity of the busiest one that was used,
    and for memories the most bytes in use at once of the fullest and the size."""

    level: str
    bytes: float
    utilisation: float
    most: int | None = None
    size: int | None = None


@dataclass(frozen=True)
class UnitRow:
    """Units of one kind: how many there are, and the parts of the time that they were busy."""

    kind: str
    units: int
    mean: float
    most: float


@dataclass
class EngineRow:
    """Where one engine's time went, in parts of the run's: they add up to 1.

    `busy`: its grid or vector unit computes. `startup`: an instruction that it runs or waits for starts up. `transfer`:
    it waits for bytes that move, or only moves bytes. `dependence`: it waits for what another engine computes.
    `no_work`: nothing of it is left, or it has no instructions.
    """

    engine: str
    busy: float = 0.0
    dependence: float = 0.0
    transfer: float = 0.0
    startup: float = 0.0
    no_work: float = 0.0


@dataclass(frozen=True, repr=False)
class Report(Facts):
    program: str
    device: str
    seconds: float
    instructions: int
    macs: Mapping[str, int]
    peak_part: float
    engines: list[EngineRow]
    units: list[UnitRow]
    levels: list[LevelRow]
    energy: Mapping[str, float]
    nodes: list[NodeRow] = field(default_factory=list)

    @property
    def joules(self) -> float:
        return sum(self.energy.values())

    @property
    def watts(self) -> float:
        return self.joules / self.seconds if self.seconds else 0.0

    simulated: ClassVar[bool] = True
    """No time in it was measured."""
    renamed: ClassVar[Mapping[str, str | None]] = {"seconds": "simulated_seconds"}
    derived = ("simulated", "joules", "watts")
    layout = "simulation"


def make_report(timeline: Timeline) -> Report:
    device, used = timeline.device, timeline.utilisation()
    by_kind: dict[str, list[float]] = {}
    for unit, kind in device.units.items():
        by_kind.setdefault("host dma" if owner(unit) == "host" else kind, []).append(used.get(unit, 0.0))
    units = [UnitRow(kind, len(parts), sum(parts) / len(parts), max(parts)) for kind, parts in by_kind.items()]
    within = sum(count / device.peak(element) for element, count in timeline.macs.items())
    return Report(timeline.program.name, device.name, timeline.seconds, len(timeline.program.instructions),
                  timeline.macs, within / timeline.seconds if timeline.seconds else 0.0, _Waits(timeline).engines(),
                  units, _levels(timeline), timeline.energy, _nodes(timeline))


def _levels(timeline: Timeline) -> list[LevelRow]:
    """Memories from the nearest to the host, then links. What engines' own memories give their units counts, too."""
    device, rows = timeline.device, []
    order = [*reversed(device.local), *(level for level in ("llc", "dram", "host") if level in device.memories)]
    for level in order:
        names = [name for name, memory in device.memory_names.items() if memory.level == level]
        moved = [timeline.traffic.get(name, 0.0) for name in names]
        ports = 2 if level in device.local else 1  # one towards the engine's units, one towards the network
        used = max(moved) / (capacity(names[0], device) * ports * timeline.seconds) if timeline.seconds else 0.0
        most = max(timeline.most.get(name, 0) for name in names)
        rows.append(LevelRow(level, sum(moved), used, most, device.memories[level].size))
    links = {"network": ["network"], "host link in": ["host.in"], "host link out": ["host.out"],
             "engine ports": [name for name in timeline.carried if name.endswith((".in", ".out"))
                              and owner(name) != "host"]}
    used_parts = timeline.utilisation()
    for label, names in links.items():
        moved = [timeline.carried.get(name, 0.0) for name in names]
        rows.append(LevelRow(label, sum(moved), max((used_parts.get(name, 0.0) for name in names), default=0.0)))
    return rows


class _Waits:
    """Follows each instruction's begin to the instruction that it waited for, and so on back to the run's begin.

    An instruction begins when the last one that it waits for ends, so these leave no time between them.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.instructions = timeline.program.instructions
        self.start, self.end = timeline.start.tolist(), timeline.end.tolist()
        self.computes_at = (timeline.start + timeline.startup).tolist()
        self.waits_for: list[int] = []
        """By instruction: the one that ended last of those that it waited for; -1 for none."""
        last: dict[str, int] = {}
        for number, instruction in enumerate(self.instructions):
            before = [*instruction.after, last.get(instruction.unit, -1)]
            self.waits_for.append(max(before, key=lambda other: self.end[other] if other >= 0 else -1.0))
            last[instruction.unit] = number

    def engines(self) -> list[EngineRow]:
        device, whole = self.timeline.device, self.timeline.seconds
        computing: dict[str, list[int]] = {f"{device.engine}{number}": [] for number in range(device.engines)}
        moving: dict[str, list[int]] = {name: [] for name in computing}
        for number, instruction in enumerate(self.instructions):
            engine = owner(instruction.unit)
            if engine in computing and instruction.op != "barrier":
                kind = device.unit_kind(instruction.unit)
                (moving if kind == "dma" else computing)[engine].append(number)
        rows = []
        for engine, numbers in computing.items():
            row = EngineRow(engine)
            until = self._computed(row, numbers)
            row.transfer += _covered([(max(self.start[number], until), self.end[number]) for number in moving[engine]])
            spent = row.busy + row.dependence + row.transfer + row.startup
            row.no_work = max(whole - spent, 0.0)
            for name in ("busy", "dependence", "transfer", "startup", "no_work"):
                setattr(row, name, getattr(row, name) / whole if whole else float(name == "no_work"))
            rows.append(row)
        return rows

    def _computed(self, row: EngineRow, numbers: list[int]) -> float:
        """Add the seconds until the last of these instructions ends, which is returned."""
        row.busy = _covered([(self.computes_at[number], self.end[number]) for number in numbers])
        until = worked = 0.0
        for number in sorted(numbers, key=self.start.__getitem__):
            if self.start[number] > until:
                self._waited(row, number, until)
                until = self.start[number]
            worked += max(self.end[number] - until, 0.0)
            until = max(until, self.end[number])
        row.startup += worked - row.busy
        return until

    def _waited(self, row: EngineRow, number: int, since: float) -> None:
        """Add what instruction `number`, the first after a pause, waited for since then."""
        now, other = self.start[number], self.waits_for[number]
        while now > since and other >= 0:
            begin = max(self.start[other], since)
            moves = min(max(self.computes_at[other], begin), now)
            if self.timeline.device.unit_kind(self.instructions[other].unit) == "dma":
                row.startup += moves - begin
                row.transfer += now - moves
            else:
                row.dependence += now - begin
            now, other = begin, self.waits_for[other]


def _covered(spans: list[tuple[float, float]]) -> float:
    """The time that at least one of the spans (begin, end) covers; those that end before they begin are empty."""
    total, until = 0.0, -1.0
    for begin, end in sorted(spans):
        total += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return total


def _nodes(timeline: Timeline) -> list[NodeRow]:
    rows: dict[str, NodeRow] = {}
    times = zip(timeline.start.tolist(), timeline.end.tolist(), strict=True)
    for instruction, (begin, end) in zip(timeline.program.instructions, times, strict=True):
        if instruction.op == "barrier":
            continue
        row = rows.setdefault(instruction.origin, NodeRow(instruction.origin, begin, end))
        row.begin, row.end = min(row.begin, begin), max(row.end, end)
        row.instructions += 1
        kind = timeline.device.unit_kind(instruction.unit)
        setattr(row, kind, getattr(row, kind) + end - begin)
    return sorted(rows.values(), key=lambda row: row.begin)


def trace_text(timeline: Timeline) -> str:
    """The simulated timeline as a Chrome trace: a process for the device, a thread for each unit."""
    head = '{"displayTimeUnit": "ms", "otherData": {"times": "simulated"}, "traceEvents": [\n'
    return head + ",\n".join(map(json.dumps, _events(timeline))) + "\n]}\n"


def _events(timeline: Timeline) -> list[Event]:
    busy = dict.fromkeys(instruction.unit for instruction in timeline.program.instructions)
    units = {unit: place for place, unit in enumerate(dict.fromkeys([*timeline.device.units, *busy]))}
    events: list[Event] = [{"name": "process_name", "ph": "M", "pid": 1, "tid": 0,
                            "args": {"name": f"simulated {timeline.device.name}"}}]
    for unit in sorted(busy, key=units.__getitem__):
        events += [{"name": "thread_name", "ph": "M", "pid": 1, "tid": units[unit], "args": {"name": unit}},
                   {"name": "thread_sort_index", "ph": "M", "pid": 1, "tid": units[unit],
                    "args": {"sort_index": units[unit]}}]
    times = zip(timeline.start.tolist(), timeline.end.tolist(), strict=True)
    for number, (instruction, (start, end)) in enumerate(zip(timeline.program.instructions, times, strict=True)):
        if instruction.op == "barrier":
            continue
        name = str(instruction.attrs.get("op", instruction.op))
        args = {"simulated": True, "instruction": number, "node": instruction.origin,
                "writes": [_tile_text(tile) for tile in instruction.writes],
                "reads": [_tile_text(tile) for tile in instruction.reads]}
        events.append({"name": name, "cat": "simulated", "ph": "X", "ts": start * 1e6,
                       "dur": (end - start) * 1e6, "pid": 1, "tid": units[instruction.unit], "args": args})
    return events


def _tile_text(tile: Any) -> str:
    return f"{tile.memory} {tile.element}{list(tile.shape)} {tile.buffer.name}"


@dataclass
class Calls:
    """How often a program ran; each call of the graph runs it once on each of `devices`, at once."""

    program: Program
    devices: int
    count: int = 0


_calls: dict[int, Calls] = {}
_lock = ForkSafeLock()


def count_call(program: Program, devices: int = 1) -> None:
    """Count a run of `program` on one of `devices`, if a report is wanted; it is then kept until exit."""
    if not config.get("NGRAPH_NNP_REPORT"):
        return
    with _lock:
        if not _calls:
            atexit.register(_print_at_exit)
        _calls.setdefault(id(program), Calls(program, devices)).count += 1


def summary(calls: list[Calls]) -> Table:
    """A row for each program."""
    def row(each: Calls) -> tuple[Any, ...]:
        report = make_report(simulate(each.program))
        device = f"{each.devices} x {report.device}" if each.devices > 1 else report.device
        time, count = report.seconds * 1e3, each.count // each.devices
        return (report.program, device, count, f"{time:.3f}", f"{time * count:.3f}", f"{report.peak_part:.1%}",
                f"{report.joules * 1e3 * each.devices:.3f}")

    return table("graph", "device", ">calls", ">ms a call", ">ms in all", ">of the grids' peak", ">mJ a call",
                 title="Simulated NNP: what the calls would have taken (simulated, no time was measured)",
                 rows=map(row, calls))


def _print_at_exit() -> None:
    """Print to stderr the simulated time and energy that all calls of this process would have taken."""
    Console(stderr=True, width=None if sys.stderr.isatty() else 160).print(summary(list(_calls.values())))
