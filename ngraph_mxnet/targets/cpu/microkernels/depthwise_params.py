"""The records of the depthwise row kernels (`depthwise.py`), for the lowering: nothing here needs a compiler."""

from __future__ import annotations

from functools import partial
from typing import Any

from ngraph_mxnet.targets.cpu.microkernels.variants import ACTIVATIONS, Isa
from ngraph_mxnet.targets.cpu.params.record import BLOCK, Kernels, Span, span

__all__ = ["DEPTHWISE", "STRIDES", "depthwise_symbol"]

STRIDES = (1, 2)


def _reach(stride: int, p: Any, _: int) -> list[Span]:
    height, width, pixel = (p.height - 1) * stride + 3, (p.width - 1) * stride + 3, 4 * BLOCK
    operand, low, high = span("input", 1, (p.images, p.in_image_stride), (p.blocks, p.in_block_stride),
                        (height, p.in_row_stride), (width, pixel), last=pixel)
    return [(operand, low + p.first, high + p.first), ("weights", 0, p.blocks * 9 * pixel),
            ("bias", 0, p.blocks * pixel),
            span("output", 1, (p.images, p.out_image_stride), (p.blocks, p.out_block_stride),
                 (p.height, p.out_row_stride), (p.width, pixel), last=pixel),
            *([("slopes", 0, p.blocks * pixel)] if p.activation == ACTIVATIONS["prelu"] else [])]


DEPTHWISE = {
    stride: Kernels(
        f"depthwise3x3_s{stride}", tensors="input weights bias >output slopes?",
        ints="images blocks height width chunk_rows first in_image_stride in_block_stride in_row_stride "
             "out_image_stride out_block_stride out_row_stride channels activation",
        sizes=5, floats="lower upper slope offset scale shift",
        tasks=lambda p: p.images * p.blocks * -(-p.height // p.chunk_rows), reach=partial(_reach, stride),
        elements="input:f32 output:f32",
    ) for stride in STRIDES
}
"""By the stride. Strides and `first` are in bytes.

chunk_rows: output rows of a task.
first: from the input's first element to the first tap of the first output: into the halo, so never positive.
channels: registers of the last block that hold none of them are not computed: they become zero.
activation: what follows the clamp, see `variants.ACTIVATIONS`.
"""


def depthwise_symbol(stride: int, isa: Isa) -> str:
    """Name of the kernel in the object file."""
    return f"ng_depthwise3x3_s{stride}__{isa}"
