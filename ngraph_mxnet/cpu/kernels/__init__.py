"""Shape-generic CPU kernels, compiled ahead of time by Numba (`ngraph_mxnet.cpu.aot`).

Importing the package registers every record in `ALL_KERNELS`. `strided.py` documents the convention of the
elementwise kernels; every other kernel documents its parameters and tasks in its docstring.
"""

from ngraph_mxnet.cpu.kernels import (
    attention,
    boxes,
    elementwise,
    gather,
    layout,
    normalize,
    ordering,
    pooling,
    product,
    recurrent,
    reduction,
    spatial,
    wide,
    winograd,
)
from ngraph_mxnet.cpu.kernels.record import ALL_KERNELS, KernelRecord, symbol

__all__ = [
    "ALL_KERNELS",
    "KernelRecord",
    "attention",
    "boxes",
    "elementwise",
    "gather",
    "layout",
    "normalize",
    "ordering",
    "pooling",
    "product",
    "recurrent",
    "reduction",
    "spatial",
    "symbol",
    "wide",
    "winograd",
]
