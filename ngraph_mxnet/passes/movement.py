"""Passes for nodes that move, pick and shuffle elements, and for what is made of such."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache
from math import prod

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value, constant_of, make_node
from ngraph_mxnet.ir.opdef import all_ops, ops_of
from ngraph_mxnet.ir.sizes import are_same, are_same_shape, at_hand, is_one, is_symbolic
from ngraph_mxnet.ir.types import i64
from ngraph_mxnet.ops.common import broadcast_shape, normal_axes, normal_axis
from ngraph_mxnet.ops.reduction import reduced_shape
from ngraph_mxnet.passes.base import Answer, Rewrite, RewritePass, Rewriter, join_origins, uniform
from ngraph_mxnet.passes.fuse import bias_of


def same_type(node: Node, rw: Rewriter) -> Answer:
    """reshape, broadcast or pad to the operand's own shape -> the operand."""
    return node.inputs[0] if node.inputs[0].type == node.output.type else None


def reshape_of_reshape(node: Node, rw: Rewriter) -> Answer:
    """reshape(reshape(x)) -> reshape(x)."""
    inner = rw.producer(node.inputs[0], "reshape")
    return rw.reshape(inner.inputs[0], node.output.shape) if inner else None


def reshape_behind(node: Node, rw: Rewriter) -> Answer:
    """op(reshape(x), v) -> reshape(op(x, v)) for an elementwise op of a product's rows: so a bias, a clamp and what
    follows them meet the product.

    The reshape only groups leading axes anew, it has no other reader, and v is one number, or one for each place of the
    last axis. x is a product, or elementwise itself.
    """
    for position, operand in enumerate(node.inputs):
        inner = rw.producer(operand, "reshape")
        source = rw.producer(inner.inputs[0]) if inner is not None else None
        if inner is None or source is None or not (source.op.kind == "product" or source.op.elementwise):
            continue
        x, shape = inner.inputs[0], node.output.shape
        if not x.shape or not shape or not are_same(x.shape[-1], shape[-1]) or not are_same_shape(operand.shape, shape):
            continue
        others = [_along_last(v, rw) for at, v in enumerate(node.inputs) if at != position]
        if None in others:
            continue
        if not rw.single(operand):
            return f"{inner} has other readers"
        operands = [*others[:position], x, *others[position:]]
        return rw.reshape(rw.make(node.op.name, *operands, **node.attrs, origin=(node,)), shape)  # type: ignore[arg-type]
    return None


def _along_last(value: Value, rw: Rewriter) -> Value | None:
    """`value` as T[] or T[C], if it is one number, or one for each place of its last axis."""
    if is_one(value.type.size):
        return rw.reshape(value, ())
    return rw.reshape(value, value.shape[-1:]) if all(map(is_one, value.shape[:-1])) else None


def reshape_of_reduction(node: Node, rw: Rewriter) -> Answer:
    """reshape(reduce(x)) that only drops or restores the reduced axes -> reduce(x) with the other keep_dims.

    Any other reshape stays, and so does one after a reduction that has other readers: it would run twice.
    """
    inner = rw.producer(node.inputs[0])
    if inner is None or inner.op.kind != "reduction":
        return None
    x, keep = inner.inputs[0], not inner.attrs["keep_dims"]
    reduced = reduced_shape(x.shape, normal_axes(inner.attrs["axes"], x.type.rank), keep)
    if not are_same_shape(node.output.shape, reduced):
        return None
    if not rw.single(node.inputs[0]):
        return f"{inner.op.name} has other readers"
    return rw.make(inner.op.name, x, **{**inner.attrs, "keep_dims": keep}, origin=(inner, node))


def transpose_nothing(node: Node, rw: Rewriter) -> Answer:
    """transpose in the axes' own order -> the operand; one that moves axes of size 1 only -> reshape."""
    (x,), order = node.inputs, node.attrs["order"]
    if order == tuple(range(x.type.rank)):
        return x
    moved = [axis for axis in order if not is_one(x.shape[axis])]
    return rw.reshape(x, node.output.shape) if moved == sorted(moved) else None


def transpose_of_transpose(node: Node, rw: Rewriter) -> Answer:
    """transpose(transpose(x)) -> transpose(x)."""
    inner = rw.producer(node.inputs[0], "transpose")
    if inner is None:
        return None
    first = inner.attrs["order"]
    return rw.make("transpose", inner.inputs[0], order=tuple(first[axis] for axis in node.attrs["order"]))


