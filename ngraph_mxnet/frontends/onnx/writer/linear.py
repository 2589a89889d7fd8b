"""Contractions, pools, normalisations and rows in ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.frontends.onnx.writer.document import NARROW, Document, by_channel, limited, window, writes
from ngraph_mxnet.frontends.onnx.writer.quantized import at_sums_scale
from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.sizes import Dim, are_same_shape
from ngraph_mxnet.ir.types import f32
from ngraph_mxnet.ops.pooling import Taps, adaptive_taps, resize_taps

# ---- contractions ---------------------------------------------------------------------------------------


@writes("convolution")
def convolution(d: Document, node: Node, x: str, weights: str, *rest: str) -> Any:
    """The epilogue's operands follow the weights: bias, residual, scale, shift."""
    names = dict(zip(node.op.epilogue, rest, strict=False))
    if names.get("bias"):
        names["bias"] = at_sums_scale(d, x, weights, names["bias"])
    if any(step != 1 for step in node.attrs["data_dilations"]):
        out = _transposed_convolution(d, node, x, weights, names.get("bias", ""))
    else:
        out = d.add("Conv", x, weights, names.get("bias", ""), **window(d, node))
    if names.get("residual"):
        out = d.add("Add", out, names["residual"])
    out = limited(d, node, out)
    if len(node.outputs) == 1:
        return out
    return [out, limited(d, node, _scaled(d, node, out, names["scale"], names["shift"]), "2")]


def _scaled(d: Document, node: Node, x: str, scale: str, shift: str) -> str:
    """Known numbers by channel as a normalization, which runtimes compute at once; others as a product and a sum."""
    value = node.outputs[0]
    if d.array(scale) is not None and d.array(shift) is not None:
        channels = [d.constant(np.full(value.shape[1], number), value.element) for number in (0, 1)]
        return str(d.add("BatchNormalization", x, scale, shift, *channels, epsilon=0.0))
    scaled = d.add("Mul", x, by_channel(d, scale, value.rank))
    return str(d.add("Add", scaled, by_channel(d, shift, value.rank)))


