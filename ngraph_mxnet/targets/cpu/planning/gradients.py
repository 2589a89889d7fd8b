"""Gradient ops without a kernel of their own, as ops that have one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, inf
from typing import Any

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import ELEMENT_TYPES, ElementType, f32, f64
from ngraph_mxnet.ops.contractions import dilated_size
from ngraph_mxnet.passes.base import Answer, Rewrite, RewritePass, Rewriter
from ngraph_mxnet.targets.cpu.microkernels.params import (
    DATA_ROOM,
    DEPTHWISE_GRADIENTS,
    HEAD_ROOM,
    TILED_HEAD_ROOM,
    paired_rooms,
)
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, pair, spatial


def gradients() -> RewritePass:
    """The pass. It comes after `widening`: float16 is float32 by then."""
    rewrites = {name: [rewrite] for name, (rewrite, _) in GRADIENTS.items()}
    return RewritePass("gradients", {**rewrites, "select": [_of_clamp]})


def becomes_others(node: Node) -> bool:
    """True if the pass turns the node into something that runs."""
    return node.op.name in GRADIENTS and node.inputs[0].type.element in GRADIENTS[node.op.name][1]


def without_kernel(node: Node) -> str | None:
    """Why a weight gradient is made of other ops; None if kernels compute it."""
    (data, head), attrs, name = node.inputs, node.attrs, node.op.name
    groups, channels = attrs["groups"], data.shape[1]
    reason = _unlike_images(node, rank=5)
    if reason is not None:
        return reason
    if any(step > 1 for step in attrs["data_dilations"]):
        return f"{name} with data_dilations={list(attrs['data_dilations'])} has no CPU kernel"
    if groups == 1 and all(slices_met(node)):
        return None
    if data.type.rank > 4:
        return f"{name} over more than 2 spatial axes has no CPU kernel in groups, nor for taps that meet no data"
    if not groups == channels == head.shape[1]:
        return f"{name} of {groups} groups for {channels} and {head.shape[1]} channels has no CPU kernel"
    if attrs["kernel"] not in [(side, side) for side in DEPTHWISE_GRADIENTS] or attrs["dilations"] != (1, 1):
        return f"{name} of depthwise kernels has no CPU kernel but for 3x3, 5x5 and 7x7 without dilation"
    return None


def slices_met(node: Node) -> list[range]:
    """Return the slices of the head gradient where each tap of the depth axis of a weight gradient meets data."""
    (data, head), attrs = node.inputs, node.attrs
    if data.type.rank < 5:
        return [range(1)]
    stride, dilation, pad = (attrs[name][0] for name in ("strides", "dilations", "pads_begin"))
    fronts = [pad - tap * dilation for tap in range(attrs["kernel"][0])]
    return [range(max(0, -(-front // stride)), min(head.shape[2], (data.shape[2] - 1 + front) // stride + 1))
            for front in fronts]


@dataclass(frozen=True)
class Pairing:
    """How the kernel of bf16 reads the data of a weight gradient, in pairs of pixels of a row; see the names in
    `BF16_WEIGHT_GRADIENTS`."""

    height: int
    width: int
    """Those of the head gradient."""
    taps: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    tiled: bool = False
    """In AMX's tiles."""

    @staticmethod
    def of(node: Node, *, tiled: bool) -> Pairing:
        """Return that of each slice of a weight gradient."""
        kernel, strides, dilations = (pair(node.attrs[name], 1) for name in ("kernel", "strides", "dilations"))
        return Pairing(*spatial(node.inputs[1].shape), kernel, strides, dilations, tiled)

    def of_size(self, height: int, width: int) -> Pairing:
        """Return the same of other rows."""
        return replace(self, height=height, width=width)

    @property
    def phases(self) -> int:
        """As few copies as possible. In AMX's tiles a few columns of taps have one each where lines without pairs
        behind them save an eighth of the products."""
        columns, pairs = self.taps[1], -(-self.width // 2)
        few = min(2 * self.strides[1] // self._common, columns)
        line = pairs + (-(-columns // few) - 1) * self.shift
        apart, shared = (-(-self.height * each // BLOCK) for each in (pairs, line))
        return columns if self.tiled and columns <= 2 * few and 8 * apart <= 7 * shared else few

    @property
    def shift(self) -> int:
        return self.dilations[1] // self._common

    @property
    def _common(self) -> int:
        return gcd(2 * self.strides[1], self.dilations[1])

    @property
    def step(self) -> int:
        """Rows of data from a line to the next."""
        return gcd(self.strides[0] if self.height > 1 else 0, self.dilations[0] if self.taps[0] > 1 else 0) or 1

    @property
    def lines(self) -> tuple[int, int]:
        """Lines from a row of the head gradient, and of taps, to the next."""
        return (self.strides[0] // self.step if self.height > 1 else 0,
                self.dilations[0] // self.step if self.taps[0] > 1 else 0)

    @property
    def by_rows(self) -> bool:
        """A row of taps is a call of its own: in AMX's tiles a chunk of several rows has one line for each."""
        return self.tiled and self.lines[0] > 1

    def of_row(self) -> Pairing:
        """Return that of a row of taps, by itself."""
        return replace(self, taps=(1, self.taps[1]))

    def fits(self, images: int, rows: int) -> bool:
        """True if the kernel has room for a chunk of so many images and rows, of one head block."""
        return self.heads(images, rows) > 0 and self._rooms(images, rows)[1] <= DATA_ROOM

    def heads(self, images: int, rows: int) -> int:
        """Return the head blocks of such a chunk for which the kernel has room."""
        return (TILED_HEAD_ROOM if self.tiled else HEAD_ROOM) // self._rooms(images, rows)[0]

    def _rooms(self, images: int, rows: int) -> tuple[int, int]:
        return paired_rooms(self.tiled, (images, rows), self.width, self.taps, self.lines, self.phases, self.shift)


def in_pairs(node: Node, *, tiled: bool) -> bool:
    """True if a weight gradient has a kernel that computes in bf16: one that is no depthwise convolution's, of 16
    channels or more, whose rows are not too long."""
    if node.attrs["groups"] != 1 or node.inputs[0].shape[1] < BLOCK or without_kernel(node) is not None:
        return False
    pairing = Pairing.of(node, tiled=tiled)
    return (pairing.of_row() if pairing.by_rows else pairing).fits(1, 1)


def _weight_gradient(node: Node, rw: Rewriter) -> Answer:
    """For each tap of the kernel the product of the head gradient with the data that the tap meets."""
    if without_kernel(node) is None:
        return None
    (data, head), attrs = node.inputs, node.attrs
    if any(step > 1 for step in attrs["data_dilations"]) and all(step == 1 for step in attrs["strides"]):
        return _of_transposed(node, rw)
    groups, kernel, rank = attrs["groups"], attrs["kernel"], data.type.rank
    sizes = head.type.shape[2:]
    for axis, step in enumerate(attrs["data_dilations"], 2):
        data = _spread(rw, data, axis, step)
    data = rw.make("pad", data, pads_begin=(0, 0, *attrs["pads_begin"]), pads_end=(0, 0, *attrs["pads_end"]))
    data = rw.make("transpose", data, order=(1, 0, *range(2, rank)))
    head = rw.make("transpose", head, order=(1, 0, *range(2, rank)))
    rows = head.type.size // max(head.type.shape[0], 1)
    head = rw.make("reshape", head, shape=(groups, head.type.shape[0] // groups, rows))
    parts = []
    for tap in product(*map(range, kernel)):
        begin = [place * dilation for place, dilation in zip(tap, attrs["dilations"], strict=True)]
        met = _window(rw, data, begin, sizes, attrs["strides"])
        met = rw.make("reshape", met, shape=(groups, data.type.shape[0] // groups, rows))
        part = rw.make("matmul", head, met, transpose_b=True)
        parts.append(rw.make("reshape", part, shape=(*node.output.type.shape[:2], 1)))
    whole = rw.make("concat", *parts, axis=2) if len(parts) > 1 else parts[0]
    return rw.make("reshape", whole, shape=node.output.type.shape)


def _of_transposed(node: Node, rw: Rewriter) -> Answer:
    """Rewrite the weight gradient of data with zeros between its elements. It becomes the gradient by the weights of
    the convolution that goes the other way.

    Tap k meets element i of the data at r = i * step - k * dilation + pad. With the taps counted from the end this is
    the sum for a convolution of the head gradient, in strides of `step`, whose result has the data's places.
    """
    (data, head), attrs = node.inputs, node.attrs
    groups, kernel, lead = attrs["groups"], attrs["kernel"], head.type.shape[:2]
    begin, end, before, after = [], [], [], []
    for axis, (size, taps, dilation, step, pad) in enumerate(zip(
            data.type.shape[2:], kernel, attrs["dilations"], attrs["data_dilations"], attrs["pads_begin"],
            strict=True), 2):
        reach, places = dilation * (taps - 1), head.type.shape[axis]
        first = reach - pad
        behind = step * (size - 1) + 1 + reach - places - first
        begin.append(max(0, -first))
        end.append(places - max(0, -behind))
        before.append(max(0, first))
        after.append(max(0, behind))
    if any(first >= last for first, last in zip(begin, end, strict=True)):
        return rw.constant(np.zeros(node.output.type.shape, node.output.type.element.numpy))
    met = rw.make("slice", head, begin=(0, 0, *begin), end=(*lead, *end))
    found = rw.make("convolution_weight_gradient", met, data, kernel=kernel, strides=attrs["data_dilations"],
                    dilations=attrs["dilations"], groups=groups, pads_begin=before, pads_end=after)
    channels, outputs = data.type.shape[1] // groups, lead[1] // groups
    spatial = range(3, 3 + len(kernel))
    found = rw.make("reshape", found, shape=(groups, channels, outputs, *kernel))
    found = rw.make("transpose", found, order=(0, 2, 1, *spatial))
    found = rw.make("reshape", found, shape=node.output.type.shape)
    turned = [size - 1 for size in kernel]
    return rw.make("slice", found, begin=(0, 0, *turned), end=(*found.type.shape[:2], *(-1 for _ in kernel)),
                   strides=(1, 1, *(-1 for _ in kernel)))


def pool_gradient_without_kernel(node: Node) -> str | None:
    """Why a max pool's gradient is made of other ops; None if a kernel computes it."""
    return _unlike_images(node, rank=5)


def _unlike_images(node: Node, rank: int) -> str | None:
    """Why the node's first operand is nothing for kernels of images of at most this rank."""
    x, name = node.inputs[0], node.op.name
    if x.type.element is not f32:
        return f"{name} of {x.type.element} has no CPU kernel, only of f32"
    if x.type.rank > rank:
        return f"{name} over more than {rank - 2} spatial axes has no CPU kernel"
    if any(value.type.size == 0 for value in node.inputs):
        return f"{name} over no elements has no CPU kernel"
    return None


def _max_pool_gradient(node: Node, rw: Rewriter) -> Answer:
    """For each tap the shares of the windows whose greatest element it meets, and no tap before it."""
    if pool_gradient_without_kernel(node) is None:
        return None
    (data, head), attrs = node.inputs, node.attrs
    greatest = rw.make("max_pool", data, **attrs)
    needed = [(count - 1) * stride + taps for count, stride, taps
              in zip(head.type.shape[2:], attrs["strides"], attrs["kernel"], strict=True)]
    before = attrs["pads_begin"]
    after = [max(size - first - own, 0) for size, first, own in zip(needed, before, data.type.shape[2:], strict=True)]
    wide = rw.make("pad", data, pads_begin=(0, 0, *before), pads_end=(0, 0, *after), value=-inf)
    nothing = rw.constant(np.zeros((), head.type.element.numpy))
    found: Value | None = None
    total: Value | None = None
    for tap in product(*map(range, attrs["kernel"])):
        met = _window(rw, wide, tap, head.type.shape[2:], attrs["strides"])
        hit = rw.make("equal", met, greatest)
        if found is not None:
            hit = rw.make("logical_and", hit, rw.make("logical_not", found))
        found = hit if found is None else rw.make("logical_or", found, hit)
        share = rw.make("select", hit, head, nothing)
        for axis, stride in enumerate(attrs["strides"], 2):
            share = _spread(rw, share, axis, stride)
        rest = [size - first - own for size, first, own
                in zip(wide.type.shape[2:], tap, share.type.shape[2:], strict=True)]
        share = rw.make("pad", share, pads_begin=(0, 0, *tap), pads_end=(0, 0, *rest))
        total = share if total is None else rw.make("add", total, share)
    assert total is not None
    begin = (0, 0, *before)
    end = [first + size for first, size in zip(begin, data.type.shape, strict=True)]
    return rw.make("slice", total, begin=begin, end=end)


def _same(node: Node, rw: Rewriter) -> Answer:
    return node.inputs[0]


def batch_norm_without_kernel(node: Node) -> str | None:
    """Why a training batch norm or its gradient is made of other ops; None if kernels compute it."""
    x = node.inputs[0]
    if x.type.size == x.shape[1]:  # a rounded shift would show: by scale and shift, x less itself is not 0
        return f"{node.op.name} of one value a channel has no CPU kernel"
    return _unlike_images(node, rank=5)


def _batch_norm_training(node: Node, rw: Rewriter) -> Answer:
    x, gamma, beta = node.inputs
    if batch_norm_without_kernel(node) is None:
        mean = rw.make("batch_norm_statistics", x)
        assert mean.node is not None
        variance = mean.node.outputs[1]
        scale = rw.make("batch_norm_factors", gamma, beta, mean, variance, epsilon=node.attrs["epsilon"])
        assert scale.node is not None
        y = rw.make("scale_shift", x, scale, scale.node.outputs[1])
        return dict(zip(node.outputs, (y, mean, variance), strict=True))
    axes, wide = _all_but_channels(x)
    mean = rw.make("reduce_mean", x, axes=axes)
    centred = rw.make("subtract", x, rw.reshape(mean, wide))
    variance = rw.make("reduce_mean", rw.make("square", centred), axes=axes)
    scale = rw.make("multiply", gamma, _spread_of(node, variance, rw))
    normal = rw.make("multiply", centred, rw.reshape(scale, wide))
    y = rw.make("add", normal, rw.reshape(beta, wide))
    return dict(zip(node.outputs, (y, mean, variance), strict=True))


def _batch_norm_statistics(node: Node, rw: Rewriter) -> Answer:
    if batch_norm_without_kernel(node) is None:
        return None
    axes, wide = _all_but_channels(node.inputs[0])
    mean = rw.make("reduce_mean", node.inputs[0], axes=axes)
    centred = rw.make("subtract", node.inputs[0], rw.reshape(mean, wide))
    return dict(zip(node.outputs, (mean, rw.make("reduce_mean", rw.make("square", centred), axes=axes)), strict=True))


def _batch_norm_relu_gradient(node: Node, rw: Rewriter) -> Answer:
    if batch_norm_without_kernel(node) is None:
        return None
    *others, y, head = node.inputs
    nothing = rw.constant(np.zeros((), head.type.element.numpy))
    kept = rw.make("select", rw.make("greater", y, nothing), head, nothing)
    found = rw.make("batch_norm_gradient", *others, kept, **node.attrs)
    assert found.node is not None
    return dict(zip(node.outputs, found.node.outputs, strict=True))


def _of_relu(node: Node, rw: Rewriter) -> Answer:
    """batch_norm_gradient(x, .., head where y > 0) -> batch_norm_relu_gradient."""
    *others, kept = node.inputs
    chosen = rw.producer(kept, "select", "clamp_gradient")
    if chosen is None or not rw.single(kept):
        return None
    if chosen.op.name == "select":
        mask = rw.producer(chosen.inputs[0], "greater")
        if mask is None or not all(_is_zero(rw, value) for value in (mask.inputs[1], chosen.inputs[2])):
            return None
        y, head = mask.inputs[0], chosen.inputs[1]
    else:
        if (chosen.attrs["lower"], chosen.attrs["upper"], chosen.attrs["above"]) != (0.0, inf, True):
            return None
        y, head = chosen.inputs
    if y.type != kept.type or head.type != kept.type:
        return None
    found = rw.make("batch_norm_relu_gradient", *others, y, head, **node.attrs)
    assert found.node is not None
    return dict(zip(node.outputs, found.node.outputs, strict=True))


def _is_zero(rw: Rewriter, value: Value) -> bool:
    return _number(rw, value) == 0.0


def _number(rw: Rewriter, value: Value) -> float | None:
    """Return the number that all elements equal, or None if no constant says so."""
    node = rw.producer(value, "constant", "broadcast")
    if node is not None and node.op.name == "broadcast":
        node = rw.producer(node.inputs[0], "constant")
    if node is None:
        return None
    numbers = np.unique(node.attrs["value"])
    return float(numbers[0]) if numbers.size == 1 else None


def clamp_gradient_without_kernel(node: Node) -> str | None:
    """Why a clamp's gradient is made of other ops; None if a kernel computes it."""
    if node.inputs[0].type.rank < 3:
        return f"{node.op.name} has no CPU kernel but for images"
    return _unlike_images(node, rank=5)


def _clamp_gradient(node: Node, rw: Rewriter) -> Answer:
    if clamp_gradient_without_kernel(node) is None:
        return None
    (x, head), attrs = node.inputs, node.attrs
    lower, upper, nothing = (rw.constant(np.asarray(number, x.type.element.numpy))
                             for number in (attrs["lower"], attrs["upper"], 0))
    inside = rw.make("logical_and", rw.make("greater" if attrs["above"] else "greater_equal", x, lower),
                     rw.make("less_equal", x, upper))
    return rw.make("select", inside, head, nothing)


def _of_clamp(node: Node, rw: Rewriter) -> Answer:
    """select(x > 0, head, 0), and so with both bounds of a clamp, over images -> clamp_gradient."""
    condition, head, nothing = node.inputs
    if head.type.rank not in (4, 5) or head.type.shape[1] < BLOCK or head.type.element is not f32 or not head.type.size:
        return None
    if head.type != node.output.type or not _is_zero(rw, nothing):
        return None
    mask = rw.producer(condition, "greater", "logical_and")
    upper: float | None = inf
    if mask is not None and mask.op.name == "logical_and":
        low, high = (rw.producer(value, name) for value, name in
                     zip(mask.inputs, ("greater_equal", "less_equal"), strict=True))
        if low is None or high is None or low.inputs[0] is not high.inputs[0]:
            return None
        mask, upper = low, _number(rw, high.inputs[1])
    lower = _number(rw, mask.inputs[1]) if mask is not None else None
    if mask is None or lower is None or upper is None or mask.inputs[0].type != head.type:
        return None
    return rw.make("clamp_gradient", mask.inputs[0], head, lower=lower, upper=upper, above=mask.op.name == "greater")


def _batch_norm_gradient(node: Node, rw: Rewriter) -> Answer:
    if batch_norm_without_kernel(node) is None:
        return _of_relu(node, rw)
    x, gamma, mean, variance, head = node.inputs
    axes, wide = _all_but_channels(x)
    share = np.asarray(x.type.shape[1] / max(x.type.size, 1), x.type.element.numpy)
    spread = _spread_of(node, variance, rw)
    centred = rw.make("subtract", x, rw.reshape(mean, wide))
    of_beta = rw.make("reduce_sum", head, axes=axes)
    weighted = rw.make("reduce_sum", rw.make("multiply", head, centred), axes=axes)
    of_gamma = rw.make("multiply", weighted, spread)
    # gamma s (head - of_beta / n - (x - mean) s of_gamma / n) as a head + b (x - mean) + c for each channel
    scale = rw.make("multiply", gamma, spread)
    part = rw.make("multiply", rw.make("multiply", of_gamma, spread), rw.constant(share))
    drift = rw.make("multiply", of_beta, rw.constant(share))
    moved = rw.make("subtract", head, rw.make("multiply", centred, rw.reshape(part, wide)))
    moved = rw.make("subtract", moved, rw.reshape(drift, wide))
    by_x = rw.make("multiply", moved, rw.reshape(scale, wide))
    return dict(zip(node.outputs, (by_x, of_gamma, of_beta), strict=True))


def _all_but_channels(x: Value) -> tuple[list[int], list[int]]:
    """The axes beside the channels', and the shape of a vector of channels that broadcasts."""
    rank = x.type.rank
    return ([axis for axis in range(rank) if axis != 1], [size if axis == 1 else 1 for axis, size in
                                                          enumerate(x.type.shape)])


def _spread_of(node: Node, variance: Value, rw: Rewriter) -> Value:
    """1 / sqrt(variance + epsilon)."""
    epsilon = np.asarray(node.attrs["epsilon"], variance.type.element.numpy)
    return rw.make("rsqrt", rw.make("add", variance, rw.constant(epsilon)))


def _window(rw: Rewriter, data: Value, begin: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> Value:
    """Slice out the data that the windows meet at one tap: `sizes` places from `begin` on, in steps of `strides`."""
    lead = data.type.shape[:2]
    ends = [first + max(size - 1, 0) * step + min(size, 1)
            for first, size, step in zip(begin, sizes, strides, strict=True)]
    return rw.make("slice", data, begin=(0, 0, *begin), end=(*lead, *ends), strides=(1, 1, *strides))


def _spread(rw: Rewriter, data: Value, axis: int, step: int) -> Value:
    """With `step - 1` zeros between neighbours along `axis`."""
    shape: Any = data.type.shape
    if step == 1 or shape[axis] < 2:
        return data
    count, size = shape[axis], dilated_size(shape[axis], step)
    columns = rw.make("reshape", data, shape=(*shape[:axis + 1], 1, *shape[axis + 1:]))
    ends = [step - 1 if own == axis + 1 else 0 for own in range(len(shape) + 1)]
    columns = rw.make("pad", columns, pads_begin=[0] * len(ends), pads_end=ends)
    whole = rw.make("reshape", columns, shape=(*shape[:axis], count * step, *shape[axis + 1:]))
    return rw.make("slice", whole, begin=[0] * len(shape),
                   end=[size if own == axis else other for own, other in enumerate(whole.type.shape)])


# op: (rewrite, the element types whose parts have kernels)
GRADIENTS: dict[str, tuple[Rewrite, Sequence[ElementType]]] = {
    "convolution_weight_gradient": (_weight_gradient, (f32, f64)),
    "max_pool_gradient": (_max_pool_gradient, (f32,)),
    "batch_norm_training": (_batch_norm_training, (f32, f64)),
    "batch_norm_statistics": (_batch_norm_statistics, (f32, f64)),
    "batch_norm_gradient": (_batch_norm_gradient, (f32, f64)),
    "batch_norm_relu_gradient": (_batch_norm_relu_gradient, (f32, f64)),
    "clamp_gradient": (_clamp_gradient, (f32, f64)),
    "stop_gradient": (_same, tuple(ELEMENT_TYPES.values())),
    "own_gradient": (_same, tuple(ELEMENT_TYPES.values())),
}
