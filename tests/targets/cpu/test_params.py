"""The records of kernels: names in order, filled by name, and held against the kernels."""

from __future__ import annotations

import pytest

from ngraph_mxnet.ir import Builder
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.targets.cpu.kernels import ALL_KERNELS
from ngraph_mxnet.targets.cpu.microkernels.params import (
    CONTRACTION,
    CONTRACTIONS,
    DEPTHWISE_GRADIENTS,
    QUANTIZED_CONTRACTION,
    STRIDES,
    Operand,
)
from ngraph_mxnet.targets.cpu.params import KERNELS, Kernels
from ngraph_mxnet.targets.cpu.params.layout import PACK_CHANNELS, PACK_DEPTHWISE
from ngraph_mxnet.targets.cpu.params.strided import CHAIN_STEPS, ELEMENT_BYTES, STRIDED, WIDE_CODES


def test_every_kernel_is_declared() -> None:
    others = {*(f"depthwise3x3_s{stride}" for stride in STRIDES), "weight_gradient",
              "weight_gradient_bf16", "weight_gradient_bf16_amx",
              *(f"weight_gradient_depthwise_{side}" for side in DEPTHWISE_GRADIENTS)}
    assert set(KERNELS) == set(ALL_KERNELS) | set(CONTRACTIONS) | others


def test_declarations_are_the_kernels_own() -> None:
    for name, record in ALL_KERNELS.items():
        if record.expression is not None:
            elements, floats = STRIDED[name]
            sizes = [ELEMENT_BYTES[element] for element in (*record.inputs, record.output)]
            assert [ELEMENT_BYTES[element] for element in elements.split()] == sizes, name
            assert len(floats.split()) == record.parameters, name
        elif record.family == "wide":
            assert name in STRIDED, name
    operands = tuple(operand.name.lower() for operand in Operand)
    assert QUANTIZED_CONTRACTION.tensors == operands
    assert CONTRACTION.tensors == operands[:len(CONTRACTION.tensors)]
    assert QUANTIZED_CONTRACTION.ints == CONTRACTION.ints
    assert QUANTIZED_CONTRACTION.floats[:len(CONTRACTION.floats)] == CONTRACTION.floats


def test_names_do_not_repeat() -> None:
    for name, record in KERNELS.items():
        for names in (record.tensors, (*record.ints, *record.floats)):
            assert len(set(names)) == len(names), name
        assert 0 < record.sizes <= len(record.ints), name
        assert record.written and {*record.written, *record.optional} <= {*record.tensors}, name


def test_a_record_is_filled_by_name() -> None:
    params = PACK_CHANNELS(per_group=20, groups=2, stride=1, oc_tile=16)
    assert params.ints() == [2, 20, 16, 1] and params.floats() == [] and params.tasks == 4
    with pytest.raises(TypeError, match=r"pack_channels.*stride"):
        PACK_CHANNELS(groups=2, per_group=20, oc_tile=16)
    with pytest.raises(TypeError, match=r"pack_channels.*lanes"):
        PACK_CHANNELS(groups=2, per_group=20, oc_tile=16, stride=1, lanes=1)


def test_a_group_is_one_name() -> None:
    params = PACK_DEPTHWISE(channels=20, kernel=(3, 5), weights=[15, 5, 1])
    assert params.ints() == [20, 3, 5, 15, 5, 1]
    assert PACK_DEPTHWISE.ints == ("channels", "kernel.h", "kernel.w", "weights.channel", "weights.kh", "weights.kw")
    p = PACK_DEPTHWISE.read(params.ints())
    assert (p.channels, p.kernel.w, p.weights.kh) == (20, 5, 5) and PACK_DEPTHWISE.flat(p) == params.ints()
    with pytest.raises(TypeError, match=r"pack_depthwise.*Expected 2 arguments, got 3"):
        PACK_DEPTHWISE(channels=20, kernel=(1, 3, 5), weights=(15, 5, 1))


def test_strides_are_no_sizes() -> None:
    for name, record in KERNELS.items():
        for operand in filter(record.groups.get, {*record.tensors} & {*record.groups}):
            assert record.ints.index(f"{operand}.{record.groups[operand][0]}") >= record.sizes, (name, operand)


def test_instructions_print_names() -> None:
    b = Builder()
    x = b.parameter("x", (1, 16, 8, 8))
    pooled = b.max_pool(x, kernel=[3, 2], strides=[2, 2], pads_begin=[0, 0], pads_end=[0, 0])
    program = compile(b.results(pooled), "CPU")
    (text,) = (str(i) for i in program.main.instructions if i.name == "max_pool_blocked")
    assert "max_pool_blocked__" in text and " kernel.h=3 kernel.w=2 " in text and text.endswith(" tasks=3")


def test_numbers_of_ops_in_compiled_files_never_move() -> None:
    """A new op's number follows those of its kind."""
    unary = ("abs acos acosh asin asinh atan atanh cbrt ceiling cos cosh elu erf erfinv exp expm1 floor gamma gelu "
             "leaky_relu lgamma log log10 log1p log2 negative reciprocal relu round rsqrt sigmoid sign silu sin sinh "
             "softplus softsign sqrt square tan tanh trunc")
    comparisons = "equal greater greater_equal less less_equal not_equal"
    expected = {
        "unary_f64": unary, "unary_i64": "abs bitwise_not negative relu sign square",
        "binary_f64": "add atan2 divide gelu_gradient maximum minimum mod multiply power prelu subtract",
        "binary_i64": "add bitwise_and bitwise_or bitwise_xor divide divide_unsigned maximum minimum mod mod_unsigned "
                      "multiply power subtract",
        "compare_f64": comparisons, "compare_i64": comparisons,
        "chain": "identity abs negative sign sqrt square relu exp log sigmoid tanh silu gelu erf softplus rsqrt "
                 "reciprocal add subtract multiply divide maximum minimum",
    }
    for kernel, codes in {**WIDE_CODES, "chain": CHAIN_STEPS}.items():
        names = expected[kernel].split()
        assert [*codes][:len(names)] == names and [*codes.values()] == [*range(len(codes))], kernel


def test_declaring_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="twice"):
        Kernels("relu", tensors="a >o", ints="n", sizes=1, tasks=lambda p: p.n, reach=lambda p, size: [])


def test_what_is_not_declared_has_no_tasks() -> None:
    with pytest.raises(KeyError):
        KERNELS["reluu"]
