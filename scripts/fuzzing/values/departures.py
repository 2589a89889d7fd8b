"""Where a judge is wrong, or says something else on purpose, and how we know."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import onnx
from onnx import helper

from fuzzing.values.closeness import WrongError
from fuzzing.values.trials import Trial


@dataclass(frozen=True)
class Departure:
    """`ops`: operators of which one must be in the trial. `holds`: what else must be so. `proof`: why ours is right."""

    name: str
    against: str
    ops: tuple[str, ...]
    proof: str
    holds: Callable[[Trial, WrongError], bool] = lambda trial, error: True


def _skips_elements(trial: Trial) -> bool:
    """Whether a node is padded to the same size whose windows are smaller than their stride."""
    for node in onnx.load_model_from_string(trial.model).graph.node:
        attrs = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        sizes = zip(attrs.get("kernel_shape", ()), attrs.get("strides", ()), strict=False)
        if attrs.get("auto_pad", b"").startswith(b"SAME_") and any(size < stride for size, stride in sizes):
            return True
    return False


def _distance(error: WrongError) -> float:
    """Between the numbers that the error tells; infinite where it tells none."""
    told = re.search(r"found ([-+.\de]+), expected ([-+.\de]+)$", error.detail)
    return abs(float(told[1]) - float(told[2])) if told is not None else inf


_ENDS = (2**31 - 1, -2**31, 2**63 - 1, -2**63)

DEPARTURES: tuple[Departure, ...] = (
    Departure("transposed convolution padded to multiples of its stride", "ONNX Runtime", ("ConvTranspose",),
              "ONNX's text: of auto_pad SAME the output's size is the input's times the stride. ONNX Runtime gives "
              "less where the kernel is smaller than the stride, for it takes no negative padding.",
              lambda trial, error: b"SAME_" in trial.model and "found float32[" in error.detail),
    Departure("logarithms of sums of exponentials of integers", "ONNX Runtime", ("ReduceLogSumExp",),
              "Of -8 and -1 it is -0.9991, which is 0 when it is cut off. ONNX Runtime says -1: it cuts the logarithm "
              "off before it adds the largest element.",
              lambda trial, error: ", int" in error.detail),
    Departure("the same size from windows below their stride", "ONNX Runtime", ("AveragePool", "LpPool"),
              "Of 0 to 3, by windows of 1 and a stride of 4, ours takes the first element for auto_pad SAME, as ONNX's "
              "evaluator does in Conv: no less than 0 is padded. ONNX Runtime cuts data off in these, in MaxPool it "
              "refuses to, and of a stride of 3 of 3 its Conv takes the first, too.",
              lambda trial, error: _skips_elements(trial)),
    Departure("sums and products of integers beyond their type", "ONNX Runtime",
              ("ReduceProd", "ReduceSum", "ReduceSumSquare", "ReduceL1"),
              "Of 64 elements that are 3 the product is 2038349057 in int32, as NumPy has it, by which ONNX's own "
              "evaluator computes. ONNX Runtime 1.32 gives the type's end.",
              lambda trial, error: any(f"expected {end}" in error.detail for end in _ENDS)),
    Departure("infinities where nothing is clipped", "ONNX Runtime", ("Clip",),
              "By ONNX's text a bound that is not given is the type's lowest or largest number, to which ONNX Runtime "
              "turns an infinity; ours lets it through, as what PyTorch and NumPy clip (docs/onnx.md).",
              lambda trial, error: "found inf" in error.detail or "found -inf" in error.detail),
    Departure("align_corners where scales make no whole length", "ONNX Runtime", ("Resize",),
              "ONNX's own suite (resize_downsample_scales_linear_align_corners) takes the length with its fraction, "
              "2.4 of 4 times 0.6; ONNX Runtime, which leaves that test out, takes 2.",
              lambda trial, error: b"align_corners" in trial.model),
    Departure("cubic interpolation beyond the border", "ONNX Runtime", ("GridSample",),
              "ONNX's evaluator moves a place outside of the image to its border, and then interpolates, as ours does. "
              "ONNX Runtime 1.32 interpolates at the place itself, among pixels that are moved one by one, and so "
              "overshoots within two pixels of the border.",
              lambda trial, error: b"cubic" in trial.model and b"border" in trial.model),
    Departure("sigmoids below 1e-5", "ONNX Runtime", ("Sigmoid",),
              "Of -13.0046 it is 2.24995e-6; ours is 2.24985e-6, ONNX Runtime 1.32's, a quotient of polynomials, "
              "2.1756e-6: it is off by some 1e-7 there, as beside 1, where that is the last place.",
              lambda trial, error: _distance(error) < 2e-7),
    Departure("signs of NaN in float16", "ONNX Runtime", ("Sign",),
              "NaN in float32 and float64, in ONNX Runtime too; in float16 it compares, and says 0.",
              lambda trial, error: "float16" in error.detail and "found nan, expected 0.0" in error.detail),
    Departure("weights of n-grams in another order", "ONNX Runtime", ("TfIdfVectorizer",),
              "ONNX's reference evaluator, which tests/frontends/onnx/test_against_reference.py asks, takes them by "
              "the column of the result. ONNX Runtime takes them by the place in the pool."),
)


def known(trial: Trial, error: BaseException) -> str | None:
    """The name of the departure that explains the error."""
    if not isinstance(error, WrongError):
        return None
    return next((row.name for row in DEPARTURES if row.against == error.against and set(row.ops) & set(trial.ops)
                 and row.holds(trial, error)), None)
