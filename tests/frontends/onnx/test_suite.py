"""`onnx.backend.test`: each case gives ONNX's results, or is refused for a reason that stands in `exclusions.py`.

`onnxruntime_passes.txt` has the cases that ONNX Runtime passes, of which we pass 97 % at least.
"""

from __future__ import annotations

import re
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exclusions import BEGIN, DIFFERENT, END, REFUSED, table
from suite import Case, model_cases, node_cases

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.onnx.backend import prepare

DEVICES = ["CPU", "INTERPRETER"]
SAMPLE = 8
"""One case in so many runs by default."""
PAGE = Path(__file__).parents[3] / "docs" / "onnx.md"


def outcome(case: Case, device: str) -> str:
    """Empty if it gives the wanted results, else why it was refused.

    Raises:
        AssertionError: other results.
    """
    try:
        prepared = prepare(case.model, device, **({"threads": 1} if device == "CPU" else {}))
        found = [prepared.run(inputs) for inputs, _ in case.sets]
    except UnsupportedError as error:
        return str(error)
    for results, (_, wanted) in zip(found, case.sets, strict=True):
        assert len(results) == len(wanted), case.name
        for result, expected in zip(results, wanted, strict=True):
            check(result, expected, case)
    return ""


def check(result: Any, expected: Any, case: Case) -> None:
    if expected is None:
        assert result is None
    elif isinstance(expected, list):
        assert isinstance(result, list) and len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            check(one, other, case)
    else:
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(result, expected, rtol=max(case.relative, 1e-3), atol=max(case.absolute, 1e-7),
                                   err_msg=case.name)


def passed(cases: list[Case], device: str) -> set[str]:
    """Those that pass; the others are refused for a known reason."""
    reasons = {case.name: outcome(case, device) for case in cases if case.name not in DIFFERENT}
    unknown = {name: reason for name, reason in reasons.items()
               if reason and not any(re.search(row.pattern, reason) for row in REFUSED)}
    assert not unknown
    return {name for name, reason in reasons.items() if not reason}


@cache
def models() -> list[Case]:
    return list(model_cases())


@cache
def nodes() -> list[Case]:
    return node_cases()


@cache
def onnxruntime_passes() -> frozenset[str]:
    lines = (Path(__file__).parent / "onnxruntime_passes.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


@pytest.mark.parametrize("device", DEVICES)
def test_models(device: str) -> None:
    """All of PyTorch's pass; of the simple ones that ONNX Runtime passes all without strings."""
    left = (names(models()) & onnxruntime_passes()) - passed(models(), device)
    assert all("strnorm" in name for name in left), left


@pytest.mark.parametrize("device", DEVICES)
def test_some_nodes(device: str) -> None:
    some = [case for case in nodes() if zlib.crc32(case.name.encode()) % SAMPLE == 0]
    wanted = names(some) & onnxruntime_passes()
    assert len(passed(some, device) & wanted) >= 0.9 * len(wanted) > 50


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_all(device: str) -> None:
    """97 % of what ONNX Runtime passes."""
    wanted, found = onnxruntime_passes(), passed([*nodes(), *models()], device)
    assert wanted <= names(nodes()) | names(models()), "the list is of another onnx"
    print(f"{device}: {len(found & wanted)} of {len(wanted)}, {len(found)} of {len(nodes()) + len(models())} cases")
    assert len(found & wanted) >= 0.97 * len(wanted)


@pytest.mark.parametrize("device", DEVICES)
def test_quantised_nodes(device: str) -> None:
    """All of the quantised operators, but for element types that the IR lacks."""
    some = [case for case in nodes() if re.search(r"quantize|qlinear|integer", case.name)]
    left = names(some) - passed(some, device)
    assert len(some) > 40 and all(re.search(r"_(e4m3fn|e5m2|float4e2m1|u?int[24])", name) for name in left), left


def names(cases: list[Case]) -> set[str]:
    return {case.name for case in cases}


def test_the_page_says_what_is_refused() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text[text.index(BEGIN) : text.index(END) + len(END)] == table(), "put exclusions.table() into docs/onnx.md"
