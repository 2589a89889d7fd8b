"""Whole graphs on every backend: random ones, odd ones, odd inputs, several threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from op_records import array_of
from own_backends import registered
from random_graphs import graphs
from refusals import STEPS
from test_ops_on_backends import assert_close, assert_packed, backend_named, tolerance_on

from ngraph_mxnet.base.errors import ConfigError, GraphError, NGraphError, PackageError, UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, all_ops, print_graph
from ngraph_mxnet.ir.opdef import REGISTRY as OPS
from ngraph_mxnet.ir.opdef import register_op
from ngraph_mxnet.program.backend import Backend, backends, get_backend, load, register_backend
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.program.executable import InputError
from ngraph_mxnet.program.package import Package
from ngraph_mxnet.targets.interpreter import InterpreterBackend

each_backend = pytest.mark.parametrize("name", backends())


def small_net() -> Graph:
    b = Builder(name="small")
    x = b.parameter("x", (2, 3, 8, 8))
    w = b.weight("w", (5, 3, 3, 3))
    y = b.relu(b.convolution(x, w, pads_begin=(1, 1), pads_end=(1, 1)))
    y = b.max_pool(y, kernel=(2, 2), strides=(2, 2))
    return b.results(b.softmax(b.reshape(y, shape=(2, 80))), y)


def matmul_net(shape: tuple[int, int]) -> Graph:
    b = Builder(name="product")
    x, w = b.parameter("x", (3, shape[0])), b.weight("w", shape)
    return b.results(b.tanh(b.matmul(x, w)))


def arrays_for(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [array_of(p.type, rng) for p in graph.parameters]


@each_backend
def test_random_graphs_agree(name: str):
    """No backend refuses any of them: `compile` would raise."""
    backend_named(name)

    @settings(max_examples=25)
    @given(graphs(), st.integers(0, 1000))
    def check(graph: Graph, seed: int):
        assume(not any(node.op.name in STEPS.get(name, ()) for node in graph.nodes))
        arrays = arrays_for(graph, seed)
        expected = compile(graph, "INTERPRETER")(*arrays)
        for one, other in zip(compile(graph, name)(*arrays), expected, strict=True):
            tolerance = 4e-3 if one.dtype == np.float16 else 1e-4
            assert_close(one, other, tolerance_on(name, tolerance), print_graph(graph))

    check()


@each_backend
def test_random_graphs_are_packed(name: str):
    backend_named(name)

    @settings(max_examples=10)
    @given(graphs(), st.integers(0, 1000))
    def check(graph: Graph, seed: int):
        assume(not any(node.op.name in STEPS.get(name, ()) for node in graph.nodes))
        assert_packed(compile(graph, name), arrays_for(graph, seed))

    check()


@each_backend
def test_packages_as_files(name: str, tmp_path: Path):
    """Saved and loaded, with weights that a call brings and weights that it holds; again when they change."""
    backend_named(name)
    graph, (x, w) = small_net(), arrays_for(small_net())
    for weights, arrays in (({}, [x, w]), ({"w": w}, [x])):
        made = compile(graph, name, weights=weights)
        made.package().save(tmp_path / "file")
        again = load(Package.load(tmp_path / "file"))
        assert (again.inputs, again.outputs) == (made.inputs, made.outputs)
        for factor in (1, -2):
            given = [array * np.float32(factor) for array in arrays]
            for one, other in zip(again(*given), made(*given), strict=True):
                assert one.tobytes() == other.tobytes()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@each_backend
def test_large_weights_are_held_by_whoever_loads(name: str):
    backend_named(name)
    w = np.random.default_rng(0).standard_normal((200, 80)).astype(np.float32)
    graph = matmul_net(w.shape)
    made = compile(graph, name, weights={"w": w})
    content = made.package().to_bytes({"the weights": w})
    assert len(content) < w.nbytes
    x = arrays_for(graph)[0]
    again = load(Package.from_bytes(content, {"the weights": w}))
    assert again(x)[0].tobytes() == made(x)[0].tobytes()
    with pytest.raises(PackageError, match="'the weights' is to be given"):
        Package.from_bytes(content)


@each_backend
def test_packages_of_another_backend_are_refused(name: str):
    backend_named(name)
    for other in {"CPU", "INTERPRETER", "NNP", "HYBRID"} - {name}:
        package = compile(small_net(), other).package()
        with pytest.raises(PackageError):
            load(replace(package, target=name))
    with pytest.raises(ConfigError, match="no backend 'TPU'"):
        load(replace(compile(small_net(), name).package(), target="TPU"))


@each_backend
def test_the_callers_graph_and_arrays_stay(name: str):
    backend_named(name)
    graph = small_net()
    text, arrays = print_graph(graph), arrays_for(graph)
    before = [a.copy() for a in arrays]
    compile(graph, name, weights={"w": arrays[1]})(arrays[0])
    compile(graph, name)(*arrays)
    assert print_graph(graph) == text
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))


@each_backend
def test_weights_become_constants(name: str):
    backend_named(name)
    graph = small_net()
    x, w = arrays_for(graph)
    expected = compile(graph, name)(x, w)
    bound = compile(graph, name, weights={"w": w})
    w[:] = 0  # the executable has its own copy
    assert [port.name for port in bound.inputs] == ["x"]
    for one, other in zip(bound({"x": x}), expected, strict=True):
        assert_close(one, other, tolerance_on(name, 1e-5), "")


@each_backend
def test_changed_weights_are_seen(name: str):
    backend_named(name)
    graph = small_net()
    x, w = arrays_for(graph)
    run, reference = compile(graph, name), compile(graph, "INTERPRETER")
    for factor in (1, -1, 0.5):
        w *= factor
        for one, other in zip(run(x, w), reference(x, w), strict=True):
            assert_close(one, other, tolerance_on(name, 1e-5), f"factor {factor}")


@each_backend
def test_threads_agree_bit_for_bit(name: str):
    backend_named(name)
    graph = small_net()
    run, inputs = compile(graph, name), [arrays_for(graph, seed) for seed in range(8)]
    alone = [run(*arrays) for arrays in inputs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda arrays: run(*arrays), inputs * 2))
    for found, expected in zip(together, alone * 2, strict=True):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


@each_backend
def test_results_are_the_callers_own(name: str):
    backend_named(name)
    b = Builder(name="aliases")
    x = b.parameter("x", (4, 5))
    b.parameter("unused", (2,))
    c = b.constant(np.arange(6, dtype=np.float32))
    flat = b.reshape(x, shape=(20,))
    b.relu(flat)  # dead
    run = compile(b.results(x, x, c, flat, b.identity(c)), name)
    array, unused = np.ones((4, 5), np.float32), np.zeros(2, np.float32)
    results = run(array, unused)
    everything = [array, *results, *run(array, unused)]
    for i, one in enumerate(everything):
        assert not any(np.shares_memory(one, other) for other in everything[:i])
    for result in results:
        result[...] = 7
    again = run(array, unused)
    np.testing.assert_array_equal(again[0], array)
    np.testing.assert_array_equal(again[2], np.arange(6, dtype=np.float32))


@each_backend
def test_empty_graphs(name: str):
    backend_named(name)
    assert compile(Builder(name="nothing").results(), name)() == []


@each_backend
def test_inputs_in_any_memory_order(name: str):
    backend_named(name)
    b = Builder(name="strided")
    x = b.parameter("x", (3, 4))
    run = compile(b.results(b.relu(x)), name)
    base = np.arange(-12, 12, dtype=np.float32).reshape(4, 6)
    unaligned = np.frombuffer(b"\0" + base.tobytes(), np.uint8)[1:49].view(np.float32).reshape(3, 4)
    for view in (base.T[::2], base[:3, 1:5], base[2::-1, :4], base[:3, :4].astype(">f4"), unaligned):
        np.testing.assert_array_equal(run(view)[0], np.maximum(view, 0))  # which f16 holds, too


@each_backend
def test_wrong_inputs_are_named(name: str):
    backend_named(name)
    graph = small_net()
    run, (x, w) = compile(graph, name), arrays_for(graph)
    for call, text in (
        (lambda: run(x), r"found 1 inputs, expected 2: x: f32\[2,3,8,8\]"),
        (lambda: run(x, w.astype(np.float64)), "input 'w': found dtype float64, expected float32"),
        (lambda: run(x[:1], w), r"input 'x': found shape \(1, 3, 8, 8\)"),
        (lambda: run({"x": x, "v": w}), "unknown v, missing w"),
    ):
        with pytest.raises(InputError, match=text):
            call()


@each_backend
def test_wrong_compiles_are_refused(name: str):
    backend_named(name)
    graph = small_net()
    with pytest.raises(ConfigError, match="no option nonsense"):
        compile(graph, name, nonsense=1)
    with pytest.raises(InputError, match="name no parameter"):
        compile(graph, name, weights={"v": np.zeros(1)})
    with pytest.raises(InputError, match="weight 'w': found shape"):
        compile(graph, name, weights={"w": np.zeros(1, np.float32)})
    graph.nodes.reverse()
    with pytest.raises(GraphError, match="used before it is defined"):
        compile(graph, name)


@each_backend
def test_an_unknown_op_is_refused_with_a_reason(name: str):
    backend_named(name)
    all_ops()
    register_op("test_only", operands=1)(lambda types, attrs: types[0])
    try:
        b = Builder(name="odd")
        b.origin = "mx:odd0 Odd"
        graph = b.results(b.test_only(b.parameter("x", (2,))))
        with pytest.raises(UnsupportedError, match=f"{name} does not run test_only .mx:odd0 Odd."):
            compile(graph, name)
    finally:
        del OPS["test_only"]


def test_an_unknown_backend_is_refused():
    with pytest.raises(ConfigError, match=r"known: CPU, .*INTERPRETER"):
        compile(small_net(), "TPU")
    assert issubclass(ConfigError, NGraphError)


def test_variants_of_a_backend(register: Callable[..., None]):
    register("TOY", f"{__name__}:Toy", varied=True)
    assert (get_backend("toy:Red").name, get_backend("TOY").name) == ("red", "")
    assert get_backend("Toy:RED") is get_backend("toy:red")
    with pytest.raises(ConfigError, match="backend 'cpu:fast': CPU has no variants"):
        get_backend("cpu:fast")


def test_a_backend_that_is_taken_away():
    first, *others = [instance_of_a_toy() for _ in range(2)]
    assert first not in others
    with pytest.raises(ConfigError, match="no backend 'TOY'"):
        get_backend("TOY")


def instance_of_a_toy() -> Backend:
    with registered("TOY", f"{__name__}:Toy", varied=True):
        with pytest.raises(ValueError, match="registered twice"):
            register_backend("TOY", f"{__name__}:Toy")
        return get_backend("TOY:red")


class Toy(InterpreterBackend):
    def __init__(self, variant: str) -> None:
        self.name = variant
