"""Control flow whose course is known at compile time; a choice that depends on data computes both and selects."""

from __future__ import annotations

from ngraph_mxnet.compositions.tensors import flipped, slice_axis
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.onnx_bridge.rules.common import normal_axis
from ngraph_mxnet.onnx_bridge.rules.registry import Call, rule

MOST_TRIPS = 1000
"""Of a loop, whose body is repeated in the graph."""


@rule("If")
def if_(b: Builder, call: Call) -> list[Value]:
    """The branch that is taken, or a selection of the results of both, if they have equal types."""
    condition = call.input(0)
    known = call.static_value(condition)
    yes, no = call.attrs.graph("then_branch"), call.attrs.graph("else_branch")
    if known is not None:
        return call.lower_body(yes if bool(known.reshape(-1)[0]) else no, [])
    taken, other = call.lower_body(yes, []), call.lower_body(no, [])
    if [value.type for value in taken] != [value.type for value in other]:
        raise UnsupportedError("the condition depends on the data, and the branches' results differ in type: "
                               f"{[str(v.type) for v in taken]} and {[str(v.type) for v in other]}")
    flag = b.reshape(condition, shape=())
    return [b.select(flag, left, right) for left, right in zip(taken, other, strict=True)]


@rule("Loop")
def loop(b: Builder, call: Call) -> list[Value]:
    """Repeated in the graph: the trip count, and the condition after each trip, must be known at compile time."""
    body = call.attrs.graph("body")
    trips = call.static_ints(0, "the trip count")[0] if call.optional(0) is not None else MOST_TRIPS + 1
    going = call.static(1, "the condition").all() if call.optional(1) is not None else True
    state: list[Value] = [call.input(i) for i in range(2, len(call.inputs))]
    count = len(state)
    rows: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - count)]
    trip = 0
    while trip < trips and going:
        if trip == MOST_TRIPS:
            raise UnsupportedError(f"more than {MOST_TRIPS} trips")
        results = call.lower_body(body, [b.constant(trip, "i64"), b.constant(True, "bool"), *state])
        goes_on = call.static_value(results[0])
        if goes_on is None:
            raise UnsupportedError("whether it goes on after a trip depends on the data; "
                                   "it must be known at compile time")
        going, state, trip = bool(goes_on.all()), results[1 : 1 + count], trip + 1
        for row, value in zip(rows, results[1 + count :], strict=True):
            row.append(b.reshape(value, shape=(1, *value.shape)))
    if rows and not trip:
        raise UnsupportedError("no trip: the shapes of its rows are unknown")
    return [*state, *(b.concat(*row, axis=0) for row in rows)]


@rule("Scan")
def scan(b: Builder, call: Call) -> list[Value]:
    """Repeated in the graph, once for each place along the scanned axes. Opset 8 had a batch axis: refused."""
    if call.opset < 9:
        raise UnsupportedError("Scan of opset 8")
    attrs, body, scanned = call.attrs, call.attrs.graph("body"), call.attrs.int("num_scan_inputs")
    values = call.all_inputs()
    count = len(values) - scanned
    state, inputs = values[:count], values[count:]
    outputs = len(body.output) - count
    in_axes = attrs.ints("scan_input_axes", (0,) * scanned)
    out_axes = attrs.ints("scan_output_axes", (0,) * outputs)
    in_back = attrs.ints("scan_input_directions", (0,) * scanned)
    out_back = attrs.ints("scan_output_directions", (0,) * outputs)
    places = [normal_axis(axis, value.type.rank) for axis, value in zip(in_axes, inputs, strict=True)]
    inputs = [flipped(b, value, axis) if back else value
              for value, axis, back in zip(inputs, places, in_back, strict=True)]
    trips = inputs[0].shape[places[0]] if inputs else 0
    if not 0 < trips <= MOST_TRIPS:
        raise UnsupportedError(f"{trips} steps; supported: 1 to {MOST_TRIPS}")
    rows: list[list[Value]] = [[] for _ in range(outputs)]
    for trip in range(trips):
        slices = [b.reshape(slice_axis(b, value, axis, trip, trip + 1),
                            shape=(*value.shape[:axis], *value.shape[axis + 1 :]))
                  for value, axis in zip(inputs, places, strict=True)]
        results = call.lower_body(body, [*state, *slices])
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
