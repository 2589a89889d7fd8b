"""Rows of tables: DMA fetches them alone, and their numbers are those of the whole table's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered_graphs import resources, results, version

from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.targets.nnp.places import Resources
from ngraph_mxnet.targets.nnp.timing import simulate


def lookup(op: str, data: tuple[int, ...], indices: tuple[int, ...], attrs: dict[str, Any], weight: bool) -> Graph:
    """The rows, once as they are and once behind an op, so that both f32 and the device's element are wanted."""
    b = Builder(name="lookup")
    table = b.weight("table", data) if weight else b.parameter("table", data)
    rows = getattr(b, op)(table, b.parameter("i", indices, "i32"), **attrs)
    return b.results(rows, b.tanh(getattr(b, op)(table, b.parameter("j", indices, "i32"), **attrs)))


CASES = [
    ("gather", (500, 24), (6,), {}), ("gather", (500, 24), (3, 2), {"mode": "from_end"}),
    ("gather", (3, 400, 8), (5,), {"axis": 1, "mode": "wrap"}), ("gather", (700,), (9,), {}),
    ("gather_nd", (20, 30, 8), (2, 7), {}), ("gather_nd", (90, 40), (1, 4), {}),
    ("gather_elements", (4, 300), (4, 2), {"axis": 1}),
]


@pytest.mark.parametrize(("weight", "local"), [(True, 1 << 20), (True, 2048), (False, 1 << 20)])
@pytest.mark.parametrize(("op", "data", "indices", "attrs"), CASES)
def test_rows_alone_are_fetched(op: str, data: tuple[int, ...], indices: tuple[int, ...], attrs: dict[str, Any],
                                weight: bool, local: int):
    graph = lookup(op, data, indices, attrs, weight)
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(data).astype(np.float32),
              *(rng.integers(-5, 600, indices).astype(np.int32) for _ in range(2))]
    expected = compile(graph, "INTERPRETER")(*arrays)
    for on, instances in ((resources(local_bytes=local), 1), (resources(local_bytes=local).with_engines(3), 3),
                          (resources("nnp-t-1400", local_bytes=local), 1)):
        found = version(graph, on, instances)
        tables = [tile for instruction in found.program.instructions for tile in instruction.reads
                  if tile.shape == data and instruction.op != "gather" and tile.memory != "host"]
        assert not tables and any(one.op == "gather" for one in found.program.instructions)
        for one, other in zip(results(found, arrays), expected, strict=True):
            np.testing.assert_allclose(one, other, atol=3e-2)


def test_a_small_table_is_fetched_whole():
    """More rows than it has; and what an engine computed is read where it is."""
    for on in (resources(), resources("nnp-t-1400")):
        assert not _gathers(lookup("gather", (4, 256), (6,), {}, weight=True), on)
    b = Builder(name="near")
    near = b.tanh(b.parameter("x", (2, 256)))
    graph = b.results(b.tanh(b.gather(near, b.parameter("i", (1,), "i32"))))
    assert not _gathers(graph, resources().with_engines(1))


def _gathers(graph: Graph, on: Resources) -> bool:
    return any(one.op == "gather" for one in version(graph, on).program.instructions)


def test_bytes_are_those_of_whole_bursts():
    graph = lookup("gather", (5000, 24), (40,), {}, weight=True)
    found = simulate(version(graph, resources()).program)
    rows = 2 * 40 * found.device.memories["dram"].burst  # of 48 bytes each
    indices = 2 * 40 * 2 * 4  # written and read
    moved = found.traffic["llc"] + found.traffic.get("dram", 0)
    assert rows + indices <= moved <= rows + 2 * indices < 5000 * 24 * 2


@pytest.mark.parametrize("device", ["nnp-i-1100", "nnp-t-1400"])
def test_a_lookup_in_a_large_table_takes_what_is_predicted(device: str):
    b = Builder(name="rows")
    graph = b.results(b.gather(b.weight("table", (100_000, 64)), b.parameter("i", (128,), "i64")))
    plan = get_backend(f"HYBRID:{device}").plan(graph.clone(), {})
    simulated = compile(graph, f"NNP:{device}").simulated_seconds()
    cpu, nnp = plan.alone
    launch = plan.outline.problem.launch[1]
    assert simulated is not None
    assert max(cpu, nnp, launch + simulated) < 20e-6
    assert nnp == pytest.approx(launch + simulated, rel=0.1)
