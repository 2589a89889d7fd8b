"""How far outputs are off, and how a script ends that has compared them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any


def difference(found: Any, expected: Any) -> float:
    """The largest of two arrays' elements, relative to the largest value that is expected."""
    return float(abs(found - expected).max() / abs(expected).max())


def status(differences: Iterable[float], tolerance: float) -> int:
    """The script's exit status: 1, and a message, if outputs differ by more; NaN is more."""
    wrong = [number for number in differences if not number <= tolerance]
    if wrong:
        print(f"error: outputs differ by {max(wrong):.1e}", file=sys.stderr)
    return int(bool(wrong))
