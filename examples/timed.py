"""How long a call takes, for the examples."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def median_ms(call: Callable[[], Any], rounds: int = 300) -> float:
    """Of calls that wait for their result, behind some that don't count."""
    for _ in range(20):
        call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * sorted(times)[rounds // 2]
