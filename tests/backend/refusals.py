"""What each backend may refuse of the records in `tests/op_records.py`, and how it says why.

The suites of this folder hold the backends to it: what is refused and not listed here fails, and so does what is listed
and no longer refused. A backend that places nodes on others refuses what all of these refuse, no more and no less; it
has no list of its own.
"""

from __future__ import annotations

# backend: beginning of the reason, where {op} stands for the op's name: the ops with a case that is refused so.
REFUSALS: dict[str, dict[str, str]] = {
    "CPU": {
        # Kernels of f64 and integers are those of elementwise ops, reductions, products and movement.
        "{op} of f64 has no CPU kernel": """
            adaptive_avg_pool adaptive_avg_pool_gradient attention attention_gradient avg_pool batch_norm
            batch_norm_factors bilinear_sample box_nms convolution gru_cell gru_cell_gradient gru_cell_training
            gru_reset_first hard_swish layer_norm layer_norm_gradient log_softmax_pick log_softmax_pick_gradient lrn
            lstm_cell lstm_cell_gradient lstm_cell_training max_pool max_pool_gradient resize resize_gradient rnn
            rnn_gradient rnn_training roi_align roi_max_pool scale_shift
        """,
        # f16 and small integers are computed in f32, which does not hold these.
        "{op} of i32 has no CPU kernel": "convolution max_pool",
        "{op} of i64 has no CPU kernel": "max_pool",
        "{op} of u32 has no CPU kernel": "max_pool",
        "{op} of u64 has no CPU kernel": "max_pool power",
        # f16 too, where f32 would not run either: the reason names the element that was asked for.
        "{op} of f16 has no CPU kernel": "convolution",
        "{op} with data_dilations=": "convolution",
        "convolution with data_dilations=": "integer_convolution",
        "{op} with data_dilations has no CPU kernel": "quantized_convolution",
    },
    "INTERPRETER": {},
    "NNP-IA": {},
    "NNP": {
        "the device has no float64": """
            abs acos acosh adaptive_avg_pool adaptive_avg_pool_gradient add argmax argmin argsort asin asinh atan
            atan2 atanh attention attention_gradient avg_pool batch_norm batch_norm_factors batch_norm_gradient
            batch_norm_relu_gradient batch_norm_statistics batch_norm_training bilinear_sample bitcast box_nms
            broadcast cbrt ceiling clamp clamp_gradient concat convert convolution convolution_weight_gradient cos
            cosh cumsum divide dropout elu equal erf erfinv exp expm1 floor gamma gather gather_elements gather_nd
            gelu gelu_gradient greater greater_equal gru_cell gru_cell_gradient gru_cell_training gru_reset_first
            hard_swish identity layer_norm layer_norm_gradient leaky_relu less less_equal lgamma log log10 log1p log2
            log_softmax log_softmax_pick log_softmax_pick_gradient lrn lstm_cell lstm_cell_gradient lstm_cell_training
            matmul max_pool max_pool_gradient maximum
            minimum mod multiply negative not_equal own_gradient pad power prelu reciprocal reduce_max reduce_mean
            reduce_min reduce_prod reduce_sum relu reshape resize resize_gradient rnn rnn_gradient rnn_training
            roi_align roi_max_pool round rsqrt scale_shift scatter_nd select sigmoid sign silu sin sinh slice softmax
            softplus softsign sqrt square stop_gradient subtract tan tanh transpose trunc
        """,
        "the device computes with integers of at most 32 bits; those of 64 are positions": """
            abs add bitcast bitwise_and bitwise_not bitwise_or bitwise_xor ceiling clamp cumsum divide floor
            log_softmax_pick log_softmax_pick_gradient matmul max_pool maximum minimum mod multiply negative power
            reduce_max reduce_min reduce_prod reduce_sum relu round sign square subtract trunc
        """,
        "the matrix grid multiplies real numbers only": """
            convolution integer_convolution integer_matmul matmul quantized_convolution quantized_matmul
        """,
        "real numbers are stored in f16, whose bits are others": "bitcast",
    },
}

NEVER_RUN: dict[str, str] = {
    "NNP": "integer_convolution integer_matmul quantized_convolution quantized_matmul",
}
"""Of these ops no case runs; all are refused as the table says."""

PLACED: dict[str, tuple[str, ...]] = {"HYBRID": ("CPU", "NNP")}
"""Backends that place nodes on these."""

STEPS: dict[str, tuple[str, ...]] = dict.fromkeys(("HYBRID", "NNP"), ("floor", "argmax", "greater"))
"""Random graphs with these ops are not compared: a number that is rounded to f16 before gives quite another result.
Nothing of a random graph is refused, by any backend."""


def may_refuse(backend: str, op: str, reason: str) -> bool:
    """Whether the lists have it."""
    return any(reason.startswith(beginning.format(op=op)) and op in ops.split()
               for beginning, ops in REFUSALS[backend].items())


def entries() -> list[tuple[str, str, str]]:
    """Each entry as backend, op and the beginning of the reason."""
    return [(backend, op, beginning.format(op=op))
            for backend, reasons in REFUSALS.items() for beginning, ops in reasons.items() for op in ops.split()]
