"""The CPU backend as a whole: against the interpreter, on every instruction set, with threads and new weights."""

from __future__ import annotations

import threading

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet import _core, compile
from ngraph_mxnet.base.errors import ConfigError, UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, element_type
from ngraph_mxnet.targets.cpu.backend import CPUExecutable
from ngraph_mxnet.targets.cpu.machine.isa import (
    NEEDS,
    available,
    choose_instruction_set,
    choose_isa,
    has_vnni,
    supported,
)
from ngraph_mxnet.targets.cpu.microkernels import target
from ngraph_mxnet.targets.cpu.program.builder import MemoryUse

ISAS = supported(_core.cpu_features())


def arrays_for(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Inputs of moderate size; variances positive."""
    rng = np.random.default_rng(seed)
    values = [rng.standard_normal(p.shape).astype(np.float32) / 4 for p in graph.parameters]
    return [np.abs(v) + 0.5 if p.name.startswith("var") else v for p, v in zip(graph.parameters, values, strict=True)]


def assert_agree(graph: Graph, tolerance: float = 1e-5) -> None:
    inputs = arrays_for(graph)
    expected = compile(graph, "INTERPRETER")(*inputs)
    for found, wanted in zip(compile(graph, "CPU", threads=2)(*inputs), expected, strict=True):
        assert found.shape == wanted.shape
        assert np.linalg.norm(found - wanted) <= tolerance * max(np.linalg.norm(wanted), 1e-6)


def test_constants_are_held_by_the_program_that_reads_them() -> None:
    """Weights by the prepare Program, once, and not by the main one too."""
    b = Builder()
    weights = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)
    x, w, same = b.parameter("x", (4, 48)), b.constant(weights), b.constant(weights.copy())
    graph = b.results(b.matmul(x, w, transpose_b=True), b.matmul(b.relu(x), same, transpose_b=True))
    executable = compile(graph, "CPU", threads=1)
    assert isinstance(executable, CPUExecutable)
    main, prepare = executable.programs.main, executable.programs.prepare
    assert prepare is not None
    arrays = [[each.shape for each in program.constants if isinstance(each, np.ndarray)] for program in (main, prepare)]
    assert arrays[1].count(weights.shape) == 1 and weights.shape not in arrays[0]
    assert_agree(graph)


@st.composite
def convolution_graphs(draw: st.DrawFn) -> Graph:
    """One convolution of any geometry, with or without batch norm, residual and activation."""
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    per_group = draw(st.sampled_from([1, 3, 5, 8, 16, 20]))
    outputs = groups * draw(st.sampled_from([1, 4, 7, 16, 24]))
    if draw(st.booleans()) and draw(st.booleans()):
        groups, per_group, outputs = (channels := draw(st.sampled_from([3, 16, 40]))), 1, channels
    kernel, size = (draw(st.tuples(st.integers(1, 4), st.integers(1, 4))) for _ in range(2))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    size = tuple(s + d * k for s, d, k in zip(size, dilation, kernel, strict=True))
    pads = draw(st.tuples(*[st.integers(0, 2)] * 4))
    b = Builder()
    x = b.parameter("x", (draw(st.integers(1, 3)), groups * per_group, *size))
    if draw(st.booleans()):
        x = b.max_pool(x, kernel=(1, 1))  # a blocked producer
    weights = (b.weight if draw(st.booleans()) else b.parameter)("w", (outputs, per_group, *kernel))
    y = b.convolution(x, weights, strides=draw(st.tuples(st.integers(1, 3), st.integers(1, 3))), dilations=dilation,
                      pads_begin=pads[:2], pads_end=pads[2:], groups=groups)
    if draw(st.booleans()):
        vectors = [b.weight(n, (outputs,)) for n in ("gamma", "beta", "mean", "variance")]
        y = b.batch_norm(y, *vectors)
    if draw(st.booleans()):
        y = b.add(y, b.parameter("residual", y.shape))
    if draw(st.booleans()):
        y = b.clamp(y, lower=draw(st.sampled_from([0.0, -0.5])), upper=draw(st.sampled_from([0.25, float("inf")])))
    return b.results(y)


@pytest.mark.parametrize("isa", ISAS)
def test_convolutions_agree_with_the_interpreter(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_CPU_ISA", isa)

    @settings(max_examples=60, deadline=None)
    @given(convolution_graphs())
    def check(graph: Graph) -> None:
        assert_agree(graph)

    check()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
def test_matrix_products(isa: str, transpose_a: bool, transpose_b: bool, batch: tuple[int, ...],
                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_CPU_ISA", isa)
    for m, k, n in ((1, 16, 32), (5, 7, 9), (6, 33, 16), (1, 784, 10)):
        b = Builder()
        a = b.parameter("a", (*batch, k, m) if transpose_a else (*batch, m, k))
        c = b.parameter("c", (*batch, n, k) if transpose_b else (*batch, k, n))
        assert_agree(b.results(b.matmul(a, c, transpose_a=transpose_a, transpose_b=transpose_b)))


def test_one_matrix_serves_a_batch() -> None:
    b = Builder()
    a, w = b.parameter("a", (2, 3, 5, 20)), b.weight("w", (7, 20))
    assert_agree(b.results(b.relu(b.add(b.matmul(a, w, transpose_b=True), b.parameter("bias", (7,))))))


@pytest.mark.parametrize(("left", "right"), [
    ((2, 1, 5, 16), (1, 3, 16, 20)), ((3, 5, 16), (2, 3, 16, 8)), ((2, 3, 4, 16), (3, 16, 16)), ((5, 16), (4, 16, 8)),
    ((2, 3, 4, 5, 16), (3, 1, 16, 3)), ((2, 3, 1, 5, 8), (2, 1, 4, 8, 7)), ((2, 0, 3, 16), (16, 5)),
])
@pytest.mark.parametrize("transpose", [False, True])
def test_batches_of_matrices_broadcast(left: tuple[int, ...], right: tuple[int, ...], transpose: bool) -> None:
    b = Builder()
    if transpose:
        left, right = ((*s[:-2], s[-1], s[-2]) for s in (left, right))
    x, y = b.parameter("x", left), b.parameter("y", right)
    assert_agree(b.results(b.matmul(x, y, transpose_a=transpose, transpose_b=transpose)))


@st.composite
def attention_graphs(draw: st.DrawFn) -> Graph:
    """Heads seen through transposes, as attention has them: strided matrices on both sides."""
    batch, heads, length = (draw(st.integers(1, 3)) for _ in range(3))
    length, size = 5 * length, draw(st.sampled_from([3, 16, 20]))
    order = draw(st.sampled_from([(0, 2, 1, 3), (2, 0, 1, 3), (2, 1, 0, 3)]))
    b = Builder()
    query, key, value = (
        b.transpose((b.weight if name == "value" else b.parameter)(name, (batch, length, heads, size)), order=order)
        for name in ("query", "key", "value")
    )
    scores = b.softmax(b.matmul(query, key, transpose_b=True), axis=-1)
    context = b.transpose(b.matmul(scores, value), order=[order.index(i) for i in range(4)])
    return b.results(b.reshape(context, shape=(batch * length, heads * size)))


@settings(max_examples=30, deadline=None)
@given(attention_graphs())
def test_attention(graph: Graph) -> None:
    assert_agree(graph)


def test_a_batch_of_matrices_is_one_instruction() -> None:
    b = Builder()
    graph = b.results(b.matmul(b.parameter("x", (24, 20, 64)), b.parameter("y", (24, 32, 64)), transpose_b=True))
    executable = compile(graph, "CPU")
    kernels = [i.kernel for level in executable.main.levels() for i in level]  # type: ignore[attr-defined]
    assert len(kernels) == 2  # packing, and the products, which are made in the result
    assert_agree(graph)


def test_gather_clips_its_indices() -> None:
    b = Builder()
    table, x = b.weight("table", (7, 2, 5)), b.parameter("x", (3, 4))
    indices = b.convert(b.multiply(x, b.constant(np.float32(9))), element=element_type("i64"))
    assert_agree(b.results(*(b.gather(table, indices, axis=axis) for axis in range(3))))


def test_a_gather_counts_the_bytes_of_its_rows_and_not_of_the_table() -> None:
    b = Builder()
    table, rows = b.weight("table", (100_000, 8)), b.parameter("rows", (3,), element_type("i64"))
    executable = compile(b.results(b.gather(table, rows, axis=0)), "CPU")
    (instruction,) = [i for level in executable.main.levels() for i in level]  # type: ignore[attr-defined]
    assert instruction.bytes == 2 * 3 * 8 * 4 + 3 * 8


def test_regions_turned_round_have_no_points() -> None:
    b = Builder()
    x, rois = b.parameter("x", (1, 3, 6, 4)), b.constant(np.array([[0, 3, 1, 1, 4], [0, 1, 1, 3, 4]], np.float32))
    assert_agree(b.results(b.roi_align(x, rois, sizes=(2, 2), offset=0.5)))


def test_more_dimensions_than_a_kernel_walks() -> None:
    b = Builder()
    x = b.parameter("x", (2, 3, 2, 3, 2, 3, 2))
    moved = b.transpose(x, order=(6, 0, 5, 1, 4, 2, 3))
    assert_agree(b.results(moved, b.relu(moved), b.concat(moved, b.negative(moved), axis=3)))


def dense_block() -> Graph:
    """Concatenations of concatenations, read by padded convolutions."""
    b = Builder()
    x = b.max_pool(b.parameter("x", (2, 32, 9, 9)), kernel=(1, 1))
    for layer in range(3):
        w = b.weight(f"w{layer}", (16, x.shape[1], 3, 3))
        y = b.relu(b.convolution(x, w, pads_begin=(1, 1), pads_end=(1, 1)))
        x = b.concat(x, y, axis=1)
    return b.results(b.avg_pool(x, kernel=(3, 3), strides=(2, 2)), b.reduce_mean(x, axes=(2, 3)))


def test_concatenation_in_place() -> None:
    assert_agree(dense_block())
    executable = compile(dense_block(), "CPU")
    kernels = [i.kernel for level in executable.main.levels() for i in level]  # type: ignore[attr-defined]
    assert not any("copy_4" in kernel for kernel in kernels)  # the means, whose channels fill blocks, are results


def test_halos_stay_zero_from_call_to_call() -> None:
    graph = dense_block()
    executable, inputs = compile(graph, "CPU"), arrays_for(graph)
    first = executable(*inputs)
    for seed in range(3):
        executable(*arrays_for(graph, seed))
    for a, b in zip(first, executable(*inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_threads_at_once_and_changing_weights() -> None:
    graph = dense_block()
    executable = compile(graph, "CPU", threads=2)
    sets = [arrays_for(graph, seed) for seed in range(12)]
    expected = [executable(*inputs) for inputs in sets]
    wrong: list[int] = []

    def work(first: int) -> None:
        for repeat in range(10):
            number = (first + repeat) % len(sets)
            if any((a != b).any() for a, b in zip(executable(*sets[number]), expected[number], strict=True)):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(t,)) for t in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_weights_changed_in_place_change_the_result() -> None:
    b = Builder()
    x, w = b.parameter("x", (1, 16)), b.weight("w", (16, 16))
    executable = compile(b.results(b.matmul(x, w, transpose_b=True)), "CPU")
    data, weights = np.ones((1, 16), np.float32), np.eye(16, dtype=np.float32)
    assert executable(data, weights)[0].sum() == 16
    weights[3, 5] = 1
    assert executable(data, weights)[0][0, 3] == 2


def test_nan_passes_through_activations_and_batch_edges() -> None:
    b = Builder()
    x, w = b.parameter("x", (1, 16, 3, 3)), b.weight("w", (16, 16, 1, 1))
    executable = compile(b.results(b.relu(b.convolution(x, w))), "CPU")
    data = np.zeros((1, 16, 3, 3), np.float32)
    data[0, 0, 1, 1] = np.nan
    (found,) = executable(data, np.ones((16, 16, 1, 1), np.float32))
    assert np.isnan(found[0, :, 1, 1]).all()
    assert np.count_nonzero(np.isnan(found)) == 16


@pytest.mark.parametrize("isa", ISAS)
def test_a_convolution_of_means_has_its_border(isa: str) -> None:
    b = Builder()
    x, w = b.parameter("x", (2, 16, 5, 4)), b.weight("w", (16, 16, 3, 3))
    mean = b.reduce_mean(b.max_pool(x, kernel=(2, 2)), axes=(2, 3), keep_dims=True)
    graph = b.results(b.convolution(mean, w, pads_begin=(1, 1), pads_end=(1, 1)))
    arrays = arrays_for(graph)
    (wanted,) = compile(graph.clone(), "INTERPRETER")(*arrays)
    np.testing.assert_allclose(compile(graph, "CPU", isa=isa)(*arrays)[0], wanted, 1e-4, 1e-4)


def test_an_empty_batch() -> None:
    b = Builder()
    x, w = b.parameter("x", (0, 16, 3, 3)), b.weight("w", (16, 16, 3, 3))
    graph = b.results(b.relu(b.convolution(x, w)))
    (found,) = compile(graph, "CPU")(np.zeros((0, 16, 3, 3), np.float32), np.ones((16, 16, 3, 3), np.float32))
    assert found.shape == (0, 16, 1, 1)


def test_what_has_no_kernel_is_refused_with_its_reason() -> None:
    b = Builder()
    graph = b.results(b.max_pool(b.parameter("x", (1, 2, 4, 4), "f64"), kernel=(2, 2)))
    with pytest.raises(UnsupportedError, match="f64 has no CPU kernel"):
        compile(graph, "CPU")


def test_a_forced_instruction_set_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_CPU_ISA", "avx512")
    with pytest.raises(ConfigError, match="this CPU does not have it"):
        choose_isa(dict.fromkeys(NEEDS["avx2"], True))
    monkeypatch.setenv("NGRAPH_CPU_ISA", "auto")
    assert choose_isa({}) == "baseline"
    assert choose_isa(dict.fromkeys(NEEDS["avx512"], True)) == "avx512"
    both = dict.fromkeys((*NEEDS["avx512"], *NEEDS["avx_vnni"]), True)
    assert available(both) == ["avx512", "avx_vnni", "avx2", "baseline"]
    assert supported(both) == ["avx512", "avx2", "baseline"]


def test_avx_vnni_is_avx2_with_more(monkeypatch: pytest.MonkeyPatch) -> None:
    features = dict.fromkeys(NEEDS["avx_vnni"], True)
    assert choose_instruction_set(features) == "avx_vnni" and choose_isa(features) == "avx2"
    assert has_vnni("avx_vnni", features) and not has_vnni("avx2", features)
    monkeypatch.setenv("NGRAPH_CPU_ISA", "avx_vnni")
    assert choose_instruction_set(features, "avx2") == "avx2"
    with pytest.raises(ConfigError, match="NGRAPH_CPU_ISA=avx_vnni: this CPU does not have it; it runs avx2, baseline"):
        choose_isa(dict.fromkeys(NEEDS["avx2"], True))


@pytest.mark.parametrize("isa", ["avx512", "avx_vnni", "avx2"])
def test_a_cpu_that_lacks_one_feature_lacks_the_instruction_set(isa: str) -> None:
    for missing in NEEDS[isa]:
        features = {name: name != missing for name in (*NEEDS["avx512"], *NEEDS["avx_vnni"])}
        assert isa not in available(features), missing


# A function of LLVM's, and whether it compiles to the instruction: by the features that the compiler is told of.
INSTRUCTIONS = {
    "lzcnt": ("i64 @f(i64 %x) { %r = call i64 @llvm.ctlz.i64(i64 %x, i1 0) ret i64 %r }",
              "declare i64 @llvm.ctlz.i64(i64, i1)"),
    "tzcnt": ("i64 @f(i64 %x) { %r = call i64 @llvm.cttz.i64(i64 %x, i1 0) ret i64 %r }",
              "declare i64 @llvm.cttz.i64(i64, i1)"),
    "popcnt": ("i64 @f(i64 %x) { %r = call i64 @llvm.ctpop.i64(i64 %x) ret i64 %r }",
               "declare i64 @llvm.ctpop.i64(i64)"),
    "movbe": ("i64 @f(ptr %p) { %x = load i64, ptr %p %r = call i64 @llvm.bswap.i64(i64 %x) ret i64 %r }",
              "declare i64 @llvm.bswap.i64(i64)"),
    "shlx": ("i64 @f(i64 %x, i64 %y) { %r = shl i64 %x, %y ret i64 %r }", ""),
    "vcvtph2ps": ("<8 x float> @f(<8 x half> %x) { %r = fpext <8 x half> %x to <8 x float> ret <8 x float> %r }", ""),
    "vplzcntd": ("<16 x i32> @f(<16 x i32> %x) { %r = call <16 x i32> @llvm.ctlz.v16i32(<16 x i32> %x, i1 0) "
                 "ret <16 x i32> %r }", "declare <16 x i32> @llvm.ctlz.v16i32(<16 x i32>, i1)"),
}


@pytest.mark.parametrize("isa", ["avx512", "avx2", "baseline"])
def test_what_the_compiler_is_told_is_what_is_checked(isa: str) -> None:
    """The same code comes out where the compiler is told of x86-64 and each feature that is checked, by name."""
    told = target.target_machine(isa)
    checked = llvm.Target.from_triple(told.triple).create_target_machine(
        cpu="x86-64", features=",".join(f"+{name}" for name in NEEDS[isa]), opt=3, reloc="pic")
    for name, (function, declarations) in INSTRUCTIONS.items():
        texts = [machine.emit_assembly(llvm.parse_assembly(f"{declarations}\ndefine {function}"))
                 for machine in (told, checked)]
        assert (name in texts[0]) == (name in texts[1]), (name, texts)


def test_memory_is_planned_against_naive() -> None:
    """A chain of convolutions needs two images, whatever its length."""
    def memory(length: int) -> MemoryUse:
        b = Builder()
        value = b.parameter("x", (1, 32, 8, 8), "f32")
        for number in range(length):
            weight = b.weight(f"w{number}", (32, 32, 1, 1), "f32")
            value = b.convolution(value, weight)
        executable = compile(b.results(b.softmax(value, axis=1)), "CPU")
        assert isinstance(executable, CPUExecutable)
        return executable.memory

    image = 32 * 8 * 8 * 4
    short, long = memory(4), memory(9)
    assert long.planned == short.planned
    assert long.separate - short.separate == 5 * image
    assert (short.intermediates, long.intermediates) == (4 * image, 9 * image)
    assert long.prepared > short.prepared >= 4 * 32 * 32 * 4
    for use in (short, long):
        assert use.least <= use.planned < use.separate


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_a_softmax_of_float64_over_no_elements(op: str, shape: tuple[int, ...]) -> None:
    b = Builder()
    graph = b.results(b.apply(op, b.parameter("x", shape, "f64"), axis=0))
    (found,) = compile(graph, "CPU")(np.zeros(shape))
    assert found.shape == shape and found.dtype == np.float64
