"""The numbers by which lowering chooses. They are no device's, and all are guesses: none is published or measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any


def _guess(usual: Any, unit: str, meaning: str, *others: Any) -> Any:
    """A field; `others` are the values that a study of sensitivity takes in its place."""
    return field(default=usual, metadata={"unit": unit, "meaning": meaning, "others": others})


@dataclass(frozen=True)
class Guesses:
    """What lowering takes for granted. No result depends on them, but the simulated time does."""

    engine_seconds: float = _guess(
        2e-6, "s", "shards.py: what it costs to spread a node over all engines; over half of them, half. Small nodes "
        "stay on few", 1e-6, 4e-6)
    tile_seconds: float = _guess(
        5e-7, "s", "tiles.py: what a tile costs beside its bytes, to start its copies and instructions", 2.5e-7, 1e-6)
    tile_shares: tuple[float, ...] = _guess(
        (0.85, 0.6, 0.4, 0.2), "of the engine's free memory", "lowering.py: what tiles may take, two of each stream at "
        "once; tried in turn, as gaps may be in the way of larger ones", (0.425, 0.3, 0.2, 0.1), (0.95, 0.6, 0.4, 0.2))
    last_share: float = _guess(
        0.95, "of the engine's free memory", "lowering.py: the same where nothing else fits, with one tile of each "
        "stream", 0.475, 1.0)
    result_share: float = _guess(
        0.7, "of the engine's free memory", "emission.py: the largest result that stays there while its tiles' "
        "operands come and go", 0.35, 0.95)
    shared_elements: int = _guess(
        4096, "elements", "lowering.py: the smallest weight in DRAM of which a copy in the LLC serves several engines",
        2048, 8192)
    pieces: int = _guess(
        16, "pieces", "views.py: into how many a piece may fall by a reshape; beyond, the value is put together first",
        8, 32)


def variations(usual: Guesses) -> Iterator[tuple[str, Guesses]]:
    """Each guess in turn at its other values, with the words for it."""
    for each in fields(usual):
        for other in each.metadata["others"]:
            yield f"lowering's {each.name} = {other} {each.metadata['unit']}", replace(usual, **{each.name: other})
