"""Random numbers from a counter: the generator's published answers, and that masks are what they should be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ngraph_mxnet.ir import Builder, Graph, get_op
from ngraph_mxnet.ops.random import philox, uniform_of
from ngraph_mxnet.program.compile import compile

# Of the authors' Random123, tests/kat_vectors.
ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]


@pytest.mark.parametrize(("counter", "key", "words"), ANSWERS)
def test_the_generator_gives_the_published_answers(counter: tuple[int], key: tuple[int], words: tuple[int]) -> None:
    found = philox(np.array([counter], np.uint64), np.array(key, np.uint64))
    assert tuple(map(int, found[0])) == words


def mask(key: int, step: int, shape: tuple[int, ...], keep: float, stream: int = 0) -> np.ndarray:
    state = np.array([key, step]).view(np.int32)
    (found,) = get_op("random_mask").evaluate([state], {"shape": shape, "keep": keep, "stream": stream})
    return found


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_elements_are_true_as_often_as_asked(keep: float) -> None:
    count = 1 << 18
    for step in range(3):
        found = int(mask(7, step, (count,), keep).sum())
        assert abs(found - keep * count) <= 5 * math.sqrt(count * keep * (1 - keep))


def test_masks_of_keys_steps_and_streams_are_independent() -> None:
    """They agree at half of the places, and so do neighbours."""
    count = 1 << 16
    first = mask(1, 2, (count,), 0.5)
    for other in (mask(2, 2, (count,), 0.5), mask(1, 3, (count,), 0.5), mask(1, 2, (count,), 0.5, stream=1),
                  mask(1 + (1 << 32), 2, (count,), 0.5), mask(1, 2 + (1 << 32), (count,), 0.5), np.roll(first, 1)):
        assert abs(int((first == other).sum()) - count / 2) <= 5 * math.sqrt(count) / 2


def test_an_element_does_not_depend_on_the_shape() -> None:
    whole = mask(5, 6, (10_000,), 0.3)
    np.testing.assert_array_equal(mask(5, 6, (7, 13), 0.3).reshape(-1), whole[:91])


def uniform(key: int, step: int, shape: tuple[int, ...], stream: int = 0) -> np.ndarray:
    state = np.array([key, step]).view(np.int32)
    (found,) = get_op("random_uniform").evaluate([state], {"shape": shape, "stream": stream})
    return found


def test_uniform_numbers_are_those_of_the_words() -> None:
    """Of the words of a mask; never 0 or 1, and as far from one as from the other."""
    found = uniform(3, 4, (1 << 16,))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found < 0.375, mask(3, 4, (1 << 16,), 0.375))
    ends = uniform_of(np.array([0, 511, 512, 2**32 - 1], np.uint64))
    np.testing.assert_array_equal(ends, np.array([1, 1, 3, 2**24 - 1], np.float32) / 2**24)


@pytest.mark.parametrize("shape", [(1,), (2, 3), (8191,), (3, 8193), (0, 2), ()])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_cpu_gives_the_same_uniform_numbers(shape: tuple[int, ...], threads: int) -> None:
    b, state = Builder(), np.array([5, 1 << 40])
    given = b.results(b.random_uniform(b.parameter("state", (4,), "i32"), shape=shape, stream=9))
    (found,) = compile(given, "CPU", threads=threads)(state.view(np.int32))
    np.testing.assert_array_equal(found, uniform(*map(int, state), shape, 9))


def graph(shape: tuple[int, ...], keep: float, stream: int) -> Graph:
    b = Builder()
    return b.results(b.random_mask(b.parameter("state", (4,), "i32"), shape=shape, keep=keep, stream=stream))


@pytest.mark.parametrize("shape", [(1,), (2, 3), (8191,), (3, 8193), (0, 2), ()])
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_the_cpu_gives_the_same_bits_on_any_number_of_threads(shape: tuple[int, ...], threads: int) -> None:
    state = np.array([-3, (5 << 33) + 7])
    wanted = mask(int(state[0]), int(state[1]), shape, 0.37, 4)
    (found,) = compile(graph(shape, 0.37, 4), "CPU", threads=threads)(state.view(np.int32))
    assert found.dtype == bool and found.shape == shape
    np.testing.assert_array_equal(found, wanted)
