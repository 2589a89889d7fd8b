"""Sums of rows over the processes of an MPI job, against dense sums."""

from __future__ import annotations

from pathlib import Path

import jobs
import pytest


@pytest.fixture(autouse=True)
def mpi() -> None:
    jobs.needs_mpi()


PRELUDE = """
import hashlib, os
from ngraph_mxnet.distributed import Rows, broadcast_rows, sum_rows, world
from ngraph_mxnet.distributed.world import RankFacts
from ngraph_mxnet.base.errors import DistributedError
kv = world()
"""

SCHEDULES = """
chance = np.random.default_rng(SEED)

def drawn(rows, width, dtype):
    # of one rank: none of the rows, some, or all
    density = chance.choice([0, 0.1, 0.5, 1])
    ids = np.flatnonzero(chance.random(rows) < density)
    return Rows(ids, (chance.standard_normal((len(ids), width)) * 10.0 ** chance.integers(-3, 4)).astype(dtype))

def dense(part, rows):
    whole = np.zeros((rows, part.values.shape[1]), np.float64 if part.values.dtype == np.float64 else np.float32)
    whole[part.ids] = part.values
    return whole

bits, most = hashlib.sha256(), 0
for trial in range(150):
    kinds = [(int(chance.integers(1, 60)), int(chance.integers(1, 9)), chance.choice(["float16", "float32", "float64"]))
             for _ in range(chance.integers(1, 4))]
    everyone = [[drawn(*kind) for kind in kinds] for _ in range(kv.size)]
    kv.begin(b"sum", facts=lambda: RankFacts(kv.rank))
    found = sum_rows(kv, everyone[kv.rank])
    for number, (rows, _, _) in enumerate(kinds):
        parts = [rank[number] for rank in everyone]
        ids = sorted(set().union(*(part.ids.tolist() for part in parts)))
        assert found[number].ids.tolist() == ids and found[number].ids.dtype == np.int64
        total = dense(parts[0], rows)
        for part in parts[1:]:
            total += dense(part, rows)
        assert found[number].values.dtype == total.dtype
        np.testing.assert_array_equal(found[number].values, total[ids])
        most = max(most, len(ids))
        bits.update(found[number].values.tobytes())
    sent = broadcast_rows(kv, everyone[kv.rank][0])
    np.testing.assert_array_equal(sent.ids, everyone[0][0].ids)
    np.testing.assert_array_equal(sent.values, everyone[0][0].values)
tell(bits=bits.hexdigest(), most=most)
"""


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_random_schedules(tmp_path: Path, ranks: int) -> None:
    told = jobs.job(tmp_path, f"{PRELUDE}SEED = {ranks}\n{SCHEDULES}", ranks)
    assert all(each == told[0] for each in told) and told[0]["most"] > 40


def test_a_rank_that_fails_is_noticed_within_the_exchange(tmp_path: Path) -> None:
    done, _ = jobs.run_job(tmp_path, PRELUDE + """
kv.begin(b"sum", facts=lambda: RankFacts(kv.rank))
if kv.rank == 1:
    raise ValueError("no such rows")
try:
    sum_rows(kv, [Rows(np.arange(3), np.ones((3, 2), "f"))])
except DistributedError as error:
    print("met:", error, file=sys.stderr, flush=True)
    raise
""", 2, timeout=60)
    assert done.returncode != 0
    assert any(line.startswith("met: rank 1") and "no such rows" in line for line in done.stderr.splitlines())
