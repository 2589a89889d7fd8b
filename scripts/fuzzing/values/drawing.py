"""What families draw with; draws shrink towards the first choice, the least number, and no."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]


def pick(draw: Draw, *choices: Any) -> Any:
    return draw(st.sampled_from(choices))


def integer(draw: Draw, least: int, most: int) -> int:
    return int(draw(st.integers(least, most)))


def chance(draw: Draw, one_in: int = 2) -> bool:
    """Whether something that happens once in so many times happens."""
    return bool(draw(st.sampled_from([False] * (one_in - 1) + [True])))


def some(draw: Draw, choices: Sequence[Any], least: int = 0) -> list[Any]:
    """Different ones, in order."""
    return [each for each in choices if chance(draw)] if least == 0 else (
        sorted(draw(st.sets(st.sampled_from(choices), min_size=least)), key=list(choices).index))


def generator(draw: Draw) -> np.random.Generator:
    """Elements of arrays come from here: they are not drawn one by one."""
    return np.random.default_rng(draw(st.integers(0, 2**16)))
