"""MXNet's part of `doctor`'s trial: the same small net, in MXNet alone and with this package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.bridges.mxnet.binding import environment
from ngraph_mxnet_autoload.names import BACKEND, VARIABLE


def imported() -> dict[str, Any]:
    """MXNet's version and library, and why the backend is not usable, None if it is; this imports MXNet."""
    import mxnet as mx

    return {"version": mx.__version__, "library": str(Path(mx.libinfo.find_lib_path()[0])),
            "problem": environment.problem()}


def run(arrays: Mapping[str, np.ndarray], *, with_ngraph: bool) -> np.ndarray:
    """The net's result for arrays of its data and weights. The process's environment changes.

    Raises:
        RuntimeError: it was to run compiled, and MXNet ran it; the text says why.
    """
    import mxnet as mx

    os.environ[VARIABLE] = BACKEND if with_ngraph else "NONE"
    executor = _net(mx).bind(mx.cpu(), {name: mx.nd.array(array) for name, array in arrays.items()}, grad_req="null")
    result = executor.forward(is_train=False)[0].asnumpy()
    if with_ngraph:
        _require_compiled()
    return np.asarray(result)


def _net(mx: Any) -> Any:
    names = ("data", "conv_weight", "conv_bias", "dense")
    data, conv_weight, conv_bias, dense = (mx.sym.Variable(name) for name in names)
    net = mx.sym.Convolution(data, conv_weight, conv_bias, kernel=(3, 3), pad=(1, 1), num_filter=8)
    net = mx.sym.Activation(net, act_type="relu")
    net = mx.sym.Pooling(net, kernel=(1, 1), global_pool=True, pool_type="avg")
    return mx.sym.softmax(mx.sym.FullyConnected(net, dense, num_hidden=10, no_bias=True))


def _require_compiled() -> None:
    from ngraph_mxnet.bridges.mxnet.report import report

    found = report()
    if not found.calls:
        reasons = [found.problem, *(f"{one.what}: {one.reason}" for one in found.fallbacks),
                   *(f"{operator}: {reason}" for operator, reason in found.left)]
        raise RuntimeError("MXNet ran the net alone: " + ("; ".join(filter(None, reasons)) or "no reason is known"))
