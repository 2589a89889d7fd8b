"""MXNet symbols: compiled as graphs and files, bound, in a Module, in a block; and by native MXNet."""

from __future__ import annotations

from typing import Any

from fuzzing.values import test_helpers  # noqa: F401  (before what it makes importable)
from fuzzing.values.closeness import WrongError
from fuzzing.values.interpretation import nudging
from fuzzing.values.kinds import KINDS, Kind, NoJudgeError
from fuzzing.values.trials import Feeds, Trial
from ngraph_mxnet.frontends.mxnet.importer import import_symbol
from ngraph_mxnet.ir import Graph
from ngraph_mxnet.program.compile import compile as compile_graph

# isort: split
import mxnet as mx
import numpy as np
from mxnet_helpers import backend
from native_runs import run_one_by_one

Results = list[list[Any]]


def _symbol(trial: Trial) -> mx.sym.Symbol:
    with mx.util.np_shape(bool(trial.notes.get("numpy"))):
        return mx.sym.load_json(trial.model.decode())


def _graph(trial: Trial, feeds: Feeds) -> Graph:
    return import_symbol(trial.model.decode(), {name: array.shape for name, array in feeds.items()},
                         {name: array.dtype.name for name, array in feeds.items()})


def _compiled(trial: Trial, target: str, **options: Any) -> Results:
    results = []
    for feeds in trial.calls:
        graph = _graph(trial, feeds)
        results.append(list(compile_graph(graph, target, **options)(*(feeds[each.name] for each in graph.parameters))))
    return results


def _values(feeds: Feeds) -> dict[str, mx.nd.NDArray]:
    return {name: mx.nd.array(array, dtype=array.dtype) for name, array in feeds.items()}


def _executor(trial: Trial, name: str | None) -> Results:
    """One executor, reshaped where a call has other shapes."""
    symbol, results = _symbol(trial), []
    executor, before = None, None
    for feeds in trial.calls:
        values = _values(feeds)
        shapes = {each: feeds[each].shape for each in trial.notes["inputs"]}
        with backend(name):
            if executor is None:
                executor = symbol.simple_bind(mx.cpu(), grad_req="null", type_dict={
                    each: array.dtype for each, array in feeds.items()}, **shapes)
            elif shapes != before:
                executor = executor.reshape(allow_up_sizing=True, partial_shaping=True, **shapes)
            before = shapes
            for each, array in {**executor.arg_dict, **executor.aux_dict}.items():
                array[:] = values[each]
            results.append([output.asnumpy() for output in executor.forward(is_train=False)])
    return results


def _module(trial: Trial, name: str | None) -> Results:
    symbol, results, module, before = _symbol(trial), [], None, None
    states = set(symbol.list_auxiliary_states())
    inputs = trial.notes["inputs"]
    for feeds in trial.calls:
        values = _values(feeds)
        with backend(name):
            shapes = [(each, feeds[each].shape) for each in inputs]
            if module is None or shapes != before:
                if module is None:
                    module = mx.mod.Module(symbol, data_names=inputs, label_names=None, context=mx.cpu())
                module.bind(shapes, for_training=False, force_rebind=before is not None)
            before = shapes
            weights = {each: array for each, array in values.items() if each not in states and each not in inputs}
            module.set_params(weights, {each: array for each, array in values.items() if each in states})
            module.forward(mx.io.DataBatch([values[each] for each in inputs]), is_train=False)
            results.append([output.asnumpy() for output in module.get_outputs()])
    return results


def _block(trial: Trial, name: str | None) -> Results:
    symbol, inputs = _symbol(trial), trial.notes["inputs"]
    net = mx.gluon.SymbolBlock(symbol, [mx.sym.var(each) for each in inputs])
    results = []
    for number, feeds in enumerate(trial.calls):
        values = _values(feeds)
        for each, parameter in net.collect_params().items():
            if not number:
                parameter.shape = values[each].shape
                parameter.initialize()
            parameter.set_data(values[each])
        if not number:
            net.hybridize(**trial.notes.get("flags", {}))
        with backend(name):
            made = net(*(values[each] for each in inputs))
            results.append([each.asnumpy() for each in (made if isinstance(made, (list, tuple)) else [made])])
    return results


WAYS = {"executor": _executor, "module": _module, "block": _block}


def _ours(trial: Trial) -> Results:
    way = trial.notes.get("way", "graph")
    if way == "graph":
        return _compiled(trial, "CPU", **trial.setup.options)
    import os
    from unittest import mock

    with mock.patch.dict(os.environ, trial.setup.variables()):
        return WAYS[way](trial, "NGRAPH")


def _reference(trial: Trial) -> Results:
    return _compiled(trial, "INTERPRETER")


def _native(trial: Trial) -> Results:
    """Each operator alone, as MKL-DNN overwrites values in whole graphs."""
    symbol, results = _symbol(trial), []
    try:
        with backend(None), mx.util.np_shape(bool(trial.notes.get("numpy"))):
            for feeds in trial.calls:
                if trial.notes.get("whole"):
                    results.append(_whole(symbol, feeds))
                else:
                    results.append(run_one_by_one(symbol, feeds))
    except (mx.base.MXNetError, ValueError) as error:
        raise NoJudgeError(str(error)) from error
    return results


def _bound_natively(trial: Trial) -> Results:
    """As `_native`, unless MXNet by itself, bound the same way, gives something else: in graphs left to it its
    fused convolutions keep weights that changed since."""
    results = _native(trial)
    try:
        whole = WAYS[trial.notes["way"]](trial, None)
        for one, other in zip(whole, results, strict=True):
            trial.closeness.check("MXNet's operators", one, other)
    except (mx.base.MXNetError, RuntimeError, WrongError) as error:
        raise NoJudgeError(str(error)) from error
    return results


def _whole(symbol: mx.sym.Symbol, feeds: Feeds) -> list[np.ndarray]:
    states, values = set(symbol.list_auxiliary_states()), _values(feeds)
    arguments = {name: each for name, each in values.items() if name not in states}
    executor = symbol.bind(mx.cpu(), arguments, grad_req="null",
                           aux_states={name: each for name, each in values.items() if name in states})
    return [output.asnumpy() for output in executor.forward(is_train=False)]


KINDS["symbol"] = Kind(_ours, _reference, _native, "MXNet")
KINDS["bound symbol"] = Kind(_ours, None, _bound_natively, "MXNet", nudging(_reference))
# MXNet adds pairs of products in 16 bits where the CPU lacks VNNI: it judges operators of bytes alone, in the family of
# operators, whose records keep to what it adds right.
KINDS["8-bit symbol"] = Kind(_ours, _reference, None)
