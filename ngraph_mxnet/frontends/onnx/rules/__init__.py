"""The rules of the ONNX operators, one family a module; importing this registers them all."""

from ngraph_mxnet.frontends.onnx.rules import (  # noqa: F401
    contrib,
    control_flow,
    elementwise,
    features,
    images,
    indexing,
    linear,
    movement,
    recurrent,
    reduction,
)


