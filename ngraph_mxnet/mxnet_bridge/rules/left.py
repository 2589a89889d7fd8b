"""Operators that stay with MXNet on purpose, each with the reason that `explain` prints."""

from __future__ import annotations

import re

from ngraph_mxnet.mxnet_bridge.aliases import canonical

_BODIES = "its bodies are graphs that MXNet runs operator by operator: backends partition only the graph around"

LEFT: dict[str, str] = {
    "Correlation": "a search over displacements, which only optical-flow nets use",
    "Custom": "it calls the user's own Python code",
    "_cond": _BODIES,
    "_foreach": _BODIES,
    "_while_loop": _BODIES,
}

_RANDOM = ("bernoulli|choice|exponential|gamma|gumbel|logistic|multinomial|normal|normal_n|pareto|rayleigh|uniform"
           "|uniform_n|weibull")

#: Of whole groups: what names match, and why they stay. The first that matches counts.
KINDS: dict[str, str] = {
    rf"_random_(?!pdf_).*|_sample_.*|_shuffle|_npi_({_RANDOM})":
        "it draws random numbers, whose sequence must be that of MXNet's own generator",
    r".*_update(_phase[12])?|multi_lars|multi_sum_sq|(multi_)?all_finite|reset_arrays|_contrib_backward_.*"
    r"|_npi_backward_.*|.*_backward|_grad_add|_contrib_(hawkesll|gradientmultiplier|round_ste|sign_ste)|IdentityAttachKLSparseReg":
        "it is for training",
    r"_contrib_boolean_mask|_npi_(unique|bincount|delete|boolean_mask_.*)|_npx_nonzero|_contrib_getnnz":
        "the shape of its result depends on values",
    r"_contrib_(quantize|dequantize|requantize|quantized_|calibrate_).*": "int8 inference is not supported",
    r"_sg_mkldnn_.*": "MXNet's MKLDNN backend made it",
    r"cast_storage|_sparse_retain|_square_sum|_contrib_(SparseEmbedding|edge_id|dgl_.*)":
        "it works on sparse arrays",
    r"_image_.*|_cv.*|_imdecode": "it prepares images, before the model",
    r"_linalg_(gelqf|potrf|potri|syevd|inverse|det|slogdet)|_npi_(cholesky|svd|eig.*|pinv.*|solve|tensorsolve|tensorinv)":
        "it factorizes matrices, for which MXNet has LAPACK",
}  # fmt: skip


def why_left(op: str) -> str | None:
    """Why the operator of this name stays with MXNet; None when no reason is on record."""
    name = canonical(op)
    return LEFT.get(name) or next((reason for names, reason in KINDS.items() if re.fullmatch(names, name)), None)
