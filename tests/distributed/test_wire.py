"""Sums between hosts: a ring of any number of ranks, and bf16 rounded as the format has it."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ngraph_mxnet.distributed.world import CHUNK, SMALL, bf16, exact, rounded, widen


class Request:
    def __init__(self, tries: Callable[[], bool]) -> None:
        self._tries = tries
        self._done = False

    def Test(self) -> bool:  # noqa: N802
        self._done = self._done or self._tries()
        return self._done


class Network:
    """Messages that arrive when they are looked for, in order, as MPI's do."""

    def __init__(self) -> None:
        self.messages: dict[tuple[int, int, int], deque[np.ndarray]] = defaultdict(deque)


class Comm:
    """A rank's end of it. A message reads what it sends when it is received: until then nobody may write there."""

    def __init__(self, network: Network, rank: int, size: int) -> None:
        self._network, self._rank, self._size = network, rank, size

    def Get_size(self) -> int:  # noqa: N802
        return self._size

    def Get_rank(self) -> int:  # noqa: N802
        return self._rank

    def Isend(self, data: np.ndarray, to: int, tag: int) -> Request:  # noqa: N802
        waiting = self._network.messages[self._rank, to, tag]
        waiting.append(data)
        return Request(lambda: not any(each is data for each in waiting))

    def Irecv(self, into: np.ndarray, source: int, tag: int) -> Request:  # noqa: N802
        waiting = self._network.messages[source, self._rank, tag]

        def tries() -> bool:
            if not waiting:
                return False
            into[...] = waiting.popleft()
            return True

        return Request(tries)


def run(wire_sum, data: list[list[np.ndarray]], rng: np.random.Generator) -> None:
    """Several sums at a time of all ranks, whoever comes first."""
    network, ranks = Network(), len(data)
    running = [wire_sum(Comm(network, rank, ranks), data[rank][number], number)
               for rank, number in itertools.product(range(ranks), range(len(data[0])))]
    for _ in range(10000):
        if not running:
            break
        steps = running[rng.integers(len(running))]
        if next(steps, steps) is steps:
            running.remove(steps)
    assert not running and not any(network.messages.values())


@given(ranks=st.integers(2, 6), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=3),
       dtype=st.sampled_from([np.float32, np.float64]), seed=st.integers(0, 1000))
def test_all_ranks_have_the_same_sums(ranks, sizes, dtype, seed):
    """Of arrays beyond the size up to which the sum is MPI's own."""
    rng, small = np.random.default_rng(seed), SMALL // np.dtype(dtype).itemsize
    data = [[rng.standard_normal(small + size).astype(dtype) for size in sizes] for _ in range(ranks)]
    expected = [np.sum([each[number] for each in data], 0) for number in range(len(sizes))]
    run(exact, data, rng)
    for each in data:
        for found, sums, first in zip(each, expected, data[0], strict=True):
            np.testing.assert_allclose(found, sums, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(found, first)


@given(ranks=st.integers(1, 6),
       sizes=st.lists(st.integers(1, 40) | st.integers(CHUNK - 1, 5 * CHUNK), min_size=1, max_size=3),
       seed=st.integers(0, 1000))
def test_all_ranks_have_the_rounded_sums_of_rounded_numbers(ranks, sizes, seed):
    """Of parts of a chunk and of several."""
    rng = np.random.default_rng(seed)
    data = [[rng.standard_normal(size).astype(np.float32) for size in sizes] for _ in range(ranks)]
    expected = []
    for number in range(len(sizes)):
        total = as_bf16(data[0][number])
        for each in data[1:]:
            total = total + as_bf16(each[number])
        expected.append(as_bf16(total))
    run(bf16, data, rng)
    for each in data:
        for found, sums in zip(each, expected, strict=True):
            np.testing.assert_array_equal(found, sums)


def as_bf16(values: np.ndarray) -> np.ndarray:
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


@given(arrays(np.float32, st.integers(1, 50), elements=st.floats(width=32)))
def test_rounds_to_the_nearest_number_of_bf16(values):
    found = np.empty_like(values)
    widen(rounded(values), found)
    np.testing.assert_array_equal(found, as_bf16(values))