def _transposed_convolution(d: Document, node: Node, x: str, weights: str, bias: str) -> str:
    """A convolution of data with zeros between, as the transpose of one: the kernel is turned, and the padding is what
    the kernel reaches beyond the data, less the IR's."""
    attrs, (outputs, inner, *kernel) = node.attrs, node.inputs[1].shape
    if any(stride != 1 for stride in attrs["strides"]):
        raise d.refuse("it has strides and data_dilations")
    groups, spatial = attrs["groups"], len(kernel)
    turned = d.reshaped(weights, (groups, outputs // groups, inner, *kernel))
    turned = d.transposed(turned, (0, 2, 1, *range(3, 3 + spatial)))
    turned = d.reshaped(turned, (groups * inner, outputs // groups, *kernel))
    array = d.array(turned)
    if array is not None:
        turned = d.constant(np.flip(array, tuple(range(2, 2 + spatial))).copy())
    else:
        axes = list(range(2, 2 + spatial))
        turned = d.add("Slice", turned, d.ints(*(-1,) * spatial), d.ints(*(-(1 << 62),) * spatial), d.ints(*axes),
                       d.ints(*(-1,) * spatial))
    reach = [step * (size - 1) for step, size in zip(attrs["dilations"], kernel, strict=True)]
    begin = [most - pad for most, pad in zip(reach, attrs["pads_begin"], strict=True)]
    end = [most - pad for most, pad in zip(reach, attrs["pads_end"], strict=True)]
    more = [max(-pad, 0) for pad in end]
    if min(begin) < 0 or any(extra >= step for extra, step in zip(more, attrs["data_dilations"], strict=True) if extra):
        raise d.refuse("its padding is wider than its kernel reaches")
    return str(d.add("ConvTranspose", x, turned, bias, kernel_shape=list(kernel), strides=list(attrs["data_dilations"]),
                     dilations=list(attrs["dilations"]), pads=[*begin, *(max(pad, 0) for pad in end)],
                     output_padding=more if any(more) else None, group=groups))


@writes("matmul")
def matmul(d: Document, node: Node, a: str, b: str, bias: str = "") -> str:
    left, right = node.inputs[:2]
    turns = {"transA": int(node.attrs["transpose_a"]), "transB": int(node.attrs["transpose_b"])}
    if left.rank == right.rank == 2 and left.element.is_float:
        return limited(d, node, d.add("Gemm", a, b, at_sums_scale(d, a, b, bias) if bias else "", **turns))
    narrow = str(left.element) in NARROW
    names = [d.cast(name, "i32") if narrow else name for name in (a, b)]
    for place, (value, turned) in enumerate(zip((left, right), turns.values(), strict=True)):
        if turned:
            names[place] = d.transposed(names[place], [*range(value.rank - 2), value.rank - 1, value.rank - 2])
    out = d.add("MatMul", *names)
    out = d.add("Add", out, bias) if bias else out
    return d.cast(out, left.element) if narrow else limited(d, node, out)


# ---- pools ----------------------------------------------------------------------------------------------


def _pads_end(node: Node) -> list[int]:
    """The padding behind, so wide that the windows that `ceil` adds lie within."""
    attrs = node.attrs
    needed = [(out - 1) * stride + kernel - begin - size for out, stride, kernel, begin, size in zip(
        node.output.shape[2:], attrs["strides"], attrs["kernel"], attrs["pads_begin"], node.inputs[0].shape[2:],
        strict=True)]
    return [max(end, more) for end, more in zip(attrs["pads_end"], needed, strict=True)]


def _pool(d: Document, node: Node, x: str, op: str, begin: Sequence[int], end: Sequence[int], **attrs: Any) -> str:
    return str(d.add(op, x, kernel_shape=list(node.attrs["kernel"]), strides=list(node.attrs["strides"]),
                     pads=[*begin, *end], **attrs))


def _grows(node: Node) -> bool:
    """Whether windows are added behind, and how many depends on sizes that are symbols."""
    return node.attrs["rounding"] == "ceil" and any(isinstance(size, Dim) for size in node.output.shape[2:])


@writes("max_pool")
def max_pool(d: Document, node: Node, x: str) -> str:
    attrs = node.attrs
    if _grows(node):
        return _pool(d, node, x, "MaxPool", attrs["pads_begin"], attrs["pads_end"], ceil_mode=1)
    end = _pads_end(node) if attrs["rounding"] == "ceil" else attrs["pads_end"]
    return _pool(d, node, x, "MaxPool", attrs["pads_begin"], end)


@writes("avg_pool")
def avg_pool(d: Document, node: Node, x: str) -> str:
    """Windows count up to the end of the padding, not what `ceil` adds beyond: the data is padded first, then."""
    attrs = node.attrs
    begin, end, padded = attrs["pads_begin"], attrs["pads_end"], any(attrs["pads_begin"]) or any(attrs["pads_end"])
    if _grows(node):
        if padded:
            raise d.refuse("rounding=ceil with padding, where sizes are ranges")
        return _pool(d, node, x, "AveragePool", begin, end, ceil_mode=1)
    needed = _pads_end(node) if attrs["rounding"] == "ceil" else list(end)
    if attrs["include_pad"] and padded and needed != list(end):
        x = d.add("Pad", x, d.ints(0, 0, *begin, 0, 0, *end))
        return _pool(d, node, x, "AveragePool", (0,) * len(begin),
                     [more - pad for more, pad in zip(needed, end, strict=True)])
    return _pool(d, node, x, "AveragePool", begin, needed,
                 count_include_pad=1 if attrs["include_pad"] and padded else None)


@writes("adaptive_avg_pool")
def adaptive_avg_pool(d: Document, node: Node, x: str) -> str:
    """A pool where the sizes come out even, else a product with a matrix of means on each axis."""
    sizes, outs = node.inputs[0].shape[2:], node.output.shape[2:]
    if any(isinstance(size, Dim) for size in (*sizes, *outs)):
        raise d.refuse("the sizes of its images are ranges")
    steps = [size // out for size, out in zip(sizes, outs, strict=True)]
    if all(size == out * step for size, out, step in zip(sizes, outs, steps, strict=True)):
        return str(d.add("AveragePool", x, kernel_shape=steps, strides=steps))
    rows, columns = (_means(size, out) for size, out in zip(sizes, outs, strict=True))
    element = node.output.element
    return str(d.add("MatMul", d.constant(rows, element), d.add("MatMul", x, d.constant(columns.T, element))))


def _means(size: int, out: int) -> np.ndarray:
    """[out, size]: each row's product with a line of the data is the mean of an output's window."""
    matrix = np.zeros((out, size))
    for row, first, weights in zip(matrix, *adaptive_taps(size, out), strict=True):
        used = weights[weights != 0]
        row[first:first + len(used)] = used
    return matrix


@writes("resize")
def resize(d: Document, node: Node, x: str) -> str:
    """ONNX's node, or where its places are not the model's, a sum of two taken elements on each axis."""
    attrs = node.attrs
    told: dict[str, Any]
    if attrs["mode"] == "nearest":
        told = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        taps = _rounded_taps(node) if node.output.element == f32 else None
        if taps is not None:
            return _interpolated(d, x, taps)
        where = "align_corners" if attrs["corners"] else "pytorch_half_pixel"
        told = {"mode": "linear", "coordinate_transformation_mode": where}
    return str(d.add("Resize", x, "", "", d.shape(node.output.shape), **told))


# A place that is off by this much moves a result by this part of the difference of two neighbours.
_PLACE_ERROR = 1e-5


def _rounded_taps(node: Node) -> list[tuple[int, Taps]] | None:
    """(size, taps) of each axis, if a place, which MXNet rounds, is further than `_PLACE_ERROR` from the exact one.
    None if none is, or sizes are symbols."""
    attrs, sizes = node.attrs, node.inputs[0].shape[2:]
    if any(isinstance(size, Dim) for size in (*sizes, *attrs["sizes"])):
        return None
    taps = [(size, resize_taps(size, out, attrs["mode"], attrs["corners"]))
            for size, out in zip(sizes, attrs["sizes"], strict=True)]
    for size, (first, weights) in taps:
        out = len(first)
        steps = np.arange(out)
        at = steps * (size - 1) / max(out - 1, 1) if attrs["corners"] else (steps + 0.5) * size / out - 0.5
        if out > 1 and np.abs(first + weights[:, 1] - at.clip(0, size - 1)).max() > _PLACE_ERROR:
            return taps
    return None


def _interpolated(d: Document, x: str, taps: Sequence[tuple[int, Taps]]) -> str:
    for axis, (size, (first, weights)) in enumerate(taps, 2):
        shape = (-1, *(1,) * (3 - axis))
        parts = [d.add("Mul", d.add("Gather", x, d.ints(*np.minimum(first + step, size - 1)), axis=axis),
                       d.constant(weights[:, step].reshape(shape), f32)) for step in range(2)]
        x = d.add("Add", *parts)
    return x


@writes("bilinear_sample")
def bilinear_sample(d: Document, node: Node, x: str, grid: str) -> str:
    return str(d.add("GridSample", x, d.transposed(grid, (0, 2, 3, 1)), align_corners=1, padding_mode="zeros",
                     mode="linear" if d.opset >= 20 else "bilinear"))


# ---- normalisations and rows ----------------------------------------------------------------------------


@writes("batch_norm")
def batch_norm(d: Document, node: Node, *operands: str) -> str:
    return str(d.add("BatchNormalization", *operands, epsilon=node.attrs["epsilon"]))


@writes("scale_shift")
def scale_shift(d: Document, node: Node, x: str, scale: str, shift: str) -> str:
    return limited(d, node, _scaled(d, node, x, scale, shift))


@writes("batch_norm_factors")
def batch_norm_factors(d: Document, node: Node, gamma: str, beta: str, mean: str, variance: str) -> list[str]:
    deviation = d.add("Sqrt", d.add("Add", variance, d.like(node.attrs["epsilon"], node.inputs[3])))
    scale = d.add("Div", gamma, deviation)
    return [scale, d.add("Sub", beta, d.add("Mul", mean, scale))]


@writes("batch_norm_statistics")
def batch_norm_statistics(d: Document, node: Node, x: str) -> list[str]:
    axes = [axis for axis in range(node.inputs[0].rank) if axis != 1]
    mean = d.reduced("ReduceMean", x, axes, keep=True)
    off = d.add("Sub", x, mean)
    return [d.reshaped(mean, (-1,)), d.reduced("ReduceMean", d.add("Mul", off, off), axes, keep=False)]


@writes("layer_norm")
def layer_norm(d: Document, node: Node, x: str, gamma: str, beta: str) -> str:
    """LayerNormalization normalises the last axes: another one is moved there and back."""
    rank = node.output.rank
    axis = node.attrs["axis"] % rank
    order = [*(place for place in range(rank) if place != axis), axis]
    moved = x if axis == rank - 1 else d.transposed(x, order)
    out = d.add("LayerNormalization", moved, gamma, beta, axis=-1, epsilon=node.attrs["epsilon"])
    return str(out if axis == rank - 1 else d.transposed(out, np.argsort(order).tolist()))


@writes("lrn")
def lrn(d: Document, node: Node, x: str) -> str:
    return str(d.add("LRN", x, **{key: node.attrs[key] for key in ("size", "alpha", "beta", "bias")}))


@writes("softmax", "log_softmax")
def softmax(d: Document, node: Node, x: str) -> str:
    return str(d.add("Softmax" if node.op.name == "softmax" else "LogSoftmax", x, axis=node.attrs["axis"]))


ATTENTION = 23
"""The first opset that has Attention."""
_ABSORBS = -1e15
"""A score of this, or less, takes up what is added to it, and its weight is 0 beside any other."""


@writes("attention")
def attention(d: Document, node: Node, queries: str, keys: str, values: str, mask: str = "") -> str:
    """Attention where its mask says the same, else the products around a softmax."""
    found = _one_attention(d, node, queries, keys, values, mask) if d.opset >= ATTENTION else None
    if found is not None:
        return found
    scale, rank = node.attrs["scale"], node.inputs[1].rank
    turned = d.transposed(keys, [*range(rank - 2), rank - 1, rank - 2])
    scores = d.add("MatMul", queries, turned)
    if scale != 1:
        scores = d.add("Mul", scores, d.like(scale, node.inputs[0]))
    chooses = bool(mask) and str(node.inputs[3].element) == "bool"
    if chooses:
        scores = d.add("Where", mask, scores, d.like(node.attrs["fill"], node.inputs[0]))
    elif mask:
        scores = d.add("Add", scores, mask)
    weights = d.add("Softmax", scores, axis=-1)
    if chooses and node.attrs["zeroed"]:
        weights = d.add("Where", mask, weights, d.like(0, node.inputs[0]))
    return str(d.add("MatMul", weights, values))


def _one_attention(d: Document, node: Node, queries: str, keys: str, values: str, mask: str) -> str | None:
    """None where a score that the mask replaces may count, where all scores of a row may be minus infinity, of other
    ranks than 3 and 4, and of other types than float32, in which runtimes compute it. A row whose weights are all
    cleared is one of zeros."""
    value, fill = node.inputs[0], node.attrs["fill"]
    if value.rank not in (3, 4) or value.element is not f32:
        return None
    cleared = ""
    if mask:
        kind, scores = node.inputs[3], (value.shape[-2], node.inputs[1].shape[-2])
        if kind.rank != value.rank or not are_same_shape(kind.shape[-2:], scores):
            return None
        if str(kind.element) == "bool":
            if fill > _ABSORBS or (fill == -np.inf and not node.attrs["zeroed"]):
                return None
            if node.attrs["zeroed"]:
                any_ = d.reduced("ReduceMax", d.cast(mask, "i32"), [kind.rank - 1], keep=True)
                cleared = d.cast(any_, "bool")
            mask = d.add("Where", mask, d.like(0, value), d.like(max(fill, np.finfo(np.float32).min / 2), value))
    names = [queries, keys, values]
    if value.rank == 3:
        names = [d.add("Unsqueeze", name, d.ints(0)) for name in names]
    out = d.add("Attention", *names, mask, scale=node.attrs["scale"])
    if value.rank == 3:
        out = d.add("Squeeze", out, d.ints(0))
    return str(d.add("Where", cleared, out, d.like(0, value)) if cleared else out)
