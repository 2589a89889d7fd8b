"""Operators that run at inference and are not trained here, each with the reason."""

from __future__ import annotations

import re

from ngraph_mxnet.bridges.mxnet.symbols.aliases import canonical

_ODD = "MXNet's own gradient is not that of what it computes"

#: By a pattern of names; the first that matches counts.
_LEFT: dict[str, str] = {
    r"_contrib_(quantize|dequantize|requantize|quantized_).*|_contrib_quantize_v2|_sg_mkldnn_.*":
        "MXNet has no gradients of quantised and fused graphs",
    r"_npi_(rarctan2_scalar|where_lscalar|where_rscalar|var|std)|_np_atleast_[123]d": _ODD,
    r"Convolution_v1|BatchNorm_v1": "it is an older form, whose gradient is another",
    r"_foreach|_while_loop|_cond": "MXNet records what its bodies do, trip by trip, and goes back through that",
    r"_contrib_SyncBatchNorm": "its statistics are those of several devices",
    r"IdentityAttachKLSparseReg": "its gradient depends on a moving average that it hides",
}


def why_not_trained(op: str) -> str | None:
    """Why an operator of this name is not trained; None when no reason is on record."""
    name = canonical(op)
    return next((reason for names, reason in _LEFT.items() if re.fullmatch(names, name)), None)
