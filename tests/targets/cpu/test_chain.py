"""The kernel `chain`: clusters as one instruction, and results that are written over inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ngraph_mxnet
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.targets.cpu.backend import CPUExecutable
from ngraph_mxnet.targets.cpu.params.record import GRAIN
from ngraph_mxnet.targets.cpu.params.strided import CHAIN_CHUNK, CHAIN_INPUTS, CHAIN_STEPS

UNARY = list(CHAIN_STEPS)[1:list(CHAIN_STEPS).index("add")]
BINARY = list(CHAIN_STEPS)[list(CHAIN_STEPS).index("add"):]
SIZES = (1, 3, CHAIN_CHUNK - 1, CHAIN_CHUNK, CHAIN_CHUNK + 1, 2 * GRAIN + 17)


def compiled(graph: Graph, threads: int = 2, chains: int = 1) -> CPUExecutable:
    made = ngraph_mxnet.compile(graph, "CPU", chains=chains, codegen=0, threads=threads)
    assert isinstance(made, CPUExecutable)
    return made


def kernels(made: CPUExecutable) -> list[str]:
    return [instruction.name for instruction in made.main.instructions]


def drawn(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=p.shape).astype("f") for p in graph.parameters]


def same_as_without(graph: Graph) -> list[str]:
    """Bit for bit: each op rounds as its own kernel does."""
    arrays = drawn(graph)
    with np.errstate(all="ignore"):
        chained, plain = compiled(graph), compiled(graph, chains=0)
        for one, other in zip(chained.run(arrays), plain.run(arrays), strict=True):
            np.testing.assert_array_equal(one, other)
    return kernels(chained)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(SIZES), st.integers(2, 14))
def test_any_cluster_gives_what_its_ops_give(data: st.DataObject, size: int, count: int) -> None:
    b = Builder()
    shape = (size, 2) if data.draw(st.booleans()) else (size,)
    values: list[Value] = [b.parameter(f"x{i}", shape if i < 3 else (1,)) for i in range(5)]
    made: list[Value] = []
    for _ in range(count):
        op = data.draw(st.sampled_from(UNARY + BINARY))
        full = data.draw(st.sampled_from([v for v in values if v.shape == shape]))
        other = data.draw(st.sampled_from(values))
        operands = data.draw(st.permutations([full, other]))
        made.append(b.apply(op, *(operands if op in BINARY else [full])))
        values.append(made[-1])
    results = data.draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    same_as_without(b.results(*results))


def long_chain(operands: int) -> Graph:
    b = Builder()
    values = [b.parameter(f"x{i}", (700,)) for i in range(operands)]
    total = values[0]
    for value in values[1:]:
        total = b.multiply(b.add(total, value), value)
    return b.results(total)


def test_a_cluster_is_one_instruction() -> None:
    assert same_as_without(long_chain(CHAIN_INPUTS)) == ["chain"]


def softened(b: Builder, x: Value) -> Value:
    """tanh's form of GELU, as it is written out."""
    cubic, factor, half, one = (b.constant(np.float32(number)) for number in (0.044715, 0.79788456, 0.5, 1))
    inner = b.multiply(b.add(x, b.multiply(b.multiply(b.square(x), x), cubic)), factor)
    return b.multiply(b.multiply(x, half), b.add(b.tanh(inner), one))


@pytest.mark.parametrize(("rows", "columns", "chained"), [(128, 128, True), (127, 128, False), (400, 100, False)])
def test_large_ones_are_chained_by_default(rows: int, columns: int, chained: bool) -> None:
    """Between products, where rows are whole blocks: what lies in padded rows is not turned for it."""
    b = Builder()
    x, weights = b.parameter("x", (rows, 64)), b.weight("w", (columns, 64))
    graph = b.results(softened(b, b.matmul(x, weights, transpose_b=True)))
    arrays = [np.random.default_rng(0).standard_normal((rows, 64), dtype=np.float32)]
    w = {"w": np.random.default_rng(1).standard_normal((columns, 64), dtype=np.float32)}
    found, plain = (ngraph_mxnet.compile(graph, "CPU", weights=w, codegen=0, threads=2, **options)
                    for options in ({}, {"chains": 0}))
    assert ("chain" in kernels(found)) == chained
    assert "chain" not in kernels(plain)
    np.testing.assert_array_equal(found.run(arrays)[0], plain.run(arrays)[0])


def test_images_and_bf16_are_not_chained_by_default() -> None:
    b = Builder()
    x = b.parameter("x", (1, 16, 40, 40))
    y = b.convolution(x, b.constant(np.ones((16, 16, 3, 3), np.float32)), pads_begin=(1, 1), pads_end=(1, 1))
    graph = b.results(b.multiply(b.add(y, x), b.tanh(y)))
    assert "chain" not in kernels(ngraph_mxnet.compile(graph, "CPU", codegen=0))
    b = Builder()
    x = b.parameter("x", (256, 256))
    graph = b.results(b.multiply(b.add(x, x), b.tanh(x)))
    assert "chain" in kernels(ngraph_mxnet.compile(graph, "CPU", codegen=0))
    assert "chain" not in kernels(ngraph_mxnet.compile(graph, "CPU", codegen=0, precision="bf16"))