def slice_nothing(node: Node, rw: Rewriter) -> Answer:
    """slice of everything -> the operand. A negative stride reverses: it stays."""
    everything = node.inputs[0].type == node.output.type and all(s > 0 for s in node.attrs["strides"])
    return node.inputs[0] if everything else None


def broadcast_of_broadcast(node: Node, rw: Rewriter) -> Answer:
    """broadcast(broadcast(x)) -> broadcast(x)."""
    inner = rw.producer(node.inputs[0], "broadcast")
    return rw.make("broadcast", inner.inputs[0], shape=node.output.shape) if inner else None


def implicit_broadcast(node: Node, rw: Rewriter) -> Answer:
    """op(x, broadcast(y)) -> op(x, y) for elementwise ops, when x has the full shape by itself."""
    inputs = list(node.inputs)
    for position, operand in enumerate(inputs):
        source = rw.producer(operand, "broadcast")
        if source is not None:
            shorter = [*inputs[:position], source.inputs[0], *inputs[position + 1:]]
            if are_same_shape(broadcast_shape([v.shape for v in shorter]), node.output.shape):
                inputs = shorter
    return rw.make(node.op.name, *inputs, **node.attrs) if inputs != node.inputs else None


def concat_of_one(node: Node, rw: Rewriter) -> Answer:
    """concat of one operand -> that operand; operands that are known to have no elements are dropped."""
    if len(node.inputs) == 1:
        return node.inputs[0]
    axis = normal_axis(node.attrs["axis"], node.output.type.rank)
    filled = [v for v in node.inputs if is_symbolic(v.shape[axis]) or v.shape[axis]]
    if len(filled) == len(node.inputs) or not filled:
        return None
    return rw.make("concat", *filled, axis=axis)


def concat_of_slices(node: Node, rw: Rewriter) -> Answer:
    """concat of adjacent slices of one tensor that make up all of it -> that tensor.

    Only when they are all the operands, have stride 1, and take everything on the other axes.
    """
    slices = [rw.producer(v, "slice") for v in node.inputs]
    first = slices[0]
    if first is None or first.inputs[0].type != node.output.type:
        return None
    x, reached, axis = first.inputs[0], 0, normal_axis(node.attrs["axis"], node.output.type.rank)
    for part in slices:
        if part is None or part.inputs[0] is not x or any(s != 1 for s in part.attrs["strides"]):
            return None
        if part.attrs["begin"][axis] != reached:
            return "the slices are not adjacent"
        reached = part.attrs["end"][axis]
        # The types agree (checked above), so the slices are whole on the other axes.
    return x if are_same(reached, x.shape[axis]) else "the slices leave a part out"


def sum_of_pads(node: Node, rw: Rewriter) -> Answer:
    """pad(x) + pad(y), zeros around neighbours along one axis -> pad(concat(x, y)); also with the same reshape behind
    both.

    So gradients of slices become one tensor. A pad with other readers stays, and so does the sum.
    """
    one, other = (_zeros_around(value, rw) for value in node.inputs)
    if one is None or other is None or any(value.type != node.output.type for value in node.inputs):
        return None
    pairs = sorted((one, other), key=lambda pair: pair[0].attrs["pads_begin"][pair[1]])
    (first, axis), (second, own_axis) = pairs
    behind = first.attrs["pads_begin"][axis] + first.inputs[0].shape[axis]
    if axis != own_axis or first.output.type != second.output.type or behind != second.attrs["pads_begin"][axis]:
        return None
    parts: list[Value] = []
    for pad in (first, second):
        inner = rw.producer(pad.inputs[0], "concat")
        joined = inner is not None and normal_axis(inner.attrs["axis"], pad.output.type.rank) == axis
        parts += inner.inputs if inner is not None and joined and rw.single(pad.inputs[0]) else [pad.inputs[0]]
    whole = rw.make("concat", *parts, axis=axis, origin=(first, second))
    ends = {"pads_begin": first.attrs["pads_begin"], "pads_end": second.attrs["pads_end"]}
    return rw.reshape(rw.make("pad", whole, **ends), node.output.shape)


