"""From the optimised graph to kernel calls, one family of ops a module; importing this fills `RULES`."""

from ngraph_mxnet.targets.cpu.lower import (  # noqa: F401
    blocked,
    convolution,
    elementwise,
    fused,
    matmul,
    movement,
    normalization,
    quantized,
    selection,
    sequences,
    weight_gradient,
)
from ngraph_mxnet.targets.cpu.lower.context import RULES, Lowering, Settings

__all__ = ["RULES", "Lowering", "Settings"]
