"""Rounds of several ranks, in one process: whatever comes when, all ranks get the sums of what is there at the end."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet.distributed.gradients import Bucket, Round, Slot, make_plan

SIZES = [3, 5, 2, 7]


class Job:
    """Collective calls of ranks that are steps of one thread: each is done when all ranks have made it."""

    def __init__(self, ranks: int, *, crosses: bool = True) -> None:
        self.ranks, self.crosses = ranks, crosses
        self.calls: dict[object, list[np.ndarray]] = {}

    def collective(self, name: object, data: np.ndarray, combine) -> Iterator[None]:
        calls = self.calls.setdefault(name, [])
        calls.append(data)
        while len(calls) < self.ranks:
            yield
        # The first to see that all have come computes for all.
        if all(each is not None for each in calls):
            result = combine.reduce(np.stack([each.copy() for each in calls]))
            for each in calls:
                each[:] = result
            calls[:] = [None] * self.ranks


class Agreement:
    def __init__(self, job: Job) -> None:
        self._job, self._rounds = job, 0

    def least(self, data):
        return self._job.collective("start", data, np.minimum)

    def most(self, data):
        return self._job.collective("end", data, np.maximum)


class Reduction:
    """Sums a rank's `own` over all ranks, in place; calls must come in the same order in all."""

    def __init__(self, job: Job, own: np.ndarray, gradients: list[np.ndarray]) -> None:
        self.crosses = job.crosses
        self._job, self._own, self._gradients, self._pass, self._turn = job, own, gradients, 0, 0

    def begin(self) -> None:
        self._pass += 1
        self._turn = 0

    def fill(self, bucket: Bucket, slot: Slot) -> None:
        self._own[slot.begin:slot.begin + slot.bytes].view(np.float32)[:] = self._gradients[slot.gradient]

    def steps(self, bucket: Bucket, place: int) -> Iterator[None]:
        while self._turn != place:
            yield
        self._turn += 1
        yield from self._job.collective((self._pass, bucket.begin), self._own[bucket.begin:bucket.end].view(np.float32),
                                        np.add)


class Rank:
    def __init__(self, job: Job, number: int, announces: bool) -> None:
        self.number = number
        self.own = np.zeros(4 * 64, np.uint8)
        self.gradients = [np.zeros(size, np.float32) for size in SIZES]
        self.writes = [0] * len(SIZES)
        self.buckets = make_plan(SIZES, [np.dtype(np.float32)] * len(SIZES), [3, 2, 1, 0], 28)
        self.round = Round(self.buckets, Reduction(job, self.own, self.gradients), Agreement(job), announces)
        self.steps = self.round.steps()
        self.begun = False

    def write(self, gradient: int, value: float, announced: bool) -> None:
        """As an operator that announces before it ends."""
        self.begun |= announced
        self.gradients[gradient][:] = value + np.arange(SIZES[gradient])
        if announced:
            self.round.announce([(gradient, 0.0, self.writes[gradient])])
        self.writes[gradient] += 1

    def step(self) -> None:
        if self.begun:
            next(self.steps, None)


@settings(max_examples=100, deadline=None)
@given(kinds=st.lists(st.sampled_from(["announced", "silent"]), min_size=1, max_size=3), seed=st.integers(0, 1 << 30))
def test_any_order_gives_the_sums(kinds, seed):
    chance = random.Random(seed)
    job = Job(len(kinds))
    members = [Rank(job, number, kind == "announced") for number, kind in enumerate(kinds)]
    # What each script does: writes, some of them again, some without an announcement; then it asks for the sums.
    scripts = []
    for member, kind in zip(members, kinds, strict=True):
        writes = [(gradient, True) for gradient in chance.sample(range(4), 4)]
        writes += [(chance.randrange(4), chance.random() < 0.5) for _ in range(chance.randrange(4))]
        tells = kind == "announced"
        scripts.append([functools.partial(member.write, gradient, 10.0 * k + member.number, told and tells)
                        for k, (gradient, told) in enumerate(writes)])
    finished = [False] * len(members)
    for turn in range(600):
        number = chance.randrange(len(members)) if turn < 200 else turn % len(members)
        member = members[number]
        if scripts[number] and (turn >= 200 or chance.random() < 0.3):
            scripts[number].pop(0)()
        elif not scripts[number] and not finished[number]:
            member.begun = finished[number] = True
            member.round.finish(member.writes)
        member.step()
        check_what_is_done(member, members)
    assert all(finished)
    for member in members:
        assert all(map(member.round.is_done, range(len(member.buckets))))
        assert member.round.overlaps == (set(kinds) == {"announced"})


def check_what_is_done(member: Rank, members: list[Rank]) -> None:
    for number, bucket in enumerate(member.buckets):
        for slot in bucket.slots if member.round.is_done(number) else ():
            found = member.own[slot.begin:slot.begin + slot.bytes].view(np.float32)
            np.testing.assert_array_equal(found, sum(m.gradients[slot.gradient] for m in members))


def test_what_is_written_behind_its_announcement_is_sent_again():
    job = Job(1)
    rank = Rank(job, 0, True)
    for gradient in (3, 2, 1, 0):
        rank.write(gradient, 1.0, True)
        rank.step()
    for _ in range(20):
        rank.step()
    rank.write(2, 5.0, False)
    rank.round.finish(rank.writes)
    for _ in range(20):
        rank.step()
    assert all(map(rank.round.is_done, range(len(rank.buckets)))) and rank.round.spoilt == 1
    slot = next(slot for bucket in rank.buckets for slot in bucket.slots if slot.gradient == 2)
    assert rank.own[slot.begin:slot.begin + slot.bytes].view(np.float32).tolist() == [5.0, 6.0]


@pytest.mark.parametrize("crosses", [True, False])
def test_a_rank_lags_while_sums_of_several_buckets_are_under_way(crosses):
    job = Job(2, crosses=crosses)
    ranks = Rank(job, 0, True), Rank(job, 1, True)
    found = []
    for number, bucket in enumerate(ranks[0].buckets[:2]):
        for rank in ranks[:2 - number]:  # the second sums one bucket only
            for slot in bucket.slots:
                rank.write(slot.gradient, 1.0, True)
        for _ in range(3):
            ranks[0].step()
            if number == 0:
                found.append(ranks[0].round.lags)
                ranks[1].step()
    assert not any(found)
    for slot in ranks[0].buckets[2].slots:
        ranks[0].write(slot.gradient, 1.0, True)
    for _ in range(3):
        ranks[0].step()
    assert ranks[0].round.lags is crosses
