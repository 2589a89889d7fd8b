"""The record of random numbers."""

from __future__ import annotations

from ngraph_mxnet.targets.cpu.params.record import Kernels, whole

RANDOM_MASK = Kernels(
    "random_mask", tensors="state >output", ints="count chunk stream threshold", sizes=2,
    tasks=lambda p: -(-p.count // p.chunk),
    reach=lambda p, _: [whole("state", 4, 4), whole("output", 1, p.count)],
)
"""A task draws `chunk` of the elements, which is a multiple of 4; `threshold` is at most 2^32."""
