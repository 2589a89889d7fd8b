"""From the IR to ONNX. Who asks for the numbers here alone imports no ONNX."""

OPSETS = range(17, 24)
"""The versions of ONNX's operators that can be written."""
DEFAULT_OPSET = 17
"""The first with LayerNormalization; every runtime of today reads it."""
