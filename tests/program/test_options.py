"""Options are checked before there is a graph: of graphs, ONNX models and symbols, on every backend."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ngraph_mxnet
from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.program.backend import Backend, check_options, get_backend

BAD = [
    *((name, {"foo": 1, "bar": 2}, "no option bar, foo") for name in ("CPU", "HYBRID", "INTERPRETER", "NNP")),
    ("CPU", {"threads": "two"}, "option threads: found 'two', expected 1 to 4096"),
    ("CPU", {"threads": 0}, "option threads: found 0"),
    ("CPU", {"threads": 1.5}, "option threads: found 1.5"),
    ("CPU", {"precision": "int4"}, "option precision: found 'int4', expected f32 or bf16"),
    ("CPU", {"codegen": "yes"}, "option codegen: found 'yes', expected 0 or 1"),
    ("CPU", {"autotune": 2}, "option autotune: found 2, expected 0 or 1"),
    ("INTERPRETER", {"threads": 1}, "no option threads"),
    ("NNP", {"device": "nnp-x"}, "no device 'nnp-x'"),
    ("NNP", {"precision": "bf16"}, "option precision: found 'bf16', expected f16 or int8"),
    ("NNP:nnp-t-1400", {"precision": "int8"}, "option precision: found 'int8', expected bf16"),
    ("NNP", {"mode": "fast"}, "option mode: found 'fast', expected throughput or latency"),
    ("NNP", {"devices": 0}, "option devices: found 0, expected 1 to 1024"),
    ("NNP", {"instances": "many"}, "option instances: found 'many', expected 1 to 12"),
    ("NNP", {"calibration": 7}, "option calibration: found int, expected a list of arrays"),
    ("NNP", {"calibration": [7]}, "option calibration: found int"),
    ("HYBRID", {"threads": "two"}, "option threads: found 'two'"),
    ("HYBRID", {"cpu_threads": "two"}, "option threads: found 'two'"),
    ("HYBRID", {"nnp_precision": "int4"}, "option precision: found 'int4'"),
    ("HYBRID", {"nnp_foo": 1}, "no option foo"),
    ("HYBRID", {"devices": "CPU,TPU"}, "no backend 'TPU'"),
    ("HYBRID", {"devices": 2}, "option devices: found 2, expected two backends"),
    ("HYBRID", {"pins": 3}, "option pins: found 3"),
    ("HYBRID", {"overlap": "maybe"}, "option overlap: found 'maybe', expected 0 or 1"),
    ("HYBRID", {"costs": 1}, "option costs: found int"),
    ("HYBRID", {"calibration": "x"}, "option calibration: found str"),
]


@pytest.mark.parametrize(("backend", "options", "text"), BAD)
def test_without_a_graph(backend: str, options: dict[str, Any], text: str) -> None:
    for check in (lambda: check_options(backend, options), lambda: get_backend(backend).check_options(options)):
        with pytest.raises(ConfigError) as caught:
            check()
        assert text in str(caught.value)


@pytest.mark.parametrize(("backend", "options"), [
    ("CPU", {"threads": "2", "codegen": "1", "autotune": False, "precision": "bf16"}),
    ("CPU", {"threads": None, "codegen": None, "precision": None}),
    ("NNP", {"device": "nnp-t-1400", "precision": "bf16", "mode": "latency", "instances": "2", "devices": 4,
             "calibration": [np.ones(2)]}),
    ("HYBRID:nnp-t-1400", {"pins": "conv*=CPU", "overlap": "0", "cpu_threads": 1, "nnp_mode": "latency", "threads": 2}),
])
def test_what_is_allowed(backend: str, options: dict[str, Any]) -> None:
    check_options(backend, options)
    check_options(backend, {})


def graph() -> ngraph_mxnet.Graph:
    b = Builder()
    return b.results(b.abs(b.parameter("x", (2,), "f32")))


def onnx_model() -> bytes:
    """Its shape is open: nothing is compiled before the first call."""
    from onnx import TensorProto, helper

    ports = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    x, y = ports
    return helper.make_model(helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", [x], [y]),
                             opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()


def symbol(folder: Path) -> Path:
    """A model with an operator that does not exist: options come first."""
    nodes = [{"op": "null", "name": "x", "inputs": []}, {"op": "NoSuchOperator", "name": "y", "inputs": [[0, 0, 0]]}]
    path = folder / "net-symbol.json"
    path.write_text(json.dumps({"nodes": nodes, "arg_nodes": [0], "node_row_ptr": [0, 1, 2], "heads": [[1, 0, 0]]}))
    return path


@pytest.mark.parametrize("backend", ["CPU", "HYBRID", "INTERPRETER", "NNP"])
@pytest.mark.parametrize("source", [lambda _: graph(), lambda _: onnx_model(), symbol],
                         ids=["graph", "onnx", "symbol"])
def test_of_every_kind_of_model_at_once(source: Callable[[Path], Any], backend: str, tmp_path: Path) -> None:
    model = source(tmp_path)
    with pytest.raises(ConfigError, match="has no option foo"):
        ngraph_mxnet.compile(model, backend, foo=1)
    bad = {"precision": "int4"} if backend == "NNP" else {"threads": "two"}
    with pytest.raises(ConfigError, match=r"has no option threads|option (precision|threads): found"):
        ngraph_mxnet.compile(model, backend, **bad)


def test_to_check_the_cpus_takes_no_compiler() -> None:
    """Else a program from the disk would wait for one."""
    code = ("import sys\nfrom ngraph_mxnet.program.backend import check_options\ncheck_options('CPU', {'threads': 1})\n"
            "compilers = 'ngraph_mxnet.targets.cpu.backend', 'llvmlite', 'numba'\n"
            "print([name for name in compilers if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("ask", "text"), [
    (lambda backend: backend.explain([]), "has no kernels to tell of; such as have: CPU"),
    (lambda backend: backend.profile(list, 1), "which INTERPRETER does not have; such as have: CPU"),
    (lambda backend: backend.plan(Graph(), {"pins": {}}), "no plan that options could change; such as do: HYBRID"),
])
def test_what_a_backend_can_not_names_those_that_can(ask: Callable[[Backend], Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(get_backend("INTERPRETER"))
    assert str(caught.value).endswith(text)
