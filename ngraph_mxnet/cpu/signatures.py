"""What each kernel of the kernel library takes: plain data, so that a program is checked without Numba.

A test holds it against the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ngraph_mxnet.cpu.abi import REDUCE_CODES, WIDE_CODES
from ngraph_mxnet.cpu.microkernels.depthwise_params import STRIDES, DepthwiseParams
from ngraph_mxnet.cpu.microkernels.params import FLOATS, INTS, Operand
from ngraph_mxnet.cpu.microkernels.variants import ISAS, Variant, variants

ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "bool": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4,
                 "u32": 4, "i64": 8, "u64": 8, "b1": 1, "b2": 2, "b4": 4, "b8": 8}
"""`b<size>` are elements of any type of that size."""


@dataclass(frozen=True)
class Signature:
    """How many operands, `ints` and `floats` a kernel reads at least.

    `sizes` of the first `ints` count something and are at least 1. `elements` are the operands' element bytes of a
    kernel of the strided convention, and empty for others.
    """

    operands: int
    ints: int
    floats: int
    sizes: int
    elements: tuple[int, ...] = ()

    def counts(self, name: str, ints: Sequence[int]) -> tuple[int, int]:
        """How many `ints` and `floats` it reads with these `ints`."""
        if name == "coordinate_positions":
            return self.ints + ints[0], self.floats
        if name == "pack_winograd":
            return self.ints, 3 * ints[2]
        return self.ints, self.floats


EXPRESSIONS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(
        "abs ceiling erf exp expm1 floor gelu log log1p negative reciprocal relu round rsqrt sigmoid sign softplus "
        "softsign sqrt square tanh trunc".split(), ("f32 f32", 0)),
    "elu": ("f32 f32", 1),
    "leaky_relu": ("f32 f32", 1),
    "clamp": ("f32 f32", 2),
    "hard_swish": ("f32 f32", 4),
    **dict.fromkeys("add divide maximum minimum multiply subtract".split(), ("f32 f32 f32", 0)),
    **dict.fromkeys(WIDE_CODES["compare_f64"], ("f32 f32 bool", 0)),
    **dict.fromkeys("logical_and logical_or logical_xor".split(), ("bool bool bool", 0)),
    "logical_not": ("bool bool", 0),
    "select": ("bool f32 f32 f32", 0),
}
"""Elements of the operands, the output's last, and how many `floats`, of the kernels that are named as their ops and
compute without a call of libm, which no loop around it survives as vector code."""

_STRIDED: dict[str, tuple[str, int]] = {
    **EXPRESSIONS,
    **dict.fromkeys("acos acosh asin asinh atan atanh cbrt cos cosh log10 log2 sin sinh tan identity".split(),
                    ("f32 f32", 0)),
    **dict.fromkeys(("mod", "power"), ("f32 f32 f32", 0)),
    "unary_f64": ("f64 f64", 2),
    "unary_i64": ("i64 i64", 2),
    "binary_f64": ("i64 f64 f64 f64", 0),
    "binary_i64": ("i64 i64 i64 i64", 0),
    "compare_f64": ("i64 f64 f64 bool", 0),
    "compare_i64": ("i64 i64 i64 bool", 0),
    **{f"{kind}_{size}": (elements.replace("b", f"b{size}").replace("?", "bool"), floats)
       for size in (1, 2, 4, 8)
       for kind, elements, floats in (("copy", "b b", 0), ("fill", "b", 1), ("select", "? b b b", 0))},
    **{f"convert_{a}_{b}": (f"{a} {b}", 0)
       for a in ("f32", "f64", "i32", "i64", "i8", "u8", "bool")
       for b in ("f32", "f64", "i32", "i64", "i8", "u8", "bool") if a != b},
    **{f"convert_{pair}": (pair.replace("_", " "), 0)
       for pair in ("f32_bf16 bf16_f32 f16_f32 f32_f16 i16_i64 u16_i64 u32_i64 i64_i16 u64_f64 u64_f32 "
                    "f64_u64").split()},
}
"""Likewise, of all kernels on the strided convention."""

_OTHERS: dict[str, tuple[int, int, int, int]] = {
    "attention": (5, 23, 2, 7),
    "box_nms": (4, 11, 2, 4),
    **dict.fromkeys(("scatter_f32", "scatter_f64", "scatter_i64"), (3, 3, 1, 3)),
    **{f"gather_{size}": (3, 6, 0, 5) for size in (1, 2, 4, 8)},
    **{f"scatter_{size}": (3, 3, 0, 3) for size in (1, 2, 4, 8)},
    "coordinate_positions": (2, 3, 0, 3),
    "element_positions": (2, 5, 0, 4),
    **dict.fromkeys(("to_blocked", "from_blocked"), (2, 12, 0, 4)),
    "zero_halo": (1, 8, 0, 3),
    **dict.fromkeys(("pack_contraction", "pack_contraction_bf16"), (2, 13, 0, 8)),
    "pack_depthwise": (2, 6, 0, 3),
    "pack_channels": (2, 4, 0, 3),
    **dict.fromkeys(("softmax", "log_softmax"), (2, 9, 0, 3)),
    "layer_norm": (4, 4, 1, 2),
    "batch_norm_factors": (6, 1, 1, 1),
    "lrn": (2, 8, 3, 4),
    **{f"{op}_{element}": (2, 5, 0, 3) for op in ("argsort", "first", "cumsum") for element in ("f32", "f64", "i64")},
    **dict.fromkeys(("max_pool_blocked", "max_pool_blocked_bf16", "avg_pool_blocked", "avg_pool_blocked_bf16",
                     "avg_pool_blocked_bf16_f32"), (2, 33, 0, 12)),
    **dict.fromkeys(("scale_shift_blocked", "scale_shift_blocked_bf16"), (4, 12, 2, 4)),
    **dict.fromkeys(("product_f64", "product_i64"), (3, 10, 0, 2)),
    **dict.fromkeys(("lstm_cell", "gru_cell", "relu_cell", "tanh_cell"), (5, 8, 0, 3)),
    **dict.fromkeys(REDUCE_CODES, (2, 25, 0, 5)),
    **dict.fromkeys(("reduce_f64", "reduce_i64"), (2, 25, 1, 5)),
    **{f"{op}{element}": (2, 8, 0, 3) for op in ("argmax", "argmin") for element in ("", "_f64", "_i64")},
    "resample_blocked": (6, 14, 0, 8),
    "bilinear_sample": (3, 5, 0, 5),
    "roi_align_blocked": (3, 14, 2, 7),
    "roi_max_pool_blocked": (3, 14, 1, 7),
    "pack_winograd": (2, 4, 0, 4),
    **dict.fromkeys(("winograd_input_2", "winograd_input_4"), (2, 15, 0, 4)),
    **dict.fromkeys(("winograd_output_2", "winograd_output_4"), (7, 21, 4, 4)),
    **{f"depthwise3x3_s{stride}": (4, len(DepthwiseParams.__dataclass_fields__), 6, 5) for stride in STRIDES},
}
"""Operands, `ints`, `floats`, and how many of the first ints are sizes."""

CONTRACTIONS: Mapping[str, Variant] = {
    f"contraction_{variant.name}": variant for isa in reversed(ISAS) for variant in variants(isa)}
"""By kernel; the largest tile is the instruction set's own."""


def _strided(elements: str, floats: int) -> Signature:
    sizes = tuple(ELEMENT_BYTES[element] for element in elements.split())
    return Signature(len(sizes), 7 + 5 * len(sizes), floats, 7, sizes)


SIGNATURES: dict[str, Signature] = {
    **{name: _strided(*row) for name, row in _STRIDED.items()},
    **{name: Signature(*row) for name, row in _OTHERS.items()},
    **dict.fromkeys(CONTRACTIONS, Signature(len(Operand), len(INTS), len(FLOATS), 8)),
}
"""By the kernel's name without the instruction set."""
