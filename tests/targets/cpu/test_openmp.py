"""Which CPUs the team's threads are bound to, and what is said about variables that do nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ngraph_mxnet
from ngraph_mxnet.targets.cpu.machine import openmp

ROOT = Path(ngraph_mxnet.__file__).parents[1]


def told(**environment: str) -> str:
    """The advice for an environment; empty when there is none."""
    return "\n".join(openmp.ignored(environment).values())


def test_each_variable_is_told_once_a_process():
    program = """
import os
from ngraph_mxnet.targets.cpu.machine import openmp
for _ in range(2):
    openmp.warn_of_ignored(os.environ)"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env={
        **os.environ, "PYTHONPATH": str(ROOT), "KMP_AFFINITY": "compact", "KMP_SETTINGS": "1"})
    assert done.stderr.count("KMP_AFFINITY=compact has no effect") == 1
    assert done.stderr.count("KMP_SETTINGS=1 has no effect") == 1 and done.stderr.count(" has no effect") == 2


@pytest.mark.parametrize(
    ("affinity", "advice"),
    [
        ("granularity=fine,compact,1,0", "OMP_PROC_BIND=close OMP_PLACES=cores"),
        ("compact,1,0,granularity=fine", "OMP_PROC_BIND=close OMP_PLACES=cores"),
        ("granularity=fine,compact", "OMP_PROC_BIND=close OMP_PLACES=threads"),
        ("verbose,compact", "OMP_PROC_BIND=close OMP_PLACES=cores"),
        ("granularity=core,scatter", "OMP_PROC_BIND=spread OMP_PLACES=cores"),
        ("explicit,proclist=[0,2,4-6]", 'GOMP_CPU_AFFINITY="0 2 4-6"'),
    ],
)
def test_an_affinity_is_translated(affinity, advice):
    text = told(KMP_AFFINITY=affinity)
    assert f"KMP_AFFINITY={affinity} has no effect" in text and advice in text


def test_other_variables():
    assert "OMP_WAIT_POLICY=passive" in told(KMP_BLOCKTIME="0")
    assert "NGRAPH_WAIT_US" in told(KMP_BLOCKTIME="200")
    assert "OMP_DISPLAY_ENV" in told(KMP_SETTINGS="1")
    assert "OMP_PLACES" in told(KMP_HW_SUBSET="1s,4c")
    assert told() == told(KMP_AFFINITY="") == told(KMP_AFFINITY="none") == ""
    assert told(KMP_AFFINITY="compact", OMP_PROC_BIND="close") == ""
    assert told(KMP_BLOCKTIME="1", OMP_WAIT_POLICY="active") == ""


SCRIPT = """
import threading
import time
import numpy as np
from ngraph_mxnet import Builder, _core, compile
from ngraph_mxnet.targets.cpu.program.trace import Spans

b = Builder()
x = b.parameter("x", (64, 64, 32, 32))
executable = compile(b.results(b.relu(x)), "CPU", threads={threads})
def run():
    stop = time.monotonic() + 60  # a thread gets no share of a call that others finish while it waits for its CPU
    while time.monotonic() < stop:
        executable(np.ones((64, 64, 32, 32), np.float32))
        found = Spans.take().events["thread"]
        threads.update(found.tolist())
        if len(threads) == {threads}:
            break
    for thread in sorted(threads):
        status = open(f"/proc/self/task/{{thread}}/status").read()
        print(status.split("Cpus_allowed_list:")[1].split()[0])
threads = set()
_core.trace_start(1000)
{call}
"""


def allowed(call: str, threads: int, **settings: str) -> list[str]:
    """The lists of CPUs that the threads of a team may run on."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_", "NGRAPH_"))}
    environment |= {"PYTHONPATH": str(ROOT), **settings}
    script = SCRIPT.format(threads=threads, call=call)
    done = subprocess.run([sys.executable, "-c", script], env=environment, check=True,
                          capture_output=True, text=True, timeout=120)
    return done.stdout.split()


IN_A_THREAD = "thread = threading.Thread(target=run); thread.start(); thread.join()"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
@pytest.mark.parametrize("call", ["run()", IN_A_THREAD], ids=["main thread", "another thread"])
def test_threads_are_bound_as_openmp_is_told(call):
    first, second = sorted(os.sched_getaffinity(0))[:2]
    places = f"{{{first}}},{{{second}}}"
    assert sorted(allowed(call, 2, OMP_PLACES=places, OMP_PROC_BIND="close")) == sorted([str(first), str(second)])
    assert allowed(call, 2, OMP_PLACES=f"{{{second}}}", OMP_PROC_BIND="close", OMP_NUM_THREADS="2") == [str(second)] * 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_threads_are_free_otherwise():
    free = allowed("run()", 2)
    assert len(free) == 2 and all(("-" in cpus or "," in cpus) for cpus in free)


CACHED = """
import numpy as np, ngraph_mxnet
from ngraph_mxnet.program.cache import get_or_make
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.program.package import Package
from ngraph_mxnet.program.backend import load
b = Builder()
graph = b.results(b.relu(b.parameter("x", (2, 3), "f32")))
made = get_or_make("program", "a test", lambda: ngraph_mxnet.compile(graph, backend="CPU").package().to_bytes())
load(Package.from_bytes(made))
"""


def test_it_is_told_in_runs_of_kept_programs_too(tmp_path):
    environ = {**os.environ, "KMP_BLOCKTIME": "0", "NGRAPH_CACHE_DIR": str(tmp_path / "cache")}
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", CACHED], env=environ, cwd=ROOT, capture_output=True, text=True,
                              check=True)
        assert done.stderr.count("KMP_BLOCKTIME=0 has no effect") == 1
