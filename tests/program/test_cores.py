"""How many cores there are to use, by files written here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ngraph_mxnet.base.config import cpu_quota, physical_cores, usable_cores

CGROUP = "sys/fs/cgroup"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.fixture
def allow(monkeypatch):
    """Sets the CPUs that this process may run on, which a machine of this many has not."""
    return lambda *cpus: monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(cpus))


@pytest.fixture
def eight_cpus(tmp_path, allow):
    """Two packages of two cores of two threads."""
    for cpu in range(8):
        folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
        write(tmp_path, {f"{folder}/physical_package_id": str(cpu // 2 % 2), f"{folder}/core_id": str(cpu % 2)})
    allow(*range(8))
    return tmp_path


def test_hyperthreads_count_once(eight_cpus, allow):
    assert physical_cores(eight_cpus) == usable_cores(eight_cpus) == 4
    assert physical_cores(eight_cpus / "nothing") == 8
    for allowed, cores in (({0, 4}, 1), ({0, 1}, 2), ({0, 2, 6}, 2)):
        allow(*allowed)
        assert physical_cores(eight_cpus) == usable_cores(eight_cpus) == cores


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        # version 2
        ({"proc/self/cgroup": "0::/", f"{CGROUP}/cpu.max": "max 100000"}, None),
        ({"proc/self/cgroup": "0::/", f"{CGROUP}/cpu.max": "250000 100000"}, 2.5),
        ({"proc/self/cgroup": "0::/a/b", f"{CGROUP}/a/cpu.max": "300000 100000",
          f"{CGROUP}/a/b/cpu.max": "max 100000"}, 3),
        ({"proc/self/cgroup": "0::/a/b", f"{CGROUP}/a/cpu.max": "300000 100000",
          f"{CGROUP}/a/b/cpu.max": "50000 50000"}, 1),
        ({"proc/self/cgroup": "0::/../host", f"{CGROUP}/cpu.max": "150000 100000"}, 1.5),
        # version 1: its own mount, that of two controllers, the host's path in a container
        ({"proc/self/cgroup": "3:cpu:/x", f"{CGROUP}/cpu/x/cpu.cfs_quota_us": "-1",
          f"{CGROUP}/cpu/x/cpu.cfs_period_us": "100000"}, None),
        ({"proc/self/cgroup": "3:cpu,cpuacct:/x\n0::/", f"{CGROUP}/cpu,cpuacct/x/cpu.cfs_quota_us": "200000",
          f"{CGROUP}/cpu,cpuacct/x/cpu.cfs_period_us": "100000"}, 2),
        ({"proc/self/cgroup": "3:cpu,cpuacct:/docker/1f", f"{CGROUP}/cpu/cpu.cfs_quota_us": "350000",
          f"{CGROUP}/cpu/cpu.cfs_period_us": "100000"}, 3.5),
        # not of this controller, and nonsense
        ({"proc/self/cgroup": "3:memory:/x", f"{CGROUP}/memory/cpu.max": "100000 100000"}, None),
        ({"proc/self/cgroup": "0::/", f"{CGROUP}/cpu.max": "much 100000"}, None),
        ({"proc/self/cgroup": "0::/", f"{CGROUP}/cpu.max": "100000 0"}, None),
    ],
)
def test_quotas_of_control_groups(eight_cpus, files, quota):
    write(eight_cpus, files)
    assert cpu_quota(eight_cpus) == quota
    assert usable_cores(eight_cpus) == (4 if quota is None else min(4, int(quota)))


def test_a_part_of_a_cpu_is_one(eight_cpus):
    write(eight_cpus, {"proc/self/cgroup": "0::/", f"{CGROUP}/cpu.max": "20000 100000"})
    assert usable_cores(eight_cpus) == 1


def test_this_machine():
    assert 1 <= usable_cores() <= os.cpu_count()
