"""Control flow: If, Loop and Scan.

A choice that depends on data computes both sides and selects. Bodies of loops are repeated; a loop whose course is not
known at compile time, or that is long, is run between programs. Where loops are kept, each is one node of the IR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet.base.errors import ModelError, NGraphError, UnsupportedError
from ngraph_mxnet.frontends.onnx.rules.recurrent import MOST_TRIPS
from ngraph_mxnet.frontends.onnx.rules.registry import Call, normal_axis, rule
from ngraph_mxnet.frontends.onnx.values import (
    Attributes,
    BetweenError,
    DataDependentError,
    Item,
    TakenError,
    TensorSequence,
    parts_of,
)
from ngraph_mxnet.ir import Builder, Graph, TensorType, Value
from ngraph_mxnet.ir.graph import constant_of
from ngraph_mxnet.ir.sizes import is_symbolic
from ngraph_mxnet.ir.sizes import number as number_of
from ngraph_mxnet.ir.types import boolean, i64
from ngraph_mxnet.ops.bodies import without_unread
from ngraph_mxnet.ops.compositions import flipped, moved_axis, place_of, stacked, with_axis

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class ScanAxes:
    """Along which axis each scanned input is read and each scanned output written, and where that is backwards.

    `is_batched`: opset 8, where all axes are those of one element of a batch.
    """

    in_axes: tuple[int, ...]
    in_back: tuple[int, ...]
    out_axes: tuple[int, ...]
    out_back: tuple[int, ...]
    is_batched: bool


def scan_axes(attrs: Attributes, scanned: int, outputs: int, opset: int) -> ScanAxes:
    """Read the axes of a Scan with `scanned` scanned inputs and `outputs` scan outputs.

    Raises:
        ModelError: an attribute has another number of entries.
    """
    def entries(name: str, count: int) -> tuple[int, ...]:
        found: tuple[int, ...] = attrs.ints(name, (0,) * count)
        if len(found) != count:
            raise ModelError(f"{name}={found}: expected {count} numbers")
        return found

    if opset < 9:
        return ScanAxes((0,) * scanned, entries("directions", scanned), (0,) * outputs, (0,) * outputs, is_batched=True)
    return ScanAxes(entries("scan_input_axes", scanned), entries("scan_input_directions", scanned),
                    entries("scan_output_axes", outputs), entries("scan_output_directions", outputs), is_batched=False)


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
    if known is None and (kept := _kept(call, lambda: _kept_choice(b, call, condition))) is not None:
        return kept
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
    if (kept := _kept(call, lambda: _kept_loop(b, call, body))) is not None:
        return kept
    trips = None
    if call.optional(0) is not None:
        trips = number_of(_known(call, call.input(0), "the trip count (input 0)").reshape(-1)[0])
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
            row.append(with_axis(b, value, 0))
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
def scan(b: Builder, call: Call) -> list[Item]:
    """The body is repeated in the graph for each place along the scanned axes, in opset 8 for each element of a batch,
    too, where that does not get long; else it is run between programs, if it can be."""
    body, scanned = call.attrs.graph("body"), call.attrs.int("num_scan_inputs")
    first = 1 if call.opset < 9 else 0
    values = [call.input(i) for i in range(first, len(call.inputs))]
    count = len(values) - scanned
    axes = scan_axes(call.attrs, scanned, len(body.output) - count, call.opset)
    if not 0 < scanned <= len(values):
        raise ModelError(f"num_scan_inputs={scanned} of {len(values)} inputs")
    if not first and (kept := _kept(call, lambda: _kept_scan(b, call, body, values, count, axes))) is not None:
        return kept
    if not first:
        _require_trips(call, values[count].shape[normal_axis(axes.in_axes[0], values[count].rank)])
        return [*_scanned(b, call, body, values, count, axes)]
    if call.optional(0) is not None:
        raise (BetweenError if call.runs_between else UnsupportedError)("sequence_lens of opset 8")
    for trips in (values[count].shape[1], prod(values[count].shape[:2])):
        _require_trips(call, trips)
    batches = [_scanned(b, call, body, [place_of(b, value, 0, i) for value in values], count, axes)
               for i in range(values[0].shape[0])]
    return [stacked(b, parts) for parts in zip(*batches, strict=True)]


def _require_trips(call: Call, trips: int) -> None:
    if call.runs_between and is_symbolic(trips):
        raise BetweenError("the number of its steps changes")
    if not 0 < trips <= MOST_TRIPS:
        raise (BetweenError if call.runs_between else UnsupportedError)(f"{trips} steps; supported: 1 to {MOST_TRIPS}")


def _scanned(b: Builder, call: Call, body: onnx.GraphProto, values: list[Value], count: int,
             axes: ScanAxes) -> list[Value]:
    """The results of a Scan: the first `count` of the values are the state, the others are scanned."""
    state, inputs = values[:count], values[count:]
    places = [normal_axis(axis, value.rank) for axis, value in zip(axes.in_axes, inputs, strict=True)]
    inputs = [flipped(b, value, axis) if back else value
              for value, axis, back in zip(inputs, places, axes.in_back, strict=True)]
    rows: list[list[Value]] = [[] for _ in axes.out_axes]
    trips, begin = inputs[0].shape[places[0]], len(b.graph.nodes)
    for trip in range(trips):
        slices = [place_of(b, value, axis, trip) for value, axis in zip(inputs, places, strict=True)]
        results = [_tensor(item) for item in _trip(call, body, [*state, *slices])]
        state = results[:count]
        for row, value in zip(rows, results[count:], strict=True):
            row.append(value)
        _require_short(b, call, begin, trip + 1, trips)
    return [*state, *(stacked(b, row[::-1] if back else row, normal_axis(axis, row[0].rank + 1))
                      for row, axis, back in zip(rows, axes.out_axes, axes.out_back, strict=True))]


# ---- kept, as nodes of the IR that run graphs ----------------------------------------------------------

MOST_PLACES = 1 << 20
"""The most trips of a loop that is kept as one over an array of their numbers."""
_FOREVER = (1 << 62) - 1
_TRIP = TensorType(i64, ())


def _kept(call: Call, make: Callable[[], list[Item] | None]) -> list[Item] | None:
    """What `make` appends and gives, if loops are kept and it can; else None."""
    if call.graphs is None:
        return None
    undo = call.mark()
    try:
        made = make()
    except NGraphError:
        made = None
    if made is None:
        undo()
    return made


def _added(b: Builder, op: str, operands: Sequence[Value], fixed: int, **attrs: Any) -> list[Value]:
    """A node whose first `fixed` operands change from trip to trip; its bodies are among `attrs`."""
    bodies = [body for body in attrs.values() if isinstance(body, Graph)]
    return list(b.node(op, without_unread(operands, fixed, *bodies), attrs).outputs)


def _kept_choice(b: Builder, call: Call, condition: Value) -> list[Item]:
    (then, otherwise), captured = call.graphs(  # type: ignore[misc]
        [call.attrs.graph("then_branch"), call.attrs.graph("else_branch")], [])
    operands = [b.reshape(condition, shape=()), *without_unread(captured, 0, then, otherwise)]
    return [*b.node("cond", operands, {"then": then, "otherwise": otherwise}).outputs]


def _kept_loop(b: Builder, call: Call, body: onnx.GraphProto) -> list[Item] | None:
    """A loop over the numbers of its trips, if these are known and it goes on after each; one with a condition
    otherwise, if it has no rows, whose number is unknown then."""
    state = [call.input(position) for position in range(2, len(call.inputs))]
    limit, going = call.optional(0), call.optional(1)
    (graph,), captured = call.graphs([body], [_TRIP, np.array(True), *(value.type for value in state)])  # type: ignore[misc]
    trips = None if limit is None else call.static_value(limit)
    begins = np.array(True) if going is None else call.static_value(going)
    goes_on, *graph.results = graph.results
    always = constant_of(goes_on)
    is_counted = always is not None and always.all() and begins is not None and begins.all()
    if is_counted and trips is not None and not is_symbolic(trips.reshape(-1)[0]) and 1 <= trips.item() <= MOST_PLACES:
        graph.remove_dead()
        numbers = b.constant(np.arange(trips.item(), dtype=np.int64))
        return [*_added(b, "foreach", [numbers, *state, *captured], 1 + len(state), body=graph, data=1,
                        states=len(state))]
    if len(graph.results) > len(state):
        return None
    within, test = Builder(graph), Builder(name="condition")
    goes, most = within.parameter("goes_on", (), boolean), within.parameter("most", (), i64)
    trip, *others = graph.parameters[:-2]
    graph.parameters = [trip, goes, *others, most]
    within.results(within.add(trip, within.constant(1, "i64")), within.reshape(goes_on, shape=()), *graph.results)
    trip, goes, *_, most = (test.parameter(value.name, value.shape, value.type.element) for value in graph.parameters)
    condition = test.results(test.logical_and(goes, test.less(trip, most)))
    flag = b.constant(True, "bool") if going is None else b.reshape(going, shape=())
    bound = b.constant(_FOREVER, "i64") if limit is None else b.reshape(limit, shape=())
    found = _added(b, "while_loop", [b.constant(0, "i64"), flag, *state, *captured, bound], 2 + len(state),
                   condition=condition, body=graph, variables=2 + len(state), trips=_FOREVER)
    return [*found[2:]]


def _kept_scan(b: Builder, call: Call, body: onnx.GraphProto, values: Sequence[Value], count: int,
               axes: ScanAxes) -> list[Item]:
    state, inputs = list(values[:count]), _along(b, values[count:], axes)
    places = [value.type.with_shape(value.shape[1:]) for value in inputs]
    (graph,), captured = call.graphs([body], [*(value.type for value in state), *places])  # type: ignore[misc]
    fixed = len(values)
    graph.parameters[:fixed] = [*graph.parameters[count:fixed], *graph.parameters[:count]]
    found = _added(b, "foreach", [*inputs, *state, *captured], fixed, body=graph, data=len(inputs), states=count)
    rows = [moved_axis(b, flipped(b, row, 0) if back else row, 0, normal_axis(axis, row.rank))
            for row, axis, back in zip(found[count:], axes.out_axes, axes.out_back, strict=True)]
    return [*found[:count], *rows]


def _along(b: Builder, values: Sequence[Value], axes: ScanAxes) -> list[Value]:
    """What a Scan reads, along axis 0."""
    ordered = [moved_axis(b, value, normal_axis(axis, value.rank), 0)
               for value, axis in zip(values, axes.in_axes, strict=True)]
    return [flipped(b, value, 0) if back else value for value, back in zip(ordered, axes.in_back, strict=True)]
