"""A Program for a range of sizes: bound to any it is the Program that these sizes are lowered to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from range_weights import weights

from ngraph_mxnet import _core
from ngraph_mxnet.base.errors import NGraphError, UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.ir.ranges import Guards, assuming, because
from ngraph_mxnet.ir.sizes import symbol
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.program.executable import InputError
from ngraph_mxnet.program.program import Program
from ngraph_mxnet.program.ranges import MOST_FAILURES, MOST_RANGES, RangeExecutable, Shapes, Template

N, H, W, T = symbol("N", 1, 32), symbol("H", 2), symbol("W", 2), symbol("T", 1)
rng = np.random.default_rng(0)


def _convolved(b: Builder, x: Value, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> Value:
    filters = weights(b, channels, x.shape[1] // groups, kernel, kernel)
    pads = (kernel // 2, kernel // 2)
    y = b.convolution(x, filters, strides=(stride, stride), pads_begin=pads, pads_end=pads, groups=groups)
    return b.relu(b.add(y, weights(b, 1, channels, 1, 1)))


def direct(b: Builder, x: Value) -> list[Value]:
    y = b.max_pool(_convolved(b, x, 32, 3, 2), kernel=(3, 3), strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1))
    y = _convolved(b, _convolved(b, y, 64, 1), 48, 5, 2)
    return [y, b.reduce_mean(y, axes=(2, 3))]


def winograd(b: Builder, x: Value) -> list[Value]:
    y = _convolved(b, x, 32, 1)
    return [b.relu(b.add(y, _convolved(b, _convolved(b, y, 32, 3), 32, 3)))]


def depthwise(b: Builder, x: Value) -> list[Value]:
    y = _convolved(b, _convolved(b, x, 32, 3, 2), 32, 3, 1, groups=32)
    return [b.concat(y, _convolved(b, y, 16, 1), axis=1), b.avg_pool(y, kernel=(2, 2), strides=(2, 2))]


def dense(b: Builder, x: Value) -> list[Value]:
    flat = b.reshape(b.transpose(x, order=(0, 2, 3, 1)), shape=(x.shape[0] * x.shape[2] * x.shape[3], 3))
    return [b.softmax(b.matmul(flat, weights(b, 3, 40)), axis=1)]


def resized(b: Builder, x: Value) -> list[Value]:
    y, (height, width) = _convolved(b, x, 20, 1), x.shape[2:]
    larger = b.resize(y, sizes=(2 * height, 2 * width), mode="nearest")
    smaller = [b.resize(larger, sizes=(height, width), mode="bilinear", corners=corners) for corners in (False, True)]
    other = b.resize(larger, sizes=(5, 3 * width - 1), mode="bilinear")
    return [b.add(*smaller), b.adaptive_avg_pool(other, sizes=(2, 7)), b.adaptive_avg_pool(larger, sizes=(3, 1))]


def padded(b: Builder, x: Value) -> list[Value]:
    around = {"pads_begin": (0, 0, 1, 2), "pads_end": (0, 0, 2, 0)}
    mirrored = b.pad(x, mode="reflect", **around)
    return [mirrored, b.pad(_convolved(b, mirrored, 20, 3), mode="edge", **around)]


IMAGES = [direct, winograd, depthwise, dense, resized, padded]


def of_images(net: Callable[[Builder, Value], list[Value]], shape: Sequence[int]) -> Graph:
    b = Builder(name=net.__name__)
    return b.results(*net(b, b.parameter("x", shape)))


def template_of(make: Callable[[], Graph], hint: dict[str, int]) -> Any:
    with assuming(Guards(hint)):
        return get_backend("CPU").template(make(), {})


def resolved(executable: Any) -> tuple[list[Any], int]:
    """Instructions by level, with constants in place of their numbers; and the arena's bytes."""
    levels, arena, constants = executable.native.program.listed()
    return [[(kernel, [(space, constants[index].tobytes() if space == 3 else index, offset)
                       for space, index, offset in operands], list(ints), list(floats), tasks)
             for kernel, operands, ints, floats, tasks, *_ in level] for level in levels], arena


