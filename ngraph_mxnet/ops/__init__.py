"""The ops, one family a module; importing this registers them all."""

from ngraph_mxnet.ops import (  # noqa: F401
    attention,
    boxes,
    cluster,
    constant,
    convolution,
    elementwise,
    fused,
    indexing,
    linear,
    movement,
    normalization,
    pooling,
    quantization,
    random,
    recurrent,
    reduction,
    resize,
    training,
    unary,
)
