"""MXNet's results of a symbol at inference: from its own operators one by one, or with regions of ours among them; and
`doctor`'s trial, which runs the same small net in MXNet alone and with this package.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet.base.errors import ModelError
from ngraph_mxnet.frontends.mxnet.symbol_json import SymbolGraph
from ngraph_mxnet.plugin.arrays import brief
from ngraph_mxnet.plugin.regions import BACKEND, PREFIX
from ngraph_mxnet_autoload import names

if TYPE_CHECKING:
    from mxnet.ndarray import NDArray
    from mxnet.symbol import Symbol


_Arrays = dict[str, "NDArray"]


def title() -> str:
    """Return what computes here, MXNet's own operators, with MXNet's version."""
    import mxnet as mx

    return f"MXNet {mx.__version__}'s own operators"


def operator_outputs(symbol: Symbol) -> Symbol:
    """A symbol whose outputs are those of all operators of `symbol`, in topological order."""
    import mxnet as mx

    internals, variables = symbol.get_internals(), set(symbol.list_inputs())
    return mx.sym.Group([internals[place] for place, name in enumerate(internals.list_outputs())
                         if name not in variables])


def symbol_of(graph: SymbolGraph, whole: Symbol) -> Symbol:
    """A part of a symbol as MXNet's object."""
    import mxnet as mx

    version = json.loads(whole.tojson(remove_amp_cast=False))["attrs"]
    return mx.sym.load_json(json.dumps(graph.to_json() | {"attrs": version}))


def native_results(symbol: Symbol, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs, as MXNet's own operators compute them, of which none is fused. `arrays`: for all inputs, by name;
    labels may be missing. Raises ModelError: MXNet refuses the symbol, or fails."""
    return _results(symbol, arrays, "MXNet's own operators can't run the model", lambda arguments, states: symbol)


def partitioned_results(symbol: Symbol, arrays: Mapping[str, np.ndarray], backend: str,
                        options: Mapping[str, Any]) -> list[np.ndarray]:
    """The same, where this backend runs the regions that it takes.

    Raises:
        ModelError: as `native_results`.
        ConfigError: an option is unknown, or its value not allowed.
    """
    given = {BACKEND: backend, **{f"{PREFIX}{name}": str(value) for name, value in options.items()}}
    return _results(symbol, arrays, "MXNet can't run the model with regions of ours",
                    lambda arguments, states: symbol.optimize_for("NGRAPH", arguments, states, **given))


def _results(symbol: Symbol, arrays: Mapping[str, np.ndarray], problem: str,
             prepared: Callable[[_Arrays, _Arrays], Symbol]) -> list[np.ndarray]:
    import mxnet as mx

    from ngraph_mxnet.plugin.binding import environment
    from ngraph_mxnet.plugin.binding.compiled_bind import stock_bind

    states = set(symbol.list_auxiliary_states())
    known = {name: array for name, array in arrays.items() if name in {*symbol.list_arguments(), *states}}
    try:
        shapes, _, _ = symbol.infer_shape_partial(**{name: array.shape for name, array in known.items()})
        labels = {name: np.zeros(shape, np.float32) for name, shape in zip(symbol.list_arguments(), shapes, strict=True)
                  if name not in known}
        held = {name: mx.nd.array(array, dtype=array.dtype) for name, array in {**known, **labels}.items()}
        arguments = {name: array for name, array in held.items() if name not in states}
        auxiliary = {name: array for name, array in held.items() if name in states}
        bound = prepared(arguments, auxiliary)

        def bind() -> mx.executor.Executor:
            return stock_bind(bound, mx.cpu(), arguments, None, "null", auxiliary)

        # MXNet's default backend fuses; where ours is not activated, libmxnet does not know its name.
        executor = environment.as_written(bind) if environment.problem() is None else environment.natively(bind)
        return [output.asnumpy() for output in executor.forward(is_train=False)]
    except (mx.base.MXNetError, TypeError, ValueError) as error:
        raise ModelError(f"{problem}: {brief(error)}") from None


def imported() -> dict[str, Any]:
    """MXNet's version and library, and why the backend is not usable, None if it is; this imports MXNet."""
    import mxnet as mx

    from ngraph_mxnet.plugin.binding import environment

    return {"version": mx.__version__, "library": str(Path(mx.libinfo.find_lib_path()[0])),
            "problem": environment.problem()}


def run_trial(arrays: Mapping[str, np.ndarray], *, with_ngraph: bool) -> np.ndarray:
    """The net's result for arrays of its data and weights. The process's environment changes. Raises RuntimeError: it
    was to run compiled, and MXNet ran it; the text says why."""
    import mxnet as mx

    os.environ[names.VARIABLE] = names.BACKEND if with_ngraph else "NONE"
    given = {name: mx.nd.array(array) for name, array in arrays.items()}
    executor = _trial_net(mx).bind(mx.cpu(), given, grad_req="null")
    result = executor.forward(is_train=False)[0].asnumpy()
    if with_ngraph:
        _require_compiled()
    return np.asarray(result)


def _trial_net(mx: Any) -> Any:
    data, conv_weight, conv_bias, dense = map(mx.sym.Variable, ("data", "conv_weight", "conv_bias", "dense"))
    net = mx.sym.Convolution(data, conv_weight, conv_bias, kernel=(3, 3), pad=(1, 1), num_filter=8)
    net = mx.sym.Activation(net, act_type="relu")
    net = mx.sym.Pooling(net, kernel=(1, 1), global_pool=True, pool_type="avg")
    return mx.sym.softmax(mx.sym.FullyConnected(net, dense, num_hidden=10, no_bias=True))


def _require_compiled() -> None:
    from ngraph_mxnet.plugin.report import report

    found = report()
    if not found.calls:
        reasons = [found.problem, *(f"{one.what}: {one.reason}" for one in found.fallbacks),
                   *(f"{operator}: {reason}" for operator, reason in found.left)]
        raise RuntimeError("MXNet ran the net alone: " + ("; ".join(filter(None, reasons)) or "no reason is known"))
