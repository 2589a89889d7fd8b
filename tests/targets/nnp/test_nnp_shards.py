"""What shards are chosen by: the cycles that the grid takes for the element in which it multiplies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.targets.nnp import lowering
from ngraph_mxnet.targets.nnp.access import Box, cut, full, granule, read, ways
from ngraph_mxnet.targets.nnp.device import load_device
from ngraph_mxnet.targets.nnp.places import resources_of
from ngraph_mxnet.targets.nnp.program import Buffer, Instruction, whole
from ngraph_mxnet.targets.nnp.timing import demand_of

ELEMENTS = [("nnp-i-1100", "i8"), ("nnp-i-1100", "f16"), ("nnp-t-1400", "bf16")]


def convolution(channels: int = 33, inputs: int = 8, size: int = 8, images: int = 1, groups: int = 1) -> Graph:
    b = Builder(name="one")
    x = b.parameter("x", (images, inputs * groups, size, size))
    w = b.weight("w", (channels * groups, inputs, 3, 3))
    return b.results(b.convolution(x, w, groups=groups, pads_begin=(1, 1), pads_end=(1, 1)))


def cycles(graph: Graph, device: str, element: str, box: Box | None = None) -> float:
    """That the estimate counts for `box` of the last node."""
    node, made = graph.nodes[-1], load_device(device)
    box = box or full(node.output.shape)
    on = resources_of(made, "bf16" if element == "bf16" else "f16")
    return lowering.computing_seconds(node, read(node, box), box, on, element) * made.clock


@pytest.mark.parametrize(("device", "element", "expected"), [
    ("nnp-i-1100", "i8", 2 * 3 * 2 * 9),  # blocks of 32 channels, of 32 positions, steps of 4 deep, 9 taps
    ("nnp-i-1100", "f16", 2 * 3 * 8 * 9),  # 1 deep: a quarter of int8's rate
    ("nnp-t-1400", "bf16", 2 * 2 * 8 * 9),  # blocks of 64 positions
])
def test_cycles_are_those_of_the_element_and_of_both_sides_of_the_grid(device: str, element: str, expected: int):
    """33 channels, 65 positions and 8 input channels."""
    b = Builder(name="one")
    x, w = b.parameter("x", (1, 8, 5, 13)), b.weight("w", (33, 8, 3, 3))
    graph = b.results(b.convolution(x, w, pads_begin=(1, 1), pads_end=(1, 1)))
    assert cycles(graph, device, element) == pytest.approx(expected)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(ELEMENTS), st.integers(1, 70), st.integers(1, 9), st.integers(1, 9), st.integers(1, 3),
       st.sampled_from([1, 1, 4]), st.data())
def test_the_estimate_of_a_convolution_is_the_simulators(on, channels, inputs, size, images, groups, data):
    graph, (device, element) = convolution(channels, inputs, size, images, groups), on
    _is_the_simulators(graph, device, element, data, {"strides": (1, 1), "dilations": (1, 1)})


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(ELEMENTS), st.integers(1, 70), st.integers(1, 70), st.integers(1, 70), st.booleans(),
       st.integers(1, 3), st.data())
def test_the_estimate_of_a_product_is_the_simulators(on, rows, inner, columns, transposed, batch, data):
    b = Builder(name="one")
    a = b.parameter("a", (batch, inner, rows) if transposed else (batch, rows, inner))
    other = b.parameter("b", (batch, inner, columns) if data.draw(st.booleans()) else (inner, columns))
    graph = b.results(b.matmul(a, other, transpose_a=transposed))
    _is_the_simulators(graph, *on, data, {})


def _is_the_simulators(graph: Graph, device: str, element: str, data: st.DataObject, attrs: dict) -> None:
    """The cycles of one instruction for a part of the node; of the memories the estimate knows nothing."""
    node = graph.nodes[-1]
    axis = data.draw(st.sampled_from(sorted(ways(node)) or [0]))
    parts = data.draw(st.integers(1, 3))
    box = data.draw(st.sampled_from(list(cut(full(node.output.shape), {axis: parts}, {axis: granule(node, axis)}))))
    found = read(node, box)
    made = load_device(device, {"memories.sram.bandwidth": 1e18})
    sram = f"{made.engine}0.sram"
    tiles = [whole(Buffer(name, sram, 0, element, part.shape))
             for name, part in zip("abr", (*found.inputs, box), strict=True)]
    attrs = attrs | {name: value for name, value in found.attrs.items() if name in ("groups", "transpose_a")}
    attrs |= {"pads_begin": (1, 1), "pads_end": (1, 1)} if "strides" in attrs else {}
    op = "convolution" if "strides" in attrs else "matmul"
    took = demand_of(Instruction(f"{made.engine}0.grid", op, (tiles[2],), tuple(tiles[:2]), attrs), made).seconds
    assert cycles(graph, device, element, box) == pytest.approx((took - made.grid_startup) * made.clock)


@pytest.mark.parametrize(("precision", "expected"), [("int8", "i8"), ("f16", "f16")])
def test_shards_are_chosen_by_the_element_of_the_product(monkeypatch, precision: str, expected: str):
    graph, elements, estimate = convolution(images=2), set(), lowering.computing_seconds

    def noting(node, found, box, resources, element):
        elements.update({element} if node.op.name.startswith("convolution") else ())
        return estimate(node, found, box, resources, element)

    monkeypatch.setattr(lowering, "computing_seconds", noting)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(p.shape).astype(np.float32) for p in graph.parameters]
    compile(graph, "NNP", precision=precision, instances=1)(*arrays)
    assert elements == {expected}
