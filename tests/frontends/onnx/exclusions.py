"""What of `onnx.backend.test` we do not pass, and why: a pattern of the error's text, and the words of docs/onnx.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Exclusion:
    pattern: str
    what: str
    why: str


REFUSED = [
    Exclusion(r"element type string|a constant of strings|pool of strings|strings are no element",
              "strings", "no element type of the IR; `Tokenizer`s and label encoders run before and after a model"),
    Exclusion(r"element type (bfloat16|u?int[24]|float[48]\w*|complex\d+)",
              "bfloat16, float8, float4, int4, int2, complex numbers", "no element types of the IR"),
    Exclusion(r"is a (map|sparse_tensor|sequence)|sparse initialisers", "maps, sparse tensors, sequences of sequences",
              "the IR has dense tensors only"),
    Exclusion(r"no rule for the operator ai\.onnx\.(ml|preview)", "most of `ai.onnx.ml`, training operators",
              "inference of neural networks; Binarizer, ArrayFeatureExtractor and TreeEnsemble are there"),
    Exclusion(r"training_mode is on", "Dropout that drops", "random, see below"),
    Exclusion(r"random numbers", "random numbers", "the result differs from call to call"),
    Exclusion(r"the IR has no op for it yet|no rule for the operator", "ImageDecoder", "not lowered yet"),
    Exclusion(r"axis: supported: the elements of the flat tensor", "Unique along an axis", "not lowered yet"),
    Exclusion(r"mode='max'; supported: avg", "RoiAlign of the greatest", "not lowered yet"),
]

DIFFERENT = {
    # Rounded to f16 in another order, beyond a tolerance made for f32.
    "test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded",
    # ONNX says of negative shifts that they are undefined; its own reference differs from what C does on x86.
    "test_bitshift_right_int8_negative_shift", "test_bitshift_left_int8_negative_shift",
    "test_bitshift_right_int32_negative_shift", "test_bitshift_left_int32_negative_shift",
    # Its indices are those of a smaller tensor than `output_shape`, so that it is not what MaxPool goes back to.
    "test_maxunpool_export_with_output_shape",
}
"""Cases whose results differ from ONNX's."""

BEGIN, END = "<!-- refused: begin -->", "<!-- refused: end -->"


def table() -> str:
    """As it stands in docs/onnx.md, between `BEGIN` and `END`."""
    rows = [f"| {exclusion.what} | {exclusion.why} |" for exclusion in REFUSED]
    return "\n".join([BEGIN, "| what | why |", "|---|---|", *rows, END])
