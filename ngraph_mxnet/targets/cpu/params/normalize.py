"""The records of softmax and the normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngraph_mxnet.targets.cpu.params.record import BLOCK, Kernels, Params, Span, span, whole
from ngraph_mxnet.targets.cpu.params.reduction import around


def _softmax_reach(p: Any, size: int) -> list[Span]:
    return [span("input", size, *zip(p[:3], p[3:6], strict=True)),
            span("output", size, *zip(p[:3], p[6:], strict=True))]


SOFTMAX = Kernels(
    "softmax log_softmax", tensors="input >output",
    ints="outer size inner in_outer in_axis in_inner out_outer out_axis out_inner", sizes=3,
    tasks=lambda p: p.outer * -(-p.inner // BLOCK), reach=_softmax_reach,
)
"""The last six are strides."""

LAYER_NORM = Kernels(
    "layer_norm", tensors="x gamma beta >output", ints="rows columns in_row out_row", sizes=2, floats="epsilon",
    tasks=lambda p: p.rows,
    reach=lambda p, size: [span("x", size, (p.rows, p.in_row), last=p.columns), ("gamma", 0, size * p.columns),
                           ("beta", 0, size * p.columns),
                           span("output", size, (p.rows, p.out_row), last=p.columns)],
)
"""A row is contiguous."""



def _layer_norm_gradient_reach(p: Any, size: int) -> list[Span]:
    return [*(span(name, size, (p.rows, getattr(p, f"{name}_row")), last=p.columns) for name in ("x", "head", "by_x")),
            whole("gamma", size, p.columns), whole("sums", size, -(-p.rows // p.chunk), 2, p.columns)]


LAYER_NORM_GRADIENT = Kernels(
    "layer_norm_gradient", tensors="x gamma head >by_x >sums", ints="rows columns chunk x_row head_row by_x_row",
    sizes=3, floats="epsilon", tasks=lambda p: -(-p.rows // p.chunk), reach=_layer_norm_gradient_reach,
)
"""A row is contiguous; a task has `chunk` of them. Sums: `[tasks][2][columns]`, of the rows of each task."""

BATCH_NORM_FACTORS = Kernels(
    "batch_norm_factors", tensors="gamma beta mean variance >scale >shift", ints="channels", sizes=1, floats="epsilon",
    tasks=lambda p: 1,
    reach=lambda p, size: [(name, 0, size * p.channels) for name in "gamma beta mean variance scale shift".split()],
)


def _lrn_reach(p: Any, size: int) -> list[Span]:
    return [span("input", size, (p.n, p.in_n), (p.c, p.in_c), last=p.inner),
            span("output", size, (p.n, p.out_n), (p.c, p.out_c), last=p.inner)]


LRN = Kernels("lrn", tensors="input >output", ints="n c inner size in_n in_c out_n out_c", sizes=4,
              floats="alpha beta bias", tasks=lambda p: p.n * p.c, reach=_lrn_reach)
"""The inner dimension (height times width) is contiguous."""


def softmax(shape: Sequence[int], axis: int) -> Params:
    """The parameters of a softmax of contiguous tensors."""
    n = around(shape, axis)
    outer = n["size"] * n["inner"]
    return SOFTMAX(**n, in_outer=outer, in_axis=n["inner"], in_inner=1, out_outer=outer, out_axis=n["inner"],
                   out_inner=1)
