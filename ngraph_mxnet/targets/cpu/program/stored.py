"""The values of a main graph where its Program stores them, to be seen while it runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import TensorType
from ngraph_mxnet.targets.cpu.planning.view import BF16, BLOCK, BlockedView, PlainView, View
from ngraph_mxnet.targets.cpu.program.instruction import Instruction, Space


@dataclass(frozen=True)
class Stored:
    """An output of a node, complete once the instruction of this number has run."""

    node: Node
    index: int
    view: View
    step: int


class StoredValues:
    """The values that the Program stores. Values that it computes on the way, or that another kernel takes in
    registers, are missing."""

    def __init__(self, views: Sequence[tuple[Node, int, Sequence[View]]], steps: Sequence[Instruction],
                 outputs: Sequence[TensorType]) -> None:
        """
        Args:
            views: of each output of each node, in the order of the graph.
            steps: the Program's, in the order in which they run one by one.
            outputs: of the Program.
        """
        numbers = {instruction: number for number, instruction in enumerate(steps)}
        self._outputs = list(outputs)
        self.stored: list[Stored] = []
        for node, index, all_views in views:
            found = [Stored(node, index, view, max(numbers[writer] for writer in view.writers if writer in numbers))
                     for view in all_views if view.buffer.space in (Space.ARENA, Space.OUTPUT)
                     and any(writer in numbers for writer in view.writers)]
            if found:
                self.stored.append(min(found, key=lambda stored: stored.step))

    def run(self, native: Any, arrays: Sequence[np.ndarray],
            observe: Callable[[Node, int, np.ndarray], None]) -> list[np.ndarray]:
        """Run the `_core.Executable` one instruction after the other; see `runtime.Executable.values`."""
        from ngraph_mxnet import _core

        by_step: dict[int, list[Stored]] = {}
        for each in self.stored:
            by_step.setdefault(each.step, []).append(each)
        outputs = [np.empty(type_.shape, type_.element.numpy) for type_ in self._outputs]

        def after(step: int, arena: int) -> None:
            for stored in by_step[step]:
                buffer = stored.view.buffer
                start = arena + buffer.offset if buffer.space is Space.ARENA else outputs[buffer.index].ctypes.data
                observe(stored.node, stored.index, array_at(stored.view, start))

        _core.run_steps(native, arrays, outputs, sorted(by_step), after)
        return outputs


def array_at(view: View, start: int) -> np.ndarray:
    """Return what a view shows of a buffer at the address `start`, as the logical tensor. bf16 becomes f32."""
    shape, size = view.type.shape, view.type.element.size
    if view.type.size == 0:
        return np.empty(shape, view.type.element.numpy)
    if isinstance(view, BlockedView):
        array = _blocked(view, start, size)
    else:
        assert isinstance(view, PlainView)
        array = _strided(start + view.offset, view.type.element.numpy, shape, [s * size for s in view.strides])
    if view.type.element is BF16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def _blocked(view: BlockedView, start: int, size: int) -> np.ndarray:
    batch, channels, *sizes = view.type.shape
    dims = (view.images, view.blocks, view.height, view.width, BLOCK)
    steps = [step * size for step in (view.image, view.block, view.row, view.pixel, 1)]
    images = np.moveaxis(_strided(start + view.offset, view.type.element.numpy, dims, steps), 4, 2)
    whole = images.reshape(view.images, view.blocks * BLOCK, view.height, view.width)[:, :channels]
    if len(sizes) == 3:
        whole = np.moveaxis(whole.reshape(batch, sizes[0], channels, *sizes[1:]), 2, 1)
    return whole.reshape(view.type.shape)


def _strided(address: int, dtype: np.dtype, shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    extent = dtype.itemsize + sum((dim - 1) * step for dim, step in zip(shape, strides, strict=True))
    memory = memoryview((ctypes.c_char * extent).from_address(address))
    return np.ndarray(tuple(shape), dtype, memory, strides=tuple(strides))
