"""Microkernels: dense contractions and depthwise convolution, generated as LLVM IR.

`params` states the kernels' contract, `tables` and `packing` make their constants, `tiles` chooses a kernel
and its tiling, `contraction` and `lanes` emit the IR, `target` compiles it.
"""

from ngraph_mxnet.cpu.microkernels.packing import (
    pack_channels_reference,
    pack_depthwise_reference,
    pack_pairs_reference,
    pack_weights_reference,
    round_bf16_reference,
    super_groups,
)
from ngraph_mxnet.cpu.microkernels.params import (
    BLOCK,
    FLAG_GATE,
    FLAG_OUTPUT2,
    FLAG_OUTPUT2_BF16,
    FLAG_OUTPUT_BF16,
    FLAG_RESIDUAL,
    FLAG_RESIDUAL_BF16,
    ORDER_CHANNELS,
    ORDER_PIXELS,
    Operand,
    contraction_params,
)
from ngraph_mxnet.cpu.microkernels.tables import Plane, pixel_table, step_table
from ngraph_mxnet.cpu.microkernels.tiles import TileChoice, choose_tiles
from ngraph_mxnet.cpu.microkernels.variants import ISAS, Isa, Kind, Variant, symbol, variants

__all__ = [
    "BLOCK",
    "FLAG_GATE",
    "FLAG_OUTPUT2",
    "FLAG_OUTPUT2_BF16",
    "FLAG_OUTPUT_BF16",
    "FLAG_RESIDUAL",
    "FLAG_RESIDUAL_BF16",
    "ISAS",
    "ORDER_CHANNELS",
    "ORDER_PIXELS",
    "Isa",
    "Kind",
    "Operand",
    "Plane",
    "TileChoice",
    "Variant",
    "choose_tiles",
    "contraction_params",
    "pack_channels_reference",
    "pack_depthwise_reference",
    "pack_pairs_reference",
    "pack_weights_reference",
    "pixel_table",
    "round_bf16_reference",
    "step_table",
    "super_groups",
    "symbol",
    "variants",
]
