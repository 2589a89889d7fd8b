"""Control flow whose course is known at compile time; a choice that depends on data computes both and selects, and a
loop that does, or that is long, is run between programs."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ngraph_mxnet.bridges.onnx.loops import ScanAxes, scan_axes
from ngraph_mxnet.bridges.onnx.rules.registry import Call, normal_axis, rule
from ngraph_mxnet.bridges.onnx.values import (
    BetweenError,
    DataDependentError,
    Item,
    TakenError,
    TensorSequence,
    parts_of,
)
from ngraph_mxnet.compositions.tensors import flipped, slice_axis
from ngraph_mxnet.errors import ModelError, NGraphError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.sizes import is_symbolic, number

if TYPE_CHECKING:
    import onnx

MOST_TRIPS = 1000
"""The most turns of a loop whose body is repeated in the graph because it can't be run between programs."""
MOST_UNROLLED = 1024
"""The most nodes of the IR that all trips come to, if the body is repeated though the loop could be run. A node takes
0.18 ms to compile, a trip that is run 5 us more than one that is repeated: up to here a model waits 0.2 s once,
which 36 calls for each node of the body make good (AMD Zen 5, one thread)."""


@rule("If")
def if_(b: Builder, call: Call) -> list[Item]:
    """The branch that is taken. Where that depends on the data, a selection of the results of both, if both can be
    lowered and have equal types."""
    condition = call.input(0)
    yes, no = call.attrs.graph("then_branch"), call.attrs.graph("else_branch")
    known, undo = call.static_value(condition), call.mark()
    if known is None:
        taken, other = (_lowered(call, name) for name in ("then_branch", "else_branch"))
        misfit = _misfit(taken, other)
        if not misfit:
            flag = b.reshape(condition, shape=())
            return [_selected(b, flag, left, right) for left, right in zip(taken.results, other.results, strict=True)]
        undo()
        known = call.decision(condition)
        if known is None:
            advice = "" if call.may_end else "; within a loop or function both must fit, or the condition be known"
            raise DataDependentError(f"which branch is taken depends on the data, and {misfit}{advice}")
    branch, undo = yes if bool(known.reshape(-1)[0]) else no, call.mark()
    try:
        return call.lower_body(branch, [])
    except DataDependentError as error:
        undo()
        raise TakenError(str(error), branch) from None


@dataclass(frozen=True)
class _Branch:
    """The result of lowering a branch; there are no results where there is an error."""

    name: str
    results: list[Item]
    error: NGraphError | None = None


def _lowered(call: Call, name: str) -> _Branch:
    try:
        return _Branch(name, call.lower_body(call.attrs.graph(name), []))
    except (ModelError, UnsupportedError) as error:
        return _Branch(name, [], error)


def _misfit(*branches: _Branch) -> str:
    """Why there is nothing to select between; empty if there is.

    Raises:
        ModelError, UnsupportedError: no branch can be lowered, whatever the data.
    """
    errors = {branch.name: branch.error for branch in branches if branch.error is not None}
    if len(errors) == len(branches) and not any(isinstance(error, DataDependentError) for error in errors.values()):
        raise type(next(iter(errors.values())))("; ".join(f"{name}: {error}" for name, error in errors.items()))
    if errors:
        return "; ".join(f"{name} can't be lowered for these inputs: {error}" for name, error in errors.items())
    types = [[_type(item) for item in branch.results] for branch in branches]
    return f"the branches' results differ in type: {types[0]} and {types[1]}" if types[0] != types[1] else ""


def _type(item: Item) -> tuple[str, ...]:
    return type(item).__name__, *(str(value.type) for value in parts_of(item))


def _selected(b: Builder, flag: Value, left: Item, right: Item) -> Item:
    if isinstance(left, Value):
        return b.select(flag, left, right)
    pairs = zip(parts_of(left), parts_of(right), strict=True)
    return TensorSequence(tuple(b.select(flag, *pair) for pair in pairs)) if isinstance(left, TensorSequence) else left


def _tensor(item: Item) -> Value:
    if not isinstance(item, Value):
        raise ModelError("its subgraph gives a sequence or optional where a tensor belongs")
    return item


@rule("Loop")
def loop(b: Builder, call: Call) -> list[Item]:
    """The body is repeated in the graph, where the trip count and the condition after each trip are known when it is
    compiled and it does not get long; else it is run between programs, if it can be."""
    body = call.attrs.graph("body")
    trips = None
    if call.optional(0) is not None:
        trips = number(_known(call, call.input(0), "the trip count (input 0)").reshape(-1)[0])
    going = call.optional(1) is None or bool(_known(call, call.input(1), "the condition (input 1)").all())
    state: list[Item] = [call.item(i) for i in range(2, len(call.inputs))]
    count = len(state)
    rows: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - count)]
    if call.runs_between and is_symbolic(trips):
        raise BetweenError("its trip count changes")
    trip, begin = 0, len(b.graph.nodes)
    while (trips is None or trip < trips) and going:
        if trip == MOST_TRIPS:
            raise (BetweenError if call.runs_between else UnsupportedError)(f"more than {MOST_TRIPS} trips")
        results = _trip(call, body, [b.constant(trip, "i64"), b.constant(True, "bool"), *state])
        going = bool(_known(call, _tensor(results[0]), "whether it goes on after a trip").all())
        state, trip = results[1 : 1 + count], trip + 1
        for row, item in zip(rows, results[1 + count :], strict=True):
            value = _tensor(item)
            row.append(b.reshape(value, shape=(1, *value.shape)))
        _require_short(b, call, begin, trip, trip if trips is None else trips)
    if rows and not trip:
        raise (BetweenError if call.runs_between else UnsupportedError)("no trip: the shapes of its rows are unknown")
    return [*state, *(b.concat(*row, axis=0) for row in rows)]


