"""Lowering: the results do not depend on how work is cut, nothing begins too early, and no memory is exceeded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered_graphs import resources, results, version

from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.targets.nnp.device import load_device
from ngraph_mxnet.targets.nnp.places import DeviceMemoryError, Resources


def net(batch: int = 3, size: int = 8) -> Graph:
    b = Builder(name="net")
    x = b.parameter("x", (batch, 3, size, size))
    w0, w1, w2 = (b.weight(f"w{i}", shape) for i, shape in
                  enumerate(((40, 3, 3, 3), (40, 40, 3, 3), (10, 40 * (size // 2) ** 2))))
    bias = b.weight("bias", (40,))
    pads = {"pads_begin": (1, 1), "pads_end": (1, 1)}
    first = b.convolution(x, w0, bias, lower=0.0, **pads)
    second = b.convolution(first, w1, bias, first, lower=0.0, **pads)
    pooled = b.max_pool(second, kernel=(3, 3), strides=(2, 2), **pads)
    grouped = b.convolution(pooled, b.weight("w3", (40, 2, 3, 3)), groups=20, **pads)
    flat = b.reshape(b.add(pooled, b.tanh(grouped)), shape=(batch, 40 * (size // 2) ** 2))
    return b.results(b.softmax(b.matmul(flat, w2, transpose_b=True)), second)


def arrays_of(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [(rng.standard_normal(p.shape) / np.sqrt(np.prod(p.shape[1:]))).astype(np.float32) for p in graph.parameters]


@pytest.mark.parametrize(("changes", "instances"), [
    ({"local_bytes": 16 << 10}, 1), ({"local_bytes": 24 << 10}, 2),
    ({"local_bytes": 24 << 10, "shared": (("llc", 8 << 10), ("dram", 1 << 20))}, 1),
    ({"queues": 1, "device": load_device("nnp-i-1100", {"grid.formats.f16.channels": 8}), "local_bytes": 32 << 10}, 3),
], ids=str)
def test_tiles_do_not_change_results(changes: dict, instances: int):
    graph = net()
    arrays = arrays_of(graph)
    expected = results(version(graph, resources().with_engines(1)), arrays)
    found = version(graph, resources(**changes).with_engines(3), instances)
    for one, other in zip(results(found, arrays), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_engines_do_not_change_results():
    graph = net(batch=6)
    arrays = arrays_of(graph)
    expected = results(version(graph, resources().with_engines(1)), arrays)
    for engines, instances in ((5, 1), (12, 6), (12, 12)):
        found = version(graph, resources().with_engines(engines), instances)
        for one, other in zip(results(found, arrays), expected, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("device", ["nnp-i-1100", "nnp-t-1300"])
def test_results_are_those_of_the_formats(device: str):
    graph = net()
    arrays = arrays_of(graph)
    expected = compile(graph, "INTERPRETER")(*arrays)
    found = results(version(graph, resources(device)), arrays)
    for one, other in zip(found, expected, strict=True):
        assert np.linalg.norm(one - other) <= (2e-3 if device == "nnp-i-1100" else 1e-2) * np.linalg.norm(other)


def test_instances_share_no_data():
    """Each image stays with its engine: nothing but weights and the input comes from elsewhere."""
    graph = net()
    found = version(graph, resources().with_engines(3), instances=3)
    for instruction in found.program.instructions:
        memories = {tile.memory for tile in (*instruction.reads, *instruction.writes) if "." in tile.memory}
        assert len(memories) <= 1
        assert instruction.op != "copy" or instruction.writes[0].memory != "llc" or "host" in instruction.unit


def host_copies(width: int, device: Resources, instances: int = 1) -> list[tuple[str, int]]:
    """The memory and bytes of each copy to the host, of a result of four rows."""
    b = Builder(name="rows")
    graph = b.results(b.tanh(b.parameter("x", (4, width))))
    code = version(graph, device, instances).program.instructions
    assert len({one.unit for one in code if one.op == "vector"}) > 1
    return [(one.reads[0].memory, one.reads[0].bytes) for one in code if one.unit == "host.dma1"]


@pytest.mark.parametrize("device", ["nnp-i-1100", "nnp-t-1400"])
def test_pieces_of_a_result_leave_together_where_each_would_start_a_transfer(device: str):
    """The engines store 64 KB in DRAM, for one copy. Two store 256 KB longer than one transfer starts. Each of two
    instances does not wait for the other's image, but where that is small."""
    every = resources(device)
    assert host_copies(1 << 12, every) == [("dram", 1 << 16)]
    two = every.with_engines(2)
    for instances in (1, 2):
        apart = host_copies(1 << 14, two, instances)
        assert len({memory for memory, _ in apart}) == 2 and [size for _, size in apart] == [1 << 17] * 2
    assert host_copies(64, two, 2) == [("dram", 1 << 10)]


