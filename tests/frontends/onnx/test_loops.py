"""Loop and Scan: short ones of known course in one program, all others run trip by trip."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_models import I64, model, value

import ngraph_mxnet
from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx.importer import import_whole
from ngraph_mxnet.frontends.onnx.model import all_nodes, read_model

BACKENDS = ["CPU", "INTERPRETER"]
BOOL = TensorProto.BOOL
node = helper.make_node
KINDS = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))


def array(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def body(nodes: Sequence[onnx.NodeProto], state: Sequence[Any], results: Sequence[Any],
         rows: Sequence[str] = (), weights: dict[str, np.ndarray] | None = None,
         goes_on: bool = False) -> onnx.GraphProto:
    """Of a Loop: the number of a trip is i, the condition go, and after it on, which the nodes compute where `goes_on`.
    What describes a value is a name, or all of it."""
    own = [] if goes_on else [node("Identity", ["go"], ["on"])]
    ports = [[each if isinstance(each, onnx.ValueInfoProto) else value(each, None) for each in part]
             for part in (state, results, rows)]
    held = [numpy_helper.from_array(each, name) for name, each in (weights or {}).items()]
    return helper.make_graph([*own, *nodes], "body", [value("i", [], I64), value("go", [], BOOL), *ports[0]],
                             [value("on", [], BOOL), *ports[1], *ports[2]], held)


def assert_judged(proto: onnx.ModelProto, feeds: dict[str, Any], found: Sequence[Any], expected: Sequence[Any], *,
                  reference: bool = True) -> None:
    """Equal to what NumPy gives, ONNX's reference if it knows such, and ONNX Runtime where it is installed."""
    assert_equal(found, expected)
    if reference:
        assert_equal(found, ReferenceEvaluator(with_conditions(proto)).run(None, feeds))
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        assert_equal(found, session.run(None, feeds))


