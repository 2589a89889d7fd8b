"""One program that updates all parameters of an optimizer, on their own arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mxnet.ndarray import NDArray

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.packaged import cached_programs
from ngraph_mxnet.bridges.mxnet.training.updates.optimizers import Rule
from ngraph_mxnet.cache import cpu_features
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.ir.graph import Graph, Value

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


def bound_update(kind: str, rule: Rule, flags: tuple[str, ...], arrays: Sequence[Sequence[NDArray]],
                 shared: Sequence[str], own: Sequence[str]) -> Any:
    """The `_core.BoundGraph` that updates weights and states in place; its `run` is given the numbers.

    Args:
        kind: the name of the optimizer's class, which tells one rule from another.
        arrays: for each parameter weight, gradient and states.

    Raises:
        UnsupportedError: it can't be on these arrays; the text says why.
    """
    from ngraph_mxnet import _core

    shapes = [row[0].shape for row in arrays]
    key = repr(("update", kind, flags, shapes, list(shared), list(own), config.compile_settings(), cpu_features()))
    program: Any
    _, (program,) = cached_programs(key, lambda: ({}, [_compiled(rule, flags, shapes, shared, own)]), small=True)
    rows = [[array.handle.value for array in row] for row in arrays]
    inputs = [handle for row in rows for handle in row]
    outputs = [handle for weight, _, *states in rows for handle in (weight, *states)]
    bound = _core.BoundGraph(program.native, inputs, outputs, in_place=True, given=True)
    if not bound.possible:
        raise UnsupportedError("an array is none of MXNet's plain ones, or shares its memory with another")
    return bound


def _compiled(rule: Rule, flags: tuple[str, ...], shapes: Sequence[Sequence[int]], shared: Sequence[str],
              own: Sequence[str]) -> Any:
    """
    Raises:
        UnsupportedError: a result can't be written over the array that it replaces.
    """
    from ngraph_mxnet.runtime.compile import compile as compile_graph

    graph = update_graph(rule, flags, shapes, shared, own)
    executable: Any = compile_graph(graph, "CPU", chains=1, codegen=0, autotune=0, precision="f32")
    states = rule.states(flags)
    replaced = [first + place for first in range(1, len(graph.parameters), 2 + states)  # the numbers are the first
                for place in (0, *range(2, 2 + states))]
    reason = executable.in_the_way(dict(enumerate(replaced)))
    if reason is not None:
        raise UnsupportedError(reason)
    return executable
