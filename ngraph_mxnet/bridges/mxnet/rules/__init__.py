"""How MXNet's operators lower to the IR, one family a module; importing this registers them all."""

from ngraph_mxnet.bridges.mxnet.rules import (  # noqa: F401
    boxes,
    control,
    creation,
    elementwise,
    indexing,
    linalg,
    linear,
    loss,
    mkldnn_fused,
    normalization,
    numpy_elementwise,
    pooling,
    quantization,
    recurrent,
    reduction,
    resize,
    shapes,
    slices,
)


