"""`autograd.grad(create_graph=True)` through what was compiled: an error, as through MXNet's own hybridized blocks.

MXNet would take our part's gradient for a constant, and tell nobody.
"""

from __future__ import annotations

import functools
from typing import Any

from mxnet import autograd
from mxnet.base import MXNetError

from ngraph_mxnet.bridges.mxnet.judging import partitioner

stock_grad = autograd.grad

_NODE = '"op": "_CustomFunction"'


def install() -> None:
    autograd.grad = grad


@functools.wraps(stock_grad)
def grad(heads: Any, variables: Any, head_grads: Any = None, retain_graph: Any = None, create_graph: bool = False,
         train_mode: bool = True) -> Any:
    """MXNet's.

    Raises:
        MXNetError: gradients of gradients are wanted of a compiled call.
    """
    from ngraph_mxnet import _core

    if create_graph and _core.is_any_recorded():
        for head in heads if isinstance(heads, (list, tuple)) else [heads]:
            if _NODE in partitioner.json_of(autograd.get_symbol(head)):
                raise MXNetError("a hybridized block that is compiled does not support higher order gradients, nor do "
                                 "MXNet's own; please do not use hybridize if you want create_graph=True")
    return stock_grad(heads, variables, head_grads, retain_graph, create_graph, train_mode)
