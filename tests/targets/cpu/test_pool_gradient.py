"""A max pool's gradient: the kernel on every instruction set, and whole nodes against the interpreter."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_library import SEEDS, SPLITS, Blocked, every_isa, images, run

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.targets.cpu.params.reduction import MAX_POOL_GRADIENT

PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))
SIZES, CHANNELS = st.integers(1, 8), st.sampled_from([1, 3, 16, 17, 40])


@every_isa
@settings(deadline=None, max_examples=20)
@given(seed=SEEDS, n=st.integers(1, 3), c=CHANNELS, h=SIZES, w=SIZES, kernel=PAIRS, steps=PAIRS, splits=SPLITS,
       pad=st.booleans(), special=st.booleans())
def test_kernel(isa: str, seed: int, n: int, c: int, h: int, w: int, kernel: tuple[int, int], steps: tuple[int, int],
                splits: list[int], pad: bool, special: bool) -> None:
    """Ties, and windows with NaN, of which all is lost."""
    attrs = {"kernel": kernel, "strides": steps, "pads_begin": (pad * (kernel[0] - 1), 0),
             "pads_end": (kernel[0] - 1, kernel[1] - 1)}
    b = Builder()
    pool = b.max_pool(b.parameter("x", (n, c, h, w)), **attrs)
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 3, (n, c, h, w)).astype(np.float32)
    if special:
        x = np.where(rng.random(x.shape) < 0.1, np.float32(np.nan), x)
        x = np.where(rng.random(x.shape) < 0.2, np.float32(-np.inf), x)
    head = images(seed, *pool.shape)
    b = Builder()
    graph = b.results(b.max_pool_gradient(b.parameter("x", x.shape), b.parameter("head", head.shape), **attrs))
    (wanted,) = compile(graph, "INTERPRETER")(x, head)
    data, heads, out = (Blocked(*shape, halo=halo) for shape, halo in
                        ((x.shape, (1, 2)), (head.shape, (2, 0)), (x.shape, (0, 1))))
    data.fill(x)
    heads.fill(head)
    run(isa, "max_pool_gradient_blocked", [data.inner, heads.inner, out.inner], MAX_POOL_GRADIENT(
        n=n, c16=-(-c // 16), d=1, h=h, w=w, windows=(1, *head.shape[2:]), kernel=(1, *kernel), stride=(1, *steps),
        pad=(0, *attrs["pads_begin"]), **{
            name: (*operand.strides[:2], 0, *operand.strides[2:])
            for name, operand in (("data", data), ("head", heads), ("output", out))}), (), splits)
    np.testing.assert_allclose(out.plain, wanted, rtol=1e-6, atol=1e-6)
    assert out.is_clean
    executable = compile(graph, "CPU", isa=isa) if isa == "baseline" else compile(graph, "CPU")
    np.testing.assert_allclose(executable(x, head)[0], wanted, rtol=1e-6, atol=1e-6)
    assert "max_pool_gradient_blocked" in {instruction.name for instruction in executable.main.instructions}


@every_isa
@settings(deadline=None, max_examples=20)
@given(seed=SEEDS, n=st.integers(1, 3), c=CHANNELS, size=st.tuples(*[st.integers(1, 6)] * 3),
       kernel=st.tuples(*[st.integers(1, 3)] * 3), steps=st.tuples(*[st.integers(1, 3)] * 3), pad=st.booleans())
def test_three_axes(isa: str, seed: int, n: int, c: int, size: tuple[int, ...], kernel: tuple[int, ...],
                    steps: tuple[int, ...], pad: bool) -> None:
    attrs = {"kernel": kernel, "strides": steps, "pads_begin": tuple(pad * (taps - 1) for taps in kernel),
             "pads_end": tuple(taps - 1 for taps in kernel)}
    b = Builder()
    pool = b.max_pool(b.parameter("x", (n, c, *size)), **attrs)
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 3, (n, c, *size)).astype(np.float32)
    head = rng.standard_normal(pool.shape).astype(np.float32)
    b = Builder()
    graph = b.results(b.max_pool_gradient(b.parameter("x", x.shape), b.parameter("head", head.shape), **attrs))
    executable = compile(graph, "CPU", isa=isa)
    (found,), (wanted,) = executable(x, head), compile(graph, "INTERPRETER")(x, head)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=2e-6)
    assert "max_pool_gradient_blocked" in {instruction.name for instruction in executable.main.instructions}