def test_tiles_of_a_product_fill_the_grid():
    """Of the rows of so long a contraction few fit an engine's memory. Tiles of a part of the grid would load less."""
    b = Builder(name="gemm")
    graph = b.results(b.matmul(b.parameter("a", (256, 7133)), b.weight("b", (7133, 256))))
    code = version(graph, resources("nnp-t-1400").with_engines(1)).program.instructions
    assert min(one.writes[0].size for one in code if one.op == "matmul") >= 32 * 32


@st.composite
def movements(draw) -> Graph:
    """Views of views of a few tensors, and what computes on them."""
    b = Builder(name="views")
    dims = tuple(draw(st.lists(st.integers(1, 6), min_size=2, max_size=4)))
    values = [b.parameter("x", dims), b.tanh(b.parameter("y", dims))]
    for _ in range(draw(st.integers(1, 5))):
        value = draw(st.sampled_from(values))
        shape = value.shape
        kind = draw(st.sampled_from(["reshape", "slice", "concat", "transpose", "negative"]))
        if kind == "reshape":
            merged = draw(st.integers(0, len(shape) - 1))
            shape = (*shape[:merged], int(np.prod(shape[merged:]))) if draw(st.booleans()) else tuple(reversed(shape))
            values.append(b.reshape(value, shape=shape))
        elif kind == "slice":
            begin = tuple(draw(st.integers(0, size - 1)) for size in shape)
            end = tuple(draw(st.integers(at + 1, size)) for at, size in zip(begin, shape, strict=True))
            values.append(b.slice(value, begin=begin, end=end))
        elif kind == "concat":
            values.append(b.concat(value, b.negative(value), axis=draw(st.integers(0, len(shape) - 1))))
        elif kind == "transpose":
            values.append(b.transpose(value, order=draw(st.permutations(range(len(shape))))))
        else:
            values.append(b.negative(value))
    return b.results(*values[2:])


@settings(max_examples=30)
@given(movements(), st.integers(1, 4), st.sampled_from([512, 1 << 20]))
def test_views_move_nothing_to_the_wrong_place(graph: Graph, engines: int, local_bytes: int):
    arrays = [np.arange(p.type.size, dtype=np.float32).reshape(p.shape) / 4 for p in graph.parameters]
    try:
        found = version(graph, resources(local_bytes=local_bytes).with_engines(engines), instances=2)
    except DeviceMemoryError:
        assert local_bytes == 512
        return
    for one, other in zip(results(found, arrays), compile(graph, "INTERPRETER")(*arrays), strict=True):
        np.testing.assert_array_equal(one, other.astype(np.float16).astype(np.float32))


def test_what_does_not_fit_is_named():
    graph = net()
    with pytest.raises(DeviceMemoryError, match=r"convolution.* does not fit nnp-i-1100:12W: found \d+ bytes .* 1024"):
        version(graph, resources(local_bytes=1024))
    with pytest.raises(DeviceMemoryError, match=r"the weights of graph net do not fit .* 4096 that are left in dram"):
        version(graph, resources(shared=(("llc", 4096), ("dram", 4096))))
    b = Builder(name="large")
    graph = b.results(b.tanh(b.parameter("x", (64, 1024))))
    with pytest.raises(DeviceMemoryError, match=r"the graph does not fit .* found 131072 bytes to be placed"):
        version(graph, resources(shared=(("llc", 4096), ("dram", 4096))))


def test_a_residual_that_is_read_later_stays():
    b = Builder(name="sums")
    x, w = b.parameter("x", (2, 32, 6, 6)), b.weight("w", (32, 32, 1, 1))
    bias = b.weight("bias", (32,))
    first, second = b.tanh(x), b.sigmoid(x)
    total = b.convolution(first, w, bias, second)
    graph = b.results(b.multiply(total, second))
    arrays = arrays_of(graph)
    found = version(graph, resources().with_engines(2), instances=2)
    sums = [i for i in found.program.instructions if i.op == "convolution"]
    assert sums and all(i.writes[0].buffer != i.reads[3].buffer for i in sums)
    for one, other in zip(results(found, arrays), compile(graph, "INTERPRETER")(*arrays), strict=True):
        np.testing.assert_allclose(one, other, atol=4e-3)


def test_a_sum_in_place():
    b = Builder(name="chain")
    x, bias = b.parameter("x", (2, 32, 6, 6)), b.weight("bias", (32,))
    first, second = b.tanh(x), b.sigmoid(x)
    for number in range(3):
        w = b.weight(f"w{number}", (32, 32, 1, 1))
        first, second = second, b.convolution(second, w, bias, first)
    graph = b.results(b.tanh(second))
    arrays = arrays_of(graph)
    found = version(graph, resources().with_engines(2), instances=2)
    sums = [i for i in found.program.instructions if i.op == "convolution"]
    assert len(sums) == 6
    assert all(i.writes[0].buffer == i.reads[3].buffer for i in sums)
    for one, other in zip(results(found, arrays), compile(graph, "INTERPRETER")(*arrays), strict=True):
        np.testing.assert_allclose(one, other, atol=8e-3)
