"""The ops, one family a module; importing this registers them all."""

from ngraph_mxnet.ops import (  # noqa: F401
    bodies,
    boxes,
    contractions,
    elementwise,
    movement,
    pooling,
    quantization,
    random,
    recurrent,
    reduction,
    training,
)
