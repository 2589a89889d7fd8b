"""How MXNet's operators lower to the IR, one family a module; importing this registers them all."""

from ngraph_mxnet.frontends.mxnet.rules import (  # noqa: F401
    control_flow,
    creation,
    elementwise,
    images,
    indexing,
    linear,
    mkldnn_fused,
    normalization,
    quantization,
    random,
    recurrent,
    reduction,
    shapes,
    slices,
)


