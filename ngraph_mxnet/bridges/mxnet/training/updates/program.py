"""One program that updates all parameters of an optimizer, on their own arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mxnet.ndarray import NDArray

from ngraph_mxnet.bridges.mxnet.training.updates.optimizers import Rule
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.ir.graph import Graph, Value
from ngraph_mxnet.runtime.compile import compile as compile_graph

NUMBERS = "numbers"


def update_graph(rule: Rule, flags: tuple[str, ...], shapes: Sequence[Sequence[int]], shared: Sequence[str],
                 own: Sequence[str]) -> Graph:
    """The update of parameters of these shapes.

    Its parameters are the numbers, f32 of shape (shared + shapes * own,), those that are `shared` first and then each
    parameter's `own`; and for each parameter weight, gradient and states. Its results are for each the new weight and
    states.
    """
    b = Builder(name="update")
    numbers = b.parameter(NUMBERS, (len(shared) + len(shapes) * len(own),))

    def number(place: int) -> Value:
        found: Value = b.slice(numbers, begin=(place,), end=(place + 1,))
        return found

    common = {name: number(place) for place, name in enumerate(shared)}
    results: list[Value] = []
    for position, shape in enumerate(shapes):
        first = len(shared) + position * len(own)
        mine = {name: number(first + place) for place, name in enumerate(own)}
        weight, gradient, *states = (b.parameter(f"{kind}{position}", shape) for kind in
                                     ("weight", "gradient", *(f"state{i}_" for i in range(rule.states(flags)))))
        results += rule.formula(b, weight, gradient, states, {**common, **mine}, flags)
    return b.results(*results)


def bound_update(rule: Rule, flags: tuple[str, ...], arrays: Sequence[Sequence[NDArray]], shared: Sequence[str],
                 own: Sequence[str]) -> Any:
    """The `_core.BoundGraph` that updates weights and states in place; its `run` is given the numbers.

    Args:
        arrays: for each parameter weight, gradient and states.

    Raises:
        UnsupportedError: it can't be on these arrays; the text says why.
    """
    from ngraph_mxnet import _core

    graph = update_graph(rule, flags, [row[0].shape for row in arrays], shared, own)
    executable: Any = compile_graph(graph, "CPU", chains=1, codegen=0, autotune=0, precision="f32")
    rows = [[array.handle.value for array in row] for row in arrays]
    inputs = [handle for row in rows for handle in row]
    outputs = [handle for weight, _, *states in rows for handle in (weight, *states)]
    places = {handle: place for place, handle in enumerate(inputs, 1)}  # the numbers are the first input
    reason = executable.in_the_way({result: places[handle] for result, handle in enumerate(outputs)})
    if reason is not None:
        raise UnsupportedError(reason)
    bound = _core.BoundGraph(executable.native, inputs, outputs, in_place=True, given=True)
    if not bound.possible:
        raise UnsupportedError("an array is none of MXNet's plain ones, or shares its memory with another")
    return bound
