"""Graphs of our own IR, as text: on the CPU in a configuration, through a compiled file too, and on the interpreter."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import ngraph_mxnet
from fuzzing.values.kinds import KINDS, Kind
from fuzzing.values.trials import Trial
from ngraph_mxnet import _core
from ngraph_mxnet.program.artefact import load
from ngraph_mxnet.program.export import compile_to_file
from ngraph_mxnet.targets.cpu.machine.isa import supported


def _ours(trial: Trial) -> list[list[Any]]:
    graph = ngraph_mxnet.parse_graph(trial.model.decode())
    names = [parameter.name for parameter in graph.parameters]
    if trial.notes.get("way") == "file":
        return _from_file(graph, [[feeds[name] for name in names] for feeds in trial.calls])
    weights = {parameter.name: trial.calls[0][parameter.name] for parameter in graph.parameters
               if parameter.is_weight} if trial.notes.get("binds") else {}
    exe = ngraph_mxnet.compile(graph, "CPU", weights=weights, **trial.setup.options)
    return [list(exe(*(feeds[name] for name in names if name not in weights))) for feeds in trial.calls]


def _from_file(graph: Any, calls: list[list[np.ndarray]]) -> list[list[Any]]:
    """What a compiled file of all instruction sets gives; those that this CPU lacks are compiled alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.ngraph"
        compile_to_file(path, [lambda: (graph, {})], "CPU")
        artefact = load(path)
    isa = supported(_core.cpu_features())[0]
    (one,) = (each for each in artefact.sets if each.isa == isa)
    ((program, _),) = one.programs
    types = ([(each.element.name, each.shape) for _, each in ports] for ports in (one.inputs, one.outputs))
    native = _core.Executable(program.native(_core.kernel_address).bind(of_file=True), None, 0, [], *types, 2)
    results = []
    for arrays in calls:
        outputs = [np.empty(each.shape, each.element.numpy) for _, each in one.outputs]
        native.run([np.asarray(array, order="C") for array in arrays], outputs)
        results.append(list(outputs))
    return results


def _reference(trial: Trial) -> list[list[Any]]:
    graph = ngraph_mxnet.parse_graph(trial.model.decode())
    exe = ngraph_mxnet.compile(graph, "INTERPRETER")
    return [list(exe(*(feeds[parameter.name] for parameter in graph.parameters))) for feeds in trial.calls]


KINDS["graph"] = Kind(_ours, _reference, None)
