"""What is tried: a model, the arrays of its calls, and a setup, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fuzzing.values.closeness import Closeness
from fuzzing.values.drawing import Draw
from fuzzing.values.setups import Setup

Feeds = dict[str, Any]
"""Arrays by input."""


@dataclass(frozen=True)
class Trial:
    """`kind` is a key of `kinds.KINDS` and says what `model` is and how it runs; `notes` are what the kind needs, too.
    `ops` are the operators in it, for whoever reads a finding."""

    kind: str
    model: bytes
    calls: list[Feeds]
    setup: Setup
    closeness: Closeness
    ops: tuple[str, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> tuple[int, int, int]:
        """By which the smaller of two is known."""
        elements = sum(getattr(array, "size", 1) for feeds in self.calls for array in feeds.values())
        return len(self.ops), len(self.calls) + len(self.setup.options) + len(self.setup.environment), elements


_Drawn = Callable[[Draw], Trial]


@dataclass(frozen=True)
class Family:
    """`weight`: its share of all trials. `seconds`: the limit for one trial, of the CPU."""

    name: str
    draw: Callable[[Draw], Trial]
    weight: int = 4
    seconds: int = 60


FAMILIES: dict[str, Family] = {}


def family(name: str, weight: int = 4, seconds: int = 60) -> Callable[[_Drawn], _Drawn]:
    """Register the decorated function, which draws a trial."""

    def declare(drawn: _Drawn) -> _Drawn:
        if name in FAMILIES:
            raise ValueError(f"two families are called {name}")
        FAMILIES[name] = Family(name, drawn, weight, seconds)
        return drawn

    return declare
