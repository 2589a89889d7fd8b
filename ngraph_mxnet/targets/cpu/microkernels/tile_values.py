"""What a register tile of a contraction needs to know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.emit import I64, Emitter
from ngraph_mxnet.targets.cpu.microkernels.variants import ACTIVATIONS

__all__ = ["TileValues", "inline_activation", "places"]


@dataclass(frozen=True)
class TileValues:
    """What a tile needs to know; pointers are already moved to its image, group and output block."""

    input: ir.Value
    weights: ir.Value
    ahead: ir.Value
    """Weights of the next block of steps, of which this tile prefetches a part."""
    bias: ir.Value
    scale2: ir.Value
    shift2: ir.Value
    slopes: ir.Value
    factor: ir.Value
    addend: ir.Value
    output: ir.Value
    residual: ir.Value
    output2: ir.Value
    offsets: Sequence[ir.Value]
    """For each tensor of the pixel table, a pointer to the offset of the tile's first pixel."""
    steps: ir.Value
    """The block's entries of the step table, up to `steps_end`."""
    steps_end: ir.Value
    is_first: ir.Value
    """This block of steps starts at the bias, the others at what the output holds."""
    is_last: ir.Value
    pixel_stride: ir.Value
    out_block_stride: ir.Value
    res_block_stride: ir.Value
    out2_block_stride: ir.Value
    blocks_left: ir.Value
    """Output blocks from this one to the end of the group: a wide tile may have to store one only."""
    ends_early: ir.Value
    """For half blocks: nobody else stores the upper half of this tile's block."""
    has_residual: ir.Value
    activation: ir.Value
    """Its number, see `variants.ACTIVATIONS`."""
    has_output2: ir.Value
    is_narrow: Sequence[ir.Value]
    """Whether output, residual and second output are bf16, or u8; means something to such variants only."""
    floats: ir.Value


def places(e: Emitter, v: TileValues, base: ir.Value, stride: ir.Value, tensor: int, block: int,
            pixels: int) -> list[ir.Value]:
    """The tile's pixels of a channel block in the tensor at `base`."""
    start = e.at(base, stride) if block else base
    return [e.at(start, e.load_offset(v.offsets[tensor], ir.Constant(I64, m))) for m in range(pixels)]


def inline_activation(e: Emitter, v: TileValues, block: int, values: Sequence[ir.Value],
                      floats: Callable[..., list[ir.Value]]) -> list[ir.Value]:
    """A hard swish, or what is below 0 times its channel's slope, of a channel block's values, if that is asked for.

    `floats` loads numbers of the call by their names.
    """
    def gated() -> list[ir.Value]:
        parameters = floats("slope", "offset", "scale", "shift")
        return [e.gate(value, parameters) for value in values]

    def sloped() -> list[ir.Value]:
        slopes = e.load(e.at(v.slopes, 64 * block), e.vector)
        return [e.sloped(value, slopes) for value in values]

    has_gate, has_slopes = (e.equals(v.activation, ACTIVATIONS[name]) for name in ("hard_swish", "prelu"))
    return e.when(e.builder.or_(has_gate, has_slopes), values, lambda: e.either(has_gate, gated, sloped))
