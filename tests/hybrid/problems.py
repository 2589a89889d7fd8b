"""Random placement problems, and what all placements cost, computed another way."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from ngraph_mxnet.hybrid.problem import Item, Problem, Tensor

TIMES = st.one_of(st.just(0.0), st.integers(1, 40).map(lambda n: n * 1e-5), st.floats(1e-8, 1e-3))
"""Many are equal, so that ties occur."""


@st.composite
def problems(draw: st.DrawFn, most: int = 12, pins: bool = True) -> Problem:
    count = draw(st.integers(0, most))
    items = []
    for number in range(count):
        seconds = [draw(TIMES), draw(TIMES)]
        banned = draw(st.sampled_from((None, None, None, None, 0, 1))) if pins else None
        if banned is not None:
            seconds[banned] = float("inf")
        items.append(Item(f"item{number}", (seconds[0], seconds[1])))
    tensors = []
    for producer in [None, None, *range(count), *range(0, count, 3)]:
        later = range(0 if producer is None else producer + 1, count)
        readers = tuple(sorted(draw(st.sets(st.sampled_from(later), max_size=4)))) if later else ()
        result = draw(st.integers(0, 3)) == 0
        tensors.append(Tensor(f"tensor{len(tensors)}", producer, readers, 4, (draw(TIMES), draw(TIMES)), result))
    return Problem(tuple(items), tuple(tensors), (draw(TIMES), draw(TIMES)))


def all_placements(count: int) -> np.ndarray:
    """One a row."""
    return np.array(list(itertools.product((0, 1), repeat=count)), int).reshape(2**count, count)


def serial_costs(problem: Problem, placements: np.ndarray) -> np.ndarray:
    """Of each row the seconds of serial execution, written down as the definition says it."""
    costs = np.zeros(len(placements))
    for number, item in enumerate(problem.items):
        costs += np.where(placements[:, number] == 1, item.seconds[1], item.seconds[0])
    for tensor in problem.tensors:
        here = np.zeros(len(placements), int) if tensor.producer is None else placements[:, tensor.producer]
        read = placements[:, list(tensor.readers)]
        there = (read == 1).any(axis=1), (read == 0).any(axis=1) | tensor.result
        costs += np.where((here == 0) & there[0], tensor.crossing[1], 0)
        costs += np.where((here == 1) & there[1], tensor.crossing[0], 0)
    for device in (0, 1):
        costs += np.where((placements == device).any(axis=1), problem.launch[device], 0)
    return costs