def with_conditions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """ONNX's reference makes no trip of a Loop without a condition, so each gets one that holds."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for each in all_nodes(copy.graph.node):
        if each.op_type == "Loop" and not each.input[1]:
            each.input[1] = "always"
    copy.graph.initializer.append(numpy_helper.from_array(np.array(True), "always"))
    return copy


def assert_equal(found: Sequence[Any], expected: Sequence[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, list):
            assert_equal(one, other)
        else:
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


# ---- how often ----------------------------------------------------------------------------------------------


def summing(dims: Any = ("n",)) -> onnx.ModelProto:
    """x + w * (0 + 1 + ... ), with the sums so far; as many trips as the input n says. w stands around the loop."""
    nodes = [node("Cast", ["i"], ["f"], to=TensorProto.FLOAT), node("Mul", ["f", "w"], ["p"]),
             node("Add", ["a", "p"], ["b"]), node("Identity", ["b"], ["row"])]
    before = [node("Relu", ["x"], ["r"])]
    loop = node("Loop", ["trips", "", "r"], ["y", "rows"], name="sums", body=body(nodes, ["a"], ["b"], ["row"]))
    after = [node("Neg", ["y"], ["z"])]
    return model([*before, loop, *after], [value("trips", [], I64), value("x", list(dims))],
                 [value("z", None), value("rows", None)], {"w": array(0.5)}, opset=17)


def sums(trips: int, x: np.ndarray) -> list[np.ndarray]:
    rows = [np.maximum(x, 0) + 0.5 * sum(range(trip + 1)) for trip in range(trips)]
    return [-(rows[-1] if rows else np.maximum(x, 0)), np.array(rows, np.float32).reshape(trips, *x.shape)]


@pytest.mark.parametrize("backend", BACKENDS)
@given(counts=st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_any_number_of_trips(backend: str, counts: list[int]) -> None:
    exe, proto = ngraph_mxnet.compile(summing(), backend), summing()
    x = array(1, -2, 3)
    for trips in counts:
        found = exe(np.array(trips), x)
        assert_equal(found, sums(trips, x))
        if trips:  # of none neither judge tells the shape of the rows
            assert_judged(proto, {"trips": np.array(trips), "x": x}, found, sums(trips, x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_trip_counts_compile_nothing(backend: str, compiled: list[str]) -> None:
    exe, x = ngraph_mxnet.compile(summing(), f"OWN_{backend}"), array(1, -2, 3)
    assert_equal(exe(np.array(2), x), sums(2, x))
    many = len(compiled)
    assert many == 3  # what is before the loop, its body, and what follows
    for trips in (1500, 0, 7, 3):
        assert_equal(exe(np.array(trips), x), sums(trips, x))
    assert len(compiled) == many


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("trips", [0, 3, 1200])
def test_a_count_that_the_model_says(backend: str, trips: int, compiled: list[str]) -> None:
    proto = summing([3])
    proto.graph.initializer.append(numpy_helper.from_array(np.array(trips), "trips"))
    del proto.graph.input[0]
    exe, x = ngraph_mxnet.compile(proto, f"OWN_{backend}"), array(1, -2, 3)
    assert_equal(exe(x), sums(trips, x))
    # A short loop is one program with what is around it; else there is one for each part that runs.
    assert len(compiled) == {0: 2, 3: 1, 1200: 3}[trips]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_without_inputs(backend: str) -> None:
    loop = node("Loop", ["trips", "", "x"], ["y"], body=body([node("Add", ["a", "one"], ["b"])], ["a"], ["b"]))
    held = {"x": array(1, 2), "one": array(1), "trips": np.array(1100)}
    exe = ngraph_mxnet.compile(model([loop], [], [value("y", [2])], held, opset=17), backend)
    for _ in range(2):
        (y,) = exe()
        assert_equal([y], [array(1101, 1102)])
        y[:] = 0  # it is the caller's


@pytest.mark.parametrize("backend", BACKENDS)
@given(limit=st.floats(0, 50), most=st.none() | st.integers(0, 9), start=st.booleans())
def test_a_condition_that_ends_it(backend: str, limit: float, most: int | None, start: bool) -> None:
    """The sum of the state grows to a limit; there may be a most number of trips, and the condition not hold before."""
    nodes = [node("Add", ["a", "one"], ["b"]), node("ReduceSum", ["b"], ["s"], keepdims=0),
             node("Less", ["s", "limit"], ["on"])]
    loop = node("Loop", ["" if most is None else "most", "go0", "x"], ["y", "rows"],
                body=body(nodes, ["a"], ["b"], ["b"], goes_on=True))
    inputs = [value("x", [2]), value("limit", []), value("go0", [], BOOL)]
    inputs += [] if most is None else [value("most", [], I64)]
    proto = model([loop], inputs, [value("y", [2]), value("rows", [None, 2])], {"one": array(1)}, opset=17)
    feeds: dict[str, Any] = {"x": array(0, 1), "limit": np.array(limit, np.float32), "go0": np.array(start)}
    feeds |= {} if most is None else {"most": np.array(most)}
    found = ngraph_mxnet.compile(proto, backend)(feeds)
    state, rows, going = array(0, 1), [], start
    while going and len(rows) != most:
        state = state + 1
        rows.append(state)
        going = bool(state.sum() < np.float32(limit))
    expected = [state, np.array(rows, np.float32).reshape(-1, 2)]
    assert_equal(found, expected)
    if rows:
        assert_judged(proto, feeds, found, expected)


# ---- what changes from trip to trip -----------------------------------------------------------------------------


def growing() -> onnx.ModelProto:
    """x, then x and its elements plus 1, and so on: twice as long after each trip; rows are the numbers of elements."""
    nodes = [node("Add", ["a", "one"], ["p"]), node("Concat", ["a", "p"], ["b"], axis=0), node("Shape", ["b"], ["n"])]
    loop = node("Loop", ["trips", "", "x"], ["y", "sizes"],
                body=body(nodes, ["a"], ["b"], [value("n", [1], I64)]))
    return model([loop, node("Relu", ["y"], ["z"])], [value("trips", [], I64), value("x", [None])],
                 [value("z", None), value("sizes", None, I64)], {"one": array(1)}, opset=17)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_that_grows(backend: str) -> None:
    exe = ngraph_mxnet.compile(growing(), backend)
    for trips, x in ((3, array(1, 2)), (6, array(1)), (0, array(5, 6)), (5, array(1, 2, 3))):
        expected, sizes = x, []
        for _ in range(trips):
            expected = np.concatenate([expected, expected + 1])
            sizes.append([len(expected)])
        found = exe(np.array(trips), x)
        assert_judged(growing(), {"trips": np.array(trips), "x": x}, found,
                      [expected, np.array(sizes, np.int64).reshape(-1, 1)], reference=bool(trips))


def test_a_state_that_grows_by_one_is_compiled_for_a_range(compiled: list[str]) -> None:
    nodes = [node("Cast", ["i"], ["f"], to=TensorProto.FLOAT), node("Reshape", ["f", "shape"], ["row"]),
             node("Concat", ["a", "row"], ["b"], axis=0), node("Exp", ["b"], ["e"]), node("Log", ["e"], ["c"])]
    loop = node("Loop", ["trips", "", "x"], ["y"], body=body(nodes, ["a"], ["c"], weights={"shape": np.array([1, 1])}))
    proto = model([loop], [value("trips", [], I64), value("x", [None, 1])], [value("y", None)], opset=17)
    exe = ngraph_mxnet.compile(proto, "OWN_CPU")
    for trips in (60, 80, 70):
        (y,) = exe(np.array(trips), np.zeros((0, 1), np.float32))
        np.testing.assert_allclose(y[:, 0], np.arange(trips), rtol=1e-4, atol=1e-4)
    assert len(compiled) <= 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_slices_by_the_number_of_the_trip_compile_nothing(backend: str, compiled: list[str]) -> None:
    """As PyTorch exports x[i] and x[:i]: slices whose bounds change, and what reads them."""
    nodes = [node("Unsqueeze", ["i", "zero"], ["from"]), node("Add", ["from", "ones"], ["to"]),
             node("Slice", ["x", "from", "to", "zero"], ["part"]), node("Squeeze", ["part", "zero"], ["row"]),
             node("Slice", ["x", "zero", "to", "zero"], ["past"]),
             node("ReduceSum", ["past", "zero"], ["s"], keepdims=0), node("Add", ["a", "row"], ["b"])]
    loop = node("Loop", ["n", "", "start"], ["y", "rows"], name="loop",
                body=body(nodes, ["a"], ["b"], ["s"], {"zero": np.array([0]), "ones": np.array([1])}))
    before = [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "nought"], ["n"])]
    proto = model([*before, loop], [value("x", ["t", 2]), value("start", [2])], [value("y", None), value("rows", None)],
                  {"nought": np.array(0)}, opset=17)
    exe, random = ngraph_mxnet.compile(proto, f"OWN_{backend}"), np.random.default_rng(0)
    counts = []
    for length in (40, 50, 300):
        x, start = random.normal(size=(length, 2)).astype(np.float32), random.normal(size=2).astype(np.float32)
        assert_judged(proto, {"x": x, "start": start}, exe(x, start), [start + x.sum(0), np.cumsum(x, 0)])
        counts.append(len(compiled))
    if backend == "CPU":  # which compiles for ranges of sizes
        assert counts[0] < 15 and counts[2] - counts[1] <= 2


def test_trips_that_are_a_size_compile_nothing(compiled: list[str]) -> None:
    """As PyTorch exports `for i in range(len(x))`, between an encoder and a shape that is computed from the size."""
    nodes = [node("Gather", ["e", "i"], ["row"]), node("Add", ["a", "row"], ["b"]), node("Relu", ["b"], ["r"])]
    before = [node("MatMul", ["x", "w"], ["e"]), node("Shape", ["e"], ["shape"]),
              node("Gather", ["shape", "nought"], ["n"])]
    after = [node("Unsqueeze", ["n", "axis"], ["n1"]), node("Concat", ["half", "n1"], ["to"], axis=0),
             node("Reshape", ["rows", "to"], ["z"])]
    loop = node("Loop", ["n", "", "start"], ["y", "rows"], body=body(nodes, ["a"], ["b"], ["r"]))
    weights = {"w": np.arange(12, dtype=np.float32).reshape(3, 4) - 6, "nought": np.array(0), "axis": np.array([0]),
               "half": np.array([4])}
    proto = model([*before, loop, *after], [value("x", ["t", 3]), value("start", [4])],
                  [value("y", None), value("z", None)], weights, opset=17)
    exe, counts = ngraph_mxnet.compile(proto, "OWN_CPU"), []
    for length in (2000, 30, 10, 70, 5):
        x, start = np.random.default_rng(length).normal(size=(length, 3)).astype(np.float32), array(0, 1, 2, 3)
        states = start + np.cumsum(x @ weights["w"], 0, dtype=np.float32)
        expected = [states[-1], np.maximum(states, 0).reshape(4, length)]
        for found, other in zip(exe(x, start), expected, strict=True):
            assert (found.dtype, found.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(found, other, rtol=1e-3, atol=1e-2)
        counts.append(sum(each.startswith("CPU") for each in compiled))
    assert counts[1:] == [counts[1]] * 4, counts


@pytest.mark.parametrize("backend", BACKENDS)
def test_sequences_as_state(backend: str, compiled: list[str]) -> None:
    """A list that grows by one array in each trip, read at a place that is computed."""
    nodes = [node("SequenceAt", ["s", "i"], ["item"]), node("Add", ["item", "two"], ["more"]),
             node("SequenceInsert", ["s", "more"], ["t"]), node("SequenceLength", ["t"], ["n"])]
    graph = body(nodes, [helper.make_value_info("s", KINDS)], [helper.make_value_info("t", KINDS)],
                 [value("n", [], I64)])
    after = [node("ConcatFromSequence", ["all"], ["flat"], axis=0), node("SequenceAt", ["all", "last"], ["end"])]
    proto = model([node("SequenceConstruct", ["x"], ["s0"]), node("Loop", ["trips", "", "s0"], ["all", "lengths"],
                                                                body=graph), *after],
                  [value("trips", [], I64), value("x", [2])],
                  [helper.make_value_info("all", KINDS), value("lengths", None, I64), value("flat", None),
                   value("end", None)], {"two": array(2), "last": np.array(-1)}, opset=17)
    exe, x = ngraph_mxnet.compile(proto, f"OWN_{backend}"), array(1, 2)
    for trips in (3, 0, 20, 1500):
        every = [x + np.float32(2 * trip) for trip in range(trips + 1)]
        found = exe(np.array(trips), x)
        expected = [every, np.arange(2, trips + 2), np.concatenate(every), every[-1]]
        # The reference stacks scalars in rows of one element.
        assert_judged(proto, {"trips": np.array(trips), "x": x}, found, expected, reference=False)
        found[0][0][:] = 0
        assert x[0] == 1  # the list holds copies
    assert len(compiled) < 12


@pytest.mark.parametrize("backend", BACKENDS)
def test_sequence_map_over_long_lists(backend: str, compiled: list[str]) -> None:
    graph = helper.make_graph([node("Mul", ["e", "w"], ["p"]), node("Add", ["p", "c"], ["q"])], "body",
                              [value("e", None), value("c", None)], [value("q", None)])
    proto = model([node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=0),
                   node("SequenceMap", ["s", "c"], ["t"], body=graph),
                   node("ConcatFromSequence", ["t"], ["y"], axis=0, new_axis=1)],
                  [value("x", ["n", 3]), value("c", [3])], [value("y", None)], {"w": array(3)}, opset=18)
    exe = ngraph_mxnet.compile(proto, f"OWN_{backend}")
    for count in (2, 5, 300):
        x, c = np.random.default_rng(count).normal(size=(count, 3)).astype(np.float32), array(1, 2, 3)
        assert_judged(proto, {"x": x, "c": c}, exe(x, c), [3 * x + c], reference=False)


@pytest.mark.parametrize("name", ["k", "//k", "input_sequence", "out_sequence_0", "SequenceMap_input_sequence_seqlen",
                                  "SequenceMap_loop_body_itercount"])
@pytest.mark.parametrize("count", [3, 300])
def test_names_around_a_sequence_map_that_are_its_definitions_own(name: str, count: int) -> None:
    """Repeated, and run. ONNX defines it by a Loop with such names."""
    graph = helper.make_graph([node("Mul", ["e", name], ["q"])], "body", [value("e", None)], [value("q", None)])
    proto = model([node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=0),
                   node("SequenceMap", ["s"], ["t"], body=graph),
                   node("ConcatFromSequence", ["t"], ["y"], axis=0, new_axis=1)],
                  [value("x", ["n", 2]), value(name, [2])], [value("y", None)], opset=18)
    x, k = np.random.default_rng(count).normal(size=(count, 2)).astype(np.float32), array(2, 3)
    assert_equal(ngraph_mxnet.compile(proto, "CPU")(x, k), [x * k])


@pytest.mark.parametrize("count", [3, 300])
def test_a_sequence_map_within_another(count: int) -> None:
    inner = helper.make_graph([node("Add", ["f", "e"], ["g"])], "inner", [value("f", None)], [value("g", None)])
    outer = helper.make_graph([node("SequenceMap", ["two"], ["sums"], body=inner),
                               node("ConcatFromSequence", ["sums"], ["q"], axis=0)], "outer", [value("e", None)],
                              [value("q", None)])
    proto = model([node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=0),
                   node("SplitToSequence", ["w"], ["two"], axis=0, keepdims=0),
                   node("SequenceMap", ["s"], ["t"], body=outer),
                   node("ConcatFromSequence", ["t"], ["y"], axis=0, new_axis=1)],
                  [value("x", ["n", 2]), value("w", [2, 2])], [value("y", None)], opset=18)
    x, w = np.random.default_rng(count).normal(size=(count, 2)).astype(np.float32), array(1, 2, 3, 4).reshape(2, 2)
    assert_equal(ngraph_mxnet.compile(proto, "CPU")(x, w), [np.concatenate([x + w[0], x + w[1]], axis=1)])


# ---- what is around a loop, and in it ----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_around_a_loop(backend: str, compiled: list[str]) -> None:
    """An input, a computed value, a weight and a constant node, read by a loop within a loop."""
    inner = helper.make_graph(
        [node("Identity", ["go2"], ["on2"]), node("Mul", ["a2", "decay"], ["m"]), node("Add", ["m", "x"], ["p"]),
         node("Add", ["p", "r"], ["q"]), node("Add", ["q", "k"], ["b2"])], "inner",
        [value("i2", [], I64), value("go2", [], BOOL), value("a2", None)], [value("on2", [], BOOL), value("b2", None)])
    outer = body([node("Loop", ["i", "", "a"], ["b"], body=inner), node("ReduceSum", ["b"], ["s"], keepdims=0)],
                 ["a"], ["b"], ["s"])
    nodes = [node("Exp", ["x"], ["r"]), node("Constant", [], ["k"], value=numpy_helper.from_array(array(0.25))),
             node("Loop", ["trips", "", "zeros"], ["y", "rows"], body=outer)]
    proto = model(nodes, [value("trips", [], I64), value("x", ["n"])], [value("y", None), value("rows", None)],
                  {"decay": array(0.5), "zeros": array(0, 0)}, opset=17)
    exe, counts = ngraph_mxnet.compile(proto, f"OWN_{backend}"), []
    for trips, x in ((4, array(1, 2)), (9, array(0, -1)), (0, array(1, 1))):
        state, rows = array(0, 0), []
        for trip in range(trips):
            for _ in range(trip):
                state = state * np.float32(0.5) + x + np.exp(x) + np.float32(0.25)
            rows.append(state.sum())
        assert_judged(proto, {"trips": np.array(trips), "x": x}, exe(np.array(trips), x),
                      [state, np.array(rows, np.float32)], reference=False)
        counts.append(len(compiled))
    assert len(set(counts)) == 1


def choosing(then_nodes: Sequence[onnx.NodeProto], else_nodes: Sequence[onnx.NodeProto]) -> onnx.GraphProto:
    """A body that takes a branch by whether the sum of its state is above ten."""
    branches = [helper.make_graph(list(nodes), "branch", [], [value("r", None)]) for nodes in (then_nodes, else_nodes)]
    return body([node("ReduceSum", ["a"], ["s"], keepdims=0), node("Greater", ["s", "ten"], ["large"]),
                 node("If", ["large"], ["b"], name="choice", then_branch=branches[0], else_branch=branches[1])],
                ["a"], ["b"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_choice_within_a_loop(backend: str) -> None:
    """Of results of different shapes: each trip takes its own branch, and each branch is compiled once for a shape."""
    graph = choosing([node("Neg", ["a"], ["r"])], [node("Concat", ["a", "x"], ["r"], axis=0)])
    proto = model([node("Loop", ["trips", "", "x"], ["y"], body=graph)], [value("trips", [], I64), value("x", ["n"])],
                  [value("y", None)], {"ten": np.array(10, np.float32)}, opset=17)
    exe = ngraph_mxnet.compile(proto, backend)
    for trips, x in ((5, array(1, 2)), (7, array(4, -1)), (0, array(4, -1))):
        state = x
        for _ in range(trips):
            state = -state if state.sum() > 10 else np.concatenate([state, x])
        assert_judged(proto, {"trips": np.array(trips), "x": x}, exe(np.array(trips), x), [state])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loop_within_a_branch(backend: str) -> None:
    loop = node("Loop", ["trips", "", "x"], ["r"], body=body([node("Add", ["a", "x"], ["b"])], ["a"], ["b"]))
    branches = [helper.make_graph([each], "branch", [], [value("r", None)])
                for each in (loop, node("Neg", ["x"], ["r"]))]
    nodes = [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "ten"], ["large"]),
             node("If", ["large"], ["y"], then_branch=branches[0], else_branch=branches[1]), node("Relu", ["y"], ["z"])]
    proto = model(nodes, [value("trips", [], I64), value("x", ["n"])], [value("z", None)],
                  {"ten": np.array(10, np.float32)}, opset=17)
    exe = ngraph_mxnet.compile(proto, backend)
    for trips, x in ((2, array(9, 2)), (1300, array(9, 2)), (3, array(-1, 2)), (1, array(9, 2, 3))):
        expected = np.maximum(x * (trips + 1) if x.sum() > 10 else -x, 0)
        assert_judged(proto, {"trips": np.array(trips), "x": x}, exe(np.array(trips), x), [expected])


@pytest.mark.parametrize("backend", BACKENDS)
def test_shapes_in_a_body_that_depend_on_the_data(backend: str) -> None:
    """The elements that are not 0 lose 1; the rest goes."""
    nodes = [node("NonZero", ["a"], ["at"]), node("Transpose", ["at"], ["places"]),
             node("GatherND", ["a", "places"], ["kept"]), node("Sub", ["kept", "one"], ["b"]),
             node("Size", ["b"], ["n"]), node("Greater", ["n", "nought"], ["on"])]
    loop = node("Loop", ["", "", "x"], ["y", "sizes"],
                body=body(nodes, ["a"], ["b"], [value("n", [], I64)], goes_on=True))
    proto = model([loop], [value("x", ["n"])], [value("y", None), value("sizes", None, I64)],
                  {"one": array(1), "nought": np.array(0)}, opset=17)
    exe = ngraph_mxnet.compile(proto, backend)
    for x in (array(3, 1, 5), array(2, 2, 0, 0), array(0)):
        state, sizes = x, []
        while True:
            state = state[state != 0] - 1
            sizes.append(state.size)
            if not state.size:
                break
        assert_judged(proto, {"x": x}, exe(x), [state, np.array(sizes)], reference=False)


# ---- run and repeated --------------------------------------------------------------------------------------------


@st.composite
def steps(draw: st.DrawFn, names: tuple[str, ...], prefix: str, depth: int) -> tuple[list[onnx.NodeProto], list[str]]:
    """Nodes over vectors of 3 that are called `names`, some of them loops, and the names of all vectors then."""
    nodes, known = [], list(names)
    for place in range(draw(st.integers(1, 4))):
        made = f"{prefix}{place}"
        kind = draw(st.sampled_from(["Add", "Mul", "Max", "Tanh", "Neg", *(["Loop"] if depth else [])]))
        given = [draw(st.sampled_from(known)) for _ in range(1 if kind in ("Tanh", "Neg") else 2)]
        if kind == "Loop":
            state = f"{made}s"
            inner, inside = draw(steps((*known, state), f"{made}_", depth - 1))
            goes = node("Identity", [f"{made}go"], [f"{made}on"])
            graph = helper.make_graph(
                [goes, *inner, node("Tanh", [draw(st.sampled_from(inside))], [f"{made}t"])], "inner",
                [value(f"{made}i", [], I64), value(f"{made}go", [], BOOL), value(state, [3])],
                [value(f"{made}on", [], BOOL), value(f"{made}t", [3])])
            nodes.append(node("Loop", [draw(st.sampled_from(["two", "three"])), "", given[0]], [made], body=graph))
        else:
            nodes.append(node(kind, given, [made]))
        known.append(made)
    return nodes, known


@given(data=st.data(), trips=st.integers(0, 5))
def test_run_is_as_repeated(data: st.DataObject, trips: int) -> None:
    """Trips that an input counts are run, those that a constant counts are repeated in one program."""
    inside, names = data.draw(steps(("a", "c", "x", "w", "e"), "n", 1))
    ends = [node("Tanh", [data.draw(st.sampled_from(names))], [f"b{i}"]) for i in range(2)]
    row = data.draw(st.sampled_from(names))
    loop = node("Loop", ["trips", "", "x", "e"], ["y", "z", "rows"],
                body=body([*inside, *ends, node("Identity", [row], ["row"])], ["a", "c"], ["b0", "b1"],
                          [value("row", [3])]))
    nodes = [node("Exp", ["x"], ["e"]), loop, node("Add", ["y", "z"], ["s"])]
    counts = {"two": np.array(2), "three": np.array(3), "trips": np.array(trips)}
    x, weights = array(0.1, -0.7, 0.4), {"w": array(0.5, -1, 2)}
    outputs = [value(name, None) for name in ("s", "y", "rows")]
    known = model(nodes, [value("x", [3])], outputs, {**weights, **counts}, opset=17)
    told = model(nodes, [value("x", [3]), *(value(name, [], I64) for name in counts)], outputs, weights, opset=17)
    run = ngraph_mxnet.compile(told, "CPU")({"x": x, **counts})
    assert_judged(known, {"x": x}, run, ngraph_mxnet.compile(known, "CPU")(x), reference=bool(trips))


# ---- Scan -------------------------------------------------------------------------------------------------------


def scanning(nodes: Sequence[onnx.NodeProto], state: Sequence[str], scanned: Sequence[str], results: Sequence[str],
             rows: Sequence[str], inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    graph = helper.make_graph(list(nodes), "body", [value(name, None) for name in (*state, *scanned)],
                              [value(name, None) for name in (*results, *rows)])
    return node("Scan", list(inputs), list(outputs), name="scan", body=graph, num_scan_inputs=len(scanned),
                **attributes)


def recurrence(**attributes: Any) -> onnx.ModelProto:
    """s = tanh(s * w + u), and row = s - v for u and v of two scanned inputs."""
    nodes = [node("Mul", ["s", "w"], ["m"]), node("Add", ["m", "u"], ["p"]), node("Tanh", ["p"], ["t"]),
             node("Sub", ["t", "v"], ["row"])]
    scan = scanning(nodes, ["s"], ["u", "v"], ["t"], ["row"], ["s0", "x", "z"], ["y", "rows"], **attributes)
    return model([node("Neg", ["x0"], ["x"]), scan],
                 [value("s0", [2]), value("x0", [None, None]), value("z", [None, None])],
                 [value("y", None), value("rows", None)], {"w": array(0.5)}, opset=17)


def recurred(s: np.ndarray, x: np.ndarray, z: np.ndarray, axes: tuple[int, int, int] = (0, 0, 0),
             back: tuple[int, int, int] = (0, 0, 0)) -> list[np.ndarray]:
    x, z = np.moveaxis(-x, axes[0], 0), np.moveaxis(z, axes[1], 0)
    x, z = (each[::-1] if way else each for each, way in zip((x, z), back, strict=False))
    rows = []
    for u, v in zip(x, z, strict=True):
        s = np.tanh(s * np.float32(0.5) + u)
        rows.append(s - v)
    rows = rows[::-1] if back[2] else rows
    return [s, np.stack(rows, axes[2]) if rows else np.zeros((0, 2) if axes[2] % 2 == 0 else (2, 0), np.float32)]


@pytest.mark.parametrize("backend", BACKENDS)
@given(axes=st.tuples(*[st.integers(-2, 1)] * 3), back=st.tuples(*[st.integers(0, 1)] * 3),
       steps=st.sampled_from([0, 1, 3, 90]))
def test_axes_and_directions(backend: str, axes: tuple[int, int, int], back: tuple[int, int, int],
                             steps: int) -> None:
    """Repeated in the graph, or run."""
    proto = recurrence(scan_input_axes=axes[:2], scan_input_directions=back[:2], scan_output_axes=axes[2:],
                       scan_output_directions=back[2:])
    random = np.random.default_rng(steps)
    s0, x, z = (random.normal(size=shape).astype(np.float32) for shape in ((2,), (steps, 2), (steps, 2)))
    x, z = (np.ascontiguousarray(np.moveaxis(each, 0, axis)) for each, axis in zip((x, z), axes, strict=False))
    found, expected = ngraph_mxnet.compile(proto, backend)(s0, x, z), recurred(s0, x, z, axes, back)
    assert_equal(found, expected)
    if steps:
        plain = not (any(axes) or any(back))  # the reference knows no other axes and directions
        assert_judged(proto, {"s0": s0, "x0": x, "z": z}, found, expected, reference=plain)


@pytest.mark.parametrize("backend", BACKENDS)
def test_lengths_that_change_do_not_compile_the_body_again(backend: str, compiled: list[str]) -> None:
    proto, counts = recurrence(), []
    exe, random = ngraph_mxnet.compile(proto, f"OWN_{backend}"), np.random.default_rng(0)
    for steps in (2, 3, 1500, 40, 41, 0, 7):
        s0, x, z = (random.normal(size=shape).astype(np.float32) for shape in ((2,), (steps, 2), (steps, 2)))
        assert_equal(exe(s0, x, z), recurred(s0, x, z))
        if steps:
            assert_judged(proto, {"s0": s0, "x0": x, "z": z}, exe(s0, x, z), recurred(s0, x, z))
        counts.append(sum("tanh" in each for each in compiled))
    assert counts == [1, *[2] * 6]  # the first length is short, and one program with what is around it


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", [None, [3, 17, 90], [1, 2, 90]])
def test_batches_of_opset_8(backend: str, lengths: list[int] | None) -> None:
    nodes = [node("Add", ["s", "u"], ["t"]), node("Identity", ["t"], ["row"])]
    scan = scanning(nodes, ["s"], ["u"], ["t"], ["row"], ["n" if lengths else "", "s0", "x"], ["y", "rows"],
                    directions=[1])
    inputs = [*([value("n", [3], I64)] if lengths else []), value("s0", [3, 2]), value("x", [3, 90, 2])]
    proto = model([scan], inputs, [value("y", None), value("rows", None)], opset=8)
    exe = ngraph_mxnet.compile(proto, backend)
    random = np.random.default_rng(0)
    s0, x = random.normal(size=(3, 2)).astype(np.float32), random.normal(size=(3, 90, 2)).astype(np.float32)
    rows, states = np.zeros_like(x), s0.copy()
    for element, length in enumerate(lengths or [90] * 3):
        for step in range(length):
            states[element] += x[element, length - 1 - step]
            rows[element, step] = states[element]
    feeds = {**({"n": np.array(lengths)} if lengths else {}), "s0": s0, "x": x}
    assert_judged(proto, feeds, exe(feeds), [states, rows], reference=False)


# ---- rows, results, errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_no_trip_have_the_shape_that_the_body_would_give(backend: str) -> None:
    """As far as it is known: of what a body computes from data, what it says, with 0 where it says nothing."""
    nodes = [node("MatMul", ["a", "w"], ["row"]), node("NonZero", ["a"], ["at"]),
             node("Cast", ["at"], ["places"], to=TensorProto.INT32)]
    rows = [value("row", None), value("places", [2, None], TensorProto.INT32)]
    for made, shapes in ((rows[:1], [(0, 2, 4)]), (rows, [(0, 2, 4), (0, 2, 0)])):
        loop = node("Loop", ["trips", "", "x"], ["y", *(f"r{i}" for i in range(len(made)))],
                    body=body(nodes, ["a"], ["a"], made))
        if len(made) == 2:
            made[0].CopyFrom(value("row", [2, 4]))
        proto = model([loop], [value("trips", [], I64), value("x", [2, 3])],
                      [value("y", None), value("r0", None), value("r1", None, TensorProto.INT32)][: 1 + len(made)],
                      {"w": np.ones((3, 4), np.float32)}, opset=17)
        x = np.ones((2, 3), np.float32)
        y, *found = ngraph_mxnet.compile(proto, backend)(np.array(0), x)
        assert_equal([y], [x])
        assert [each.shape for each in found] == shapes
        y[:] = 0
        assert x.all()  # the state that was given is not what comes back


def simple(graph: onnx.GraphProto, outputs: int = 1) -> onnx.ModelProto:
    loop = node("Loop", ["trips", "", "x"], ["y", "rows"][:outputs], name="loop", body=graph)
    return model([loop], [value("trips", None, I64), value("x", ["n"])],
                 [value("y", None), value("rows", None)][:outputs], opset=17)


def test_what_does_not_fit_names_the_node_and_the_trip() -> None:
    grows = simple(body([node("Concat", ["a", "a"], ["b"], axis=0)], ["a"], ["b"], ["b"]), 2)
    exe = ngraph_mxnet.compile(grows, "CPU")
    with pytest.raises(ModelError, match=r"node loop Loop: scan output 'b' of its subgraph: found float32\[4\] after "
                                         r"float32\[2\], expected one type in all trips"):
        exe(np.array(2), array(1))
    assert exe(np.array(1), array(1))[1].shape == (1, 2)
    exe = ngraph_mxnet.compile(simple(body([node("Gemm", ["a", "a"], ["b"], name="gemm")], ["a"], ["b"])), "CPU")
    with pytest.raises(UnsupportedError, match="node loop Loop: trip 0: node gemm Gemm: "):
        exe(np.array(2), array(1))
    with pytest.raises(ModelError, match=r"node loop Loop: the trip count: found shape \(2,\), expected one element"):
        exe(np.array([1, 2]), array(1))
    wide = body([node("Greater", ["a", "a"], ["on"])], ["a"], ["a"], goes_on=True)
    with pytest.raises(ModelError, match=r"node loop Loop: the condition: found shape \(2,\), expected one element"):
        ngraph_mxnet.compile(simple(wide), "CPU")(np.array(3), array(1, 2))
    short = body([], ["a"], ["a"])
    del short.input[2]
    with pytest.raises(ModelError, match="node loop Loop: its subgraph has 2 inputs, expected 3"):
        ngraph_mxnet.compile(simple(short), "CPU")(np.array(3), array(1, 2))


def test_many_threads() -> None:
    exe, x = ngraph_mxnet.compile(summing(), "CPU"), array(1, -2, 3)
    with ThreadPoolExecutor(4) as pool:
        counts = [3, 50, 0, 700] * 5
        for trips, found in zip(counts, pool.map(lambda trips: exe(np.array(trips), x), counts), strict=True):
            assert_equal(found, sums(trips, x))


def test_a_body_that_takes_its_number_as_one_element_of_rank_1() -> None:
    graph = body([node("Cast", ["i"], ["f"], to=TensorProto.FLOAT), node("Concat", ["a", "f"], ["b"], axis=0)],
                 ["a"], ["b"])
    graph.input[0].CopyFrom(value("i", [1], I64))
    assert_equal(ngraph_mxnet.compile(simple(graph), "CPU")(np.array(3), array(7)), [array(7, 0, 1, 2)])


def test_what_is_compiled_as_a_whole_has_known_trips() -> None:
    with pytest.raises(UnsupportedError, match=r"node sums Loop: the trip count \(input 0\) depends on the data"):
        import_whole(read_model(summing([3])), {"x": (3,)})
    proto = summing([3])
    proto.graph.initializer.append(numpy_helper.from_array(np.array(900), "trips"))
    del proto.graph.input[0]
    graph, _ = import_whole(read_model(proto), {})
    assert sum(each.op.name == "add" for each in graph.nodes) == 900


def test_a_name_for_two_values() -> None:
    """In a body x is the state, but outside, where the number n of its elements is computed, it is another value."""
    nodes = [node("Cast", ["n"], ["f"], to=TensorProto.FLOAT), node("Add", ["x", "f"], ["b"])]
    loop = node("Loop", ["trips", "", "x"], ["y"], name="loop", body=body(nodes, ["x"], ["b"]))
    proto = model([node("Size", ["x"], ["n"]), loop], [value("trips", [], I64), value("x", ["k"])], [value("y", None)],
                  opset=17)
    with pytest.raises(ModelError, match=r"node loop Loop: its subgraph calls other values x than the graph around"):
        ngraph_mxnet.compile(proto, "CPU")(np.array(2), array(1))


@pytest.mark.parametrize("backend", ["NNP", "HYBRID"])
def test_other_backends_compile_the_parts(backend: str) -> None:
    """None knows of loops: what is before, in and behind one are graphs like any other."""
    exe = ngraph_mxnet.compile(summing(), backend)
    x = array(1, -2, 3)
    for trips in (3, 70):
        found = exe(np.array(trips), x)
        for one, other in zip(found, sums(trips, x), strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-2)


def test_damage_is_an_error_of_the_model() -> None:
    """What is looked at only when a loop runs, as the number of its trips is data."""
    def raised(proto: onnx.ModelProto, *arrays: np.ndarray) -> str:
        with pytest.raises((ModelError, UnsupportedError)) as error:
            ngraph_mxnet.compile(proto, "CPU")(*arrays)
        return str(error.value)

    trips, x = np.array(3), array(1, 2)
    doubled = simple(body([node("Add", ["a", "a"], ["b"])], ["a"], ["b"]))
    doubled.graph.node[0].output.append("more")
    doubled.graph.output.append(value("more", None))
    assert raised(doubled, trips, x) == "node loop Loop: output 1 is read, which is not computed"
    left_out = simple(body([node("Add", ["a", "a"], ["b"])], ["a"], ["b"]))
    left_out.graph.node[0].input[2] = ""
    assert raised(left_out, trips, x) == "node loop Loop: input 2 is missing"
    graph = helper.make_graph([node("Add", ["s", "e"], ["t"])], "body", [value("s", None), value("e", None)],
                              [value("t", None)])
    scan = model([node("Scan", ["lengths", "s0", "x"], ["y"], name="scan", body=graph, num_scan_inputs=1)],
                 [value("lengths", None, I64), value("s0", None), value("x", None)], [value("y", None)], opset=8)
    assert raised(scan, np.array([1]), x, x).startswith("node scan Scan: scanned inputs of shapes [(2,)], expected")


@pytest.mark.parametrize(("nodes", "message"), [
    ([node("SequenceInsert", ["l", "l"], ["m"], name="put")], "input 1 is a sequence or optional"),
    ([node("SequenceInsert", ["l", "i"], ["m"], name="put")], "input 1: found int64, expected float32"),
    ([node("SplitToSequence", ["l"], ["m"], name="split")], "input 0 is a sequence or optional"),
    ([node("SequenceConstruct", ["l"], ["m"], name="new")], "input 0 is a sequence or optional"),
    ([node("SequenceConstruct", ["i", "w"], ["m"], name="new")], "found elements of int64, float32"),
    ([node("SplitToSequence", ["w", "sizes"], ["m"], name="split")], r"split=\[-1, 3\] of 2 places along axis 0"),
])
def test_lists_that_do_not_fit(nodes: list[onnx.NodeProto], message: str) -> None:
    lists = [helper.make_value_info(name, KINDS) for name in "lm"]
    graph = body(nodes, [lists[0]], [lists[1]], weights={"w": array(1, 2), "sizes": np.array([-1, 3])})
    proto = model([node("SequenceConstruct", ["x"], ["l0"]), node("Loop", ["trips", "", "l0"], ["l1"], body=graph),
                   node("SequenceLength", ["l1"], ["y"])],
                  [value("trips", [], I64), value("x", ["n"])], [value("y", None, I64)], opset=17)
    with pytest.raises(ModelError, match=f"node {nodes[0].name} .*: {message}"):
        ngraph_mxnet.compile(proto, "CPU")(np.array(3), array(1, 2))


def test_nothing_is_split_in_no_parts() -> None:
    parts = body([node("SplitToSequence", ["a", "two"], ["l"]), node("SequenceLength", ["l"], ["n"])], ["a"], ["a"],
                 ["n"], {"two": np.array(2)})
    exe = ngraph_mxnet.compile(simple(parts, 2), "CPU")
    for size, count in ((0, 0), (1, 1), (4, 2), (5, 3)):
        assert_equal(exe(np.array(1), np.zeros(size, np.float32))[1:], [np.array([count])])
