"""The peak of this machine, measured: multiply-adds in registers, and copying of memory.

Both are made to be right on a busy machine too: many short measurements, of which the best counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet.targets.cpu.microkernels.params import multiply_adds, peak_symbol
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa
from ngraph_mxnet.targets.cpu.params.strided import strided
from ngraph_mxnet.targets.cpu.program.instruction import Space
from ngraph_mxnet.targets.cpu.program.trace import Spans

_ROUNDS = 1_000
"""A task of the multiply-add kernel takes so many: some 10 microseconds."""
_TASKS_PER_THREAD = 60
_MULTIPLY_ATTEMPTS = 200
_COPY_ATTEMPTS = 20
_COPY = (1 << 23,)
"""Floats: two arrays of 32 MiB, together beyond the caches of most machines."""


@dataclass(frozen=True)
class Peak:
    """On `threads` threads together. A copy of n bytes moves 2n: it reads and it writes them."""

    threads: int
    gflops: float
    gigabytes: float
    """Per second."""


def measure_peak(isa: Isa, threads: int) -> Peak:
    """Takes about a second. Forgets what the executor recorded (`_core.trace_take`)."""
    # One thread may have all of the memory's rate to itself, and where the others are held up it is the better measure.
    copy = max(_copy(isa, size) for size in {1, threads})
    return Peak(threads, _multiply(isa, threads) / 1e9, copy / 1e9)


def _multiply(isa: Isa, threads: int) -> float:
    """Operations a second: the best rate of each thread, while the others work too, added."""
    from ngraph_mxnet import _core

    tasks = _TASKS_PER_THREAD * threads
    start = np.array([1.0, 0.5, 1.0], np.float32)
    run = _runner(_core, peak_symbol(isa), [_ROUNDS], tasks, start, (tasks * 16,), threads)
    run()
    _core.trace_start(2 * _MULTIPLY_ATTEMPTS)
    try:
        for _ in range(_MULTIPLY_ATTEMPTS):
            run()
    finally:
        _core.trace_stop()
        spans = Spans.take()
    kernels = np.array([label.category == "kernel" for label in spans.labels])
    events = spans.events[kernels[spans.events["label"]]]
    rates = events["tasks"] / (events["end"] - events["begin"]) * 1e9
    best = sorted((rates[events["thread"] == thread].max() for thread in np.unique(events["thread"])), reverse=True)
    return 2.0 * multiply_adds(isa) * _ROUNDS * float(sum(best[:threads]))


def _copy(isa: Isa, threads: int) -> float:
    """Bytes a second, both ways: threads share the memory, so only whole copies tell."""
    from ngraph_mxnet import _core

    params = strided("copy_4", _COPY, [1], [1])
    run = _runner(_core, f"ng_copy_4__{isa}", params.ints(), params.tasks, np.ones(_COPY, np.float32), _COPY, threads)
    run()  # touches the pages
    seconds = []
    for _ in range(_COPY_ATTEMPTS):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return 2 * 4 * prod(_COPY) / min(seconds)


def _runner(core: Any, kernel: str, ints: Sequence[int], tasks: int, source: np.ndarray, out_shape: tuple[int, ...],
            threads: int) -> Any:
    """A function that runs one kernel from `source` to an array of `out_shape` on the team."""
    operands = [(int(Space.INPUT), 0, 0), (int(Space.OUTPUT), 0, 0)]
    program = core.BoundProgram([[(kernel, core.kernel_address(kernel), operands, list(ints), [], tasks)]], 0, [])
    executable = core.Executable(program, None, 0, [], [("f32", source.shape)], [("f32", out_shape)], threads)
    out = np.empty(out_shape, np.float32)
    return lambda: executable.run([source], [out])
