"""Ops that move elements and compute nothing; they take every element type."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from ngraph_mxnet.ir.graph import Body, Graph, Value
from ngraph_mxnet.ir.opdef import Attrs, Rates, Shapes, by_result, register_op
from ngraph_mxnet.ir.types import Array, Choice, Element, Float, Int, Ints, PerAxis, TensorType, element_type
from ngraph_mxnet.ops.common import (
    broadcast_shape,
    common_element,
    contiguous,
    normal_axis,
    require,
    require_per_axis,
    require_rank,
    require_shape,
)


@register_op("reshape", operands=1, attrs={"shape": Ints()}, kind="movement", work=by_result(move=1),
             selects=True, same_bytes=True)
def reshape(types, attrs):
    """The elements in row-major order as `shape`, which holds no -1: shapes are static."""
    shape = attrs["shape"]
    require(
        all(d >= 0 for d in shape) and prod(shape) == types[0].size,
        "shape",
        list(shape),
        f"the {types[0].size} elements of {types[0]}",
    )
    return types[0].with_shape(shape)


@reshape.reference
def _(inputs, attrs):
    return inputs[0].reshape(attrs["shape"])


@register_op("bitcast", operands=1, attrs={"element": Element()}, kind="copy", work=by_result(move=1), same_bytes=True)
def bitcast(types, attrs):
    """The bits of each element as an element of type `element`, which has as many; neither is bool."""
    own, element = types[0].element, attrs["element"]
    require(
        own.size == element.size and "b" not in (own.numpy.kind, element.numpy.kind),
        "element",
        element,
        f"a number of {own.size} bytes, as {types[0]}",
    )
    return TensorType(element, types[0].shape)


@bitcast.reference
def _(inputs, attrs):
    return contiguous(inputs[0]).view(attrs["element"].numpy)


@register_op("transpose", operands=1, attrs={"order": Ints()}, kind="movement", work=by_result(gather=1), selects=True)
def transpose(types, attrs):
    """Axis i of the result is axis order[i] of the operand; `order` is a permutation of 0..rank-1."""
    order = attrs["order"]
    require(
        sorted(order) == list(range(types[0].rank)),
        "order",
        list(order),
        f"a permutation of the axes of {types[0]}",
    )
    return types[0].with_shape(tuple(types[0].shape[axis] for axis in order))


@transpose.reference
def _(inputs, attrs):
    return contiguous(inputs[0].transpose(attrs["order"]))


@register_op("concat", operands=(1, None), attrs={"axis": Int()}, kind="movement", work=by_result(move=1), selects=True)
def concat(types, attrs):
    """The operands one after the other along `axis`; the other dimensions agree."""
    common_element(types)
    axis = normal_axis(attrs["axis"], types[0].rank)
    total = 0
    for position, type_ in enumerate(types):
        require_rank(type_, types[0].rank, types[0].rank, position=position)
        dims = list(types[0].shape)
        dims[axis] = type_.shape[axis]
        require_shape(type_, tuple(dims), position=position)
        total += type_.shape[axis]
    return types[0].with_shape((*types[0].shape[:axis], total, *types[0].shape[axis + 1 :]))


@concat.reference
def _(inputs, attrs):
    return np.concatenate(inputs, axis=attrs["axis"])


@register_op("slice", operands=1, attrs={"begin": Ints(), "end": Ints(), "strides": PerAxis(fill=1)}, kind="movement",
             work=by_result(move=1), selects=True)
def slice_(types, attrs):
    """Elements begin, begin + stride, ... before `end`, on each axis.

    Bounds are normalised: 0 <= begin <= end <= size for a positive stride. For a negative one begin is in
    [0, size) and -1 <= end <= begin, where -1 is the place before element 0, not the last element.
    """
    shape = types[0].shape
    begin, end, strides = attrs["begin"], attrs["end"], attrs["strides"]
    for name in ("begin", "end", "strides"):
        require(
            len(attrs[name]) == len(shape), name, list(attrs[name]), f"an integer for each axis of {types[0]}"
        )
    result = []
    for axis, (b, e, s, size) in enumerate(zip(begin, end, strides, shape, strict=True)):
        valid = 0 <= b <= e <= size if s > 0 else s < 0 and b < size and -1 <= e <= b and b >= 0
        require(valid, f"slice of axis {axis}", f"[{b}:{e}:{s}]", f"normalised bounds in size {size}")
        result.append(-((b - e) // s) if s > 0 else -((e - b) // -s))
    return types[0].with_shape(tuple(result))


@slice_.reference
def _(inputs, attrs):
    bounds = zip(attrs["begin"], attrs["end"], attrs["strides"], strict=True)
    return contiguous(inputs[0][tuple(slice(b, None if s < 0 and e < 0 else e, s) for b, e, s in bounds)])


@register_op(
    "pad",
    operands=1,
    attrs={
        "pads_begin": PerAxis(fill=0),
        "pads_end": PerAxis(fill=0),
        "mode": Choice("constant", ("constant", "edge", "reflect")),
        "value": Float(0.0),
    },
    kind="movement",
    work=by_result(move=1),
)
def pad(types, attrs):
    """Elements added at both ends of each axis: `value`, the nearest element, or the mirror image about it.

    `edge` needs an element on a padded axis, `reflect` more elements than it adds at either end.
    """
    (type_,) = types
    begin, end = attrs["pads_begin"], attrs["pads_end"]
    require_per_axis("pads_begin", begin, type_.rank, 0)
    require_per_axis("pads_end", end, type_.rank, 0)
    for axis, size in enumerate(type_.shape):
        most = max(begin[axis], end[axis])
        needed = {"constant": 0, "edge": min(most, 1), "reflect": most + 1 if most else 0}[attrs["mode"]]
        require(
            size >= needed,
            f"size of axis {axis}",
            size,
            f"at least {needed} to pad by {most}, {attrs['mode']}",
        )
    return type_.with_shape(tuple(b + size + e for b, size, e in zip(begin, type_.shape, end, strict=True)))


@pad.reference
def _(inputs, attrs):
    (x,) = inputs
    width = list(zip(attrs["pads_begin"], attrs["pads_end"], strict=True))
    if not width:  # np.pad refuses rank 0
        return x
    if attrs["mode"] == "constant":
        return np.pad(x, width, constant_values=np.asarray(attrs["value"]).astype(x.dtype))
    return np.pad(x, width, mode=attrs["mode"])


@register_op("broadcast", operands=1, attrs={"shape": Ints()}, kind="movement", work=by_result(move=1), selects=True)
def broadcast(types, attrs):
    """The operand repeated to `shape`, right-aligned, dimensions of 1 stretched."""
    shape = attrs["shape"]
    require(
        all(d >= 0 for d in shape) and broadcast_shape([types[0].shape, shape]) == shape,
        "shape",
        list(shape),
        f"a shape that {types[0]} broadcasts to",
    )
    return types[0].with_shape(shape)


@broadcast.reference
def _(inputs, attrs):
    return np.broadcast_to(inputs[0], attrs["shape"]).copy()


@register_op("constant", operands=0, attrs={"value": Array()}, kind="constant", work=by_result(move=1))
def constant(types, attrs):
    """The tensor `value`."""
    value = attrs["value"]
    return TensorType(element_type(value.dtype), value.shape)


@constant.reference
def _(inputs, attrs):
    return attrs["value"]


def _work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    total: Counter[str] = Counter()
    for node in attrs["body"].nodes:
        total += node.op.operations([v.shape for v in node.inputs], [v.shape for v in node.outputs], node.attrs)
    return total


@register_op("fused", operands=(0, None), attrs={"body": Body()}, work=_work)
def fused(types, attrs):
    """Compute the graph `body`: its parameters are the operands, its results the outputs."""
    wanted = [parameter.type for parameter in attrs["body"].parameters]
    require(len(types) == len(wanted), "operands", len(types), f"{len(wanted)}, as the body has parameters")
    for position, (found, parameter) in enumerate(zip(types, wanted, strict=True)):
        require(found == parameter, f"operand {position}", found, f"{parameter}, as the body's parameter")
    return [result.type for result in attrs["body"].results]


@fused.reference
def _(inputs, attrs):
    body: Graph = attrs["body"]
    values: dict[Value, np.ndarray] = dict(zip(body.parameters, inputs, strict=True))
    for node in body.nodes:
        results = node.op.evaluate([values[operand] for operand in node.inputs], node.attrs)
        values.update(zip(node.outputs, results, strict=True))
    return [values[result] for result in body.results]
