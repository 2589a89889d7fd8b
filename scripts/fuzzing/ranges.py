"""Changes to what files of compiled models have for ranges of sizes: any number of a Program."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from ngraph_mxnet.package.artefact import ISAS
from ngraph_mxnet.package.artefact_ranges import ArtefactRange, range_bytes, read_range
from ngraph_mxnet.package.program import Program

_NUMBERS = (0, 1, 2, 3, 7, 63, 64, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_SIZES = (*_NUMBERS, -1, -2, -64, 1 << 40, 1 << 46, (1 << 46) + 1, 1 << 62, (1 << 63) - 1, -(1 << 63))
_MOST_CHANGES = 3


def mutate(content: bytes, data: bytes, isa: int, random: Random) -> bytes:
    """A section RANGE with one to three other numbers. What can't be parsed or written stays."""
    try:
        found = read_range(ISAS[isa - 1], 0, memoryview(content), memoryview(data))
        for _ in range(random.randint(1, _MOST_CHANGES)):
            found = _changed(found, random)
        return range_bytes(found, _places(data))
    except (ArithmeticError, LookupError, struct.error, TypeError, ValueError):
        return content


def _places(data: bytes) -> Callable[[np.ndarray], int]:
    """Where arrays that were read from DATA lie in it."""
    first = np.frombuffer(data, np.uint8).__array_interface__["data"][0]

    def place(array: np.ndarray) -> int:
        return int(array.__array_interface__["data"][0]) - first if array.nbytes else 0

    return place


def _changed(found: ArtefactRange, random: Random) -> ArtefactRange:
    if random.random() < 0.1:
        symbols = [list(one) for one in found.symbols]
        random.choice(symbols)[random.choice((1, 2))] = random.choice(_NUMBERS)
        return replace(found, symbols=tuple((name, low, high) for name, low, high in symbols))
    programs = list(found.programs)
    place = random.randrange(len(programs))
    program, guards = programs[place]
    programs[place] = _changed_program(program, random), guards
    return replace(found, programs=programs)


def _changed_program(one: Program, random: Random) -> Program:
    kind = random.random()
    if kind < 0.3:  # a step
        steps = one.steps.copy()
        row, column = random.randrange(len(steps)), random.randrange(5)
        old = int(steps[row, column])
        steps[row, column] = random.choice((*_SIZES, *(8 * (old ^ 1, old ^ 2))))
        return replace(one, steps=steps)
    if kind < 0.7 and one.instructions:
        instructions = [_lists(each) for each in one.instructions]
        _change(random.choice(instructions)[1:8], random)
        return replace(one, instructions=instructions)
    field = random.choice(("loops", "inputs", "outputs", "buffers", "constants", "guards", "zeroing"))
    changed = _lists(getattr(one, field))
    _change(changed, random)
    return replace(one, **{field: changed})


def _lists(of: Any) -> Any:
    return [_lists(each) for each in of] if isinstance(of, (list, tuple)) else of


def _change(within: list[Any], random: Random) -> None:
    """Another number somewhere in the lists, or one less or more."""
    lists = [each for each in within if isinstance(each, list)]
    numbers = [place for place, each in enumerate(within) if type(each) is int]
    if numbers and (not lists or random.random() < 0.5):
        place = random.choice(numbers)
        within[place] = random.choice((*_NUMBERS, *(3 * (within[place] + 1, max(within[place] - 1, 0))),
                                       within[random.choice(numbers)]))
    elif lists:
        _change(random.choice(lists), random)
    elif within:
        within[:] = random.choice((within[:-1], [*within, within[0]]))


def sizes_of(symbols: Sequence[tuple[str, int, int]], random: Any) -> dict[str, int]:
    """Small values of symbols, mostly within their bounds."""
    return {name: int(min(max(low, random.integers(1, 9)), max(high, 1), 64)) for name, low, high in symbols}
