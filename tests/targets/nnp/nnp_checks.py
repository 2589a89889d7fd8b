"""The definition of hazards between instructions, slow and independent of `hazards.order`: it compares bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.targets.nnp.device import load_device
from ngraph_mxnet.targets.nnp.program import ELEMENT_BYTES, Buffer, Instruction, Program, Tile, require_within


def check(program: Program) -> None:
    """Refuse a program in which two instructions that conflict may overlap in time, or bytes lie outside their place.

    The time grows with the square of the number of instructions.

    Raises:
        NGraphError: naming the instructions, or the tile, buffer or memory.
    """
    device = load_device(program.device)
    for buffer in _buffers(program):
        size = device.memory(buffer.memory).size
        if buffer.offset < 0 or buffer.end > size:
            raise NGraphError(f"buffer {buffer.name} lies at bytes {buffer.offset} to {buffer.end} of {buffer.memory}, "
                              f"which has {size}")
    ended = ended_before(program.instructions)
    accesses: dict[str, list[tuple[int, Tile, bool]]] = {}
    for index, instruction in enumerate(program.instructions):
        for tile in (*instruction.reads, *instruction.writes):
            require_within(tile)
        for writes, tiles in ((False, instruction.reads), (True, instruction.writes)):
            for tile in tiles:
                earlier = accesses.setdefault(tile.memory, [])
                for number, other, wrote in earlier:
                    if (writes or wrote) and number != index and not ended[index] >> number & 1 and share(tile, other):
                        how = "both write" if writes and wrote else "one writes what the other reads"
                        raise NGraphError(f"instruction {index} may begin before {number} has ended, though {how} of "
                                          f"{tile.buffer.name} in {tile.memory}")
                earlier.append((index, tile, writes))


def share(a: Tile, b: Tile) -> bool:
    """True if the two tiles share a byte."""
    if a.memory != b.memory:
        return False
    if a.buffer == b.buffer:
        return a.size > 0 and b.size > 0 and a.overlaps(b)
    return bool(np.intersect1d(_bytes(a), _bytes(b)).size)


def _bytes(tile: Tile) -> np.ndarray:
    """The addresses of all its bytes."""
    size = ELEMENT_BYTES[tile.element]
    places = np.arange(tile.buffer.size).reshape(tile.buffer.shape)
    box = places[tuple(slice(begin, begin + length) for begin, length in zip(tile.begin, tile.shape, strict=True))]
    return (tile.buffer.offset + box.reshape(-1, 1) * size + np.arange(size)).reshape(-1)


def _buffers(program: Program) -> Iterable[Buffer]:
    tiles = (tile for instruction in program.instructions for tile in (*instruction.reads, *instruction.writes))
    return dict.fromkeys([*program.inputs, *program.outputs, *program.constants, *(tile.buffer for tile in tiles)])


def ended_before(instructions: Sequence[Instruction]) -> list[int]:
    """For each instruction the set, as bits, of those that have ended when it begins, whatever the times."""
    found: list[int] = []
    last: dict[str, int] = {}
    for index, instruction in enumerate(instructions):
        before = 0
        previous = [last[instruction.unit]] if instruction.unit in last else []
        for earlier in (*instruction.after, *previous):
            if not 0 <= earlier < index:
                raise NGraphError(f"instruction {index} waits for {earlier}: expected an earlier one")
            before |= found[earlier] | 1 << earlier
        found.append(before)
        last[instruction.unit] = index
    return found
