"""The cyclic garbage collector during a compilation."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No collection within it: a graph under work is all alive, and walking it over and over takes a fifth of the time.

    For the whole process. The first of several threads to leave ends it for all.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
