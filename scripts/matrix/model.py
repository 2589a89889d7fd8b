"""What a library gives: a network, traced, and data for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mxnet.gluon import HybridBlock
    from mxnet.symbol import Symbol

Inputs = dict[str, np.ndarray]


class NotOffline(Exception):  # noqa: N818  # no error: such a model is left out
    """The model can't be had with random weights and without a download; the text says why."""


@dataclass(frozen=True)
class Model:
    """A network and its data.

    `net`: called with a Symbol for each of `inputs`, in their order, it gives symbols. `kind`: how outputs are
    compared (compare.py). `call`: in place of calling `net`, for nets with arguments of other kinds.
    """

    net: HybridBlock
    inputs: Inputs
    kind: str = "values"
    call: Callable[..., Any] | None = None

    def trace(self) -> Symbol:
        """The network as one symbol, whose arguments are `inputs` and the net's parameters."""
        import mxnet as mx

        variables = [mx.sym.Variable(name) for name in self.inputs]
        outputs = list(_flat((self.call or self.net)(*variables)))
        return outputs[0] if len(outputs) == 1 else mx.sym.Group(outputs)

    def constants(self) -> Inputs:
        """Parameters that are no weights, by name."""
        import mxnet as mx

        return {name: np.asarray(parameter.value.asnumpy()) for name, parameter in self.net.collect_params().items()
                if isinstance(parameter, mx.gluon.Constant)}


def _flat(value: Any) -> Iterator[Any]:
    """The symbols in nested lists, tuples and mappings."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, Mapping):
        yield from _flat(list(value.values()))
    elif value is not None:
        yield value


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(high: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Integers in [0, high) as float32, which is how MXNet's models take token numbers."""
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.float32)
