"""The contract of the depthwise row kernels (`depthwise.py`), for the lowering: nothing here needs a compiler."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ngraph_mxnet.cpu.microkernels.variants import Isa

__all__ = ["STRIDES", "DepthwiseParams", "depthwise_symbol"]

STRIDES = (1, 2)


@dataclass(frozen=True, kw_only=True)
class DepthwiseParams:
    """`ints`, in the order of the fields; strides and `first` in bytes."""

    images: int
    blocks: int
    height: int
    width: int
    chunk_rows: int
    """Output rows of a task."""
    first: int
    """From the input's first element to the first tap of the first output: into the halo, so never positive."""
    in_image_stride: int
    in_block_stride: int
    in_row_stride: int
    out_image_stride: int
    out_block_stride: int
    out_row_stride: int
    channels: int
    """Registers of the last block that hold none of them are not computed: they become zero."""
    gate: int = 0
    """1: a gate follows the clamp."""

    def ints(self) -> list[int]:
        return [getattr(self, field.name) for field in fields(self)]


def depthwise_symbol(stride: int, isa: Isa) -> str:
    """Name of the kernel in the object file."""
    return f"ng_depthwise3x3_s{stride}__{isa}"