def test_masks_are_no_bytes_that_readers_store() -> None:
    """Ops before and behind a mask are chained by default; integers of a byte are quantised data, and prevent it."""
    for chained in (True, False):
        b = Builder()
        x = b.parameter("x", (256, 256))
        mask = b.greater(x, b.constant(np.float32(0)))
        mask = mask if chained else b.square(b.convert(mask, element="u8"))
        graph = b.results(b.multiply(b.exp(b.multiply(x, x)), b.convert(mask, element="f32")))
        found, plain = (ngraph_mxnet.compile(graph, "CPU", codegen=0, threads=2, **options)
                        for options in ({}, {"chains": 0}))
        assert ("chain" in kernels(found)) == chained
        np.testing.assert_array_equal(found.run(drawn(graph))[0], plain.run(drawn(graph))[0])


def test_a_file_has_chains(tmp_path: Path) -> None:
    b = Builder()
    x = b.parameter("x", (256, 256))
    graph = b.results(b.multiply(b.add(x, x), b.tanh(x)))
    array = np.random.default_rng(0).standard_normal((256, 256), dtype=np.float32)
    wanted = ngraph_mxnet.compile(graph, "CPU", codegen=0).run([array])
    path = tmp_path / "net.ngraph"
    ngraph_mxnet.export(graph, path)
    assert b"ng_chain__" in path.read_bytes()
    np.testing.assert_array_equal(ngraph_mxnet.compile(str(path))(array)[0], wanted[0])


def test_what_has_too_many_operands_is_computed_op_by_op() -> None:
    assert "chain" not in same_as_without(long_chain(CHAIN_INPUTS + 1))


def test_what_needs_too_many_registers_is_computed_op_by_op() -> None:
    b = Builder()
    x = b.parameter("x", (64,))
    kept = [x]
    for _ in range(9):
        kept.append(b.square(b.add(kept[-1], x)))
    total = kept[1]
    for value in kept[:1:-1]:
        total = b.multiply(total, value)
    assert "chain" not in same_as_without(b.results(b.minimum(b.maximum(total, x), x)))


def test_constants_and_nan_go_through() -> None:
    b = Builder()
    x = b.parameter("x", (600,))
    made = compiled(b.results(b.maximum(b.add(x, b.constant(1.5)), b.constant(0.25)), b.sign(b.subtract(x, x))))
    array = np.linspace(-3, 3, 600, dtype="f")
    array[5] = np.nan
    first, second = made.run([array])
    np.testing.assert_array_equal(first, np.maximum(array + np.float32(1.5), np.float32(0.25)))
    np.testing.assert_array_equal(second, np.sign(array - array))


def test_any_number_of_threads_gives_the_same_bits() -> None:
    b = Builder()
    x, y = b.parameter("x", (3 * GRAIN + 5,)), b.parameter("y", (3 * GRAIN + 5,))
    graph = b.results(b.sqrt(b.abs(b.divide(b.multiply(x, y), b.add(x, y)))))
    arrays = drawn(graph)
    one, two = (compiled(graph, threads).run(arrays)[0].tobytes() for threads in (1, 2))
    assert one == two


def update(extra_reader: bool = False) -> CPUExecutable:
    """w - lr * g, and w * g by a matrix product, which reads w as well."""
    b = Builder()
    w, g, lr = b.parameter("w", (40, 40)), b.parameter("g", (40, 40)), b.parameter("lr", (1,))
    results = [b.subtract(w, b.multiply(g, lr))]
    return compiled(b.results(*results, *([b.matmul(w, g)] if extra_reader else [])))


def test_a_chain_may_write_over_what_it_reads() -> None:
    assert update().in_the_way({0: 0}) is None
    assert update().in_the_way({0: 1}) is None


def test_nothing_is_written_over_what_another_may_read() -> None:
    reason = update(extra_reader=True).in_the_way({0: 0})
    assert reason is not None
    assert "result 0 can't be written over input 0" in reason


def test_one_kernel_an_op_is_no_chain() -> None:
    b = Builder()
    w = b.parameter("w", (40,))
    assert "can't be written over" in str(compiled(b.results(b.sqrt(w))).in_the_way({0: 0}))


@pytest.mark.parametrize("found", [2, "yes"])
def test_the_option_is_on_or_off(found: object) -> None:
    with pytest.raises(ngraph_mxnet.NGraphError, match=r"option chains: found .*, expected 0 or 1"):
        ngraph_mxnet.compile(long_chain(2), "CPU", chains=found)
