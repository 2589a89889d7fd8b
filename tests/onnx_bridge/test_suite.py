"""`onnx.backend.test`: each case gives ONNX's results, or is refused for a reason that stands in `REFUSED`."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from suite import Case, model_cases, node_cases

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.onnx_bridge.backend import prepare

REFUSED = {
    # The IR is of dense tensors of numbers and bool.
    r"element type (string|bfloat16|u?int[24]|float[48]\w*|complex\d+)": "no element type of the IR",
    r"is a (sequence|optional|map|sparse_tensor)": "no tensor",
    r"Sequence|Optional|a constant of strings|StringNormalizer|StringConcat|RegexFullMatch": "no tensors of numbers",
    r"ai\.onnx\.ml": "classical machine learning",
    r"training": "training",
    r"random numbers": "its result differs from call to call",
    # Shapes are static.
    r"the shape of its result depends on the data": "shapes are known when a model is compiled",
    r"the condition depends on the data, and the branches' results differ": "shapes are known when a model is compiled",
    r"it must be known at compile time": "shapes are known when a model is compiled",
    # Not lowered yet.
    r"the IR has no op for it yet|no rule for the operator": "not lowered yet",
    r"reduction='|block_size=|output Indices is read|Scan of opset 8|operator set version [0-5],": "not lowered yet",
    r"power\(i(32|64)\[|reduce_(max|min)\(.*,0": "not lowered yet",
}
NO_KERNEL = r"backend CPU does not run"
"""What only the interpreter runs: unsigned integers and those of 16 bits, and f16 and f64 where they meet matrix
 products, pools and normalisations."""
DIFFERENT = {
    # Rounded to f16 in another order, beyond a tolerance made for f32.
    "test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded",
    # ONNX says of negative shifts that they are undefined; its own reference differs from what C does on x86.
    "test_bitshift_right_int8_negative_shift", "test_bitshift_left_int8_negative_shift",
    "test_bitshift_right_int32_negative_shift", "test_bitshift_left_int32_negative_shift",
}


def outcome(case: Case, device: str) -> str:
    """Empty if it gives the wanted results, else why it was refused.

    Raises:
        AssertionError: other results.
    """
    try:
        prepared = prepare(case.model, device)
        found = [prepared.run(inputs) for inputs, _ in case.sets]
    except UnsupportedError as error:
        return str(error)
    for results, (_, wanted) in zip(found, case.sets, strict=True):
        assert len(results) == len(wanted)
        for result, expected in zip(results, wanted, strict=True):
            assert result.dtype == expected.dtype
            np.testing.assert_allclose(result, expected, rtol=max(case.relative, 1e-3), atol=max(case.absolute, 1e-7))
    return ""


def refused(reason: str, device: str) -> bool:
    return any(re.search(pattern, reason) for pattern in [*REFUSED, *([NO_KERNEL] if device == "CPU" else [])])


@cache
def models() -> dict[str, Case]:
    return {case.name: case for case in model_cases()}


@pytest.mark.parametrize("device", ["CPU", "INTERPRETER"])
def test_models(device: str) -> None:
    """All of PyTorch's pass; of the simple ones those without strings and sequences."""
    passed = []
    for name, case in models().items():
        reason = outcome(case, device)
        assert not reason or refused(reason, device), (name, reason)
        passed += [] if reason else [name]
    assert len(passed) >= 124, len(passed)


@pytest.mark.slow
@pytest.mark.parametrize(("device", "least"), [("CPU", 1340), ("INTERPRETER", 1450)])
def test_nodes(device: str, least: int) -> None:
    passed = []
    for case in node_cases():
        if case.name in DIFFERENT:
            continue
        reason = outcome(case, device)
        assert not reason or refused(reason, device), (case.name, reason)
        passed += [] if reason else [case.name]
    assert len(passed) >= least, len(passed)
