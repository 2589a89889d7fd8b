"""`scripts/outputs.py`: how scripts end that compare outputs."""

from __future__ import annotations

import math

import numpy as np
import outputs
import pytest


def test_difference() -> None:
    assert outputs.difference(np.array([1.0, -4.5]), np.array([1.5, -5.0])) == 0.1
    assert math.isnan(outputs.difference(np.array([1.0, math.nan]), np.array([1.0, 2.0])))


@pytest.mark.parametrize(("differences", "says"), [
    ([], ""),
    ([1e-5, 1e-4], ""),
    ([1e-5, 2e-3, 1e-3], "error: outputs differ by 2.0e-03\n"),
    ([1e-5, math.nan, 1e-5], "error: outputs differ by nan\n"),
])
def test_status(differences: list[float], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert outputs.status(differences, 1e-4) == int(bool(says))
    assert capsys.readouterr().err == says
