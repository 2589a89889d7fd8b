"""The rules of the ONNX operators, one family a module; importing this registers them all."""

from ngraph_mxnet.onnx_bridge.rules import (  # noqa: F401
    arithmetic,
    control,
    convolution,
    creation,
    elementwise,
    features,
    indexing,
    linear,
    movement,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resizing,
    sampling,
    selection,
    sequences,
    shapes,
    spectral,
)