def _zeros_around(value: Value, rw: Rewriter) -> tuple[Node, int] | None:
    """The pad with zeros, along a single axis, that makes a value or that it is a reshape of; and the axis."""
    reshape = rw.producer(value, "reshape")
    inner = reshape.inputs[0] if reshape is not None and rw.single(value) else value
    pad = rw.producer(inner, "pad")
    if pad is None or not rw.single(inner) or pad.attrs["mode"] != "constant" or pad.attrs["value"] != 0:
        return None
    ends = zip(pad.attrs["pads_begin"], pad.attrs["pads_end"], strict=True)
    axes = [axis for axis, (before, after) in enumerate(ends) if before or after]
    return (pad, axes[0]) if len(axes) == 1 else None


def reduce_nothing(node: Node, rw: Rewriter) -> Answer:
    """reduce over no axis, or over axes of size 1 only -> reshape: of one element each is that element.

    Axes of size 1 among others stay: they cost nothing.
    """
    x = node.inputs[0]
    if any(not is_one(x.shape[axis]) for axis in normal_axes(node.attrs["axes"], x.type.rank)):
        return None
    return rw.reshape(x, node.output.shape)


def movement() -> RewritePass:
    return RewritePass("movement", _table())


@cache
def _table() -> dict[str, Sequence[Rewrite]]:
    broadcasting = [name for name, op in all_ops().items() if op.elementwise and op.least > 1]
    table: dict[str, Sequence[Rewrite]] = {name: [reshape_behind] for name, op in all_ops().items() if op.elementwise}
    table |= {name: [implicit_broadcast, reshape_behind] for name in broadcasting}
    table |= {name: [reduce_nothing] for name in ops_of("reduction")}
    return {
        **table,
        "add": [*table["add"], sum_of_pads],
        "reshape": [same_type, reshape_of_reshape, reshape_of_reduction],
        "transpose": [transpose_nothing, transpose_of_transpose],
        "slice": [slice_nothing],
        "pad": [same_type],
        "broadcast": [same_type, broadcast_of_broadcast],
        "concat": [concat_of_one, concat_of_slices],
    }


_MOST_CHANNELS = 16
"""The most channels that all phases may have together."""


def shuffled(node: Node, rw: Rewriter) -> Answer:
    """A convolution of data with zeros between its elements -> reshape(transpose(reshape(convolution))).

    In two dimensions, without groups, with a kernel as large as the data's dilation and no other padding than that of
    the definition. Phase p of an axis of k is what tap k - 1 - p makes.
    """
    data, weights = node.inputs[:2]
    attrs, steps = node.attrs, node.attrs["data_dilations"]
    if data.type.rank != 4 or all(step == 1 for step in steps) or "residual" in node.epilogue:
        return None
    outputs, inputs, *kernel = weights.shape
    border = tuple(step - 1 for step in steps)
    if tuple(kernel) != tuple(steps) or attrs["pads_begin"] != border or attrs["pads_end"] != border:
        return "its windows overlap, or it pads"
    if attrs["groups"] != 1 or any(n != 1 for n in (*attrs["strides"], *attrs["dilations"])):
        return "it has groups, strides or dilations"
    phases = prod(steps)
    if outputs * phases > _MOST_CHANNELS:
        return f"{outputs} output channels fill blocks by themselves"
    if not rw.static(weights):
        return "the weights may differ with every run"
    for axis in (2, 3):
        backwards = np.arange(steps[axis - 2], dtype=np.int64)[::-1].copy()
        weights = rw.make("gather", weights, rw.constant(backwards), axis=axis)
    weights = rw.reshape(rw.make("transpose", weights, order=(2, 3, 0, 1)), (phases * outputs, inputs, 1, 1))
    whole = {**attrs, "data_dilations": (1, 1), "pads_begin": (0, 0), "pads_end": (0, 0)}
    operands: list[Value] = [data, weights]
    if node.epilogue:
        bias = rw.reshape(bias_of(node, rw), (1, outputs))
        operands.append(rw.reshape(rw.make("broadcast", bias, shape=(phases, outputs)), (phases * outputs,)))
    product = rw.make(node.op.name, *operands, **whole)
    images, _, height, width = data.shape
    apart = rw.reshape(product, (images, *steps, outputs, height, width))
    return rw.reshape(rw.make("transpose", apart, order=(0, 3, 4, 1, 5, 2)), node.output.shape)


