"""The ops, one family a module; importing this registers them all."""

from ngraph_mxnet.ops import (  # noqa: F401
    attention,
    boxes,
    convolution,
    elementwise,
    fused,
    indexing,
    linear,
    movement,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resize,
    training,
    unary,
)


