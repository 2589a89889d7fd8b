"""docs/replaced.md names each function of MXNet that is replaced, and none else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from mxnet_helpers import run_script

from ngraph_mxnet_autoload.numpy_shim import FINANCIAL

PAGE = Path(__file__).parents[2] / "docs/replaced.md"

_SCRIPT = """
import json, sys
import mxnet as mx
import mxnet.contrib.onnx
from mxnet.base import _LIB

def is_ours(value):
    value = getattr(value, "__func__", value)
    code = getattr(getattr(value, "fget", None) or value, "__code__", None)
    return code is not None and "ngraph_mxnet" in code.co_filename

found = set()
for name, module in list(sys.modules.items()):
    if module is None or name.partition(".")[0] != "mxnet":
        continue
    for attribute, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__ == name:
            found |= {f"{name}.{attribute}.{each}" for each, inner in vars(value).items() if is_ours(inner)}
        elif is_ours(value):
            found.add(f"{name}.{attribute}")
native = [name for name, value in vars(_LIB).items() if name.startswith("MX") and not isinstance(value, _LIB._FuncPtr)]
print(json.dumps([sorted(found), sorted(native)]))
"""


def named(heading: str) -> set[str]:
    """Those in the first column of the table below the heading."""
    text = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    first = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return {name for cell in first for name in re.findall(r"`([\w.]+)`", cell)}


@pytest.fixture(scope="module")
def replaced(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    done = run_script(_SCRIPT, tmp_path_factory.mktemp("replaced"), "NGRAPH")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_python(replaced: list[list[str]]) -> None:
    of_numpy = [name for name in replaced[0] if name.startswith("mxnet.numpy.")]
    assert {name.rpartition(".")[2] for name in of_numpy} <= {*FINANCIAL}
    others = {name.removeprefix("mxnet.") for name in replaced[0] if name not in of_numpy}
    assert others == {name for name in named("Python") if not name.startswith("mxnet.numpy")}


def test_libmxnet(replaced: list[list[str]]) -> None:
    assert set(replaced[1]) == named("libmxnet")
