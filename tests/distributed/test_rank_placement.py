"""Cores of ranks that share a host: disjoint, all used, neighbours."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet.distributed.world import local_place, place, share


@given(cores=st.integers(1, 64), threads=st.integers(1, 2), size=st.integers(1, 70))
def test_shares_are_disjoint_and_even(cores: int, threads: int, size: int):
    cpus = [[core + k * cores for k in range(threads)] for core in range(cores)]
    shares = [share(cpus, rank, size) for rank in range(size)]
    if size > cores:
        assert shares == [[]] * size
        return
    assert sorted(itertools.chain(*shares)) == list(range(cores * threads))
    assert max(map(len, shares)) - min(map(len, shares)) <= threads


@pytest.mark.parametrize(("environ", "expected"), [
    ({"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, (1, 4)),
    ({"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}, (0, 2)),
    ({"SLURM_LOCALID": "3", "SLURM_NTASKS_PER_NODE": "4(x2)"}, None),
    ({"OMPI_COMM_WORLD_LOCAL_RANK": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, None),
    ({}, None),
])
def test_what_launchers_say(environ: dict[str, str], expected: tuple[int, int] | None):
    assert local_place(environ) == expected


PINNED = """
import os, threading
from ngraph_mxnet.distributed.world import place
waits = threading.Event()
thread = threading.Thread(target=waits.wait, daemon=True)
thread.start()
found = place()
same = os.sched_getaffinity(0) == os.sched_getaffinity(thread.native_id) == set(found.cpus)
print(found.pinned, len(found.cpus), same)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2 or len(os.sched_getaffinity(0)) < (os.cpu_count() or 1),
                    reason="this process is bound to some of the cores")
def test_all_threads_of_a_process_move():
    env = {**os.environ, "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    done = subprocess.run([sys.executable, "-c", PINNED], env=env, capture_output=True, text=True, check=True)
    pinned, count, same = done.stdout.split()
    assert same == "True"
    assert pinned == str(int(count) < len(os.sched_getaffinity(0)))


def test_a_process_alone_stays_where_it_is():
    before = os.sched_getaffinity(0)
    found = place({})
    assert not found.pinned and set(found.cpus) == before == os.sched_getaffinity(0)
