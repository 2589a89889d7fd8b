"""Programs with poisoned memory and in shuffled order give what they gave; gaps in plans show."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_promises import arrays_of, joined

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.targets.cpu.lower.context import Lowering
from ngraph_mxnet.targets.cpu.params.strided import strided
from ngraph_mxnet.targets.cpu.program.disturbed import POISON, shuffled
from ngraph_mxnet.targets.cpu.program.instruction import Instruction

OF_VALUES = ["backend/test_ops_on_backends.py", "backend/test_graphs_on_backends.py", *(
    f"targets/cpu/test_{name}.py" for name in (
        "attention", "batch_norm", "halo_memory", "joined", "quantized_products", "template", "weight_gradient",
        "winograd"))]
"""Modules of tests that run in every mode in the slow lane."""
MODES = ["poison", "shuffle:1", "shuffle:2", "poison,shuffle:3"]


def branches() -> Graph:
    """Borders of zeros, a concat, weights that are prepared, and memory that is used again."""
    b = Builder()
    x = b.parameter("x", (2, 16, 12, 12))
    y = b.convolution(x, b.weight("w", (32, 16, 3, 3)), pads_begin=(1, 1), pads_end=(1, 1))
    z = b.tanh(b.convolution(b.relu(y), b.weight("v", (16, 32, 3, 3)), pads_begin=(1, 1), pads_end=(1, 1)))
    c = b.concat(b.max_pool(y, kernel=(1, 1)), z, axis=1)
    return b.results(b.convolution(c, b.weight("u", (16, 48, 3, 3)), pads_begin=(1, 1), pads_end=(1, 1)), b.softmax(z))


def instruction(*waits: Instruction) -> Instruction:
    return Instruction("ng_k__baseline", [], [], [], 1, list(waits))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("graph", [branches, joined])
def test_results_stay_the_same(graph: Callable[[], Graph], mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = arrays_of(graph())
    wanted = compile(graph(), "CPU")(*arrays)
    monkeypatch.setenv("NGRAPH_DISTURB", mode)
    exe = compile(graph(), "CPU")
    assert any(each.origin == "poison" for each in exe.main.instructions) == ("poison" in mode)
    assert any(each.origin == "poison" for each in exe.prepare.instructions) == ("poison" in mode)
    for _ in range(3):
        for found, right in zip(exe(*arrays), wanted, strict=True):
            np.testing.assert_array_equal(found, right)


def test_poison_is_no_number() -> None:
    words = np.full(2, POISON, np.uint32)
    assert all(np.isnan(words.view(element)).all() for element in (np.float16, np.float32, np.float64))
    assert np.isnan((words & 0xFFFF0000).view(np.float32)).all()  # the upper half: bf16


def copies_half(ctx: Lowering, node: Node) -> None:
    """The rest is nobody's, and is said to be written."""
    out = ctx.new_plain(node.output.type)
    half = strided("copy_4", [node.output.type.size // 2], [1], [1])
    ctx.emit("copy_4", half, a=ctx.contiguous(node.inputs[0]), o=out)
    ctx.set_plain(node.output, out)


def test_a_byte_that_nobody_writes_shows_by_poison(own_op: Callable[..., None],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros that are there by chance, of which the result is right otherwise."""
    own_op(copies_half)
    b = Builder()
    graph = b.results(b.tanh(b.own_op(b.parameter("x", (4, 6)))))
    x = np.repeat(np.array([[1], [-1], [0], [0]], np.float32), 6, axis=1)
    np.testing.assert_allclose(compile(graph.clone(), "CPU")(x)[0], np.tanh(x), rtol=1e-6)
    monkeypatch.setenv("NGRAPH_DISTURB", "poison")
    (found,) = compile(graph, "CPU")(x)
    np.testing.assert_allclose(found[:2], np.tanh(x[:2]), rtol=1e-6)
    assert np.isnan(found[2:]).all()


def reads_too_soon(ctx: Lowering, node: Node) -> None:
    """A copy of a copy, that does not wait for the first."""
    first = ctx.copy(ctx.contiguous(node.inputs[0]), ctx.new_plain(node.output.type))
    ctx.set_plain(node.output, ctx.copy(first, ctx.new_plain(node.output.type)))
    ctx.builder.instructions[-1].waits.clear()


def test_a_wait_that_is_missing_shows_by_shuffle(own_op: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    own_op(reads_too_soon)
    b, x = Builder(), np.ones((4, 8), np.float32)
    graph, wrong = b.results(b.relu(b.own_op(b.parameter("x", x.shape)))), []
    np.testing.assert_array_equal(compile(graph.clone(), "CPU", threads=1)(x)[0], x)
    for seed in range(1, 9):
        monkeypatch.setenv("NGRAPH_DISTURB", f"shuffle:{seed}")
        wrong.append((compile(graph.clone(), "CPU", threads=1)(x)[0] != x).any())
    assert any(wrong)


def test_orders_keep_waits() -> None:
    orders = set()
    for seed in range(40):
        first, second, third = (instruction() for _ in range(3))
        late = instruction(second)
        order = shuffled([first, second, third, late], random.Random(seed))
        assert order.index(second) < order.index(late)
        orders.add(tuple(map([first, second, third, late].index, order)))
    assert len(orders) > 6


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["poison", "shuffle:11", "poison,shuffle:12"])
def test_the_tests_of_values_stay_green(mode: str) -> None:
    """Those that ask for results, and not for which instructions there are."""
    folder = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-k",
               "not INTERPRETER and not NNP and not HYBRID",
               "-c", str(folder.parent / "pyproject.toml"), "--rootdir", str(folder.parent), *OF_VALUES]
    done = subprocess.run(command, cwd=folder, env={**os.environ, "NGRAPH_DISTURB": mode, "NGRAPH_CACHE_DIR": "off"},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
