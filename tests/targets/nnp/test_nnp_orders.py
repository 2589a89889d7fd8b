"""The order that `after` asks for is enough and needed: units that run early give the same bits with all edges, and
other ones without any single one of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from lowered_graphs import resources, version

from ngraph_mxnet.ir import Builder
from ngraph_mxnet.targets.nnp.functional import FunctionalSimulator
from ngraph_mxnet.targets.nnp.lowering import Version
from ngraph_mxnet.targets.nnp.program import Buffer, Instruction, Program, whole

MEMORIES = {"local_bytes": 12 << 10, "shared": (("llc", 8 << 10), ("dram", 1 << 20))}
"""So small that the graph below goes through them in tiles, with spills."""


@cache
def lowered() -> tuple[Version, Program, tuple[np.ndarray, ...]]:
    """A graph for small engines, its Program with constants, and the Program's inputs."""
    b, rng = Builder(name="tiled"), np.random.default_rng(0)
    x = b.parameter("x", (2, 8, 8, 8))
    w0, w1 = (b.weight(f"w{i}", (24, channels, 3, 3)) for i, channels in enumerate((8, 24)))
    bias = b.weight("bias", (24,))
    pads = {"pads_begin": (1, 1), "pads_end": (1, 1)}
    first = b.convolution(x, w0, bias, lower=0.0, **pads)
    second = b.convolution(first, w1, bias, first, **pads)
    pooled = b.max_pool(b.tanh(second), kernel=(2, 2), strides=(2, 2))
    flat = b.reshape(pooled, shape=(2, 24 * 16))
    graph = b.results(b.softmax(b.matmul(flat, b.weight("w2", (10, 24 * 16)), transpose_b=True)))
    found = version(graph, resources(**MEMORIES).with_engines(3))
    values = found.graph.parameters
    contents = {p: (rng.standard_normal(p.shape) / np.sqrt(np.prod(p.shape[1:]))).astype(np.float32) for p in values}
    contents |= {node.output: node.attrs["value"] for node in found.graph.nodes if node.op.name == "constant"}
    inputs = tuple(found.quantization.store(p, contents[p]) for p in values)
    return found, found.loaded(contents).program, inputs


def outputs(program: Program, order: Collection[int]) -> list[bytes] | None:
    """What a second call with the same inputs gives, its instructions executed in this order; None if one can't be."""
    assert sorted(order) == list(range(len(program.instructions)))
    simulator = FunctionalSimulator(replace(program, instructions=[program.instructions[at] for at in order]))
    try:
        simulator.run(lowered()[2])
        return [array.tobytes() for array in simulator.run(lowered()[2])]
    except (IndexError, ValueError):  # what is not written yet is no index, and no size
        return None


def before(program: Program, *, without: tuple[int, int] | None = None) -> list[set[int]]:
    """For each instruction those that must have ended, by `after` and its unit; `without` the edge (earlier, later)."""
    found: list[set[int]] = []
    last: dict[str, int] = {}
    for index, instruction in enumerate(program.instructions):
        needed = {earlier for earlier in instruction.after if (earlier, index) != without}
        needed |= {last[instruction.unit]} if instruction.unit in last else set()
        found.append(needed.union(*(found[earlier] for earlier in needed)))
        last[instruction.unit] = index
    return found


def as_early_as_can_be(wanted: int, needed: list[set[int]]) -> list[int]:
    """The order in which `wanted` comes right behind what it needs."""
    first = sorted(needed[wanted]) + [wanted]
    return first + sorted(set(range(len(needed))) - set(first))


def edges(program: Program) -> list[tuple[int, int]]:
    return [(earlier, later) for later, instruction in enumerate(program.instructions) for earlier in instruction.after]


def test_every_order_that_after_allows_gives_the_same_bits() -> None:
    _, program, _ = lowered()
    expected, needed = outputs(program, range(len(program.instructions))), before(program)
    assert expected is not None and not np.isnan(np.frombuffer(expected[0], np.float32)).any()
    for wanted in range(0, len(needed), 5):
        assert outputs(program, as_early_as_can_be(wanted, needed)) == expected
    rng = np.random.default_rng(1)
    for _ in range(10):
        left, order = set(range(len(needed))), list[int]()
        while left:
            order.append(int(rng.choice([at for at in sorted(left) if not needed[at] & left])))
            left.remove(order[-1])
        assert outputs(program, order) == expected


def test_without_an_edge_there_is_an_order_that_fails() -> None:
    """Each edge matters: without it, what writes too late or too early is seen in the results."""
    _, program, _ = lowered()
    expected = outputs(program, range(len(program.instructions)))
    unseen = [edge for edge in edges(program)
              if outputs(program, as_early_as_can_be(edge[1], before(program, without=edge))) == expected]
    assert len(edges(program)) > 50
    assert not unseen


def test_nothing_is_left_of_the_call_before() -> None:
    """Without dependences a result may be stored before it is computed: the second call must not find the first's."""
    _, program, _ = lowered()
    last = len(program.instructions) - 1
    order = [last, *range(last)]
    assert program.instructions[last].writes[0].memory == "host"
    found = outputs(program, order)
    assert found is not None and np.isnan(np.frombuffer(found[0], np.float32)).any()


@pytest.mark.parametrize("element", ["f16", "f32"])
def test_what_no_one_wrote_is_nan(element: str) -> None:
    """A program that stores what it never computed."""
    source, result = Buffer("source", "dram", 0, element, (4,)), Buffer("out", "host", 0, element, (4,))
    program = Program("p", "nnp-i-1100", [Instruction("host.dma0", "copy", (whole(result),), (whole(source),))],
                      [], [result], {}, {"dram": 64, "host": 64})
    assert np.isnan(FunctionalSimulator(program).run([])[0].astype(np.float32)).all()