def pixel_shuffle() -> RewritePass:
    return RewritePass("pixel_shuffle", {"convolution": [shuffled]})


def _scattered(value: Value, rw: Rewriter) -> Node | None:
    """The scatter_nd that sums updates into zeros, if one does."""
    node = rw.producer(value, "scatter_nd")
    if node is None or node.attrs["reduction"] != "add" or not value.type.element.is_float:
        return None
    base = rw.resolve(node.inputs[0])
    spread = rw.producer(base, "broadcast")
    number = uniform(rw.resolve(spread.inputs[0] if spread is not None else base))
    return node if number is not None and number == 0 else None


def total(node: Node, rw: Rewriter) -> Answer:
    """reduce_sum(scatter_nd(0, indices, updates)) -> scatter_nd(smaller 0, fewer indices, updates), where sums are
    along axes that the indices are of."""
    scatter = _scattered(node.inputs[0], rw)
    if scatter is None:
        return None
    zeros, indices, updates = scatter.inputs
    axes, indexed = {axis % zeros.type.rank for axis in node.attrs["axes"]}, indices.shape[0]
    kept = [axis for axis in range(indexed) if axis not in axes]
    if not axes or max(axes) >= indexed or not kept:
        return None
    shape = [size for axis, size in enumerate(zeros.shape) if axis not in axes]
    parts = [rw.make("slice", indices, begin=(axis, *[0] * (indices.type.rank - 1)), end=(axis + 1, *indices.shape[1:]))
             for axis in kept]
    lines = rw.make("concat", *parts, axis=0) if len(parts) > 1 else parts[0]
    sums = rw.make("scatter_nd", rw.make("broadcast", rw.constant(np.zeros((), zeros.type.element.numpy)), shape=shape),
                   lines, updates, reduction="add")
    return rw.reshape(sums, node.output.shape)


def added(node: Node, rw: Rewriter) -> Answer:
    """scatter_nd(0, indices, updates) + x -> scatter_nd(x, indices, updates)."""
    for one, other in (node.inputs, node.inputs[::-1]):
        scatter = _scattered(one, rw)
        if scatter is not None and rw.single(one) and other.type == node.output.type and one.type == other.type:
            return rw.make("scatter_nd", other, *scatter.inputs[1:], reduction="add")
    return None


def subtracted(node: Node, rw: Rewriter) -> Answer:
    """scatter_nd(0, indices, updates) - x -> scatter_nd(-x, indices, updates), and of a product the smaller factor is
    negated."""
    one, other = node.inputs
    scatter = _scattered(one, rw)
    if scatter is None or not rw.single(one) or other.type != node.output.type or one.type != other.type:
        return None
    product = rw.producer(other, "multiply")
    if product is not None and rw.single(other):
        large, small = sorted(product.inputs, key=lambda factor: -factor.type.size)
        negated = rw.make("multiply", large, rw.make("negative", small))
    else:
        negated = rw.make("negative", other)
    return rw.make("scatter_nd", negated, *scatter.inputs[1:], reduction="add")


def scattered() -> RewritePass:
    return RewritePass("scattered", {"reduce_sum": [total], "add": [added], "subtract": [subtracted]})


def embedding(node: Node, rw: Rewriter) -> Answer:
    """matmul(one_hot(numbers), weights) -> gather of weights between two rows of zeros, which numbers beyond get.

    The weights are taken to be finite, and known before the run, as they are copied.
    """
    hot, weights = node.inputs[:2]
    if node.epilogue or hot.type.rank != 2 or weights.type.rank != 2 or node.attrs["transpose_a"]:
        return None
    numbers = _numbers(hot, rw)
    if numbers is None:
        return None
    if not rw.static(weights):
        return "the weights may differ with every run"
    if node.attrs["transpose_b"]:
        weights = rw.make("transpose", weights, order=(1, 0))
    border = rw.constant(np.zeros((1, weights.shape[1]), weights.type.element.numpy))
    table = rw.make("concat", border, weights, border, axis=0)
    wide = rw.make("convert", rw.reshape(numbers, (hot.shape[0],)), element=i64)
    return rw.make("gather", table, rw.make("add", wide, rw.constant(np.ones((), np.int64))), axis=0, mode="clip")