def _require_short(b: Builder, call: Call, begin: int, done: int, trips: int) -> None:
    """Raise BetweenError if a loop that may run between programs would unroll to more than MOST_UNROLLED nodes. `done`
    of `trips` trips are lowered; their nodes begin at `begin`."""
    nodes = (len(b.graph.nodes) - begin) * trips // done
    if call.runs_between and nodes > MOST_UNROLLED:
        raise BetweenError(f"its trips come to {nodes} nodes, more than {MOST_UNROLLED}")


def _known(call: Call, value: Value, what: str) -> np.ndarray:
    """The elements of what decides about the course of a loop."""
    found = call.static_value(value) if call.runs_between else call.required_value(value)
    if found is None:
        error = BetweenError if call.runs_between else DataDependentError
        raise error(f"{what} depends on the data; it must be known at compile time")
    return found


def _trip(call: Call, body: onnx.GraphProto, values: list[Item]) -> list[Item]:
    try:
        return call.lower_body(body, values)
    except DataDependentError as error:
        raise (BetweenError(str(error)) if call.runs_between else error) from None


@rule("Scan")
def scan(b: Builder, call: Call) -> list[Value]:
    """The body is repeated in the graph for each place along the scanned axes, in opset 8 for each element of a batch,
    too, where that does not get long; else it is run between programs, if it can be."""
    body, scanned = call.attrs.graph("body"), call.attrs.int("num_scan_inputs")
    first = 1 if call.opset < 9 else 0
    values = [call.input(i) for i in range(first, len(call.inputs))]
    count = len(values) - scanned
    axes = scan_axes(call.attrs, scanned, len(body.output) - count, call.opset)
    if not 0 < scanned <= len(values):
        raise ModelError(f"num_scan_inputs={scanned} of {len(values)} inputs")
    if not first:
        _require_trips(call, values[count].shape[normal_axis(axes.in_axes[0], values[count].type.rank)])
        return _scanned(b, call, body, values, count, axes)
    if call.optional(0) is not None:
        raise (BetweenError if call.runs_between else UnsupportedError)("sequence_lens of opset 8")
    for trips in (values[count].shape[1], prod(values[count].shape[:2])):
        _require_trips(call, trips)
    batches = [_scanned(b, call, body, [_element(b, value, i) for value in values], count, axes)
               for i in range(values[0].shape[0])]
    return [b.concat(*(b.reshape(part, shape=(1, *part.shape)) for part in parts), axis=0)
            for parts in zip(*batches, strict=True)]


def _require_trips(call: Call, trips: int) -> None:
    if call.runs_between and is_symbolic(trips):
        raise BetweenError("the number of its steps changes")
    if not 0 < trips <= MOST_TRIPS:
        raise (BetweenError if call.runs_between else UnsupportedError)(f"{trips} steps; supported: 1 to {MOST_TRIPS}")


def _element(b: Builder, x: Value, place: int) -> Value:
    """x[place]"""
    return b.reshape(slice_axis(b, x, 0, place, place + 1), shape=x.shape[1:])


def _scanned(b: Builder, call: Call, body: onnx.GraphProto, values: list[Value], count: int,
             axes: ScanAxes) -> list[Value]:
    """The results of a Scan: the first `count` of the values are the state, the others are scanned."""
    state, inputs = values[:count], values[count:]
    places = [normal_axis(axis, value.type.rank) for axis, value in zip(axes.in_axes, inputs, strict=True)]
    inputs = [flipped(b, value, axis) if back else value
              for value, axis, back in zip(inputs, places, axes.in_back, strict=True)]
    rows: list[list[Value]] = [[] for _ in axes.out_axes]
    trips, begin = inputs[0].shape[places[0]], len(b.graph.nodes)
    for trip in range(trips):
        slices = [b.reshape(slice_axis(b, value, axis, trip, trip + 1),
                            shape=(*value.shape[:axis], *value.shape[axis + 1 :]))
                  for value, axis in zip(inputs, places, strict=True)]
        results = [_tensor(item) for item in _trip(call, body, [*state, *slices])]
        state = results[:count]
        for row, value in zip(rows, results[count:], strict=True):
            row.append(value)
        _require_short(b, call, begin, trip + 1, trips)
    stacked = [_stacked(b, row, axis, bool(back))
               for row, axis, back in zip(rows, axes.out_axes, axes.out_back, strict=True)]
    return [*state, *stacked]


def _stacked(b: Builder, row: list[Value], axis: int, back: bool) -> Value:
    shape = row[0].shape
    place = normal_axis(axis, len(shape) + 1)
    parts = [b.reshape(value, shape=(*shape[:place], 1, *shape[place:])) for value in (reversed(row) if back else row)]
    return b.concat(*parts, axis=place)
