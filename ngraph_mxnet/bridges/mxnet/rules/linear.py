"""Products of matrices and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ngraph_mxnet.bridges.mxnet.rules.common import bias_of, normal_axis
from ngraph_mxnet.bridges.mxnet.rules.registry import rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import reshaped
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value


@rule("FullyConnected", operands=(2, 3), parameters=[1, 2])
def fully_connected(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """x W^T + bias. `flatten`: all axes but 0 are one; else the product is over the last, of any rank."""
    bias = bias_of(inputs, attrs.bool("no_bias", False))
    return dense(b, inputs[0], inputs[1], bias, attrs)


def dense(b: Builder, x: Value, weight: Value, bias: Value | None, attrs: Attrs) -> Value:
    """What the attributes of a FullyConnected ask for."""
    units, flatten = attrs.int("num_hidden"), attrs.bool("flatten", True)
    if weight.type.rank != 2 or weight.shape[0] != units:
        raise UnsupportedError(f"num_hidden={units} does not fit the weight {weight.type}")
    leading = x.shape[:1] if flatten else x.shape[:-1]
    out = b.matmul(reshaped(b, x, (prod(leading), weight.shape[1])), weight, transpose_b=True)
    if bias is not None:
        out = b.add(out, bias)
    return reshaped(b, out, (*leading, units))


def contraction(b: Builder, left: Value, right: Value, inner: int) -> Value:
    """The sum of products over the last `inner` axes of the left and the first ones of the right.

    The result has the other axes of the left, then those of the right.
    """
    if left.shape[len(left.shape) - inner:] != right.shape[:inner]:
        raise UnsupportedError(f"{left.type} and {right.type} do not meet in {inner} axes")
    rows, columns, depth = left.shape[:len(left.shape) - inner], right.shape[inner:], prod(right.shape[:inner])
    out = b.matmul(reshaped(b, left, (prod(rows), depth)), reshaped(b, right, (depth, prod(columns))))
    return reshaped(b, out, (*rows, *columns))


@rule("dot", operands=2, ignored=["forward_stype"])
def dot(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The sum of products over the last axis of the left and the first of the right, of any rank.

    If transposed, it is the first axis of the left, and the last of the right. Two vectors give shape (1,).
    """
    left, right = inputs
    transpose_a = attrs.bool("transpose_a", False) and left.type.rank > 1
    transpose_b = attrs.bool("transpose_b", False) and right.type.rank > 1
    a_free = left.shape[1:] if transpose_a else left.shape[:-1]
    b_free = right.shape[:-1] if transpose_b else right.shape[1:]
    inner = left.shape[0] if transpose_a else left.shape[-1]
    if inner != (right.shape[-1] if transpose_b else right.shape[0]):
        raise UnsupportedError(f"{left.type} and {right.type} do not meet")
    out = b.matmul(reshaped(b, left, (inner, prod(a_free)) if transpose_a else (prod(a_free), inner)),
                   reshaped(b, right, (prod(b_free), inner) if transpose_b else (inner, prod(b_free))),
                   transpose_a=transpose_a, transpose_b=transpose_b)
    return reshaped(b, out, (*a_free, *b_free) or (1,))


@rule("batch_dot", operands=2, ignored=["forward_stype"])
def batch_dot(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """A matrix product for each entry of the leading axes, which agree."""
    left, right = inputs
    if left.shape[:-2] != right.shape[:-2]:
        raise UnsupportedError(f"leading axes differ: {left.type} and {right.type}")
    return b.matmul(left, right, transpose_a=attrs.bool("transpose_a", False),
                    transpose_b=attrs.bool("transpose_b", False))


@rule("_npi_matmul", operands=2)
def matmul(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """NumPy's: leading axes broadcast, a vector is a row at the left and a column at the right."""
    left, right = inputs
    a = left if left.type.rank > 1 else b.reshape(left, shape=(1, left.type.size))
    c = right if right.type.rank > 1 else b.reshape(right, shape=(right.type.size, 1))
    out = b.matmul(a, c)
    shape = list(out.shape)
    if right.type.rank == 1:
        del shape[-1]
    if left.type.rank == 1:
        del shape[-2 if right.type.rank > 1 else -1]
    return reshaped(b, out, shape)


@rule("_np_dot", operands=2)
def np_dot(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The sum of products over the last axis of the left and the last but one of the right; a single number scales."""
    left, right = inputs
    if not left.shape or not right.shape:
        return b.multiply(left, right)
    meets = max(right.type.rank - 2, 0)
    order = [meets, *(axis for axis in range(right.type.rank) if axis != meets)]
    return contraction(b, left, b.transpose(right, order=order), 1)


def tensor_product(b: Builder, left: Value, right: Value, left_axes: Sequence[int], right_axes: Sequence[int]) -> Value:
    """The sum of products over pairs of axes; what is left of both follows each other."""
    summed = [normal_axis(axis, left.type.rank) for axis in left_axes]
    others = [normal_axis(axis, right.type.rank) for axis in right_axes]
    if len(summed) != len(others) or len({*summed}) != len(summed) or len({*others}) != len(others):
        raise UnsupportedError(f"axes {tuple(left_axes)} and {tuple(right_axes)} do not pair")
    rows = [axis for axis in range(left.type.rank) if axis not in summed]
    columns = [axis for axis in range(right.type.rank) if axis not in others]
    a, c = b.transpose(left, order=rows + summed), b.transpose(right, order=others + columns)
    return contraction(b, a, c, len(summed))


@rule("_npi_tensordot", operands=2)
def tensordot(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The sum of products over pairs of axes."""
    return tensor_product(b, inputs[0], inputs[1], attrs.ints("a_axes_summed"), attrs.ints("b_axes_summed"))


@rule("_npi_tensordot_int_axes", operands=2)
def tensordot_by_number(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """The sum of products over the last `axes` axes of the left and the first ones of the right."""
    left, right = inputs
    count = attrs.int("axes")
    if not 0 <= count <= min(left.type.rank, right.type.rank):
        raise UnsupportedError(f"axes={count} of {left.type} and {right.type}")
    return contraction(b, left, right, count)
