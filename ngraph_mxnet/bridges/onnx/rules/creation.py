"""Operators that make tensors."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.bridges.onnx.rules.common import require_size, require_table
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.bridges.onnx.tensors import element_of
from ngraph_mxnet.compositions.tensors import broadcast_to, converted, iota, scalar, slice_axis
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value


@rule("Constant")
def constant(b: Builder, call: Call) -> Value:
    attrs = call.attrs
    if "value" in attrs:
        return b.constant(call.to_array(attrs.tensor("value")))
    for name, read, dtype in (("value_float", attrs.float, "f32"), ("value_floats", attrs.floats, "f32"),
                              ("value_int", attrs.int, "i64"), ("value_ints", attrs.ints, "i64")):
        if name in attrs:
            return b.constant(read(name), dtype)
    raise UnsupportedError("a constant of strings, or a sparse one")


@rule("ConstantOfShape")
def constant_of_shape(b: Builder, call: Call) -> Value:
    shape = call.static_ints(0, "shape")
    given = call.attrs.tensor("value", None)
    value = np.zeros(1, np.float32) if given is None else call.to_array(given)
    if value.size != 1 or min(shape, default=0) < 0:
        raise ModelError(f"shape={shape}, a value of {value.size} elements: expected 1")
    require_size(int(np.prod(shape, dtype=object)))
    return broadcast_to(b, b.constant(value.reshape(())), shape)


@rule("Range")
def range_(b: Builder, call: Call) -> Value:
    start, limit, delta = (call.static(i, name).reshape(()) for i, name in enumerate(("start", "limit", "delta")))
    if not delta:
        raise ModelError("delta is 0")
    require_table([max(0, int(np.ceil((float(limit) - float(start)) / float(delta))))], 8)
    count = max(0, int(np.ceil((limit - start) / delta)))
    values = start + np.arange(count, dtype=start.dtype) * delta
    return b.constant(values.astype(start.dtype))


@rule("EyeLike")
def eye_like(b: Builder, call: Call) -> Value:
    x = call.input(0)
    if x.type.rank != 2:
        raise ModelError(f"found {x.type}, expected rank 2")
    dtype = call.attrs.int("dtype", None)
    element = x.type.element if dtype is None else element_of(dtype)
    require_table(x.shape, 8)
    return b.constant(np.eye(x.shape[0], x.shape[1], k=call.attrs.int("k", 0)), element)


@rule("OneHot")
def one_hot(b: Builder, call: Call) -> Value:
    """Indices outside [-depth, depth) give a line of off values."""
    indices, values = call.input(0), call.input(2)
    depth = call.static_ints(1, "depth")[0]
    require_size(indices.type.size * depth)
    axis = call.attrs.int("axis", -1)
    rank = indices.type.rank + 1
    axis = axis % rank
    if indices.type.element.is_float:
        indices = b.convert(indices, element="i64")
    size = scalar(b, depth, indices)
    at = b.select(b.less(indices, scalar(b, 0, indices)), b.add(indices, size), indices)
    column = b.reshape(at, shape=(*indices.shape[:axis], 1, *indices.shape[axis:]))
    hot = b.equal(iota(b, depth, axis, rank, indices.type.element.name), column)
    off, on = (b.reshape(slice_axis(b, values, 0, i, i + 1), shape=()) for i in range(2))
    return b.select(hot, on, off)


@rule("Trilu")
def trilu(b: Builder, call: Call) -> Value:
    """The triangle on and above diagonal k, or on and below it; zeros elsewhere."""
    x = call.input(0)
    diagonal = call.static_ints(1, "k")[0] if call.optional(1) is not None else 0
    if x.type.rank < 2:
        raise UnsupportedError(f"found {x.type}, expected matrices: a rank of 2 or more")
    require_table(x.shape[-2:], 1)
    keep = np.ones(x.shape[-2:], bool)
    keep = np.triu(keep, diagonal) if call.attrs.bool("upper", True) else np.tril(keep, diagonal)
    return b.select(b.constant(keep), x, scalar(b, 0, x))


@rule("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
def random(b: Builder, call: Call) -> Value:
    raise UnsupportedError("random numbers: its result differs from call to call")


@rule("ImageDecoder")
def not_lowered(b: Builder, call: Call) -> Value:
    raise UnsupportedError("the IR has no op for it yet")


@rule("StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch")
def strings(b: Builder, call: Call) -> Value:
    raise UnsupportedError("strings are no element type of the IR")


@rule("AffineGrid")
def affine_grid(b: Builder, call: Call) -> Value:
    """Places in [-1, 1] of a 2-D or 3-D image of `size`, through the matrix theta of each image."""
    theta, size = call.input(0), call.static_ints(1, "size")
    corners = call.attrs.bool("align_corners")
    spans = size[2:]
    require_table((*spans, len(spans) + 1), 8)
    axes = [np.linspace(-1, 1, n) if corners and n > 1 else np.zeros(1) if corners else (2 * np.arange(n) + 1) / n - 1
            for n in spans]
    grids = np.meshgrid(*axes, indexing="ij")
    places = np.stack([*reversed(grids), np.ones(spans)], axis=-1).reshape(-1, len(spans) + 1)
    out = b.matmul(b.constant(places, theta.type.element), theta, transpose_b=True)
    return converted(b, b.reshape(out, shape=(size[0], *spans, len(spans))), theta)
