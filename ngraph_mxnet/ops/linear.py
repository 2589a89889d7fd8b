"""Matrix products."""

from __future__ import annotations

from math import prod

import numpy as np

from ngraph_mxnet.ir.opdef import Attrs, Rates, Shapes, Work, register_op
from ngraph_mxnet.ir.types import Attribute, Bool, Shape, TensorType
from ngraph_mxnet.ops.common import (
    EXACT,
    NUMBER,
    Arrays,
    Types,
    broadcast_shape,
    common_element,
    in_f32,
    require,
    require_domain,
    require_rank,
)

MATMUL_ATTRS: dict[str, Attribute] = {"transpose_a": Bool(False), "transpose_b": Bool(False), **EXACT}


def matmul_type(types: Types, attrs: Attrs) -> TensorType:
    """The type of the product of operands 0 and 1."""
    a, b = types[:2]
    require_domain(types, NUMBER)
    common_element(types)
    require_rank(a, 2, position=0)
    require_rank(b, 2, position=1)
    rows, inner = _matrix(a.shape, attrs["transpose_a"])
    inner_b, columns = _matrix(b.shape, attrs["transpose_b"])
    require(inner == inner_b, "inner dimensions", f"{inner} and {inner_b}", "equal ones")
    return a.with_shape((*broadcast_shape([a.shape[:-2], b.shape[:-2]]), rows, columns))


def _matrix(shape: Shape, transposed: bool) -> Shape:
    return (shape[-1], shape[-2]) if transposed else shape[-2:]


def matmul_array(inputs: Arrays, attrs: Attrs) -> np.ndarray:
    """The reference of `matmul` on wide operands."""
    a, b = inputs[:2]
    a = a.swapaxes(-1, -2) if attrs["transpose_a"] else a
    b = b.swapaxes(-1, -2) if attrs["transpose_b"] else b
    return np.matmul(a, b)


def matmul_work(extra: int) -> Work:
    """A multiply-add counts once; `extra` operations follow for each element."""

    def work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
        inner = operands[0][-2 if attrs.get("transpose_a") else -1]
        return {"simple": prod(results[0]) * (inner + extra)}

    return work


@register_op("matmul", operands=2, attrs=MATMUL_ATTRS, kind="product", work=matmul_work(0))
def matmul(types, attrs):
    """T[..., M, K], T[..., K, N] -> T[..., M, N]; leading axes broadcast.

    `transpose_a` reads operand 0 as [..., K, M], `transpose_b` operand 1 as [..., N, K]. Integers wrap.
    """
    return matmul_type(types, attrs)


@matmul.reference
@in_f32
def _(inputs, attrs):
    return matmul_array(inputs, attrs)
