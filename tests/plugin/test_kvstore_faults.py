"""Whatever happens to a rank, all of them end within seconds, say why, and leave checkpoints whole."""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path

import jobs
import mxnet as mx
import numpy as np
import pytest
from mxnet_helpers import needs_library

pytestmark = [needs_library, pytest.mark.usefixtures("mpi")]
FAULTS = {
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", "has ended without a word|killed|SIGKILL|signal 9"),
    "exception": ("raise ValueError('no such photo')", "ValueError: no such photo"),
    "stop": ("os.kill(os.getpid(), signal.SIGSTOP)", "no sign of life"),
    "mismatch": ("trainer.set_learning_rate(0.5)", "lr is not the same on all ranks"),
    "fewer": ("break", "(has )?ended (well )?after \\d+"),
    "exit": ("sys.exit(3)", "sys.exit\\(3\\)|status 3|exit code 3|Exit code: +3"),
}
WITHIN = 5.0 + 1.5
"""Seconds from the fault to the end of the job; the launcher takes some itself."""
SCRIPT = """
import os, signal, sys, time
kv = mx.kv.create("dist_sync_ngraph")
mx.random.seed(1)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(300, activation="relu", in_units=50), gluon.nn.Dense(10, in_units=300))
net.initialize(mx.init.Xavier())
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=kv)
lossf = gluon.loss.SoftmaxCrossEntropyLoss()
x, y = mx.nd.ones((8, 50)), mx.nd.zeros(8)
for step in range(1, 100000):
    if kv.rank == RANK and step == STEP:
        with open(f"{sys.argv[1]}/began", "w") as file:
            file.write(str(time.time()))
        FAULT
    with autograd.record():
        loss = lossf(net(x), y)
    loss.backward()
    trainer.step(16)
    if kv.rank == 0:
        net.save_parameters(f"{sys.argv[1]}/net.params")
"""


@pytest.fixture(scope="module")
def mpi() -> None:
    jobs.needs_mpi()


def check(folder: Path, fault: str, rank: int, step: int, ranks: int = 2) -> None:
    text, message = FAULTS[fault]
    script = SCRIPT.replace("RANK", str(rank)).replace("STEP", str(step)).replace("FAULT", text)
    done, _ = jobs.run_job(folder, script, ranks, timeout=60)
    seconds = time.time() - float((folder / "began").read_text())
    assert done.returncode != 0
    assert seconds < WITHIN, f"{fault} on rank {rank}: {seconds:.1f} s\\n{done.stderr}"
    assert re.search(message, done.stderr), f"{fault} on rank {rank}:\\n{done.stdout}{done.stderr}"
    saved = folder / "net.params"
    if saved.exists():
        loaded = mx.nd.load(str(saved))
        assert len(loaded) == 4 and all(np.isfinite(each.asnumpy()).all() for each in loaded.values())


@pytest.mark.parametrize("fault", ["exception", "fewer", "mismatch"])
def test_a_fault_ends_the_job(tmp_path: Path, fault: str):
    check(tmp_path, fault, 1, 20)


@pytest.mark.slow
def test_many_faults_drawn_at_random(tmp_path: Path):
    chance = random.Random(int(os.environ.get("FAULTS_SEED", "0")))
    for number in range(int(os.environ.get("FAULTS", "25"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        check(folder, chance.choice([*FAULTS]), chance.randrange(2), chance.randrange(1, 60))
