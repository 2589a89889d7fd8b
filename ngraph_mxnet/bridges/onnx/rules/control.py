"""Control flow whose course is known at compile time; a choice that depends on data computes both and selects."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ngraph_mxnet.bridges.onnx.rules.common import Ints, normal_axis
from ngraph_mxnet.bridges.onnx.rules.registry import Call, rule
from ngraph_mxnet.bridges.onnx.values import DataDependentError, Item, TakenError, TensorSequence, parts_of
from ngraph_mxnet.compositions.tensors import flipped, slice_axis
from ngraph_mxnet.errors import ModelError, NGraphError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value

if TYPE_CHECKING:
    import onnx

MOST_TRIPS = 1000
"""The most turns of a loop, whose body is repeated in the graph."""


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
    """What lowering a branch gives; no results where there is an error."""

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
    """The body is repeated in the graph: the trip count and the condition after each trip must be known when it is
    compiled."""
    body = call.attrs.graph("body")
    trips = call.static_ints(0, "the trip count")[0] if call.optional(0) is not None else MOST_TRIPS + 1
    going = call.static(1, "the condition").all() if call.optional(1) is not None else True
    state: list[Item] = [call.item(i) for i in range(2, len(call.inputs))]
    count = len(state)
    rows: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - count)]
    trip = 0
    while trip < trips and going:
        if trip == MOST_TRIPS:
            raise UnsupportedError(f"more than {MOST_TRIPS} trips")
        results = call.lower_body(body, [b.constant(trip, "i64"), b.constant(True, "bool"), *state])
        goes_on = call.required_value(_tensor(results[0]))
        if goes_on is None:
            raise DataDependentError("whether it goes on after a trip depends on the data; "
                                     "it must be known at compile time")
        going, state, trip = bool(goes_on.all()), results[1 : 1 + count], trip + 1
        for row, item in zip(rows, results[1 + count :], strict=True):
            value = _tensor(item)
            row.append(b.reshape(value, shape=(1, *value.shape)))
    if rows and not trip:
        raise UnsupportedError("no trip: the shapes of its rows are unknown")
    return [*state, *(b.concat(*row, axis=0) for row in rows)]


@rule("Scan")
def scan(b: Builder, call: Call) -> list[Value]:
    """The body is repeated in the graph for each place along the scanned axes; in opset 8 for each element of a batch,
    too."""
    attrs, body, scanned = call.attrs, call.attrs.graph("body"), call.attrs.int("num_scan_inputs")
    first = 1 if call.opset < 9 else 0
    if first and call.optional(0) is not None:
        raise UnsupportedError("sequence_lens of opset 8")
    values = [call.input(i) for i in range(first, len(call.inputs))]
    count = len(values) - scanned
    outputs = len(body.output) - count
    if first:
        backwards = attrs.ints("directions", (0,) * scanned)
        if values[count:] and prod(values[count].shape[:2]) > MOST_TRIPS:
            raise UnsupportedError(f"more than {MOST_TRIPS} steps in all elements of the batch")
        batches = [_scanned(b, call, body, [_element(b, value, i) for value in values], count, (0,) * scanned,
                            (0,) * outputs, backwards, (0,) * outputs) for i in range(values[0].shape[0])]
        return [b.concat(*(b.reshape(part, shape=(1, *part.shape)) for part in parts), axis=0)
                for parts in zip(*batches, strict=True)]
    in_axes, in_back = (attrs.ints(name, (0,) * scanned) for name in ("scan_input_axes", "scan_input_directions"))
    out_axes, out_back = (attrs.ints(name, (0,) * outputs) for name in ("scan_output_axes", "scan_output_directions"))
    return _scanned(b, call, body, values, count, in_axes, out_axes, in_back, out_back)


def _element(b: Builder, x: Value, place: int) -> Value:
    """x[place]"""
    return b.reshape(slice_axis(b, x, 0, place, place + 1), shape=x.shape[1:])


def _scanned(b: Builder, call: Call, body: onnx.GraphProto, values: list[Value], count: int, in_axes: Ints,
             out_axes: Ints, in_back: Ints, out_back: Ints) -> list[Value]:
    """The results of a Scan: the first `count` of the values are the state, the others are scanned."""
    state, inputs = values[:count], values[count:]
    places = [normal_axis(axis, value.type.rank) for axis, value in zip(in_axes, inputs, strict=True)]
    inputs = [flipped(b, value, axis) if back else value
              for value, axis, back in zip(inputs, places, in_back, strict=True)]
    trips = inputs[0].shape[places[0]] if inputs else 0
    if not 0 < trips <= MOST_TRIPS:
        raise UnsupportedError(f"{trips} steps; supported: 1 to {MOST_TRIPS}")
    rows: list[list[Value]] = [[] for _ in out_axes]
    for trip in range(trips):
        slices = [b.reshape(slice_axis(b, value, axis, trip, trip + 1),
                            shape=(*value.shape[:axis], *value.shape[axis + 1 :]))
                  for value, axis in zip(inputs, places, strict=True)]
        results = [_tensor(item) for item in call.lower_body(body, [*state, *slices])]
        state = results[:count]
        for row, value in zip(rows, results[count:], strict=True):
            row.append(value)
    stacked = [_stacked(b, row, axis, bool(back)) for row, axis, back in zip(rows, out_axes, out_back, strict=True)]
    return [*state, *stacked]


def _stacked(b: Builder, row: list[Value], axis: int, back: bool) -> Value:
    shape = row[0].shape
    place = normal_axis(axis, len(shape) + 1)
    parts = [b.reshape(value, shape=(*shape[:place], 1, *shape[place:])) for value in (reversed(row) if back else row)]
    return b.concat(*parts, axis=place)
