"""From the optimised graph to kernel calls, one family of ops a module; importing this fills `RULES`."""

from ngraph_mxnet.targets.cpu.lower import (  # noqa: F401
    attention,
    batch_norm,
    blocked,
    boxes,
    convolution,
    elementwise,
    fused,
    gather,
    matmul,
    movement,
    normalization,
    ordering,
    quantized,
    random,
    recurrent,
    reduction,
    spatial,
    weight_gradient,
)
from ngraph_mxnet.targets.cpu.lower.context import RULES, Lowering
from ngraph_mxnet.targets.cpu.lower.settings import Settings

__all__ = ["RULES", "Lowering", "Settings"]
