"""The description of a generated kernel, as data: the loops, the tensors and their strides, the steps in order.

The text of a description (`repr`) identifies the kernel in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import NamedTuple

from ngraph_mxnet.targets.cpu.params.record import GRAIN
from ngraph_mxnet.targets.cpu.params.strided import merged_dims

SCRATCH_BYTES = 64 * 1024
"""The most that a row's intermediate values may take on the stack."""


class Tensor(NamedTuple):
    """`element` is `f32` or `bool`; a stride, in elements, for each of the kernel's dimensions."""

    element: str
    strides: tuple[int, ...]


class Step(NamedTuple):
    """One value, of type `element`, of one element or (a reduction) one row; `args` number earlier steps.

    `op` is an elementwise kernel's name (its expression is what is computed), `convert` between f32 and bool,
    `load` of the tensor numbered by its only argument, `constant`, or one of `REDUCTIONS`.
    """

    op: str
    args: tuple[int, ...] = ()
    parameters: tuple[float, ...] = ()
    element: str = "f32"


REDUCTIONS = {"reduce_sum": ("f64", 0.0), "reduce_mean": ("f64", 0.0), "reduce_max": ("f32", -inf)}
"""The reductions over all elements of a row: the accumulator's element type and its initial value."""


class LoopKernel(NamedTuple):
    """Loops over `sizes`, at least two dimensions.

    A task is a tile of `tile[0]` by `tile[1]` elements of the last two; with a reduction step, the last dimension is
    the row, and whole. `tensors` are the inputs, then the outputs; `stores` are the steps that the outputs hold.
    A step that depends on nothing that varies along the last dimension is computed once a row, and so is its store.
    """

    sizes: tuple[int, ...]
    tile: tuple[int, int]
    tensors: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    stores: tuple[int, ...]

    @property
    def tasks(self) -> int:
        *outer, rows, columns = self.sizes
        return prod(outer) * -(-rows // self.tile[0]) * -(-columns // self.tile[1])

    @property
    def inputs(self) -> int:
        return len(self.tensors) - len(self.stores)


def phases(kernel: LoopKernel) -> tuple[list[bool], list[int]]:
    """For every step: whether it varies along the last dimension, and its phase.

    A row is walked once for every phase. A reduction is complete after its operand's phase, and counts as of the
    next one.
    """
    varies: list[bool] = []
    phase: list[int] = []
    for step in kernel.steps:
        before = max((phase[a] for a in step.args), default=0) if step.op != "load" else 0
        if step.op == "load":
            varies.append(kernel.tensors[step.args[0]].strides[-1] != 0)
        elif step.op in REDUCTIONS:
            varies.append(False)
        else:
            varies.append(any(varies[a] for a in step.args))
        phase.append(before + (step.op in REDUCTIONS))
    return varies, phase


def saved(kernel: LoopKernel) -> set[int]:
    """The varying steps that a later phase reads, and that are no loads: a row of each is kept."""
    varies, phase = phases(kernel)
    return {
        arg
        for number, step in enumerate(kernel.steps) if step.op != "load"
        for arg in step.args
        if varies[arg] and kernel.steps[arg].op != "load" and varies[number] and phase[number] > phase[arg]
    }


def collapse(shape: Sequence[int], strides: Sequence[Sequence[int]],
             rows: int) -> tuple[tuple[int, ...], list[tuple[int, ...]]] | None:
    """The shape and strides with dimensions of 1 dropped and neighbours merged that are contiguous in every tensor.

    The last `rows` dimensions become one, the last, with nothing else merged into it; None when they can't.
    """
    split = len(shape) - rows
    outer = merged_dims(shape[:split], [s[:split] for s in strides])
    inner = merged_dims(shape[split:], [s[split:] for s in strides])
    if rows:
        if len(inner) > 1:
            return None
        inner = inner or [(1, (0,) * len(strides))]
    dims = [*outer, *inner]
    dims = [(1, (0,) * len(strides))] * (2 - len(dims)) + dims
    return tuple(size for size, _ in dims), [tuple(steps[i] for _, steps in dims) for i in range(len(strides))]


def tile_of(sizes: Sequence[int], whole_rows: bool) -> tuple[int, int]:
    """The tile of a task: about GRAIN elements, in tiles of nearly equal size."""
    rows, columns = sizes[-2:]
    chunk = columns
    if not whole_rows and columns > GRAIN:
        chunk = -(-columns // -(-columns // GRAIN) // 16) * 16
    wanted = max(1, min(rows, GRAIN // max(1, chunk)))
    return max(1, -(-rows // max(1, -(-rows // wanted)))), max(1, chunk)
