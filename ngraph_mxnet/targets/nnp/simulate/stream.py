"""One program run again and again: the time from one run's end to the next's, where transfers of one run overlap with
computing of another as far as the buffers that they share allow."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.targets.nnp.device import Device
from ngraph_mxnet.targets.nnp.isa.program import Buffer, Program
from ngraph_mxnet.targets.nnp.simulate.hazards import order
from ngraph_mxnet.targets.nnp.simulate.timing import Timeline, simulate


@dataclass(frozen=True)
class Stream:
    """Simulated runs, one after the other: when the `first` ends, and the mean time between the ends of later ones."""

    timeline: Timeline
    first: float
    period: float


def repeated(program: Program, times: int, kept: Collection[Buffer] = ()) -> Program:
    """`program` so many times in one, ordered anew. `kept` and the constants must hold the same after a run as before.

    Raises:
        NGraphError: the program overwrites one of them.
    """
    _require_kept(program, [*kept, *program.constants])
    count = len(program.instructions)
    again = [replace(instruction, after=tuple(earlier + run * count for earlier in instruction.after))
             for run in range(times) for instruction in program.instructions]
    return order(replace(program, instructions=again))


def _require_kept(program: Program, kept: Collection[Buffer]) -> None:
    places: dict[str, list[Buffer]] = {}
    for buffer in kept:
        places.setdefault(buffer.memory, []).append(buffer)
    written = dict.fromkeys(tile.buffer for instruction in program.instructions for tile in instruction.writes)
    for buffer in written:
        for constant in places.get(buffer.memory, ()):
            if buffer.offset < constant.end and constant.offset < buffer.end:
                raise NGraphError(f"{program.name} can't be repeated: {buffer.name} overwrites {constant.name} in "
                                  f"{buffer.memory}, which is loaded before the first run only")


def stream(program: Program, device: Device | None = None, times: int = 4, kept: Collection[Buffer] = ()) -> Stream:
    """Simulate `times` runs, at least two; the first is no part of the period.

    Raises:
        NGraphError: see `repeated` and `timing.simulate`.
    """
    if times < 2:
        raise NGraphError(f"a period takes at least two runs, found {times}")
    timeline = simulate(repeated(program, times, kept), device)
    ends = timeline.end.reshape(times, -1).max(axis=1, initial=0.0)
    return Stream(timeline, float(ends[0]), float(ends[-1] - ends[0]) / (times - 1))
