"""A toy rule for an ONNX operator of a domain of its own: one function."""

from __future__ import annotations

import toy_kernel  # noqa: F401  (registers the op, and how the CPU runs it)

from ngraph_mxnet.frontends.onnx.rules.registry import Call, rule
from ngraph_mxnet.ir import Builder, Value


@rule("ImageToTensor", domain="toy")
def image_to_tensor(b: Builder, call: Call) -> Value:
    """Numbers from 0 to `largest` to numbers from 0 to 1, channels first."""
    return b.image_to_tensor(call.input(0), largest=call.attrs.float("largest", 255.0))
