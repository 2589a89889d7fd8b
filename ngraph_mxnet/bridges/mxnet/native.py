"""What MXNet's own operators compute of a symbol, one by one: nothing is fused, nothing is ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ngraph_mxnet.bridges.mxnet.binding.fallbacks import brief
from ngraph_mxnet.errors import ModelError

if TYPE_CHECKING:
    from mxnet.symbol import Symbol


def title() -> str:
    """What computes here, and its version."""
    import mxnet as mx

    return f"MXNet {mx.__version__}'s own operators"


def operator_outputs(symbol: Symbol) -> Symbol:
    """A symbol whose outputs are those of all operators of `symbol`, in topological order."""
    import mxnet as mx

    internals, variables = symbol.get_internals(), set(symbol.list_inputs())
    return mx.sym.Group([internals[place] for place, name in enumerate(internals.list_outputs())
                         if name not in variables])


def native_results(symbol: Symbol, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs at inference. `arrays`: for all inputs, by name; labels may be missing.

    Raises:
        ModelError: MXNet refuses the symbol, or fails.
    """
    import mxnet as mx

    from ngraph_mxnet.bridges.mxnet.binding import environment
    from ngraph_mxnet.bridges.mxnet.binding.compiled_bind import stock_bind

    names = {*symbol.list_arguments(), *symbol.list_auxiliary_states()}
    states = set(symbol.list_auxiliary_states())
    known = {name: array for name, array in arrays.items() if name in names}
    try:
        shapes, _, _ = symbol.infer_shape_partial(**{name: array.shape for name, array in known.items()})
        labels = {name: np.zeros(shape, np.float32) for name, shape in zip(symbol.list_arguments(), shapes, strict=True)
                  if name not in known}
        held = {name: mx.nd.array(array, dtype=array.dtype) for name, array in {**known, **labels}.items()}
        arguments = {name: array for name, array in held.items() if name not in states}
        auxiliary = {name: array for name, array in held.items() if name in states}

        def bind() -> mx.executor.Executor:
            return stock_bind(symbol, mx.cpu(), arguments, None, "null", auxiliary)

        # MXNet's default backend fuses; where ours is not activated, libmxnet does not know its name.
        executor = environment.as_written(bind) if environment.problem() is None else environment.natively(bind)
        return [output.asnumpy() for output in executor.forward(is_train=False)]
    except (mx.base.MXNetError, TypeError, ValueError) as error:
        raise ModelError(f"MXNet's own operators can't run the model (the interpreter may): {brief(error)}") from None
