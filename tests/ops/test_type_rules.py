"""Operands and attributes that do not fit are refused with what was found and what was expected."""

from __future__ import annotations

import pytest

from ngraph_mxnet.base.errors import TypeRuleError
from ngraph_mxnet.ir import Builder

# op, operand types, attributes, the error's text
REFUSED = [
    ("exp", ["i32[2]"], {}, r"operand 0: found i32\[2\], expected f16, f32 or f64"),
    ("relu", ["bool[2]"], {}, "expected a number type"),
    ("relu", ["f32[2]", "f32[2]"], {}, "takes 1 operands, found 2"),
    ("logical_not", ["f32[2]"], {}, "expected bool"),
    ("clamp", ["f32[2]"], {"lower": 2, "upper": 1}, "found 2.0 and 1.0, expected lower <= upper"),
    ("clamp", ["f32[2]"], {"lower": float("nan"), "upper": 1}, "lower <= upper"),
    ("add", ["f32[2]", "f64[2]"], {}, r"operand 1: found f64\[2\], expected element type f32, as operand 0"),
    ("add", ["f32[2]", "f32[3]"], {}, r"found \[2\] and \[3\], expected shapes that broadcast"),
    ("add", ["f32[0]", "f32[3]"], {}, "shapes that broadcast"),
    ("atan2", ["i32[2]", "i32[2]"], {}, "expected f16, f32 or f64"),
    ("logical_and", ["f32[2]", "bool[2]"], {}, "operand 0"),
    ("equal", ["f32[2]", "bool[2]"], {}, "operand 1"),
    ("select", ["f32[2]", "f32[2]", "f32[2]"], {}, "operand 0: .* expected bool"),
    ("select", ["bool[2]", "f32[2]", "i32[2]"], {}, "operand 2: .* as operand 1"),
    ("reduce_sum", ["f32[2,3]"], {"axes": [2]}, "axis: found 2, expected an axis of rank 2"),
    ("reduce_sum", ["f32[2,3]"], {"axes": [1, -1]}, "distinct axes"),
    ("reduce_mean", ["i32[2]"], {"axes": [0]}, "operand 0"),
    ("reduce_max", ["f32[0,3]"], {"axes": [0]}, "elements along"),
    ("argmax", ["f32[0]"], {"axis": 0}, "elements along"),
    ("argmax", ["f32[]"], {"axis": 0}, "an axis of rank 0"),
    ("reshape", ["f32[2,3]"], {"shape": [7]}, r"found \[7\], expected the 6 elements"),
    ("reshape", ["f32[2,3]"], {"shape": [-1, 3]}, "shape"),
    ("reshape", ["f32[2,3]"], {"shape": [-2, -3]}, "shape"),
    ("transpose", ["f32[2,3]"], {"order": [0, 0]}, "a permutation"),
    ("transpose", ["f32[2,3]"], {"order": [1]}, "a permutation"),
    (
        "concat",
        ["f32[2,3]", "f32[3,3]"],
        {"axis": 1},
        r"operand 1: found f32\[3,3\], expected shape \[2, 3\]",
    ),
    ("concat", ["f32[2,3]", "f32[3]"], {"axis": 0}, "operand 1: .* expected rank 2"),
    ("concat", [], {"axis": 0}, "takes 1 to any number operands, found 0"),
    ("slice", ["f32[4]"], {"begin": [0], "end": [5]}, "normalised bounds in size 4"),
    ("slice", ["f32[4]"], {"begin": [-1], "end": [3]}, "normalised bounds"),
    ("slice", ["f32[4]"], {"begin": [0], "end": [4], "strides": [0]}, "normalised bounds"),
    ("slice", ["f32[4]"], {"begin": [4], "end": [0], "strides": [-1]}, "normalised bounds"),
    ("slice", ["f32[4]"], {"begin": [0, 0], "end": [4, 4]}, "an integer for each axis"),
    ("pad", ["f32[4]"], {"pads_begin": [-1]}, "1 integers of at least 0"),
    ("pad", ["f32[2]"], {"pads_begin": [2], "mode": "reflect"}, "at least 3 to pad by 2, reflect"),
    ("pad", ["f32[0]"], {"pads_begin": [2], "mode": "edge"}, "at least 1 to pad by 2, edge"),
    ("broadcast", ["f32[2]"], {"shape": [1]}, r"a shape that f32\[2\] broadcasts to"),
    ("broadcast", ["f32[2]"], {"shape": [2, 3]}, "broadcast"),
    ("gather", ["f32[2]", "f32[2]"], {}, "operand 1: .* an integer type"),
    ("gather", ["f32[0]", "i32[2]"], {}, "elements along 0"),
    ("matmul", ["f32[2]", "f32[2,2]"], {}, "operand 0: .* rank 2 or more"),
    ("matmul", ["f32[2,3]", "f32[2,3]"], {}, "inner dimensions: found 3 and 2, expected equal ones"),
    ("matmul", ["f32[2,2,3]", "f32[3,3,2]"], {}, "shapes that broadcast"),
    ("matmul", ["f32[2,3]", "f32[3,2]", "f32[3]"], {}, r"operand 2: .* shape \[2\]"),
    ("convolution", ["f32[1,2]", "f32[3,2]"], {}, "operand 0: .* rank 3 to 5"),
    ("convolution", ["f32[1,2,5]", "f32[3,3,1]"], {}, "channels of operand 1: found 3, expected 2"),
    ("convolution", ["f32[1,4,5]", "f32[3,2,1]"], {"groups": 2}, "a divisor of the channels 4 and 3"),
    ("convolution", ["f32[1,2,5]", "f32[3,2,1]"], {"groups": 0}, "groups: found 0"),
    ("convolution", ["f32[1,2,5]", "f32[3,2,3]"], {"dilations": [3]}, "found 3, dilated 7, expected 1 to"),
    (
        "convolution",
        ["f32[1,2,5]", "f32[3,2,1]"],
        {"strides": [1, 1]},
        "strides: .* 1 integers of at least 1",
    ),
    ("convolution", ["f32[1,2,5]", "f32[3,2,1]"], {"pads_end": [-1]}, "pads_end: .* at least 0"),
    ("convolution", ["f32[1,2,5]", "f32[3,2,1]", "f32[2]"], {}, r"operand 2: .* shape \[3\]"),
    ("convolution", ["f32[1,2,5]", "f32[3,2,1]", "f32[3]", "f32[3]"], {}, r"operand 3: .* \[1, 3, 5\]"),
    ("convolution", ["f32[1,2,5]", "f32[3,2,1]", "f32[3]", "f32[1,3,5]", "f32[3]"], {},
     "operands: found bias, residual, scale, expected scale and shift, or neither"),
    ("convolution", ["i32[1,2,5]", "i32[3,2,1]", "i32[3]"], {}, "operand 0: .* f16, f32 or f64"),
    ("matmul", ["i32[2,3]", "i32[3,2]"], {"lower": 0}, "operand 0: .* f16, f32 or f64"),
    ("rnn_gradient", ["f32[4,4]", *["f32[2,1,4]"] * 3], {"cell": "tanh"},
     r"operand 3: found f32.2,1,4., expected shape .1, 4."),
    ("rnn_gradient", ["f32[4,4]", *["f32[2,1,4]"] * 3], {}, "operands of lstm: found 4, expected 5 or 6"),
    ("rnn_gradient", ["f32[4,3]", *["f32[2,1,4]"] * 2, "f32[1,4]"], {"cell": "tanh"},
     "hidden state: found 3, expected 4"),
    ("rnn_gradient", ["f32[12,4]", *["f32[2,1,4]"] * 2, "f32[1,4]"], {"cell": "gru"},
     r"operand 1: found f32.2,1,4., expected shape .2, 1, 20."),
    ("max_pool", ["f32[1,2,5]"], {"kernel": [6]}, "at most the padded size 5"),
    ("max_pool", ["f32[1,2,5]"], {"kernel": [2, 2]}, "kernel: .* 1 integers"),
    ("max_pool", ["f32[1,2,5]"], {"kernel": [2], "pads_begin": [2]}, "each to overlap"),
    ("max_pool", ["f32[1,2,4]"], {"kernel": [2], "strides": [5], "rounding": "ceil"}, "each to overlap"),
    ("avg_pool", ["i32[1,2,5]"], {"kernel": [2]}, "operand 0"),
    ("batch_norm", ["f32[1,2,5]", *["f32[2]"] * 3, "f32[5]"], {}, r"operand 4: .* shape \[2\]"),
    ("batch_norm", ["f16[1,2,5]", *["f32[2]"] * 4], {}, "operand 1: .* element type f16"),
    ("scale_shift", ["f32[2]", "f32[2]", "f32[2]"], {}, "rank 2 or more"),
    ("layer_norm", ["f32[2,3]", "f32[2]", "f32[3]"], {}, r"operand 1: .* shape \[3\]"),
    ("softmax", ["f32[2]"], {"axis": 1}, "an axis of rank 1"),
    ("lrn", ["f32[1,2,3]"], {"size": 2}, "an odd positive integer"),
    ("dropout", ["f32[2]"], {"rate": 1.5}, "a number from 0 to 1"),
    ("random_mask", ["i32[2]"], {"shape": [3], "keep": 0.5}, r"operand 0: found i32.2., expected i32.4."),
    ("random_mask", ["i32[4]"], {"shape": [3], "keep": 1.5}, "keep: found 1.5, expected a number from 0 to 1"),
    ("random_mask", ["i32[4]"], {"shape": [3], "keep": 0.5, "stream": -1}, "stream: found -1"),
    ("random_uniform", ["i32[2]"], {"shape": [3]}, r"operand 0: found i32.2., expected i32.4."),
    ("random_mask", ["i32[4]"], {"shape": [1 << 20, 1 << 15], "keep": 0.5}, "shape: .* at most 17179869184 elements"),
]


@pytest.mark.parametrize(("op", "types", "attrs", "text"), REFUSED)
def test_refused(op: str, types: list[str], attrs: dict, text: str):
    b = Builder()
    operands = []
    for index, type_ in enumerate(types):
        element, dims = type_.removesuffix("]").split("[")
        operands.append(b.parameter(f"x{index}", [int(d) for d in dims.split(",") if d], element))
    with pytest.raises(TypeRuleError, match=text) as caught:
        b.apply(op, *operands, **attrs)
    assert str(caught.value).startswith(f"{op}(")
