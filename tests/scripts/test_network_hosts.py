"""Jobs on hosts that are this machine's: they see each other by the network only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jobs
import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("namespaces")]

TELLS = """
import json, os, socket, sys
from ngraph_mxnet.distributed import world
found = world()
values = found.comm.allgather((socket.gethostname(), found.hosts, sorted(os.sched_getaffinity(0))))
if found.rank == 0:
    print("told", json.dumps(values))
"""

TRAINS = """
import mxnet as mx
kv = mx.kv.create("dist_sync_ngraph")
value = mx.nd.full((100, 1000), kv.rank + 1)
kv.pushpull(["a"], [value])
if kv.rank == 1 and {fails}:
    import os
    os._exit(9)
kv._barrier()
if kv.rank == 0:
    print("sum", float(value.mean().asscalar()))
"""


@pytest.fixture(scope="module")
def namespaces() -> None:
    jobs.needs_mpi()
    probe = ("unshare --net --uts --mount sh -ec 'ip link add p0 type bridge; tc qdisc add dev p0 root tbf rate 1gbit "
             "burst 1mb latency 1ms; command -v nsenter taskset'")
    if os.geteuid() or subprocess.run(probe, shell=True, capture_output=True, check=False).returncode:
        pytest.skip("no namespaces of the network")


def on_hosts(folder: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    path = folder / "script.py"
    path.write_text(script)
    words = [sys.executable, str(SCRIPTS / "network_hosts.py"), *options, "--", sys.executable, str(path)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "MXNET_SUBGRAPH_BACKEND": "NGRAPH", "OMP_NUM_THREADS": "1"})


def left_over() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def test_each_has_a_name_and_cores_of_its_own(tmp_path: Path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU")
    before = left_over()
    done = on_hosts(tmp_path, TELLS, "--hosts", "2", "--gbit", "1")
    assert done.returncode == 0, done.stderr
    (first, hosts, its), (second, _, others) = json.loads(done.stdout.split("told", 1)[1])
    assert first != second and hosts == 2 and not {*its} & {*others}
    assert left_over() == before


def test_ranks_of_a_host_share_it_and_hosts_sum(tmp_path: Path):
    done = on_hosts(tmp_path, TRAINS.format(fails=False), "--hosts", "3", "--ranks", "2", "--cpu-share", "0.5")
    assert done.returncode == 0, done.stderr
    assert "sum 21.0" in done.stdout


def test_a_rank_that_is_gone_is_known_on_other_hosts(tmp_path: Path):
    done = on_hosts(tmp_path, TRAINS.format(fails=True), "--hosts", "3", "--cpu-share", "0.5")
    assert done.returncode != 0 and "has ended without a word" in done.stderr


def test_more_hosts_than_cores_need_parts_of_cores(tmp_path: Path):
    done = on_hosts(tmp_path, TELLS, "--hosts", "190")
    assert done.returncode == 2 and "--cpu-share" in done.stderr
