"""Small files that ask for much: an error of ours, in bounded time and memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import F32, I64, model, value

import ngraph_mxnet
from ngraph_mxnet.base.errors import ModelError, NGraphError, UnsupportedError
from ngraph_mxnet.frontends.onnx import model as onnx_model
from ngraph_mxnet.frontends.onnx.importer import import_whole
from ngraph_mxnet.frontends.onnx.model import read_model
from ngraph_mxnet.program.executable import InputError


@pytest.fixture(autouse=True)
def gigabyte() -> Iterator[None]:
    """No more than that beyond what the process has."""
    with open("/proc/self/statm") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def calling(bodies: Sequence[tuple[str, list[str]]], opset: int = 21, size: int = 0) -> onnx.ModelProto:
    """A model of functions, each of which calls others one after the other; with a constant of `size` bytes each."""
    own = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    functions = []
    for name, called in bodies:
        names = ["a", *(f"v{place}" for place in range(1, len(called))), "r"]
        nodes = [helper.make_node(one, [into], [out], domain="own" if one[0] == "f" else "")
                 for one, into, out in zip(called, names, names[1:], strict=False)]
        if size:
            tensor = onnx.numpy_helper.from_array(np.zeros(size, np.uint8))
            nodes.append(helper.make_node("Constant", [], ["c"], value=tensor))
        functions.append(helper.make_function("own", name, ["a"], ["r"], nodes, own))
    call = helper.make_node("f0", ["x"], ["y"], domain="own")
    graph = helper.make_graph([call], "g", [value("x", [2])], [value("y", [2])])
    return helper.make_model(graph, functions=functions, opset_imports=own)


def doubling(levels: int, **options: int) -> onnx.ModelProto:
    chain = [(f"f{level}", [f"f{level + 1}"] * 2) for level in range(levels)]
    return calling([*chain, (f"f{levels}", ["Relu"])], **options)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("opset", [21, 5])
def test_functions_that_double_at_each_level(opset: int) -> None:
    """40 levels are 2 ** 40 nodes; the converter of old operator sets inlines them, too."""
    with pytest.raises(UnsupportedError, match=r"its functions come to \d+ bytes when they are inlined, and .* nodes"):
        ngraph_mxnet.compile(doubling(40, opset=opset), "INTERPRETER")


def test_functions_within_the_budget() -> None:
    exe = ngraph_mxnet.compile(doubling(5), "INTERPRETER")
    assert exe(np.array([-1, 2], np.float32))[0].tolist() == [0, 2]


def test_bytes_of_functions() -> None:
    """8192 copies of 64 KiB."""
    with pytest.raises(UnsupportedError, match="its functions come to"):
        ngraph_mxnet.compile(doubling(12, size=1 << 16), "INTERPRETER")


def test_functions_that_call_themselves() -> None:
    for bodies in ([("f0", ["f0"])], [("f0", ["f1"]), ("f1", ["Relu", "f2"]), ("f2", ["f0"])]):
        with pytest.raises(ModelError, match="calls itself"):
            ngraph_mxnet.compile(calling(bodies), "INTERPRETER")
    long = [(f"f{level}", [f"f{level + 1}"]) for level in range(3000)]  # deeper than Python's stack
    with pytest.raises(ModelError, match="calls itself"):
        ngraph_mxnet.compile(calling([*long, ("f3000", ["f0"])]), "INTERPRETER")


def loops(levels: int, trips: int, inner: onnx.NodeProto) -> onnx.ModelProto:
    """Loops in loops around `inner`, from s0 to t0."""
    for level in range(levels):
        body = helper.make_graph(
            [helper.make_node("Identity", [f"go{level}"], [f"on{level}"]), inner], f"body{level}",
            [value(f"i{level}", [], I64), value(f"go{level}", [], onnx.TensorProto.BOOL), value(f"s{level}", None)],
            [value(f"on{level}", [], onnx.TensorProto.BOOL), value(f"t{level}", None)])
        inner = helper.make_node("Loop", ["trips", "", f"s{level + 1}"], [f"t{level + 1}"], body=body)
    inner.input[2], inner.output[0] = "x", "y"
    return model([inner], [value("x", [4])], [value("y", None)], {"trips": np.array(trips)})


@pytest.mark.timeout(120)
@pytest.mark.parametrize("op", ["Relu", "Identity"])
def test_loops_in_loops(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """10 ** 9 trips, of which one of Identity adds nothing but its constants, are no graph; they may be run."""
    monkeypatch.setattr(onnx_model, "MOST_NODES", 4096)
    proto = loops(3, 1000, helper.make_node(op, ["s0"], ["t0"]))
    with pytest.raises(UnsupportedError, match="more than 4096 nodes, as loops are repeated"):
        import_whole(read_model(proto), {})
    ngraph_mxnet.compile(proto, "INTERPRETER")


def choices(levels: int, condition: str) -> onnx.GraphProto:
    """An If within an If and so on, each beside a branch of another shape."""
    yes = helper.make_graph([helper.make_node("Neg", ["a"], [f"r{levels}"])], "yes", [], [value(f"r{levels}", None)])
    for level in reversed(range(levels)):
        no = helper.make_graph([helper.make_node("Concat", ["a"] * (level + 2), [f"q{level}"], axis=0)], "no", [],
                               [value(f"q{level}", None)])
        node = helper.make_node("If", [condition], [f"r{level}"], then_branch=yes, else_branch=no)
        yes = helper.make_graph([node], "yes", [], [value(f"r{level}", None)])
    return yes


@pytest.mark.timeout(60)
def test_branches_of_branches() -> None:
    """Each level is tried once, not twice for each level around it; also in a loop, which is run for that."""
    graph = choices(30, "flag")
    inputs = [value("a", ["n"]), value("flag", [], onnx.TensorProto.BOOL)]
    exe = ngraph_mxnet.compile(model(graph.node, inputs, [value("r0", None)], opset=17), "INTERPRETER")
    a = np.ones(2, np.float32)
    np.testing.assert_array_equal(exe(a, np.array(True))[0], -a)
    assert exe(a, np.array(False))[0].shape == (4,)
    steps = [*graph.node, helper.make_node("Identity", ["go"], ["on"])]
    body = helper.make_graph(steps, "body", [value("i", [], I64), value("go", [], onnx.TensorProto.BOOL),
                                             value("a", None)],
                             [value("on", [], onnx.TensorProto.BOOL), value("r0", None)])
    loop = helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)
    proto = model([loop], [value("x", ["n"]), inputs[1]], [value("y", None)], {"trips": np.array(1)}, opset=17)
    with pytest.raises(UnsupportedError, match=r"which branch is taken depends on the data"):
        import_whole(read_model(proto), {"x": (2,)})
    np.testing.assert_array_equal(ngraph_mxnet.compile(proto, "INTERPRETER")(a, np.array(True))[0], -a)


def test_a_loop_whose_state_doubles() -> None:
    concat = helper.make_node("Concat", ["s0", "s0"], ["t0"], axis=0)
    with pytest.raises(UnsupportedError, match="the values up to here have more than"):
        import_whole(read_model(loops(1, 1000, concat)), {})


def test_a_loop_whose_state_squares() -> None:
    """Of a vector all products of two elements: the second trip that is run would make four tebibytes."""
    nodes = [helper.make_node("Reshape", ["s", "column"], ["c"]), helper.make_node("Mul", ["s", "c"], ["p"]),
             helper.make_node("Reshape", ["p", "flat"], ["t"]), helper.make_node("Identity", ["go"], ["on"])]
    body = helper.make_graph(nodes, "body", [value("i", [], I64), value("go", [], onnx.TensorProto.BOOL),
                                             value("s", None)],
                             [value("on", [], onnx.TensorProto.BOOL), value("t", None)])
    loop = helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)
    proto = model([loop], [value("x", ["n"]), value("trips", [], I64)], [value("y", None)],
                  {"column": np.array([-1, 1]), "flat": np.array([-1])}, opset=17)
    exe, x = ngraph_mxnet.compile(proto, "INTERPRETER"), np.ones(1 << 10, np.float32)
    assert exe(x, np.array(1))[0].shape == (1 << 20,)
    with pytest.raises(UnsupportedError, match=r"node y Loop: trip 1: node 1 Mul: a tensor of 4398046511104 bytes"):
        exe(x, np.array(1000))


def test_constants_add_up() -> None:
    nodes = [helper.make_node("Range", ["zero", "limit", f"step{i}"], [f"r{i}"]) for i in range(10)]
    weights = {"zero": np.array(0), "limit": np.array(1 << 23), **{f"step{i}": np.array(1 + i % 2) for i in range(10)}}
    with pytest.raises(UnsupportedError, match="the constants up to here have more than"):
        ngraph_mxnet.compile(model(nodes, [], [value(f"r{i}", None, I64) for i in range(10)], weights), "INTERPRETER")


def shaped(dims: Sequence[int | None] | None) -> onnx.ValueInfoProto:
    """An input x; a dimension may be there and say nothing, and the shape may be left out."""
    port = onnx.ValueInfoProto(name="x")
    port.type.tensor_type.elem_type = F32
    if dims is not None:
        port.type.tensor_type.shape.SetInParent()
        for size in dims:
            dim = port.type.tensor_type.shape.dim.add()
            if size is not None:
                dim.dim_value = size
    return port


NODES = [
    *(helper.make_node(op, ["x"], ["y"]) for op in (
        "Relu", "EyeLike", "Trilu", "NonZero", "Softmax", "GlobalAveragePool", "Transpose", "Shape", "DFT")),
    helper.make_node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2, 2]),
    helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1),
    helper.make_node("Conv", ["x", "w"], ["y"]), helper.make_node("Gemm", ["x", "x"], ["y"], transB=1),
    helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear"),
    helper.make_node("InstanceNormalization", ["x", "v", "v"], ["y"]),
]
WEIGHTS = {"w": np.ones((4, 3, 3, 3), np.float32), "scales": np.array([1, 1, 2, 2], np.float32),
           "v": np.ones(3, np.float32)}
SHAPES = [[], None, [None], [0], [-1], [1, 3, 0, 0], [0, 3, 8, 8], [1 << 31], [1 << 62], [1 << 62, 1 << 62],
          [0, 1 << 62], [1, 3, 40000, 40000], [1 << 14, 1 << 14], [1] * 70, [1 << 24]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["CPU", "INTERPRETER"])
@pytest.mark.parametrize("node", NODES, ids=lambda node: node.op_type)
def test_shapes_of_inputs(node: onnx.NodeProto, backend: str) -> None:
    """It compiles, or there is an error of ours; so for shapes that a call would bring."""
    weights = {name: array for name, array in WEIGHTS.items() if name in node.input}
    for dims in SHAPES:
        outputs = [value(name, None, F32) for name in node.output]
        proto = model([node], [shaped(dims)], outputs, weights)
        try:
            exe = ngraph_mxnet.compile(proto.SerializeToString(), backend)
        except NGraphError:
            continue
        for shape in ((), (0,), (2, 3), (1, 3, 0, 0), (1, 3, 8, 8)):
            try:
                exe.program(exe.checked((np.ones(shape, np.float32),)))
            except NGraphError:
                continue


def test_large_shapes_wait_for_an_array() -> None:
    """A file may say them in a few bytes; whoever brings such an array has the memory for its tables."""
    proto = model([helper.make_node("Conv", ["x", "w"], ["y"])], [value("x", [1, 3, 40000, 40000])], [value("y", None)],
                  {"w": WEIGHTS["w"]})
    exe = ngraph_mxnet.compile(proto, "CPU")
    assert exe.inputs[0].shape == (1, 3, 40000, 40000)
    with pytest.raises(InputError, match="found shape"):
        exe(np.ones((1, 3, 8, 8), np.float32))
    with pytest.raises(UnsupportedError, match=r"'x': a tensor of \d+ bytes"):
        ngraph_mxnet.compile(model(NODES[:1], [value("x", [1 << 62])], [value("y", None)]), "INTERPRETER")
    with pytest.raises(ModelError, match="no negative dimension"):
        ngraph_mxnet.compile(model(NODES[:1], [value("x", ["n"])], [value("y", None)]), shapes={"x": (-2,)})


def test_a_weight_without_elements_and_a_huge_axis() -> None:
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", [1])], [value("y", None)])
    proto.graph.initializer.append(onnx.TensorProto(name="w", data_type=F32, dims=[0, 1 << 62], raw_data=b""))
    with pytest.raises(UnsupportedError, match="initialiser 'w': a tensor of"):
        ngraph_mxnet.compile(proto, "INTERPRETER")
