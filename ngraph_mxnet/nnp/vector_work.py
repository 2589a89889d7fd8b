"""How many elementary operations, by class, an IR op takes on the vector unit.

The classes are those of `vector.cycles` in the device files. These are counts of a plain implementation, not of any
compiler's: one operation for each function applied to each element.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.ir.types import Shape

Counts = Counter[str]
Shapes = Sequence[Shape]
Rule = Callable[[Shapes, Shapes, Mapping[str, Any]], Mapping[str, float]]

# For each element of the first result.
_MOVES = "bitcast broadcast concat constant convert dropout identity pad reshape slice"
_SIMPLE = (
    "abs add bitwise_and bitwise_not bitwise_or bitwise_xor ceiling equal floor greater greater_equal less less_equal "
    "logical_and logical_not logical_or logical_xor maximum minimum multiply negative not_equal relu round select sign "
    "square subtract trunc"
)
_DIVIDES = "divide reciprocal rsqrt sqrt"
_TRANSCENDENTALS = (
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf erfinv exp expm1 gamma lgamma log log10 log1p log2 power "
    "sigmoid sin sinh softplus tan tanh"
)
_BY_RESULT: dict[str, dict[str, float]] = {
    **{name: {"move": 1} for name in _MOVES.split()},
    **{name: {"simple": 1} for name in _SIMPLE.split()},
    **{name: {"divide": 1} for name in _DIVIDES.split()},
    **{name: {"transcendental": 1} for name in _TRANSCENDENTALS.split()},
    **{name: {"gather": 1} for name in ("gather", "gather_elements", "gather_nd", "scatter_nd", "transpose")},
    "batch_norm": {"simple": 2},
    "batch_norm_factors": {"divide": 1, "simple": 4},
    "bilinear_sample": {"gather": 4, "simple": 8},
    "clamp": {"simple": 2},
    "cumsum": {"simple": 1},
    "elu": {"transcendental": 1, "simple": 2},
    "gelu": {"transcendental": 1, "simple": 3},
    "gru_cell": {"transcendental": 3, "simple": 7},
    "hard_swish": {"simple": 4},
    "leaky_relu": {"simple": 2},
    "lstm_cell": {"transcendental": 5, "simple": 7},
    "mod": {"divide": 1, "simple": 2},
    "scale_shift": {"simple": 3},
    "softsign": {"divide": 1, "simple": 2},
}
# For each element of the first operand.
_BY_OPERAND: dict[str, dict[str, float]] = {
    "adaptive_avg_pool": {"simple": 1},
    "argmax": {"simple": 2},
    "argmin": {"simple": 2},
    "argsort": {"sort": 1},
    "layer_norm": {"simple": 6},
    "log_softmax": {"simple": 4, "transcendental": 1},
    "reduce_max": {"simple": 1},
    "reduce_mean": {"simple": 1},
    "reduce_min": {"simple": 1},
    "reduce_prod": {"simple": 1},
    "reduce_sum": {"simple": 1},
    "softmax": {"simple": 4, "transcendental": 1},
}


def vector_work(op: str, attrs: Mapping[str, Any], operands: Shapes, results: Shapes) -> Counts:
    """Operations by class for IR op `op` on tensors of these shapes.

    Raises:
        NGraphError: the op has no rule here.
    """
    if op in _BY_RESULT:
        return _times(_BY_RESULT[op], prod(results[0]))
    if op in _BY_OPERAND:
        return _times(_BY_OPERAND[op], prod(operands[0]))
    if op not in _RULES:
        raise NGraphError(f"no count of operations for op {op!r}: add a rule to vector_work.py")
    return Counter(_RULES[op](operands, results, attrs))


def counted_ops() -> set[str]:
    """The IR ops that `vector_work` knows."""
    return {*_BY_RESULT, *_BY_OPERAND, *_RULES}


def _times(rates: Mapping[str, float], count: float) -> Counts:
    return Counter({name: rate * count for name, rate in rates.items()})


def _pool(operands: Shapes, results: Shapes, attrs: Mapping[str, Any]) -> Mapping[str, float]:
    return {"simple": prod(results[0]) * prod(attrs["kernel"])}


def _lrn(operands: Shapes, results: Shapes, attrs: Mapping[str, Any]) -> Mapping[str, float]:
    return _times({"simple": attrs["size"] + 3, "transcendental": 1}, prod(results[0]))


def _convolution(extra: int) -> Rule:
    def rule(operands: Shapes, results: Shapes, attrs: Mapping[str, Any]) -> Mapping[str, float]:
        return {"simple": prod(results[0]) * (prod(operands[1][1:]) + extra)}

    return rule


def _matmul(extra: int) -> Rule:
    def rule(operands: Shapes, results: Shapes, attrs: Mapping[str, Any]) -> Mapping[str, float]:
        inner = operands[0][-2 if attrs.get("transpose_a") else -1]
        return {"simple": prod(results[0]) * (inner + extra)}

    return rule


def _attention(operands: Shapes, results: Shapes, attrs: Mapping[str, Any]) -> Mapping[str, float]:
    queries, keys, values = operands[:3]
    scores = prod(queries[:-1]) * keys[-2]
    return {"simple": scores * (queries[-1] + values[-1] + 5), "transcendental": scores}


def _rnn(operands: Shapes, results: Shapes, attrs: Mapping[str, Any]) -> Mapping[str, float]:
    steps, (gates, inner) = prod(operands[0][:2]), operands[1]
    projection = prod(operands[5]) if len(operands) == 6 else 0
    return {"simple": steps * (gates * (inner + 2) + projection), "transcendental": steps * gates * 1.25}


def _resize(operands: Shapes, results: Shapes, attrs: Mapping[str, Any]) -> Mapping[str, float]:
    taps = 4 if attrs["mode"] == "bilinear" else 1
    return _times({"gather": taps, "simple": taps}, prod(results[0]))


def _regions(points: int) -> Rule:
    """`points` points of four pixels for each element of the result."""

    def rule(operands: Shapes, results: Shapes, attrs: Mapping[str, Any]) -> Mapping[str, float]:
        return _times({"gather": 4 * points, "simple": 4 * points}, prod(results[0]))

    return rule


def _nms(operands: Shapes, results: Shapes, attrs: Mapping[str, Any]) -> Mapping[str, float]:
    images, boxes = prod(operands[0][:-2]), operands[0][-2]
    kept = boxes if attrs["topk"] < 0 else min(boxes, attrs["topk"])
    return {"sort": images * boxes, "simple": images * kept * kept * 10, "move": prod(results[0])}


def _fused(operands: Shapes, results: Shapes, attrs: Mapping[str, Any]) -> Mapping[str, float]:
    total: Counts = Counter()
    for node in attrs["body"].nodes:
        total += vector_work(node.op.name, node.attrs, [v.shape for v in node.inputs], [v.shape for v in node.outputs])
    return total


_RULES: dict[str, Rule] = {
    "attention": _attention,
    "avg_pool": _pool,
    "box_nms": _nms,
    "convolution": _convolution(0),
    "convolution_bias": _convolution(3),
    "convolution_bias_add": _convolution(4),
    "convolution_bias_add_scale_shift": _convolution(7),
    "fused": _fused,
    "lrn": _lrn,
    "matmul": _matmul(0),
    "matmul_bias": _matmul(3),
    "max_pool": _pool,
    "resize": _resize,
    "rnn": _rnn,
    "roi_align": _regions(4),
    "roi_max_pool": _regions(4),
}
