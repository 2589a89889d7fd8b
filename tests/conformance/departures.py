"""Where MXNet is wrong, or has no defined result, at special points: what it does, and how we know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from math import isfinite, isnan
from typing import Any


@dataclass(frozen=True)
class Departure:
    """`ops`: patterns of operators. `points`: all when empty. `tensor`: a pattern of the tensor's name.
    `attrs`: those that it must have."""

    ops: Sequence[str]
    reason: str
    points: Sequence[str] = ()
    tensor: str = "*"
    attrs: Mapping[str, str] | None = None


_BEYOND = ("huge", "enormous")
_ENDLESS = ("infinities", "one infinity", "masks")
_SUMS = ("sum", "mean", "nansum", "norm", "moments", "_np_sum", "_npi_mean", "_npi_norm", "_npi_average", "_npi_var",
         "_npi_std", "_square_sum", "L2Normalization")
_STATISTICS = ("norm", "_npi_norm", "LayerNorm", "GroupNorm", "InstanceNorm", "BatchNorm", "_contrib_BatchNormWithReLU",
               "moments", "LRN", "_npi_var", "_npi_std", "L2Normalization")
_PRODUCTS = ("Convolution*", "Deconvolution", "FullyConnected", "dot", "batch_dot", "linalg_*", "_linalg_*",
             "_npi_*dot", "_npi_tensordot*", "_np_dot", "_npi_matmul", "_npi_einsum", "_contrib_interleaved_*", "RNN",
             "_contrib_DeformableConvolution", "_contrib_ModulatedDeformableConvolution",
             "khatri_rao", "_sg_mkldnn_*", "_contrib_*attention*")
DEPARTURES: tuple[Departure, ...] = (
    Departure(("Pooling", "Pooling_v1"), "MXNet starts a maximum at the lowest finite number, which no data hold; "
              "a window of NaN gives that, too", (*_ENDLESS, "NaN"), attrs={"pool_type": "max"}),
    Departure(("ROIPooling",), "as above", _ENDLESS),
    Departure(("_contrib_ROIAlign",), "whether a weight of 0 meets an infinite neighbour",
              (*_ENDLESS, *_BEYOND, "NaN")),
    Departure(("Pooling",), "as above, by default", (*_ENDLESS, "NaN"), attrs={"pool_type": "None"}),
    Departure(("LeakyReLU",), "MXNet's oneDNN takes 1 from an exponential, where the difference is the number itself, "
              "and with the 0 that comes out for positive numbers, too, it takes the slope of negative ones",
              ("tiny", "denormal"), attrs={"act_type": "elu"}),
    Departure(("softmax", "log_softmax", "softmin", "Softmax*", "softmax_cross_entropy", "masked_*softmax"),
              "inf - inf is NaN, and so is the sum of a row with an infinite element; what MXNet writes for the others "
              "depends on whether oneDNN computes them", _ENDLESS[:2]),
    Departure(_SUMS, "MXNet's compensated sums subtract infinities from each other", _ENDLESS),
    Departure(_STATISTICS, "MXNet's squares leave the range: by arithmetic the result is within it", _BEYOND),
    Departure(_PRODUCTS, "which products with padding's zeros are formed, and in which order sums leave the range, is "
              "the algorithm's: oneDNN's own differ by shape", (*_BEYOND, *_ENDLESS, "NaN")),
    Departure(("_random_pdf_*",), "a density with parameters outside its domain, or sums of logarithms in place of "
              "products of numbers beyond the range",
              ("corners", *_ENDLESS, *_BEYOND, "zeros", "tiny", "denormal")),
    Departure(("Pooling", "Pooling_v1"), "sums of numbers beyond the range, in another order", _BEYOND),
    Departure(("argsort", "sort", "topk"), "NaN comes last; MXNet leaves it in any order", ("NaN",)),
    Departure(("_npi_std", "_npi_var"), "MXNet squares in float32 what `dtype` wants in float64", ("tiny", "denormal"),
              attrs={"dtype": "float64"}),
    Departure(("LRN",), "oneDNN's sums reach other channels than the window's", (*_ENDLESS, "NaN")),
    Departure(("_npi_norm",), "of orders 1 and -1 MXNet multiplies a matrix norm's gradient by the head's twice: a "
              "head of 0.1257 gives 0.0158", tensor="the gradient*", attrs={"flag": "-1", "axis": "(0, 1)"}),
    Departure(("_npi_average",), "MXNet multiplies before it divides by the sum of weights: tiny products are 0",
              ("tiny", "denormal")),
    Departure(("_contrib_BatchNormWithReLU",), "the relu of NaN is NaN in both, and its gradient 0 here alone",
              (*_ENDLESS, "NaN"), tensor="the gradient*"),
    Departure(("*BatchNorm*",), "whether a mean of infinities is NaN depends on what is subtracted first",
              _ENDLESS, tensor="the state*"),
    Departure(("*BatchNorm*",), "a norm is factors for each channel: which products of infinities and zeros are formed "
              "differs", _ENDLESS),
    Departure(("*arccosh",), "MXNet's gradient squares x, beyond the range", _BEYOND, tensor="the gradient*"),
    Departure(("SpatialTransformer", "BilinearSampler", "GridGenerator"), "at whole pixels there are two gradients, "
              "and rounding decides which", ("corners", "ties", "zeros"), tensor="the gradient*"),
    Departure(("_contrib_AdaptiveAvgPooling2D",), "whether a weight of 0 meets an infinite neighbour", _ENDLESS),
    Departure(("_npi_*copysign*",), "MXNet compares with 0, by which -0 is positive and NaN negative; NumPy and C read "
              "the sign. At 0 the gradient is that of an absolute value", ("zeros", "NaN")),
    Departure(("_linalg_sumlogdiag",), "the reciprocal of a denormal number is infinite, a quotient by it need not be",
              ("denormal",), tensor="the gradient*"),
    Departure(("_npi_*ldexp*", "_contrib_quadratic"), "a product of the head's gradient and numbers beyond the range",
              ("enormous",), tensor="the gradient*"),
    Departure(("_npi_polyval",), "MXNet begins with 0 times x, which is NaN for an infinite x and NaN",
              (*_ENDLESS, "NaN")),
    Departure(("softmax", "softmin", "log_softmax"), "MXNet's gradient is made of the result, which is rounded to "
              "float16 by then", tensor="the gradient*", attrs={"dtype": "float16"}),
    Departure(("LayerNorm",), "of two elements the gradient is 0 but for eps: what comes out is what rounding leaves",
              ("as drawn",), tensor="the gradient*", attrs={"eps": "1e-12"}),
    Departure(("all_finite", "multi_all_finite"), "MXNet reads what its output held before: undefined in a graph",
              attrs={"init_output": "False"}),
    Departure(("UpSampling", "_contrib_BilinearResize2D", "SpatialTransformer", "BilinearSampler", "GridGenerator"),
              "whether a weight of 0 meets an infinite neighbour; what is outside", (*_ENDLESS, *_BEYOND, "NaN")),
    Departure(("LRN",), "MXNet's gradient has a quotient by the sum even where its power is 0, and the result the data",
              tensor="the gradient*", attrs={"beta": "0"}),
    Departure(("*div*", "*reciprocal*", "rcbrt", "rsqrt", "_npi_rtrue_divide_scalar"), "MXNet's gradients divide by "
              "the square of the divisor: 0 or infinite in float32, where the quotient of quotients is within range",
              (*_BEYOND, "tiny", "denormal"), tensor="the gradient*"),
)


def departure(op: str, attrs: Mapping[str, Any], point: str, tensor: str, ours: float, theirs: float) -> str | None:
    """Why this difference stands, if it does."""
    if point == "NaN" and isnan(ours) and not isnan(theirs):
        return "NaN goes through"
    if point in _BEYOND and isnan(theirs) and not isnan(ours):
        return "sums of numbers beyond the range: MXNet subtracts infinities from each other"
    if point in _BEYOND and isfinite(ours) and not isfinite(theirs):
        return "MXNet left the range on the way; the result is within it"
    for one in DEPARTURES:
        if (any(fnmatch(op, pattern) for pattern in one.ops) and (not one.points or point in one.points)
                and fnmatch(tensor, one.tensor)
                and all(str(attrs.get(name)) == value for name, value in (one.attrs or {}).items())):
            return one.reason
    return None
