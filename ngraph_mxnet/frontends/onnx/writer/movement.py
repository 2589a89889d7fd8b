"""Constants, movement, indexing, reductions and positions in ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from ngraph_mxnet.frontends.onnx.writer.document import NARROW, Document, writes
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import Dim
from ngraph_mxnet.ir.types import boolean

BEFORE_FIRST = -(1 << 62)
"""An end of Slice for negative steps that lies before element 0."""


@writes("constant")
def constant(d: Document, node: Node) -> str:
    return d.constant(node.attrs["value"])


@writes("reshape")
def reshape(d: Document, node: Node, x: str) -> str:
    return d.reshaped(x, node.attrs["shape"])


@writes("transpose")
def transpose(d: Document, node: Node, x: str) -> str:
    return d.transposed(x, node.attrs["order"])


@writes("broadcast")
def broadcast(d: Document, node: Node, x: str) -> str:
    return str(d.add("Expand", x, d.shape(node.attrs["shape"])))


@writes("concat")
def concat(d: Document, node: Node, *operands: str) -> str:
    return operands[0] if len(operands) == 1 else str(d.add("Concat", *operands, axis=node.attrs["axis"]))


@writes("pad")
def pad(d: Document, node: Node, x: str) -> str:
    attrs, value = node.attrs, node.inputs[0]
    filler = d.like(attrs["value"], value) if attrs["mode"] == "constant" and attrs["value"] else ""
    return str(d.add("Pad", x, d.shape([*attrs["pads_begin"], *attrs["pads_end"]]), filler, mode=attrs["mode"]))


@writes("slice")
def slice_(d: Document, node: Node, x: str) -> str:
    """Axes that are taken whole are left out."""
    rows = [row for row in zip(node.attrs["begin"], node.attrs["end"], node.attrs["strides"], range(node.output.rank),
                               node.inputs[0].shape, strict=True)
            if isinstance(row[0], Dim) or isinstance(row[1], Dim) or row[:3] != (0, row[4], 1)]
    if not rows:
        return x
    begin, end, steps, axes, _ = zip(*rows, strict=True)
    end = tuple(BEFORE_FIRST if not isinstance(stop, Dim) and stop < 0 else stop for stop in end)
    return str(d.add("Slice", x, d.shape(begin), d.shape(end), d.ints(*axes), d.ints(*steps)))


# ---- indexing -------------------------------------------------------------------------------------------


def _inside(d: Document, indices: str, value: Value, size: Any, mode: str) -> str:
    """Indices within [0, size), or from the end where ONNX counts so, too."""
    array = d.array(indices)
    if array is not None and not isinstance(size, Dim):
        wide = array.astype(np.int64)
        from_end = np.where(wide < 0, wide + size, wide) if mode == "from_end" else wide
        places = np.mod(wide, size) if mode == "wrap" else from_end
        return d.constant(np.clip(places, 0, max(size - 1, 0)))
    whole = indices if str(value.element) == "i64" else d.cast(indices, "i64")
    count = d.reshaped(d.size(size), ()) if isinstance(size, Dim) else d.constant(np.int64(size))
    if mode == "wrap":
        return str(d.add("Mod", whole, count))
    one, zero = d.constant(np.int64(1)), d.constant(np.int64(0))
    lowest = d.add("Neg", count) if mode == "from_end" else zero
    return str(d.add("Max", d.add("Min", whole, d.add("Sub", count, one)), lowest))


@writes("gather", "gather_elements")
def gather(d: Document, node: Node, x: str, indices: str) -> str:
    """GatherElements takes indices of the data's sizes at most on other axes, as the IR's are."""
    axis = node.attrs["axis"]
    places = _inside(d, indices, node.inputs[1], node.inputs[0].shape[axis], node.attrs["mode"])
    return str(d.add("Gather" if node.op.name == "gather" else "GatherElements", x, places, axis=axis))


def _coordinates(d: Document, node: Node, indices: str) -> str:
    """[M, I] as [I, M], within the data's sizes from either end."""
    value = node.inputs[1]
    sizes = node.inputs[0].shape[:int(value.shape[0])]
    wide = indices if str(value.element) == "i64" else d.cast(indices, "i64")
    turned = d.transposed(wide, [*range(1, value.rank), 0])
    counts = d.shape(sizes)
    limited = d.add("Min", turned, d.add("Sub", counts, d.constant(np.int64(1))))
    return str(d.add("Max", limited, d.add("Neg", counts)))


