"""How MXNet's operators lower to the IR, one family a module; importing this registers them all."""

from ngraph_mxnet.mxnet_bridge.rules import (  # noqa: F401
    arithmetic,
    boxes,
    convolution,
    elementwise,
    linear,
    loss,
    movement,
    normalization,
    pooling,
    reduction,
    resize,
    sequence,
    transformer,
)