def _numbers(hot: Value, rw: Rewriter) -> Value | None:
    """The integers whose one-hot rows `hot` is: convert(equal(numbers, 0 ... K - 1)), reshaped along the way or not."""
    converted = rw.producer(hot, "convert", "reshape")
    while converted is not None and converted.op.name == "reshape":
        if converted.inputs[0].shape[-1:] != hot.shape[-1:]:
            return None
        converted = rw.producer(converted.inputs[0], "convert", "reshape")
    equal = rw.producer(converted.inputs[0], "equal") if converted is not None else None
    if equal is None or equal.output.shape[-1:] != hot.shape[-1:]:
        return None
    for numbers, line in (equal.inputs, equal.inputs[::-1]):
        places = constant_of(rw.resolve(line))
        if (places is not None and places.dtype.kind in "iu" and places.size == hot.shape[1]
                and np.array_equal(places.reshape(-1), np.arange(places.size)) and line.shape[-1] == places.size
                and numbers.shape == (*equal.output.shape[:-1], 1)):
            return numbers
    return None


def one_hot_product() -> RewritePass:
    return RewritePass("one_hot_product", {"matmul": [embedding]})


def global_average(node: Node, rw: Rewriter) -> Answer:
    """avg_pool with a single window over everything -> reduce_mean with keep_dims.

    With padding only if the padding does not count (`include_pad=false`): otherwise it divides by more.
    """
    (x,), attrs = node.inputs, node.attrs
    sizes = x.shape[2:]
    if any(not is_one(size) for size in node.output.shape[2:]):
        return None
    spans = zip(attrs["kernel"], attrs["pads_begin"], sizes, strict=True)
    if any(kernel - begin < size for kernel, begin, size in spans):
        return None  # the one window leaves elements out
    if attrs["include_pad"] and any(attrs["pads_begin"] + attrs["pads_end"]):
        return "its padding counts in the divisor"
    return rw.make("reduce_mean", x, axes=tuple(range(2, x.type.rank)), keep_dims=True)


def global_pool() -> RewritePass:
    return RewritePass("global_pool", {"avg_pool": [global_average]})


_MOST_ROWS = 64
"""A product of more rows reads its weights often enough by itself."""


class MergeProducts:
    """matmul(x1, W), matmul(x2, W), ... -> slices of matmul(concat(x1, x2, ...), W), with bias or without.

    Only of those that need no other one's result. So weights are read once, not once a step.
    """

    name = "merge_products"

    def run(self, graph: Graph) -> bool:
        groups: dict[Hashable, list[Node]] = {}
        for node in graph.nodes:
            if node.op.kind == "product" and _is_narrow(node):
                others = tuple(map(id, node.inputs[1:]))
                groups.setdefault((node.op.name, *node.attrs.values(), others), []).append(node)
        changed = False
        for members in groups.values():
            members = _independent(graph, members) if len(members) > 1 else members
            if len(members) > 1:
                _merge(graph, members)
                changed = True
        return changed


def _is_narrow(node: Node) -> bool:
    left, right = node.inputs[:2]
    return (left.type.rank == right.type.rank == 2 and not node.attrs["transpose_a"]
            and 0 < at_hand(left.shape[0]) <= _MOST_ROWS)


def _independent(graph: Graph, members: list[Node]) -> list[Node]:
    """The members that depend on no other."""
    tainted: set[Value] = set()
    wanted, found = set(members), []
    for node in graph.nodes:
        if any(v in tainted for v in node.inputs):
            tainted.update(node.outputs)
        elif node in wanted:
            found.append(node)
            tainted.update(node.outputs)
    return found


def _merge(graph: Graph, members: list[Node]) -> None:
    """One product in place of the first member; the graph is put in order again."""
    first, origin = members[0], join_origins(members)
    rows = make_node("concat", [node.inputs[0] for node in members], {"axis": 0}, origin)
    product = make_node(first.op.name, [rows.output, *first.inputs[1:]], first.attrs, origin)
    made, replaced, begin = [rows, product], {}, 0
    for node in members:
        count, columns = node.output.shape
        bounds = {"begin": (begin, 0), "end": (begin + count, columns)}
        part = make_node("slice", [product.output], bounds, node.origin)
        replaced[node.output] = part.output
        made.append(part)
        begin += count
    at, gone = graph.nodes.index(first), set(members)
    graph.nodes[at:at] = made
    graph.nodes = [node for node in graph.nodes if node not in gone]
    graph.replace(replaced)
    graph.sort()
