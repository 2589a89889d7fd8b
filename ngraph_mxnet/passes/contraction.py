"""What the fusions share: contractions and scale_shift as hosts of what follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import are_same, is_one
from ngraph_mxnet.passes.pattern import Rewriter

NO_CLAMP: dict[str, Any] = {"lower": -math.inf, "upper": math.inf}


def host_of(value: Value, rw: Rewriter) -> Node | None:
    """The contraction of real numbers, or scale_shift, whose only result `value` is."""
    node = rw.producer(value)
    if node is None or len(node.outputs) != 1 or node.op.multiplies_bytes:
        return None
    return node if node.op.contraction or node.op.name == "scale_shift" else None


def channel_axis(host: Node) -> int:
    """The axis that a bias runs along: the last of a product, axis 1 elsewhere."""
    return host.output.type.rank - 1 if host.op.kind == "product" else 1


def closed(host: Node, rw: Rewriter) -> str | None:
    """Why nothing that computes may be folded into `host`; None when it may."""
    if not rw.single(host.output):
        return f"{host} has other readers"
    if not host.output.type.element.is_float:
        return "integers"
    if host.attrs.get("lower", -math.inf) != -math.inf or host.attrs.get("upper", math.inf) != math.inf:
        return f"{host} clamps first"
    return None


def channel_vector(value: Value, host: Value, axis: int, rw: Rewriter) -> Value | None:
    """`value` as T[C], if broadcasting it against `host` repeats one number per channel; else None."""
    channels, rank = host.shape[axis], host.type.rank
    if not varies_by_channel_only(value, host, axis):
        return None
    if are_same(value.type.size, channels):
        return rw.reshape(value, (channels,))
    return rw.make("broadcast", rw.reshape(value, ()), shape=(channels,)) if rank else None


def varies_by_channel_only(value: Value, host: Value, axis: int) -> bool:
    rank = host.type.rank
    if value.type.rank > rank or value.type.element != host.type.element:
        return False
    dims = (1,) * (rank - value.type.rank) + value.shape
    return all(is_one(dim) or (at == axis and are_same(dim, host.shape[axis])) for at, dim in enumerate(dims))


def bias_of(host: Node, rw: Rewriter) -> Value:
    """The bias operand, zeros for a host without."""
    if host.op.name in ("convolution", "matmul"):
        channels = host.output.shape[channel_axis(host)]
        return rw.constant(np.zeros(channels, host.output.type.element.numpy))
    return host.inputs[2]


def with_bias(host: Node, weights: Value, bias: Value, rw: Rewriter, *, origin: Sequence[Node],
              lower: float | None = None, upper: float | None = None) -> Value:
    """The host anew with other weights and bias, and other bounds if given."""
    name = {"convolution": "convolution_bias", "matmul": "matmul_bias"}.get(host.op.name, host.op.name)
    bounds = {key: v for key, v in (("lower", lower), ("upper", upper)) if v is not None}
    operands = (host.inputs[0], weights, bias, *host.inputs[3:])
    return rw.make(name, *operands, origin=origin, **{**host.attrs, **bounds})
