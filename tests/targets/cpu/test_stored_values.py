"""What is seen of a Program while it runs instruction by instruction is what its graph computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from op_records import array_of
from random_graphs import graphs

from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.passes.clusters import MAIN, PREPARE
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.targets.interpreter import GraphValues


def seen_and_wanted(graph: Graph, **options: Any) -> tuple[dict[Any, np.ndarray], dict[Any, np.ndarray], int]:
    """By node and output, what was seen and what the interpreter makes of the optimised graph; how many nodes."""
    random = np.random.default_rng(0)
    executable: Any = compile(graph, "CPU", **options)
    arrays = [array_of(port.type, random) for port in executable.inputs]
    module, table = executable.module, {}
    table.update(zip((value.name for value in module.flow.inputs), arrays, strict=True))
    wanted: dict[Any, np.ndarray] = {}
    for name in (PREPARE, MAIN):
        step = module.flow.step(name)
        found = GraphValues(module.graphs[name]).run(
            None, [table[value.name] for value in step.inputs],
            lambda node, index, array: wanted.__setitem__((node, index), np.array(array)))
        table.update(zip((value.name for value in step.outputs), found, strict=True))
    seen: dict[Any, np.ndarray] = {}
    results = executable.values.run(executable.native, arrays,
                                    lambda node, index, array: seen.__setitem__((node, index), np.array(array)))
    for result, again in zip(results, executable.run(arrays), strict=True):
        np.testing.assert_array_equal(result, again)
    return seen, wanted, sum(node.op.name != "constant" for node in module.graphs[MAIN].nodes)


def assert_same(seen: dict[Any, np.ndarray], wanted: dict[Any, np.ndarray], tolerance: float = 1e-4) -> None:
    for (node, index), array in seen.items():
        expected = wanted[node, index]
        assert (array.shape, array.dtype) == (expected.shape, expected.dtype), str(node)
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=1) if expected.dtype.kind == "f" else 1
        np.testing.assert_allclose(array, expected, tolerance, tolerance * scale, err_msg=str(node))


def test_a_residual_block_with_a_hard_swish() -> None:
    b = Builder(name="block")
    x = b.parameter("x", (2, 32, 12, 12))
    y = x
    for number in range(3):
        vectors = [b.weight(f"v{number}_{name}", (32,)) for name in ("gamma", "beta", "mean")]
        y = b.convolution(y, b.weight(f"w{number}", (32, 32, 3, 3)), pads_begin=(1, 1), pads_end=(1, 1))
        y = b.relu(b.batch_norm(y, *vectors, b.constant(np.ones(32, "f4"))))
    y = b.max_pool(b.add(y, x), kernel=(2, 2), strides=(2, 2))
    y = b.concat(y, b.hard_swish(b.convolution(y, b.weight("last", (16, 32, 1, 1))), slope=1 / 6, offset=0.5), axis=1)
    y = b.reshape(b.avg_pool(y, kernel=(6, 6)), shape=(2, 48))
    seen, wanted, nodes = seen_and_wanted(b.results(b.softmax(b.matmul(y, b.weight("head", (48, 10))))))
    assert_same(seen, wanted)
    assert len(seen) >= nodes - 1  # the hard swish's convolution is in registers


@pytest.mark.parametrize("shape", [(2, 20, 7), (1, 3, 9, 5), (2, 5, 3, 6, 7)])
def test_images_of_any_rank(shape: tuple[int, ...]) -> None:
    """Channels that fill no block, halos, and slices."""
    b = Builder(name="images")
    x = b.parameter("x", shape)
    rank = len(shape) - 2
    for number in range(3):
        weight = b.weight(f"w{number}", (20, x.shape[1], *(3,) * rank))
        x = b.relu(b.convolution(x, weight, pads_begin=(1,) * rank, pads_end=(1,) * rank))
    seen, wanted, nodes = seen_and_wanted(b.results(b.abs(x)))
    assert_same(seen, wanted)
    assert len(seen) == nodes


def test_no_elements_and_what_only_moves() -> None:
    b = Builder(name="odd")
    x = b.parameter("x", (4, 6))
    y = b.reshape(b.transpose(b.exp(x), order=(1, 0)), shape=(24,))
    seen, wanted, _ = seen_and_wanted(b.results(b.slice(y, begin=(2,), end=(20,), strides=(3,)),
                                                b.relu(b.parameter("y", (0, 3)))))
    assert_same(seen, wanted)
    assert seen


def test_several_outputs() -> None:
    b = Builder(name="cell")
    operands = [b.parameter("x", (3, 32)), b.parameter("p", (3, 32)), b.parameter("c", (3, 8))]
    h, c = b.node("lstm_cell", operands, {}).outputs
    seen, wanted, _ = seen_and_wanted(b.results(b.tanh(h), b.negative(c)))
    assert_same(seen, wanted)
    assert {index for _, index in seen} == {0, 1}


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_random_graphs(graph: Graph) -> None:
    seen, wanted, _ = seen_and_wanted(graph)
    assert_same(seen, wanted)


def test_an_error_ends_the_run() -> None:
    b = Builder(name="net")
    executable: Any = compile(b.results(b.tanh(b.exp(b.parameter("x", (3,))))), "CPU")

    def observe(node: Any, index: int, array: np.ndarray) -> None:
        raise RuntimeError(f"seen {node.op.name}")

    with pytest.raises(RuntimeError, match="seen "):
        executable.values.run(executable.native, [np.zeros(3, "f4")], observe)
