"""The kernels' records, a family a module: every operand, number and task of a kernel by name."""

from ngraph_mxnet.cpu.microkernels import depthwise_params, params
from ngraph_mxnet.cpu.params import (
    attention,
    boxes,
    gather,
    layout,
    normalize,
    ordering,
    pooling,
    product,
    recurrent,
    reduction,
    spatial,
    strided,
    winograd,
)
from ngraph_mxnet.cpu.params.record import KERNELS, Kernels, Params

__all__ = [
    "KERNELS",
    "Kernels",
    "Params",
    "attention",
    "boxes",
    "depthwise_params",
    "gather",
    "layout",
    "normalize",
    "ordering",
    "params",
    "pooling",
    "product",
    "recurrent",
    "reduction",
    "spatial",
    "strided",
    "winograd",
]
