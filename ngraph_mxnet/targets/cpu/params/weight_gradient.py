"""The record of what makes weights of the sums of the weight gradient kernels."""

from __future__ import annotations

from ngraph_mxnet.targets.cpu.params.record import BLOCK, Kernels, span, whole

GATHER_WEIGHT_GRADIENT = Kernels(
    "gather_weight_gradient", tensors="sums >output",
    ints="copies head_blocks data_blocks taps lanes inner outputs channels row", sizes=8,
    tasks=lambda p: p.head_blocks * p.data_blocks,
    reach=lambda p, size: [
        whole("sums", size, p.copies, p.head_blocks, p.data_blocks, p.taps, p.lanes, BLOCK),
        span("output", size, (p.outputs, p.channels * p.row), (p.channels, p.row),
             last=p.taps * (p.lanes // p.inner))],
)
"""`[copies][head_blocks][data_blocks][taps][lanes][16]` to `[outputs][channels][taps * lanes / inner]`, the sum over
the copies; a channel's taps begin `row` elements behind those of the one before. Lane `a * inner + i` of a block is its
channel i, at the tap that comes a after; `inner` divides `lanes`."""
