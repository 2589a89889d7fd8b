"""What all-reduces take, against the formulas of the literature."""

from __future__ import annotations

import math

import pytest

from ngraph_mxnet.distributed.simulation import ALGORITHMS, Cluster, Link, Scheme, SimulationError, all_reduce_seconds

ALPHA, BETA, GAMMA, CONVERT = 3e-5, 1 / 1.25e9, 2e-10, 5e-10
SIZE = 48e6


def cluster(nodes: int, **changes: object) -> Cluster:
    return Cluster(nodes, Link(ALPHA, 1 / BETA), reduce_seconds_per_byte=GAMMA, convert_seconds_per_byte=CONVERT,
                   **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 32])
def test_the_ring(ranks: int) -> None:
    share = (ranks - 1) / ranks
    expected = 2 * (ranks - 1) * ALPHA + 2 * share * SIZE * BETA + share * SIZE * GAMMA
    assert all_reduce_seconds(SIZE, cluster(ranks), Scheme()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("ranks", [2, 4, 8, 32])
def test_halving_of_powers_of_two(ranks: int) -> None:
    share = (ranks - 1) / ranks
    expected = 2 * math.log2(ranks) * ALPHA + 2 * share * SIZE * BETA + share * SIZE * GAMMA
    assert all_reduce_seconds(SIZE, cluster(ranks), Scheme("halving")) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("ranks", [3, 6, 31])
def test_halving_of_others_sends_all_twice_more(ranks: int) -> None:
    power = 2 ** int(math.log2(ranks))
    expected = all_reduce_seconds(SIZE, cluster(power), Scheme("halving")) + 2 * (ALPHA + SIZE * BETA) + SIZE * GAMMA
    assert all_reduce_seconds(SIZE, cluster(ranks), Scheme("halving")) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("ranks", "rounds"), [(2, 1), (3, 2), (4, 2), (5, 3), (32, 5)])
def test_the_tree(ranks: int, rounds: int) -> None:
    expected = rounds * (2 * (ALPHA + SIZE * BETA) + SIZE * GAMMA)
    assert all_reduce_seconds(SIZE, cluster(ranks), Scheme("tree")) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_rank_sends_nothing(algorithm: str) -> None:
    assert all_reduce_seconds(SIZE, cluster(1), Scheme(algorithm)) == 0


def test_bf16_halves_the_wire_and_costs_conversions() -> None:
    """The sums stay float32."""
    expected = 2 * 3 * ALPHA + 2 * 3 / 4 * SIZE * (BETA / 2 + CONVERT) + 3 / 4 * SIZE * GAMMA
    assert all_reduce_seconds(SIZE, cluster(4), Scheme(bf16=True)) == pytest.approx(expected, rel=1e-12)


MESSAGES = Scheme(shared_memory=False)


def test_ranks_of_one_node_send_messages_through_its_memory() -> None:
    memory = Link(1e-6, 5e9)
    found = all_reduce_seconds(SIZE, cluster(1, ranks_per_node=4, memory=memory), MESSAGES)
    assert found == pytest.approx(2 * 3 * 1e-6 + 2 * 3 / 4 * SIZE / 5e9 + 3 / 4 * SIZE * GAMMA, rel=1e-12)


def test_a_flat_ring_waits_for_the_slower_link() -> None:
    slow, fast = Link(1e-6, 1e9), Link(1e-7, 1e10)
    by_network = all_reduce_seconds(SIZE, Cluster(2, slow, 4, fast), MESSAGES)
    assert by_network == all_reduce_seconds(SIZE, Cluster(2, fast, 4, slow), MESSAGES)
    assert by_network == all_reduce_seconds(SIZE, Cluster(8, slow), Scheme())


def test_shared_memory() -> None:
    """A copy of three quarters, two barriers, each rank adds its quarter of all; one of a node sends the whole."""
    memory = Link(1e-6, 5e9)
    found = all_reduce_seconds(SIZE, cluster(1, ranks_per_node=4, memory=memory, copy_seconds_per_byte=3e-10), Scheme())
    assert found == pytest.approx(3 / 4 * SIZE * 3e-10 + 2e-6 + 3 / 4 * SIZE * GAMMA, rel=1e-12)
    found = all_reduce_seconds(SIZE, cluster(8, ranks_per_node=4, memory=memory), Scheme("halving"))
    between = all_reduce_seconds(SIZE, cluster(8), Scheme("halving"))
    assert found == pytest.approx(3e-6 + 3 / 4 * SIZE * GAMMA + between, rel=1e-12)


def test_each_message_waits_for_a_look() -> None:
    """While the ranks compute."""
    for scheme, waits in ((Scheme(), 2 * 7), (Scheme("halving"), 2 * 3), (Scheme("tree"), 2 * 3)):
        polled, quick = cluster(8, poll_seconds=1e-3), cluster(8)
        assert all_reduce_seconds(SIZE, polled, scheme) == all_reduce_seconds(SIZE, quick, scheme)
        later = all_reduce_seconds(SIZE, polled, scheme, computing=True) - all_reduce_seconds(SIZE, quick, scheme)
        assert later == pytest.approx(waits * 5e-4)


@pytest.mark.parametrize(("scheme", "words"), [
    (Scheme("ring2"), "algorithm: found 'ring2', expected one of ring, halving, tree"),
    (Scheme("tree", shared_memory=False), "4 ranks on each of 2 nodes: found 'tree', expected 'ring', or shared mem"),
])
def test_what_is_not_modelled_is_refused(scheme: Scheme, words: str) -> None:
    with pytest.raises(SimulationError, match=words):
        all_reduce_seconds(SIZE, cluster(2, ranks_per_node=4), scheme)
