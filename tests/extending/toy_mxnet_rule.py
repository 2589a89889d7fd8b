"""A toy rule for an operator that this package leaves to MXNet: one function."""

from __future__ import annotations

import toy_kernel  # noqa: F401  (registers the op, and how the CPU runs it)

from ngraph_mxnet.frontends.mxnet.attrs import Attrs
from ngraph_mxnet.frontends.mxnet.rules.registry import EXACT, rule
from ngraph_mxnet.ir import Builder, Value


@rule("_image_to_tensor", operands=1, types=EXACT)
def to_tensor(b: Builder, attrs: Attrs, x: Value) -> Value:
    """Pixels from 0 to 255 to numbers from 0 to 1, channels first."""
    return b.image_to_tensor(x)
