"""Predicted steps: closed forms, and what holds for any trace."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from clusters.smpi_replay import without_cpus
from hypothesis import given
from random_steps import steps

from ngraph_mxnet.distributed.simulation import (
    Bucket,
    Cluster,
    Gradient,
    Link,
    Scheme,
    Trace,
    all_reduce_seconds,
    buckets,
    predict,
)

MIB = 1 << 20
TRACE = Trace("net", 8, 2, "a CPU", 1.0, 2.0, 0.3, (
    Gradient("last", 40 * MIB, 0.5), Gradient("middle", 10 * MIB, 1.0), Gradient("bias", 10 * MIB, 1.5),
    Gradient("first", 20 * MIB, 2.0)))
NETWORK = Link(1e-4, 1e8)
ROUNDING = 1e-9


def test_one_bucket_without_overlap() -> None:
    cluster, scheme = Cluster(4, NETWORK), Scheme(bucket_bytes=1 << 40, overlap=False)
    summing = 2 * 3 * 1e-4 + 2 * 3 / 4 * 80 * MIB / 1e8
    found = predict(TRACE, cluster, scheme)
    assert found.step_seconds == pytest.approx(1.0 + 2.0 + summing + 0.3, rel=1e-12)
    assert found.exposed_seconds == pytest.approx(summing, rel=1e-12)
    assert found.efficiency == pytest.approx(3.3 / (3.3 + summing), rel=1e-12)
    assert found.samples_per_second == pytest.approx(4 * 8 / (3.3 + summing), rel=1e-12)


def test_buckets_are_those_of_the_kvstore() -> None:
    """Each with the bytes and the time of all of its gradients; 0 bytes: each gradient is one."""
    gradients = [Gradient(f"g{number}", 64 * size, 0.1 * number) for number, size in enumerate((9, 1, 1, 10, 2, 30, 1))]
    assert buckets(gradients, 640) == [Bucket(640, gradients[1].ready_seconds), Bucket(704, gradients[3].ready_seconds),
                                       Bucket(2048, 0.5), Bucket(64, gradients[6].ready_seconds)]
    assert buckets(gradients, 0) == [Bucket(each.bytes, each.ready_seconds) for each in gradients]
    many = [Gradient(f"g{number}", 64, 0.0) for number in range(1000)]
    assert [bucket.bytes for bucket in buckets(many, 640)] == [64 * 42] * 23 + [64 * 34]


def test_each_bucket_waits_for_its_gradients_the_one_before_and_the_backward_pass() -> None:
    """Buckets of 40, 20 and 20 MiB; sums take 0.8, 0.4 and 0.4 s."""
    scheme = Scheme(bucket_bytes=15 * MIB)
    found = predict(TRACE, Cluster(2, Link(0, 50 * MIB)), scheme)
    assert [bucket.bytes for bucket in found.buckets] == [40 * MIB, 20 * MIB, 20 * MIB]
    assert [bucket.ready for bucket in found.buckets] == pytest.approx([1.5, 2.5, 3.0])
    assert [bucket.start for bucket in found.buckets] == pytest.approx([1.5, 2.5, 3.0])
    assert [bucket.end for bucket in found.buckets] == pytest.approx([2.3, 2.9, 3.4])
    assert [bucket.updated for bucket in found.buckets] == pytest.approx([3.15, 3.225, 3.475])
    slower = predict(TRACE, Cluster(2, Link(0, 25 * MIB)), scheme)
    assert [bucket.start for bucket in slower.buckets] == pytest.approx([1.5, 3.1, 3.9])
    assert slower.step_seconds == pytest.approx(4.7 + 0.075)


def test_messages_wait_for_looks_until_the_passes_end() -> None:
    """The first of two messages of a bucket of 80 MiB, on an ideal network, is looked at 0.5 s later; there are two."""
    polled = Cluster(2, Link(0, math.inf), poll_seconds=1.0)
    early = replace(TRACE, gradients=(Gradient("all", 80 * MIB, 0.5),))
    assert predict(early, polled).buckets[0].end == pytest.approx(2.5)
    half = replace(TRACE, gradients=(Gradient("all", 80 * MIB, 1.5),))
    slow = replace(polled, network=Link(0, 160 * MIB))
    # It would end 1.5 s after 2.5, of which 0.5 pass while the rank computes: a third; the others take a third of 0.5.
    assert predict(half, slow).buckets[0].end == pytest.approx(3 + 2 / 3 * 0.5)
    # The second bucket, ready meanwhile, is sent while the first waits for a look.
    two = replace(TRACE, gradients=(Gradient("early", 40 * MIB, 0.5), Gradient("late", 40 * MIB, 0.6)))
    first, second = predict(two, replace(slow, network=Link(0, 400 * MIB))).buckets
    assert (first.end, second.start, second.end) == pytest.approx((2.6, 1.6, 2.7))


def test_late_updates_wait_for_the_last_sums() -> None:
    found = predict(TRACE, Cluster(2, Link(0, 25 * MIB)), Scheme(bucket_bytes=15 * MIB, early_update=False))
    assert found.step_seconds == pytest.approx(4.7 + 0.3)


def test_communication_takes_computing_away() -> None:
    """All of it: as if nothing overlapped. A half: what overlaps costs a half."""
    cluster = Cluster(2, Link(0, 50 * MIB), taken_share=1.0)
    assert predict(TRACE, cluster, Scheme(bucket_bytes=1 << 40)).step_seconds == pytest.approx(3 + 1.6 + 0.3)
    assert predict(TRACE, cluster, Scheme()).step_seconds == pytest.approx(3 + 1.6 + 0.3)
    halved = predict(TRACE, replace(cluster, taken_share=0.5), Scheme(bucket_bytes=40 * MIB))
    # From 1.5 to 2.3 only 0.4 is computed, so the others are ready at 3.4: 40 MiB of them, summed until 4.2; the first
    # update, of 0.15, computes beside that at half the rate.
    assert [bucket.end for bucket in halved.buckets] == pytest.approx([2.3, 4.2])
    assert halved.step_seconds == pytest.approx(4.2 + 0.15)


def test_jitter_makes_all_wait_for_the_slowest() -> None:
    cluster = Cluster(8, Link(0, math.inf), jitter=0.2, seed=3, steps=400)
    found = predict(TRACE, cluster, Scheme(overlap=False))
    drawn = np.random.default_rng(0).lognormal(0, 0.2, (20_000, 8))
    assert found.step_seconds / 3.3 == pytest.approx(drawn.max(1).mean(), rel=0.02)
    assert found.compute_seconds / 3.3 == pytest.approx(math.exp(0.02), rel=0.02)
    assert predict(TRACE, cluster) == predict(TRACE, cluster) != predict(TRACE, replace(cluster, seed=4))


@given(steps())
def test_the_step_is_its_parts(drawn: tuple[Trace, Cluster, Scheme]) -> None:
    trace, cluster, scheme = drawn
    found = predict(*drawn)
    parts = found.compute_seconds + found.waiting_seconds + found.exposed_seconds
    assert found.step_seconds == pytest.approx(parts, rel=ROUNDING)
    assert sum(bucket.bytes for bucket in found.buckets) == trace.bytes
    assert min(found.waiting_seconds, found.exposed_seconds) >= -ROUNDING
    alone, beside = (sum(all_reduce_seconds(bucket.bytes, cluster, scheme, computing=each) for bucket in found.buckets)
                     for each in (False, True))
    assert alone - ROUNDING <= found.communication_seconds <= beside + ROUNDING
    assert sum(bucket.end - bucket.start for bucket in found.buckets) == pytest.approx(found.communication_seconds)


@given(steps())
def test_a_step_takes_no_less_than_computing_and_communicating_alone(drawn: tuple[Trace, Cluster, Scheme]) -> None:
    trace, cluster, scheme = drawn
    found = predict(*drawn)
    assert found.step_seconds >= found.compute_seconds * (1 - ROUNDING)
    alone = sum(all_reduce_seconds(bucket.bytes, cluster, scheme) for bucket in found.buckets)
    assert found.step_seconds >= found.buckets[0].ready + alone - ROUNDING
    if not cluster.jitter:
        assert found.step_seconds <= found.compute_seconds + found.communication_seconds + ROUNDING
        first = (trace.forward_seconds + trace.gradients[0].ready_seconds) / cluster.compute_speed
        assert found.buckets[0].ready >= first - ROUNDING


@given(steps(polls=False))
def test_each_bucket_comes_after_the_one_before(drawn: tuple[Trace, Cluster, Scheme]) -> None:
    before = 0.0
    for bucket in predict(*drawn).buckets:
        assert max(before, bucket.ready) <= bucket.start + ROUNDING
        assert bucket.start <= bucket.end <= bucket.updated + ROUNDING
        before = bucket.end


@given(steps(polls=False))
def test_overlap_is_never_slower(drawn: tuple[Trace, Cluster, Scheme]) -> None:
    trace, cluster, scheme = drawn
    overlapped, apart = (predict(trace, cluster, replace(scheme, overlap=each)) for each in (True, False))
    assert overlapped.step_seconds <= apart.step_seconds + ROUNDING


@given(steps())
def test_faster_links_are_never_slower(drawn: tuple[Trace, Cluster, Scheme]) -> None:
    trace, cluster, scheme = drawn
    faster = replace(cluster, network=replace(cluster.network, bytes_per_second=2 * cluster.network.bytes_per_second),
                     memory=replace(cluster.memory, latency_seconds=cluster.memory.latency_seconds / 2))
    assert predict(trace, faster, scheme).step_seconds <= predict(*drawn).step_seconds + ROUNDING


@given(steps(jitter=False))
def test_links_that_cost_nothing_make_efficiency_one(drawn: tuple[Trace, Cluster, Scheme]) -> None:
    trace, cluster, scheme = drawn
    free = Link(0, math.inf)
    costless = replace(without_cpus(cluster), network=free, memory=free)
    assert predict(trace, costless, scheme).efficiency == pytest.approx(1, abs=ROUNDING)
