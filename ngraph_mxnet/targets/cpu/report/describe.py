"""How a compiled graph computes its contractions: algorithm, kernel, tiles and tasks, read off the instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ngraph_mxnet.targets.cpu.microkernels.depthwise_params import DEPTHWISE, STRIDES, depthwise_symbol
from ngraph_mxnet.targets.cpu.microkernels.params import CONTRACTION, ORDER_PIXELS
from ngraph_mxnet.targets.cpu.microkernels.variants import ISAS, Variant, symbol, variants
from ngraph_mxnet.targets.cpu.planning.algorithm import ALGORITHMS
from ngraph_mxnet.targets.cpu.program.instruction import Instruction

__all__ = ["Contraction", "contractions"]

_VARIANTS: dict[str, Variant] = {symbol(variant, isa): variant for isa in ISAS for variant in variants(isa)}
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
    """What the first of them gives the kernel, by name."""


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
    variant = _VARIANTS[instruction.kernel]
    n = CONTRACTION.read(instruction.ints)
    tile = int(before.removeprefix(_TRANSFORM).partition("__")[0]) if before.startswith(_TRANSFORM) else 0
    pixels = -(-n.row_pixels // n.row_tiles)
    order = "pixels" if n.order == ORDER_PIXELS else "channels"
    return Contraction(instruction.origin, ALGORITHMS[tile], variant.name, f"{pixels} x {variant.oc_tile}", order,
                       n.chunk_tiles, instruction.tasks, 0,
                       CONTRACTION.text(instruction.ints, instruction.floats))
