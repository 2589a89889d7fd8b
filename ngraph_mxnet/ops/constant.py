"""Constants."""

from __future__ import annotations

from ngraph_mxnet.ir.attributes import Array
from ngraph_mxnet.ir.facts import by_result
from ngraph_mxnet.ir.opdef import register_op
from ngraph_mxnet.ir.types import TensorType, element_type


@register_op("constant", operands=0, attrs={"value": Array()}, kind="constant", work=by_result(move=1))
def constant(types, attrs):
    """The tensor `value`."""
    value = attrs["value"]
    return TensorType(element_type(value.dtype), value.shape)


@constant.reference
def _(inputs, attrs):
    return attrs["value"]