@writes("gather_nd")
def gather_nd(d: Document, node: Node, x: str, indices: str) -> str:
    return str(d.add("GatherND", x, _coordinates(d, node, indices)))


@writes("scatter_nd")
def scatter_nd(d: Document, node: Node, x: str, indices: str, updates: str) -> str:
    reduction = node.attrs["reduction"]
    if reduction in ("min", "max"):
        d.require_opset(18, f"ScatterND with reduction={reduction}")
    return str(d.add("ScatterND", x, _coordinates(d, node, indices), updates,
                     reduction=None if reduction == "none" else reduction))


# ---- reductions and positions ---------------------------------------------------------------------------

REDUCTIONS = {"reduce_max": "ReduceMax", "reduce_mean": "ReduceMean", "reduce_min": "ReduceMin",
              "reduce_prod": "ReduceProd", "reduce_sum": "ReduceSum"}
POOLS = {"reduce_mean": "GlobalAveragePool", "reduce_max": "GlobalMaxPool"}
"""What runtimes know best of images."""


@writes(*REDUCTIONS)
def reduce(d: Document, node: Node, x: str) -> str:
    axes, keep, value = node.attrs["axes"], node.attrs["keep_dims"], node.inputs[0]
    if not axes:
        return x
    if node.op.name in POOLS and str(value.element) != "f64" and value.element.is_float and (
            tuple(axes) == tuple(range(2, value.rank))):
        pooled = str(d.add(POOLS[node.op.name], x))
        return pooled if keep else d.reshaped(pooled, node.output.shape)
    element = value.element
    if str(element) in NARROW or element == boolean:
        return d.cast(d.reduced(REDUCTIONS[node.op.name], d.cast(x, "i32"), axes, keep=keep), node.output.element)
    return d.reduced(REDUCTIONS[node.op.name], x, axes, keep=keep)


@writes("argmax", "argmin")
def position(d: Document, node: Node, x: str) -> str:
    narrow = str(node.inputs[0].element) in NARROW
    return str(d.add("ArgMax" if node.op.name == "argmax" else "ArgMin", d.cast(x, "i32") if narrow else x,
                     axis=node.attrs["axis"], keepdims=int(node.attrs["keep_dims"])))


@writes("argsort")
def argsort(d: Document, node: Node, x: str) -> str:
    """Of equal elements TopK takes that of the lower index first."""
    value, axis = node.inputs[0], node.attrs["axis"]
    narrow = str(value.element) in NARROW
    count = node.attrs["count"] or value.shape[axis]
    return str(d.add("TopK", d.cast(x, "i32") if narrow else x, d.shape([count]), outputs=2, axis=axis, sorted=1,
                     largest=int(node.attrs["descending"]))[1])


def uniform_numbers(d: Document, count: Any) -> str:
    """So many, of one node: runtimes seed each node, and their sequences for seeds that are close depend on each other.
    They are within the bounds of ours, without the 0 whose logarithm is infinite."""
    bounds: dict[str, Any] = {"low": 2.0**-24, "high": 1 - 2.0**-24}
    if not isinstance(count, Dim):
        return str(d.add("RandomUniform", shape=[int(count)], **bounds))
    return str(d.add("RandomUniformLike", d.add("ConstantOfShape", d.shape([count])), **bounds))  # zeros in f32


@writes("random_uniform")
def random_uniform(d: Document, node: Node, numbers: str) -> str:
    """The next ones of `uniform_numbers`, which the state stands for."""
    begin, d.drawn = d.drawn, d.drawn + node.output.type.size
    return d.reshaped(d.sliced(numbers, 0, begin, d.drawn), node.output.shape)


@writes("cumsum")
def cumsum(d: Document, node: Node, x: str) -> str:
    value = node.inputs[0]
    narrow = str(value.element) in NARROW
    out = d.add("CumSum", d.cast(x, "i32") if narrow else x, d.constant(np.int64(node.attrs["axis"])))
    return d.cast(out, value.element) if narrow else str(out)
