"""Parsers for the texts of settings. Each function raises ValueError for a text that is not allowed."""

from __future__ import annotations

import math
from typing import NamedTuple


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value


def silence(text: str) -> float:
    """Seconds of which a few heartbeats fit into each."""
    value = float(text)
    if not 1 <= value < math.inf:
        raise ValueError(text)
    return value


def team(text: str) -> int:
    """OpenMP's list of nested team sizes, such as `4,2`: the outermost counts."""
    sizes = [positive(part) for part in text.split(",")]
    return sizes[0]


def axes_by_input(text: str) -> dict[str, tuple[int, ...]]:
    """Parse a text such as `data:0,2,3;mask:0`: the axes of each input, by name. Raises ValueError."""
    found: dict[str, tuple[int, ...]] = {}
    for part in text.split(";"):
        name, separator, axes = part.strip().rpartition(":")
        if not separator or not name or name in found:
            raise ValueError(text)
        found[name] = tuple(natural(axis) for axis in axes.split(","))
    return found


def dynamic(text: str) -> str | dict[str, tuple[int, ...]]:
    return text.lower() if text.lower() in ("auto", "off") else axes_by_input(text)


class Disturbance(NamedTuple):
    """A disturbance of compiled programs, for tests."""

    poison: bool = False
    seed: int | None = None
    """The seed by which the order of instructions is drawn."""

    def __str__(self) -> str:
        return ",".join(["poison"] * self.poison + [f"shuffle:{self.seed}"] * (self.seed is not None)) or "off"


UNDISTURBED = Disturbance()


def disturbance(text: str) -> Disturbance:
    """Parse `off`, `poison`, `shuffle:SEED`, or the last two with a comma between. Raises ValueError."""
    found = UNDISTURBED
    for part in text.lower().split(",") if text.lower() != "off" else ():
        kind, _, seed = part.partition(":")
        if kind == "shuffle" and found.seed is None:
            found = found._replace(seed=positive(seed))
        elif part == "poison" and not found.poison:
            found = found._replace(poison=True)
        else:
            raise ValueError(text)
    return found


class Calls(NamedTuple):
    """Which calls of a graph are meant: the first so many, and every so many, if that is not 0."""

    first: int
    every: int

    def has(self, number: int) -> bool:
        """True if the call of this number, from 0 on, is one of those meant."""
        return number < self.first or (self.every > 0 and number % self.every == 0)

    def __str__(self) -> str:
        return f"first:{self.first}" if self.first else "all" if self.every == 1 else f"every:{self.every}"


ALL_CALLS = Calls(0, 1)


def audited_calls(text: str) -> Calls:
    """Parse `all`, `first:N` or `every:N`."""
    kind, separator, count = text.lower().partition(":")
    if kind == "all" and not separator:
        return ALL_CALLS
    if kind not in ("first", "every"):
        raise ValueError(text)
    return Calls(positive(count), 0) if kind == "first" else Calls(0, positive(count))


class Bounds(NamedTuple):
    """The finite numbers from `low` to `high`, and infinite ones if `infinite`; NaN is out of all bounds."""

    low: float
    high: float
    infinite: bool

    def __str__(self) -> str:
        return "nan" if self == _FINITE else f"{self.low:g}:{self.high:g}"


_FINITE = Bounds(-math.inf, math.inf, False)


def bounds(text: str) -> Bounds:
    """Parse `nan` or `LOW:HIGH`."""
    if text.lower() == "nan":
        return _FINITE
    low, separator, high = text.partition(":")
    found = Bounds(float(low), float(high), float(low) == -math.inf and float(high) == math.inf)
    if not separator or not found.low <= found.high:  # NaN is in no order
        raise ValueError(text)
    return found
