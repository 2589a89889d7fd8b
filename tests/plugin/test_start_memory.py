"""The memory that a model takes from its bind to its first result."""

from __future__ import annotations

import json
from pathlib import Path

from mxnet_helpers import needs_library, run_script

LAYERS, SIZE = 8, 1536
WEIGHTS = LAYERS * SIZE * SIZE * 4 / 2**20
"""MiB."""

SCRIPT = f"""
import json
import re
from pathlib import Path
import ngraph_mxnet
import mxnet as mx
from ngraph_mxnet import _core

def mib(field):
    return int(re.search(field + r":\\s*(\\d+) kB", Path("/proc/self/status").read_text()).group(1)) / 1024

net = mx.sym.Variable("data")
for layer in range({LAYERS}):
    net = mx.sym.FullyConnected(net, num_hidden={SIZE}, no_bias=True, name=f"fc{{layer}}")
data = mx.nd.ones((8, {SIZE}))
weights = {{f"fc{{layer}}_weight": mx.nd.full(({SIZE}, {SIZE}), layer / {SIZE}) for layer in range({LAYERS})}}
mx.nd.waitall()
Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
before = {{field: mib(field) for field in ("VmHWM", "RssAnon", "RssFile")}}
executor = net.simple_bind(mx.cpu(), grad_req="null", data=data.shape)
executor.copy_params_from(weights)
executor.forward(is_train=False, data=data)[0].wait_to_read()
assert _core.op_calls() == 1
print(json.dumps({{field: mib(field) - before[field] for field in before}}))
"""


def taken(tmp_path: Path, **environment: str) -> dict[str, float]:
    """MiB that a process took, after it had read the model's weights: at most, and of either kind at last."""
    settings = {"NGRAPH_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = run_script(SCRIPT, tmp_path, "NGRAPH", **settings, **environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@needs_library
def test_weights_are_held_as_the_executors_and_as_prepared(tmp_path: Path) -> None:
    found = taken(tmp_path)
    assert 1.9 * WEIGHTS < found["VmHWM"] < 2 * WEIGHTS + 0.5 * WEIGHTS


@needs_library
def test_kept_weights_are_no_memory_of_the_process(tmp_path: Path) -> None:
    taken(tmp_path, NGRAPH_CACHE_WEIGHTS="1")
    found = taken(tmp_path, NGRAPH_CACHE_WEIGHTS="1")
    assert 0.9 * WEIGHTS < found["RssAnon"] < WEIGHTS + 0.5 * WEIGHTS
    assert found["RssFile"] > 0.9 * WEIGHTS  # which other processes share
    assert found["VmHWM"] < 2 * WEIGHTS + 0.5 * WEIGHTS
