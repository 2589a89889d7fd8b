"""Batch norm in training: the kernels on every instruction set, and whole nodes against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_library import SEEDS, SPLITS, Blocked, every_isa, images, run, widened
from packing_references import round_bf16_reference

from ngraph_mxnet import compile
from ngraph_mxnet.autodiff import differentiate
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.targets.cpu.params.reduction import (
    BATCH_NORM_GRADIENT_DATA,
    BATCH_NORM_GRADIENT_SUMS,
    BATCH_NORM_STATISTICS,
)

SIZES, CHANNELS = st.integers(1, 6), st.sampled_from([1, 3, 16, 17, 40])
AXES = (0, 2, 3)


def strides(**operands: Blocked) -> dict[str, tuple[int, ...]]:
    return {name: operand.strides for name, operand in operands.items()}


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5 * max(1.0, float(np.abs(wanted).max())))


@every_isa
@settings(deadline=None, max_examples=15)
@given(seed=SEEDS, n=SIZES, c=CHANNELS, h=SIZES, w=SIZES, splits=SPLITS, mean=st.sampled_from([0.0, 1e3]))
def test_statistics(isa: str, seed: int, n: int, c: int, h: int, w: int, splits: list[int], mean: float) -> None:
    x = images(seed, n, c, h, w) + np.float32(mean)
    source = Blocked(n, c, h, w, halo=(1, 2))
    source.fill(x)
    means, variances = np.full(c, np.nan, np.float32), np.full(c, np.nan, np.float32)
    numbers = {"n": n, "c16": -(-c // 16), "h": h, "w": w}
    run(isa, "batch_norm_statistics", [source.inner, means, variances],
        BATCH_NORM_STATISTICS(**numbers, channels=c, **strides(x=source)), (), splits)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(means, wide.mean(axis=AXES), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(variances, wide.var(axis=AXES), rtol=1e-5, atol=1e-6)


@every_isa
@settings(deadline=None, max_examples=15)
@given(seed=SEEDS, n=SIZES, c=CHANNELS, h=SIZES, w=SIZES, splits=SPLITS, masked=st.booleans())
def test_gradient(isa: str, seed: int, n: int, c: int, h: int, w: int, splits: list[int], masked: bool) -> None:
    rng = np.random.default_rng(seed)
    x, y, head = (images(seed + i, n, c, h, w) for i in range(3))
    y = np.where(rng.random(y.shape) < 0.2, np.float32(0), y)
    gamma, mean, variance = (rng.uniform(0.5, 2, c).astype(np.float32) for _ in range(3))
    operands = {name: Blocked(n, c, h, w, halo=halo) for name, halo in (("x", (1, 1)), ("y", (0, 2)), ("head", (2, 0)))}
    for name, value in (("x", x), ("y", y), ("head", head)):
        operands[name].fill(value)
    out = Blocked(n, c, h, w, halo=(1, 0))
    of_gamma, of_beta = np.full(c, np.nan, np.float32), np.full(c, np.nan, np.float32)
    factors = np.full(-(-c // 16) * 64, np.nan, np.float32)
    numbers = {"n": n, "c16": -(-c // 16), "h": h, "w": w, "masked": masked, **strides(**operands)}
    sources = {name: operand.inner for name, operand in operands.items()}
    run(isa, "batch_norm_gradient_sums",
        [sources["x"], gamma, mean, variance, sources["y"], sources["head"], of_gamma, of_beta, factors],
        BATCH_NORM_GRADIENT_SUMS(**numbers, channels=c, epsilon=1e-3), (), splits)
    stored = Blocked(n, c, h, w, (0, 1), True)
    for end, target in (("", out), ("_f32_bf16", stored)):
        run(isa, f"batch_norm_gradient_data{end}", [sources["x"], factors, sources["y"], sources["head"], target.inner],
            BATCH_NORM_GRADIENT_DATA[end](**numbers, **strides(output=target)), (), splits)
    np.testing.assert_array_equal(stored.plain, widened(round_bf16_reference(out.plain)))

    def wide(vector: np.ndarray) -> np.ndarray:
        return vector.astype(np.float64)[:, None, None]

    kept = np.where(y > 0, head, 0) if masked else head
    spread = 1 / np.sqrt(wide(variance) + 1e-3)
    normal = (x - wide(mean)) * spread
    beta, by_gamma = kept.sum(axis=AXES, dtype=np.float64), (kept * normal).sum(axis=AXES)
    close(of_beta, beta)
    close(of_gamma, by_gamma)
    close(out.plain, wide(gamma) * spread * (kept - (wide(beta) + normal * wide(by_gamma)) / (n * h * w)))


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS, n=SIZES, c=CHANNELS, size=st.lists(SIZES, max_size=3), masked=st.booleans(),
       threads=st.integers(1, 3))
def test_nodes(seed: int, n: int, c: int, size: list[int], masked: bool, threads: int) -> None:
    """Forward and backward in one graph, with a relu between, as a training step has it."""
    b = Builder()
    shape = (n, c, *size)
    x, head = b.parameter("x", shape), b.parameter("head", shape)
    gamma, beta = b.parameter("gamma", (c,)), b.parameter("beta", (c,))
    y, mean, variance = b.node("batch_norm_training", [x, gamma, beta], {"epsilon": 1e-3}).outputs
    if masked:
        y = b.relu(y)
        kept = b.select(b.greater(y, b.constant(np.float32(0))), head, b.constant(np.float32(0)))
    else:
        kept = head
    gradients = b.node("batch_norm_gradient", [x, gamma, mean, variance, kept], {"epsilon": 1e-3}).outputs
    graph = b.results(y, mean, variance, *gradients)
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(p.type.shape).astype(np.float32) + np.float32(i == 0)
              for i, p in enumerate(graph.parameters)]
    executable = compile(graph, "CPU", threads=threads)
    if x.type.size > c:
        kernels = {instruction.name for instruction in executable.main.instructions}
        assert {"batch_norm_statistics", "batch_norm_gradient_sums", "batch_norm_gradient_data"} <= kernels
        assert not {"select", "greater"} & kernels
    for found, wanted in zip(executable(*arrays), compile(graph, "INTERPRETER")(*arrays), strict=True):
        close(found, wanted)


@pytest.mark.parametrize("clamp", [None, (0.0, 6.0), (-1.0, float("inf"))], ids=["relu", "relu6", "one bound"])
def test_gradients_of_clamps_over_images_are_one_kernel(clamp: tuple[float, float] | None) -> None:
    """Of relu nothing goes back at 0, of a clamp all at its bounds; nothing at NaN."""
    b = Builder()
    x = b.parameter("x", (2, 20, 3, 5))
    y = b.relu(x) if clamp is None else b.clamp(x, lower=clamp[0], upper=clamp[1])
    graph = differentiate(b.results(y), ["x"]).graph
    kernels = {instruction.name for instruction in compile(graph, "CPU", threads=1).main.instructions}
    assert "clamp_gradient_blocked" in kernels
    assert "select" not in kernels
    values = 3 * images(0, 2, 20, 3, 5)
    values[0, :, 0, :] = np.array([0.0, 6.0, -1.0, np.nan, -0.0], np.float32)
    inputs = {"x": values, "head.0": images(1, 2, 20, 3, 5)}
    arrays = [inputs[parameter.name] for parameter in graph.parameters]
    wanted = compile(graph, "INTERPRETER")(*arrays)
    for threads in (1, 3):
        for found, expected in zip(compile(graph, "CPU", threads=threads)(*arrays), wanted, strict=True):
            np.testing.assert_array_equal(found, expected)