def check_instructions(bound: Any, template: Any) -> None:
    """Each is such as its kernel declares, at these sizes too."""
    sizes = [[port.type.bytes for port in ports] for ports in (bound.inputs, bound.outputs)]
    bound.native.program.check(*sizes, template.programs.prepared_bytes)


@pytest.mark.parametrize("net", IMAGES)
@given(st.integers(1, 5), st.integers(3, 90), st.integers(3, 90))
def test_it_is_what_the_sizes_are_lowered_to(net: Any, images: int, height: int, width: int) -> None:
    template = template_of(lambda: of_images(net, (N, 3, H, W)), {"N": 2, "H": 40, "W": 33})
    bound = template.bind([(images, 3, height, width)])
    assert bound is not None, [str(guard) for guard in template.guards]
    check_instructions(bound, template)
    x = rng.standard_normal((images, 3, height, width), np.float32)
    alone = compile_graph(of_images(net, x.shape), "CPU")
    for found, expected in zip(bound(x), alone(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    if net is direct and min(images, height, width) > 16:
        assert resolved(bound) == resolved(alone)


def deep(b: Builder, x: Value) -> list[Value]:
    y = _convolved(b, x, 160, 1)
    dilated = b.convolution(y, weights(b, 160, 160, 3, 3), pads_begin=(2, 2), pads_end=(2, 2), data_dilations=(1, 1),
                            dilations=(2, 2))
    return [b.relu(b.add(y, _convolved(b, dilated, 160, 3)))]


@pytest.mark.parametrize("hint", [{"N": 1, "H": 3, "W": 4}, {"N": 8, "H": 90, "W": 80}])
def test_the_algorithm_follows_from_the_sizes_whatever_they_were_first(hint: dict[str, int]) -> None:
    template = template_of(lambda: of_images(deep, (N, 3, H, W)), hint)
    algorithms = set()
    for images, height, width in ((1, 3, 3), (1, 9, 7), (2, 30, 31), (1, 60, 80)):
        bound = template.bind([(images, 3, height, width)])
        check_instructions(bound, template)
        x = rng.standard_normal((images, 3, height, width), np.float32)
        alone = compile_graph(of_images(deep, x.shape), "CPU")
        np.testing.assert_allclose(bound(x)[0], alone(x)[0], rtol=1e-4, atol=1e-4)

        def kernels(levels: Any) -> set[str]:
            return {name.rpartition("__")[0] for level in levels for name, *_ in level if "winograd" in name}

        found = kernels(bound.native.program.listed()[0])
        expected = kernels(alone.native.program.listed()[0])
        if not any("2" in name for name in expected):  # a range has no F(2x2)
            assert found == expected
        algorithms.add(bool(found))
    assert algorithms == {False, True}


@pytest.mark.parametrize("branches", [0, 1, 2])
def test_branches_and_zeroed_halos(branches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large images share memory across regions, and halos are zeroed anew at every call."""
    monkeypatch.setenv("NGRAPH_INTER_OP_PARALLELISM", str(branches))
    template = template_of(lambda: of_images(winograd, (N, 3, H, W)), {"N": 1, "H": 64, "W": 64})
    for shape in ((1, 3, 20, 30), (2, 3, 400, 500)):
        bound = template.bind([shape])
        check_instructions(bound, template)
        levels, *_ = bound.native.program.listed()
        nodes = [{origin for *_, origin, _, _ in level if origin} for level in levels]
        assert not branches or max(map(len, nodes)) <= branches
        zeroing = [kernel for level in levels for kernel, *_ in level if "zero_halo" in kernel]
        assert bool(zeroing) == (shape[3] == 500)
        x = rng.standard_normal(shape, np.float32)
        for _ in range(2):
            np.testing.assert_allclose(bound(x)[0], compile_graph(of_images(winograd, shape), "CPU")(x)[0], rtol=1e-4,
                                       atol=1e-5)


@pytest.mark.parametrize("net", [direct, winograd, depthwise])
def test_memory_that_another_shape_has_used(net: Any) -> None:
    """Of large images: a new shape takes the arena of the one before, in which no border is zero."""
    template = template_of(lambda: of_images(net, (N, 3, H, W)), {"N": 1, "H": 200, "W": 210})
    shapes = ((1, 3, 200, 210), (1, 3, 193, 215), (2, 3, 150, 120), (1, 3, 230, 222))
    kept = [template.bind([shape]) for shape in shapes]
    for shape, bound in zip(shapes, kept, strict=True):
        x = rng.standard_normal(shape, np.float32)
        expected = compile_graph(of_images(net, shape), "CPU")(x)
        for found, wanted in zip(bound(x), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cell", ["lstm", "gru", "tanh"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("precision", "close"), [("f32", 1e-3), ("bf16", 1e-2)])
def test_recurrent_steps_are_a_loop(cell: str, reverse: bool, precision: str, close: float,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_PRECISION", precision)
    gates = {"lstm": 4, "gru": 3, "tanh": 1}[cell] * 24

    def make(steps: Any, rows: Any = N) -> Graph:
        b = Builder()
        x, states = b.parameter("x", (steps, rows, gates)), [b.parameter("h", (rows, 24))]
        states += [b.parameter("c", (rows, 24))] if cell == "lstm" else []
        node = b.node("rnn", [x, weights(b, gates, 24), weights(b, gates), *states],
                      {"cell": cell, "reverse": reverse})
        return b.results(*node.outputs)

    template = template_of(lambda: make(T), {"T": 5, "N": 3})
    for steps, rows in ((5, 3), (1, 3), (2, 1), (33, 7)):
        arrays = [rng.standard_normal((steps, rows, gates), np.float32),
                  *(rng.standard_normal((rows, 24), np.float32) for _ in range(1 + (cell == "lstm")))]
        bound = template.bind([array.shape for array in arrays])
        assert bound is not None, [str(guard) for guard in template.guards]
        check_instructions(bound, template)
        for found, expected in zip(bound(*arrays), compile_graph(make(steps, rows), "CPU")(*arrays), strict=True):
            np.testing.assert_allclose(found, expected, rtol=close, atol=close / 100)


@pytest.mark.parametrize("cell", ["lstm", "gru", "tanh", "relu", "projected"])
@pytest.mark.parametrize("reverse", [False, True])
def test_recurrent_steps_back_are_a_loop(cell: str, reverse: bool) -> None:
    attrs = {"cell": "lstm" if cell == "projected" else cell, "reverse": reverse}
    gates, state = {"gru": 3, "tanh": 1, "relu": 1}.get(cell, 4) * 24, 10 if cell == "projected" else 24

    def make(steps: Any, rows: Any = N) -> Graph:
        b = Builder()
        x, states = b.parameter("x", (steps, rows, gates)), [b.parameter("h", (rows, state))]
        of_states = b.parameter("of_states", (steps, rows, state))
        states += [b.parameter("c", (rows, 24))] if attrs["cell"] == "lstm" else []
        last = [weights(b, state, 24)] if cell == "projected" else []
        recurrent = weights(b, gates, state)
        forth = b.node("rnn_training", [x, recurrent, weights(b, gates), *states, *last], attrs)
        back = b.node("rnn_gradient", [recurrent, forth.outputs[-1], of_states, *states, *last], attrs)
        return b.results(*forth.outputs, *back.outputs)

    template = template_of(lambda: make(T), {"T": 5, "N": 3})
    for steps, rows in ((5, 3), (1, 3), (2, 1), (33, 7)):
        arrays = [rng.standard_normal((steps, rows, gates), np.float32), rng.standard_normal((rows, state), np.float32),
                  rng.standard_normal((steps, rows, state), np.float32),
                  *([rng.standard_normal((rows, 24), np.float32)] if attrs["cell"] == "lstm" else [])]
        bound = template.bind([array.shape for array in arrays])
        assert bound is not None, [str(guard) for guard in template.guards]
        check_instructions(bound, template)
        found, alone = bound(*arrays), compile_graph(make(steps, rows), "CPU")(*arrays)
        for one, other in zip(found, alone, strict=True):  # tiles are chosen for the sizes at hand
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
        for one, wanted in zip(found, compile_graph(make(steps, rows), "INTERPRETER")(*arrays), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-3, atol=1e-4 * max(1, float(np.abs(wanted).max())))


# ---- called with arrays --------------------------------------------------------------------------------------


def test_a_graph_with_symbols_is_compiled_and_called() -> None:
    with assuming(Guards({"N": 2, "H": 30, "W": 31})):
        run = compile_graph(of_images(direct, (N, 3, H, W)), "CPU")
    assert isinstance(run, RangeExecutable) and str(run.inputs[0]) == "x: f32[N,3,H,W]"
    for shape in ((2, 3, 30, 31), (1, 3, 64, 20), (2, 3, 30, 31)):
        x = rng.standard_normal(shape, np.float32)
        expected = compile_graph(of_images(direct, shape), "CPU")(x)
        np.testing.assert_allclose(run(x)[0], expected[0], rtol=1e-5, atol=1e-6)
        assert run.at(shape) is run.at(shape)
    assert len(run.templates) == 1


@pytest.mark.parametrize("backend", ["INTERPRETER", "CPU"])
def test_every_backend_takes_it(backend: str) -> None:
    with assuming(Guards({"N": 1, "H": 8, "W": 8})):
        run = compile_graph(of_images(dense, (N, 3, H, W)), backend)
    x = rng.standard_normal((2, 3, 5, 4), np.float32)
    np.testing.assert_allclose(run(x)[0], compile_graph(of_images(dense, x.shape), "INTERPRETER")(x)[0], rtol=1e-5,
                               atol=1e-6)
    assert len(run.templates) == (backend == "CPU")


@pytest.mark.parametrize(("array", "text"), [
    (np.zeros((40, 3, 8, 8), np.float32), "from 1 to 32"),
    (np.zeros((1, 4, 8, 8), np.float32), r"expected \(1, 3, 8, 8\)"),
    (np.zeros((1, 3, 8), np.float32), "expected f32"),
    (np.zeros((1, 3, 8, 8), np.float64), "dtype"),
    ([1.0], "expected an array"),
])
def test_what_does_not_fit_is_refused(array: Any, text: str) -> None:
    with assuming(Guards({"N": 1, "H": 8, "W": 8})):
        run = compile_graph(of_images(dense, (N, 3, H, W)), "CPU")
    with pytest.raises(InputError, match=text):
        run(array)
    with pytest.raises(InputError, match="found 0 inputs"):
        run()


def test_guards_that_do_not_hold_ask_for_another_template() -> None:
    """Of too many, each set of shapes is compiled for itself."""
    def make() -> Graph:
        b = Builder()
        x = b.parameter("x", (T, 4))
        with because("the test"):
            return b.results(b.add(x, b.constant(np.arange(int(x.shape[0]), dtype=np.float32)[:, None])))

    with assuming(Guards({"T": 2})):
        graph = make()
    backend = get_backend("CPU")
    run = RangeExecutable(graph, make, lambda made: backend.template(made, {}), lambda made: compile_graph(made, "CPU"))
    for steps in range(1, MOST_RANGES + 4):
        x = rng.standard_normal((steps, 4), np.float32)
        np.testing.assert_array_equal(run(x)[0], x + np.arange(steps, dtype=np.float32)[:, None])
    assert len(run.templates) == MOST_RANGES
    assert [str(guard) for guard in run.templates[0].guards] == ["T is 1"]


def test_each_guard_has_a_reason() -> None:
    """Also where chains ask whether there are elements."""
    b = Builder()
    x = b.parameter("x", (symbol("R", 0), 4))
    with assuming(Guards({"R": 7})):
        template: Any = get_backend("CPU").template(b.results(b.exp(b.negative(x))), {"chains": True})
    told = {str(guard): guard.why for guard in template.guards}
    assert told["R > 0"] == "chains of elementwise ops" and all(told.values())


@pytest.mark.parametrize("error", [UnsupportedError("not for a range"), ValueError("a defect")])
def test_where_no_template_can_be_made_each_set_of_sizes_is_compiled(error: Exception,
                                                                     caplog: pytest.LogCaptureFixture) -> None:
    def make() -> Graph:
        return of_images(dense, (N, 3, H, W))

    def template(made: Graph) -> Template:
        asked.append(made)
        raise error

    asked: list[Graph] = []
    with assuming(Guards({"N": 1, "H": 8, "W": 8})):
        graph = make()
    run = RangeExecutable(graph, make, template, lambda made: compile_graph(made, "INTERPRETER"))
    with caplog.at_level("INFO", "ngraph_mxnet"):
        for batch in range(1, MOST_FAILURES + 3):
            x = rng.standard_normal((batch, 3, 5, 4), np.float32)
            expected = compile_graph(of_images(dense, x.shape), "INTERPRETER")(x)[0]
            np.testing.assert_allclose(run(x)[0], expected, rtol=1e-5, atol=1e-6)
    assert len(asked) == MOST_FAILURES and not run.templates
    (level, text), *_ = [(record.levelname, record.getMessage()) for record in caplog.records
                         if "for each set of shapes" in record.getMessage()]
    assert str(error) in text and level == ("INFO" if isinstance(error, UnsupportedError) else "WARNING")


def test_a_template_that_does_not_hold_where_it_was_made_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Never(Template):
        def bind(self, shapes: Shapes) -> None:
            return None

    def make() -> Graph:
        return of_images(dense, (N, 3, H, W))

    with assuming(Guards({"N": 1, "H": 8, "W": 8})):
        graph = make()
    run = RangeExecutable(graph, make, lambda made: Never(), lambda made: compile_graph(made, "INTERPRETER"))
    x = rng.standard_normal((2, 3, 5, 4), np.float32)
    np.testing.assert_allclose(run(x)[0], compile_graph(of_images(dense, x.shape), "INTERPRETER")(x)[0], rtol=1e-5,
                               atol=1e-6)
    assert "does not hold" in caplog.text and not run.templates


def test_damaged_code_is_refused() -> None:
    program = template_of(lambda: of_images(winograd, (N, 3, H, W)), {"N": 1, "H": 16, "W": 16}).programs.main
    code = vars(program)
    kernel = code["instructions"][0]
    damages: list[dict[str, Any]] = [
        {"steps": np.array([[1, 0, 99, 0, 0]], np.int64)},
        {"steps": code["steps"][:-1]},
        {"instructions": [(kernel[0], [(0, 99, 0)], *kernel[2:])]},
        {"instructions": [(*kernel[:5], [5], *kernel[6:])]},
        {"loops": [(0, 0)] * max(len(code["loops"]), 1)},
        {"constants": [("pixels", [0, 1])]},
        {"constants": [("stars", [])]},
        {"buffers": code["buffers"][:1]},
        {"zeroing": [(code["zeroing"][0][0], [(1, 0, 0)], *code["zeroing"][0][2:])]},
        {"guards": [(10**6, 1)]},
    ]
    for damage in damages:
        with pytest.raises((ValueError, NGraphError)):
            Program(**{**code, **damage}).native(_core.kernel_address)
