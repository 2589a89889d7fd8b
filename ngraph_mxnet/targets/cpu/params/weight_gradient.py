"""The record of what makes weights of the sums of the weight gradient kernels."""

from __future__ import annotations

from ngraph_mxnet.targets.cpu.params.record import BLOCK, Kernels, whole

GATHER_WEIGHT_GRADIENT = Kernels(
    "gather_weight_gradient", tensors="sums >output",
    ints="copies head_blocks data_blocks taps lanes inner outputs channels", sizes=8,
    tasks=lambda p: p.head_blocks * p.data_blocks,
    reach=lambda p, size: [
        whole("sums", size, p.copies, p.head_blocks, p.data_blocks, p.taps, p.lanes, BLOCK),
        whole("output", size, p.outputs, p.channels, p.taps, p.lanes // p.inner)],
)
"""`[copies][head_blocks][data_blocks][taps][lanes][16]` to `[outputs][channels][taps * lanes / inner]`, the sum over
the copies. Lane `a * inner + i` of a block is its channel i, at the tap that comes a after; `inner` divides `lanes`."""
