"""Random placement problems, and what all placements cost, computed another way."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from ngraph_mxnet.targets.hybrid.search import Item, Problem, Tensor

TIMES = st.one_of(st.just(0.0), st.integers(1, 40).map(lambda n: n * 1e-5), st.floats(1e-8, 1e-3))
"""Many are equal, so that ties occur."""


@st.composite
def problems(draw: st.DrawFn, most: int = 12, pins: bool = True, devices: int = 2) -> Problem:
    count = draw(st.integers(0, most))
    items = []
    for number in range(count):
        seconds = [draw(TIMES) for _ in range(devices)]
        banned = draw(st.sampled_from((None, None, None, None, *range(devices)))) if pins else None
        if banned is not None:
            seconds[banned] = float("inf")
        items.append(Item(f"item{number}", tuple(seconds)))
    tensors = []
    for producer in [None, None, *range(count), *range(0, count, 3)]:
        later = range(0 if producer is None else producer + 1, count)
        readers = tuple(sorted(draw(st.sets(st.sampled_from(later), max_size=4)))) if later else ()
        result = draw(st.integers(0, 3)) == 0
        tensors.append(Tensor(f"tensor{len(tensors)}", producer, readers, 4, of_each(draw, devices), result,
                              of_each(draw, devices) if devices > 2 else (), _memories(draw, devices)))
    return Problem(tuple(items), tuple(tensors), of_each(draw, devices), tuple(map(str, range(devices))))


def _memories(draw: st.DrawFn, devices: int) -> tuple[int, ...]:
    """Of some tensors: those of one memory for all devices, or for the last two."""
    return draw(st.sampled_from([(), (), (), (0,) * devices, (*range(devices - 1), devices - 2)]))


def of_each(draw: st.DrawFn, devices: int) -> tuple[float, ...]:
    return tuple(draw(TIMES) for _ in range(devices))


def all_placements(count: int, devices: int = 2) -> np.ndarray:
    """One a row."""
    return np.array(list(itertools.product(range(devices), repeat=count)), int).reshape(devices**count, count)


def serial_costs(problem: Problem, placements: np.ndarray) -> np.ndarray:
    """Of each row the seconds of serial execution, written down as the definition says it."""
    costs, devices = np.zeros(len(placements)), range(len(problem.launch))
    for number, item in enumerate(problem.items):
        costs += np.array(item.seconds)[placements[:, number]]
    for tensor in problem.tensors:
        here = np.zeros(len(placements), int) if tensor.producer is None else placements[:, tensor.producer]
        read = placements[:, list(tensor.readers)]
        memories = np.array(tensor.memories or devices)
        for to in devices:
            wanted = (read == to).any(axis=1) | (tensor.result and to == 0)
            leaving = np.array(tensor.leaving or [0.0] * len(devices))[here]
            costs += np.where((memories[here] != memories[to]) & wanted, leaving + tensor.crossing[to], 0)
    for device in devices:
        costs += np.where((placements == device).any(axis=1), problem.launch[device], 0)
    return costs
