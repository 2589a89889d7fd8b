"""Templates of MXNet's regions on disk: a process that meets changing shapes takes them, and lowers nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = """
import json, sys, time
import numpy as np
import mxnet as mx
from mxnet.gluon import nn
from ngraph_mxnet.targets.cpu import backend

lowered, real = [], backend.lower_module
def counted(*arguments):
    lowered.append(1)
    return real(*arguments)
backend.lower_module = counted

mx.random.seed(1)
net = nn.HybridSequential(prefix="net_")
with net.name_scope():
    for _ in range(6):
        net.add(nn.Conv2D(32, 3, padding=1, in_channels=32), nn.BatchNorm(in_channels=32), nn.Activation("relu"))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(7, in_units=32))
net.initialize(mx.init.Xavier())
net.hybridize()
sums, began = [], time.perf_counter()
for size in json.loads(sys.argv[1]):
    x = mx.nd.array(np.random.RandomState(sum(size)).rand(size[0], 32, *size[1:]))
    sums.append(float(net(x).asnumpy().astype(np.float64).sum()))
print(json.dumps({"lowered": len(lowered), "sums": sums, "seconds": time.perf_counter() - began}))
"""
SIZES = [(1, 16, 16), (2, 17, 20), (3, 30, 31), (1, 9, 12)]


def process(folder: Path, sizes: Any, **settings: str) -> Any:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    found = subprocess.run([sys.executable, str(script), json.dumps(sizes)], text=True, check=True, capture_output=True,
                           env={**os.environ, "NGRAPH_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "2",
                                "MXNET_SUBGRAPH_BACKEND": "NGRAPH", **settings})
    return json.loads(found.stdout.splitlines()[-1])


def test_a_second_process_lowers_nothing(tmp_path: Path) -> None:
    first = process(tmp_path, SIZES)
    assert first["lowered"] >= 2  # for the first shapes, and for those that change
    again = process(tmp_path, SIZES)
    assert again["lowered"] == 0 and again["sums"] == first["sums"]
    # Other sizes that change alike are the templates', too; of their first ones the program is their own.
    others = process(tmp_path, [SIZES[0], (5, 21, 8), (4, 40, 41)])
    assert others["lowered"] == 0
    assert len(list((tmp_path / "cache" / "template").iterdir())) >= 1


def test_what_templates_depend_on(tmp_path: Path) -> None:
    first = process(tmp_path, SIZES)
    for name, setting in (("OMP_NUM_THREADS", "1"), ("NGRAPH_CPU_WINOGRAD", "0"), ("NGRAPH_CPU_ISA", "baseline")):
        assert process(tmp_path, SIZES, **{name: setting})["lowered"] == first["lowered"], name


def test_templates_that_are_damaged(tmp_path: Path) -> None:
    first = process(tmp_path, SIZES)
    for path in (tmp_path / "cache" / "template").iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    again = process(tmp_path, SIZES)
    assert 1 <= again["lowered"] < first["lowered"] and again["sums"] == first["sums"]
