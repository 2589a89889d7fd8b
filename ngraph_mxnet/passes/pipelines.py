"""Passes that compute in advance, and parts of the targets' pipelines: named groups of passes, readable top to bottom.

Constants, batch norms, and arithmetic for each channel are folded into weights. A pass that makes one op of what a
target runs as one, and others do not, stands in that target's own pipeline, between these groups.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ngraph_mxnet.ir.graph import Graph, Node, Value, make_node
from ngraph_mxnet.ir.sizes import are_same_shape, is_one, is_symbolic
from ngraph_mxnet.ir.types import f64
from ngraph_mxnet.passes.base import (
    Answer,
    FixedPoint,
    Miss,
    Observer,
    Pass,
    PassManager,
    Report,
    RewritePass,
    Rewriter,
)
from ngraph_mxnet.passes.fuse import (
    bias_of,
    channel_axis,
    channel_vector,
    clamp_fusion,
    closed,
    default_bias,
    host_of,
    pad_fusion,
    recurrent_cells,
    residual_fusion,
    swish_fusion,
    varies_by_channel_only,
    with_bias,
)
from ngraph_mxnet.passes.movement import MergeProducts, global_pool, movement, one_hot_product, pixel_shuffle, scattered
from ngraph_mxnet.passes.simplify import Cse, DeadCode, algebraic, dropout_removal, whole_numbers

GROWTH = 1 << 20
"""A node is folded only when its outputs take at most this many bytes more than its operands."""


class ConstantFolding:
    """Folds a node when it has operands, all of them are constants, and the result is not too big.

    Does not fold: a broadcast or tile of a small constant into a big tensor (see `GROWTH`; it would only
    make the program larger); a result of symbolic shape; a node without operands; an op without a reference.
    """

    name = "constant_folding"

    def __init__(self) -> None:
        self.misses: list[Miss] = []

    def run(self, graph: Graph) -> bool:
        self.misses = []
        arrays: dict[Value, np.ndarray] = {}
        replaced: dict[Value, Value] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            if node.op.name == "constant":
                arrays[node.output] = node.attrs["value"]
            elif node.inputs and all(map(arrays.__contains__, node.inputs)):
                for output, array in zip(node.outputs, self._fold(node, arrays), strict=False):
                    constant = make_node("constant", [], {"value": array}, node.origin)
                    # Nodes further down still read the old value: they find its array under it.
                    arrays[output] = arrays[constant.output] = constant.attrs["value"]
                    replaced[output] = constant.output
                    nodes.append(constant)
            nodes.append(node)
        if replaced:
            graph.nodes = nodes
            graph.replace(replaced)
            graph.remove_dead()
        return bool(replaced)

    def _fold(self, node: Node, arrays: dict[Value, np.ndarray]) -> list[np.ndarray]:
        """The outputs, or nothing when the node has to stay."""
        if any(map(is_symbolic, (size for v in node.outputs for size in v.shape))):
            self.misses.append(Miss("fold", str(node), "its size is a symbol"))
            return []
        growth = sum(v.type.bytes for v in node.outputs) - sum(v.type.bytes for v in node.inputs)
        if growth > GROWTH:
            self.misses.append(Miss("fold", str(node), f"the constant would grow by {growth} bytes"))
            return []
        try:
            with np.errstate(all="ignore"):
                outputs = node.op.evaluate([arrays[v] for v in node.inputs], node.attrs)
        except NotImplementedError as error:
            self.misses.append(Miss("fold", str(node), str(error)))
            return []
        wrong = [v.type for v, a in zip(node.outputs, outputs, strict=True)
                 if v.shape != a.shape or v.type.element.numpy != a.dtype]
        if wrong:
            self.misses.append(Miss("fold", str(node), f"its reference does not give {wrong[0]}"))
            return []
        return outputs


def fold_affine(host: Node, scale: Value | None, shift: Value | None, outer: Node, rw: Rewriter) -> Value | str:
    """`host` anew, so that it gives host * scale + shift, or why that can't be.

    `scale` and `shift` are vectors over the host's channels; None is 1 and 0.
    `outer` is the node that applied them; its bounds, if it has any, become the host's.

    Not when the host has other readers, has clamped, or when weights, scale or shift are known only at run
    time: then scaling the weights may cost more than scaling the result. Not into one with a residual, which would have
    to be scaled too, except a mere shift.
    """
    reason = closed(host, rw)
    if reason:
        return reason
    for what, value in (("weights", host.inputs[1]), ("scale", scale), ("shift", shift)):
        needed = what != "weights" or (scale is not None and host.op.name != "scale_shift")
        if needed and value is not None and not rw.static(value):
            return f"the {what} of {host if what == 'weights' else outer} may differ with every run"
    if "residual" in host.epilogue and scale is not None:
        return f"the residual of {host} would have to be scaled too"
    weights = host.inputs[1] if scale is None else _scaled(host, scale, rw)
    without_bias = len(host.inputs) == 2
    bounds = {key: value for key, value in outer.attrs.items() if key in ("lower", "upper")}
    if without_bias and shift is None and not bounds:
        return rw.make(host.op.name, host.inputs[0], weights, origin=(host, outer), **host.attrs)
    bias = None if without_bias else host.inputs[2]
    if bias is not None and scale is not None:
        bias = rw.make("multiply", bias, scale, origin=(outer,))
    if shift is not None:
        bias = shift if bias is None else rw.make("add", bias, shift, origin=(outer,))
    return with_bias(host, weights, bias if bias is not None else bias_of(host, rw), rw, origin=(host, outer), **bounds)


def _scaled(host: Node, scale: Value, rw: Rewriter) -> Value:
    """The weights times `scale` along their output channels (of a scale_shift: its scale)."""
    weights = host.inputs[1]
    if host.op.kind == "convolution":
        scale = rw.reshape(scale, (*scale.shape, *(1,) * (weights.type.rank - 1)))
    elif host.op.kind == "product" and host.attrs["transpose_b"]:
        scale = rw.reshape(scale, (*scale.shape, 1))
    return rw.make("multiply", weights, scale, origin=(host,))


def add_bias(node: Node, rw: Rewriter) -> Answer:
    """add(contraction, b[C]) -> contraction with bias (added to the one it has).

    `b` has any shape that broadcasts. A `b` of the full shape is a bias only when it is a weight; else it is
    a residual (`residual_fusion`).
    """
    answer: Answer = None
    for x, other in (node.inputs, node.inputs[::-1]):
        host = host_of(x, rw)
        if host is None or not varies_by_channel_only(other, x, channel_axis(host)):
            continue
        if are_same_shape(other.shape, node.output.shape) and not rw.static(other):
            continue
        reason = closed(host, rw)
        if reason:
            answer = reason
            continue
        bias = channel_vector(other, x, channel_axis(host), rw)
        assert bias is not None
        if len(host.inputs) > 2:
            bias = rw.make("add", host.inputs[2], bias)
        return with_bias(host, host.inputs[1], bias, rw, origin=(host, node))
    return answer


def subtract_bias(node: Node, rw: Rewriter) -> Answer:
    """subtract(contraction, b[C]) -> contraction with bias -b. Not b - contraction."""
    found = _host_and_vector(node.inputs[0], node.inputs[1], rw)
    return None if found is None else fold_affine(found[0], None, rw.make("negative", found[1]), node, rw)


def multiply_weights(node: Node, rw: Rewriter) -> Answer:
    """multiply(contraction, s[C]) -> contraction with weights and bias times s."""
    for x, other in (node.inputs, node.inputs[::-1]):
        found = _host_and_vector(x, other, rw)
        if found is not None:
            return fold_affine(*found, None, node, rw)
    return None


def divide_weights(node: Node, rw: Rewriter) -> Answer:
    """divide(contraction, s[C]) -> contraction with weights and bias times 1/s, which rounds once more."""
    found = _host_and_vector(node.inputs[0], node.inputs[1], rw)
    return None if found is None else fold_affine(found[0], rw.make("reciprocal", found[1]), None, node, rw)


def _host_and_vector(x: Value, other: Value, rw: Rewriter) -> tuple[Node, Value] | None:
    host = host_of(x, rw)
    if host is None or not x.type.element.is_float or not rw.static(other):
        return None
    vector = channel_vector(other, x, channel_axis(host), rw)
    return None if vector is None else (host, vector)


def multiply_add(node: Node, rw: Rewriter) -> Answer:
    """add or subtract(multiply(x, s), t) -> scale_shift, for weights or constants s and t.

    One of them is per channel. Two plain numbers are left to elementwise fusion, and so is a product with
    other readers.
    """
    pairs = [node.inputs, node.inputs[::-1]] if node.op.name == "add" else [node.inputs]
    for product, t in pairs:
        inner = rw.producer(product, "multiply")
        if inner is None or product.type.rank < 2 or not product.type.element.is_float:
            continue
        if not varies_by_channel_only(t, product, 1) or not rw.static(t):
            continue
        for x, s in (inner.inputs, inner.inputs[::-1]):
            fits = x.type == product.type and varies_by_channel_only(s, x, 1)
            if not fits or not rw.static(s) or rw.static(x) or (is_one(s.type.size) and is_one(t.type.size)):
                continue
            if not rw.single(product):
                return f"{inner} has other readers"
            scale, shift = channel_vector(s, x, 1, rw), channel_vector(t, x, 1, rw)
            assert scale is not None and shift is not None
            if node.op.name == "subtract":
                shift = rw.make("negative", shift)
            return rw.make("scale_shift", x, scale, shift, origin=(inner, node))
    return None


def affine_folding() -> RewritePass:
    return RewritePass("affine_folding", {
        "add": [add_bias, multiply_add],
        "subtract": [subtract_bias, multiply_add],
        "multiply": [multiply_weights],
        "divide": [divide_weights],
    })


def biases() -> RewritePass:
    """The part of `affine_folding` that changes no weights."""
    return RewritePass("affine_folding", {"add": [add_bias]})


def batch_norm_is_scale_shift(node: Node, rw: Rewriter) -> Answer:
    """batch_norm(x, gamma, beta, mean, variance) -> scale_shift(x, batch_norm_factors(gamma, beta, mean, variance)).

    The factors are one node: a net has a batch_norm for each convolution, and compiling costs by the node.
    Also when the parameters are no weights: the vectors are small next to the data.
    """
    computing = np.float64 if node.output.type.element == f64 else np.float32
    epsilon = float(computing(node.attrs["epsilon"]))  # as it counts: frameworks write it with more or fewer digits
    made = rw.make("batch_norm_factors", *node.inputs[1:], epsilon=epsilon).node
    assert made is not None
    return rw.make("scale_shift", node.inputs[0], *made.outputs)


def scale_shift_into_host(node: Node, rw: Rewriter) -> Answer:
    """scale_shift(contraction) -> contraction with other weights and bias; also scale_shift(scale_shift).

    The clamp of the outer scale_shift becomes the host's. For the conditions see `fold_affine`. Not into a
    matmul of rank above 2, whose bias runs along the last axis and not along axis 1, nor into a convolution
    *after* the scale_shift: its padding would have to be shifted too.
    """
    host = host_of(node.inputs[0], rw)
    if host is None:
        return None
    if host.op.kind == "product" and host.output.type.rank != 2:
        return "channels are not the last axis of the product"
    return fold_affine(host, node.inputs[1], node.inputs[2], node, rw)


def batch_norm_folding() -> RewritePass:
    return RewritePass("batch_norm_folding", {
        "batch_norm": [batch_norm_is_scale_shift],
        "scale_shift": [scale_shift_into_host],
    })


def simplifying() -> list[Pass | FixedPoint]:
    """Less of the same ops. First, in this order:"""
    return [
        # What no result needs must not count as a reader: most fusions ask for a single reader.
        DeadCode(),
        # No-ops between two ops hide patterns, and each of these passes uncovers work for the others.
        FixedPoint("simplify", (dropout_removal(), ConstantFolding(), algebraic(), whole_numbers(), movement(),
                                global_pool(), scattered(), Cse(), DeadCode())),
    ]


def folding() -> FixedPoint:
    """Arithmetic per channel goes into weights and bias. The two alternate along a chain: convolution, bias,
    batch_norm, scale."""
    return FixedPoint("fold", (affine_folding(), batch_norm_folding()))


def fusing() -> list[Pass | FixedPoint]:
    """Ops of several, which every target with the fused ops wants. Why this order:"""
    return [
        # Before the products get biases: afterwards its parts are neighbours no more.
        one_hot_product(),
        # Early: a pad in front of a convolution is independent of everything behind it, and the pad's
        # legality before max_pool shows in the clamp, which is a node of its own only until clamp_fusion.
        pad_fusion(),
        folding(),
        # Before clamps are taken for activations of what they bound.
        swish_fusion(),
        # Residuals after biases and batch norms: nothing can be scaled once the residual is added.
        residual_fusion(),
        # Clamps last: nothing can be added once it is clamped.
        clamp_fusion(),
        default_bias(),
        # With bias and clamp in place, which act on each channel and so on each phase.
        pixel_shuffle(),
        # Unrolled recurrent nets. Cells first: their products have biases by now, and what merging makes of the
        # inputs' products are slices, which must not be taken for gates.
        recurrent_cells(),
        MergeProducts(),
        # The weights' expressions that folding made: shared epsilons, reshapes, constant weights.
        FixedPoint("tidy", (ConstantFolding(), algebraic(), movement(), Cse(), DeadCode())),
    ]


def shared_passes() -> list[Pass | FixedPoint]:
    """Return the passes that every target with the fused ops wants."""
    return [*simplifying(), *fusing()]


def optimize(graph: Graph, passes: Sequence[Pass | FixedPoint] | None = None, *, verify_each: bool = False,
             disable: Collection[str] = (), observer: Observer | None = None) -> Report:
    """Run the shared passes, or a target's pipeline, on `graph`, in place. See `PassManager` for the arguments."""
    manager = PassManager(shared_passes() if passes is None else passes, verify_each=verify_each, disable=disable,
                          observer=observer)
    return manager.run(graph)
