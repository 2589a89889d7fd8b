"""Winograd convolutions: the kernels by themselves, and whole convolutions against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_library import SEEDS, SPLITS, Blocked, every_isa, images, run
from packing_references import pack_weights_reference

from ngraph_mxnet import _core, compile
from ngraph_mxnet.autodiff import differentiate
from ngraph_mxnet.ir import Builder, Graph, TensorType
from ngraph_mxnet.ir.types import f32
from ngraph_mxnet.plugin import regions
from ngraph_mxnet.targets.cpu.lower import winograd as lowering
from ngraph_mxnet.targets.cpu.machine.isa import halves_avx512, supported
from ngraph_mxnet.targets.cpu.microkernels.variants import ISAS
from ngraph_mxnet.targets.cpu.params.layout import INPUT, PACK
from ngraph_mxnet.targets.cpu.planning import algorithm
from ngraph_mxnet.targets.cpu.planning.algorithm import POINTS, Strip, cut, weight_matrix
from ngraph_mxnet.targets.cpu.planning.view import Halo, blocked_view

INFINITY = float("inf")
TILES = st.sampled_from([2, 4])
DILATIONS = st.sampled_from([(1, 1), (1, 1), (2, 2), (4, 4), (1, 2), (3, 1)])


def interpolation(tile: int) -> tuple[np.ndarray, np.ndarray]:
    """B^T and A^T by their definition: polynomials with zeros at the points, and powers of the points."""
    a, b = POINTS
    points = [0.0, 1.0, -1.0] if tile == 2 else [0.0, a, -a, b, -b]
    others = [np.poly([q for q in points if q != p])[::-1] for p in points]
    data = np.array([[*row, 0.0] for row in others] + [np.poly(points)[::-1]])
    out = np.array([[p**k for p in points] + [float(k == tile - 1)] for k in range(tile)])
    return data, out


@pytest.mark.parametrize("tile", [2, 4])
def test_the_matrices_make_a_correlation(tile: int) -> None:
    data, out = interpolation(tile)
    rng = np.random.default_rng(0)
    d, w = rng.standard_normal((tile + 2, tile + 2)), rng.standard_normal((3, 3))
    g = weight_matrix(tile)
    found = out @ ((g @ w @ g.T) * (data @ d @ data.T)) @ out.T
    wanted = [[(d[y : y + 3, x : x + 3] * w).sum() for x in range(tile)] for y in range(tile)]
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@given(st.integers(1, 5), st.integers(1, 60), st.integers(1, 60), TILES, st.integers(1, 300))
def test_strips_cover_each_tile_row_once(n: int, height: int, width: int, tile: int, most: int) -> None:
    strips = cut(n, height, width, tile, most).strips()
    rows = [row for strip in strips for row in range(strip.first, strip.first + strip.count)]
    assert rows == list(range(n * -(-height // tile)))
    assert all(strip.tiles <= max(most, strip.tile_columns) for strip in strips)
    assert strips[0].count == max(strip.count for strip in strips)


@every_isa
@pytest.mark.parametrize("oc_tile", [16, 32])
def test_packed_weights(isa: str, oc_tile: int) -> None:
    @settings(max_examples=10, deadline=None)
    @given(SEEDS, TILES, st.integers(1, 40), st.integers(1, 40), SPLITS)
    def check(seed: int, tile: int, outputs: int, inputs: int, splits: list[int]) -> None:
        weights = images(seed, outputs, inputs, 3, 3)
        g = weight_matrix(tile)
        transformed = np.einsum("yi,ocij,xj->ocyx", g, weights.astype(np.float64), g).astype(np.float32)
        wanted = [pack_weights_reference(transformed[:, :, y, x, None, None], groups=1, oc_tile=oc_tile, lanes=16)
                  for y in range(tile + 2) for x in range(tile + 2)]
        found = np.full(np.shape(wanted), np.nan, np.float32)
        params = PACK(out_channels=weights.shape[0], in_channels=weights.shape[1], side=tile + 2, oc_tile=oc_tile,
                      weights=(weights[0].size, 9, 3, 1))
        run(isa, "pack_winograd", [weights, found], params.followed_by(floats=g.ravel()), (), splits)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)

    check()


@every_isa
def test_input_transform_takes_zeros_beyond_the_padding(isa: str) -> None:
    @settings(max_examples=25, deadline=None)
    @given(SEEDS, TILES, st.integers(1, 3), st.integers(1, 40), st.tuples(*[st.integers(2, 11)] * 2), DILATIONS,
           st.data(), SPLITS)
    def check(seed, tile, n, c, size, dilation, draw, splits) -> None:
        (h, w), (down, right), side = size, dilation, tile + 2
        x = images(seed, n, c, h, w)
        source = Blocked(n, c, h, w, halo=(6, 6)).fill(x)
        source.whole[:, :, 6 - down : 6 + down + h, 6 - right : 6 + right + w] = 0  # the padding; NaN beyond
        source.fill(x)
        whole = cut(n * down * right, -(-h // down), -(-w // right), tile, 10**6).strip(0)
        first = draw.draw(st.integers(0, whole.count - 1))
        strip = Strip(whole.tile_rows, whole.tile_columns, first, draw.draw(st.integers(1, whole.count - first)))
        view = blocked_view(TensorType(f32, (n, c, h, w)), None, Halo(6, 6, 6, 6))  # type: ignore[arg-type]
        found = np.full((side * side, view.blocks, strip.tiles, 16), np.nan, np.float32)
        ints = INPUT(strip_rows=strip.count, blocks=view.blocks, tile_rows=strip.tile_rows,
                     tile_columns=strip.tile_columns, first_row=strip.first, rows=h + 2 * down, columns=w + 2 * right,
                     origin=-down * view.row - right * 16, image=(view.image, view.block, view.row),
                     matrices=(found[0].size, found[0, 0].size), step=dilation)
        run(isa, f"winograd_input_{tile}", [source.inner, found], ints, (), splits)
        rows, columns = whole.tile_rows * tile + 2, whole.tile_columns * tile + 2
        padded = np.zeros((n, view.blocks * 16, rows * down, columns * right))
        padded[:, :c, down : down + h, right : right + w] = x
        phases = np.stack([padded[:, :, i::down, j::right] for i in range(down) for j in range(right)], 1)
        padded = phases.reshape(-1, *phases.shape[2:])
        matrix, _ = interpolation(tile)
        for number in range(strip.tiles):
            row, column = strip.first + number // strip.tile_columns, number % strip.tile_columns * tile
            image, top = row // strip.tile_rows, row % strip.tile_rows * tile
            d = padded[image, :, top : top + side, column : column + side]
            wanted = np.einsum("yi,cij,xj->yxc", matrix, d, matrix).reshape(side * side, view.blocks, 16)
            np.testing.assert_allclose(found[:, :, number], wanted, rtol=1e-5, atol=2e-5)

    check()


@st.composite
def convolutions(draw: st.DrawFn) -> Graph:
    """A convolution with any epilogue; its input may be read by another one that wants a larger halo."""
    n, c, k = draw(st.integers(1, 3)), draw(st.integers(16, 40)), draw(st.integers(16, 40))
    dilations = draw(DILATIONS)
    pads = draw(st.tuples(*[st.integers(0, 3)] * 4))
    h, w = (draw(st.integers(max(1, 1 + 2 * dilations[i] - pads[i] - pads[i + 2]), 14)) for i in range(2))
    b = Builder()
    x = b.max_pool(b.parameter("x", (n, c, h, w)), kernel=(1, 1))
    attrs = {"pads_begin": pads[:2], "pads_end": pads[2:], "dilations": dilations}
    attrs["lower"], attrs["upper"] = draw(st.sampled_from([(-INFINITY, INFINITY), (0.0, INFINITY), (-0.5, 0.25)]))
    operands = [x, b.weight("w", (k, c, 3, 3)), b.weight("bias", (k,))]
    shape = (n, k, *(size + pads[i] + pads[i + 2] - 2 * dilations[i] for i, size in enumerate((h, w))))
    epilogue = draw(st.integers(0, 2))
    if epilogue:
        operands.append(b.max_pool(b.parameter("residual", shape), kernel=(1, 1)))
    if epilogue == 2:
        attrs["lower2"], attrs["upper2"] = draw(st.sampled_from([(0.0, INFINITY), (-0.25, 1.0)]))
        operands += [b.weight(name, (k,)) for name in ("scale", "shift")]
    results = list(b.node("convolution", operands, attrs).outputs)
    if draw(st.booleans()):
        other = b.weight("w2", (1, c, 1, 1))
        results.append(b.convolution(x, other, pads_begin=(4, 1), pads_end=(2, 4)))
    return b.results(*results)


def kernels_of(executable) -> list[str]:
    return [i.kernel.removeprefix("ng_").partition("__")[0] for i in executable.main.instructions]


@pytest.mark.parametrize("isa", supported(_core.cpu_features()))
@pytest.mark.parametrize("tile", [2, 4])
def test_convolutions_agree_with_the_interpreter(isa: str, tile: int, tiles_of: Callable[[int], None],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_CPU_ISA", isa)
    tiles_of(tile)

    @settings(max_examples=30, deadline=None)
    @given(convolutions(), SEEDS, st.sampled_from([1, 2, 3]), st.sampled_from([1, 5, 1000]))
    def check(graph: Graph, seed: int, threads: int, tiles: int) -> None:
        rng = np.random.default_rng(seed)
        inputs = [rng.standard_normal(p.shape, dtype=np.float32) * np.float32(0.1 if p.name == "w" else 1)
                  for p in graph.parameters]
        with mock.patch.multiple(lowering, _CACHE=0, _FEWEST_TILES=tiles):
            executable = compile(graph, "CPU", threads=threads)
        assert f"winograd_output_{tile}" in kernels_of(executable)
        expected = compile(graph, "INTERPRETER")(*inputs)
        for repeat in range(2):  # the arena keeps what the first call left
            for found, wanted in zip(executable(*inputs), expected, strict=True):
                assert np.linalg.norm(found - wanted) <= 5e-6 * max(np.linalg.norm(wanted), 1), repeat

    check()


@pytest.mark.parametrize("isa", supported(_core.cpu_features()))
@pytest.mark.parametrize("tile", [2, 4])
def test_weights_that_change_and_gradients_by_data(isa: str, tile: int, tiles_of: Callable[[int], None],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read weights where they lie, the gradient backwards and with the channels exchanged."""
    monkeypatch.setenv("NGRAPH_CPU_ISA", isa)
    tiles_of(tile)

    @settings(max_examples=15, deadline=None)
    @given(SEEDS, st.integers(1, 3), *[st.integers(16, 40)] * 2, *[st.integers(3, 14)] * 2, st.integers(0, 2))
    def check(seed: int, n: int, c: int, k: int, h: int, w: int, pad: int) -> None:
        b = Builder()
        x, weights = b.parameter("x", (n, c, h, w)), b.parameter("w", (k, c, 3, 3))
        joint = differentiate(b.results(b.convolution(x, weights, pads_begin=(pad, pad), pads_end=(pad, pad))), ["x"])
        graph, rng = joint.graph, np.random.default_rng(seed)
        inputs = [rng.standard_normal(p.shape, dtype=np.float32) for p in graph.parameters]
        wanted = compile(graph, "INTERPRETER")(*inputs)
        found = {}
        for threads in (1, 3):
            executable = compile(graph, "CPU", threads=threads)
            assert kernels_of(executable).count("pack_winograd") == 2
            found[threads] = executable(*inputs)
        for one, three, expected in zip(found[1], found[3], wanted, strict=True):
            np.testing.assert_array_equal(one, three)
            np.testing.assert_allclose(one, expected, rtol=0, atol=1e-5 * abs(expected).max())

    check()


def deep(size: int = 14, channels: int = 256, *, weight: bool = True) -> Graph:
    b = Builder()
    x = b.parameter("x", (1, channels, size, size))
    w = (b.weight if weight else b.parameter)("w", (channels, channels, 3, 3))
    return b.results(b.convolution(x, w, pads_begin=(1, 1), pads_end=(1, 1)))


@pytest.mark.parametrize(("tile", "bound"), [(0, 1e-6), (2, 2e-6), (4, 4e-6)])
def test_the_error_over_many_channels(tile: int, bound: float, tiles_of: Callable[[int], None]) -> None:
    tiles_of(tile)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 256, 14, 14), dtype=np.float32)
    w = rng.standard_normal((256, 256, 3, 3), dtype=np.float32)
    (found,) = compile(deep(), "CPU", threads=1)(x, w)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    wanted = sum(
        np.einsum("nchw,oc->nohw", padded[:, :, i : i + 14, j : j + 14], w[:, :, i, j], optimize=True)
        for i in range(3) for j in range(3)
    )
    assert np.linalg.norm(found - wanted) <= bound * np.linalg.norm(wanted)


@pytest.mark.parametrize("tile", [2, 4])
def test_nan_and_infinity_stay_in_the_tiles_that_read_them(tile: int, tiles_of: Callable[[int], None]) -> None:
    tiles_of(tile)
    for value in (np.nan, np.inf):
        x, w = np.ones((1, 16, 12, 12), np.float32), np.ones((16, 16, 3, 3), np.float32)
        x[0, 3, 5, 5] = value
        (found,) = compile(deep(12, 16), "CPU", threads=1)(x, w)
        reached = ~np.isfinite(found[0, 0])
        wanted = np.zeros((12, 12), bool)
        for y in range(0, 12, tile):
            for column in range(0, 12, tile):
                wanted[y : y + tile, column : column + tile] = y <= 6 < y + tile + 2 and column <= 6 < column + tile + 2
        assert reached[4:7, 4:7].all()
        assert not reached[~wanted].any()


def test_the_switch_and_what_else_is_computed_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    def direct(graph: Graph) -> bool:
        return not any("winograd" in kernel for kernel in kernels_of(compile(graph, "CPU", threads=1)))

    assert not direct(deep())
    assert direct(deep(size=7, channels=512, weight=False))  # transforming the weights would take longer
    assert direct(deep(size=3, channels=16))
    before = regions.settings_key("graph", {})
    monkeypatch.setenv("NGRAPH_CPU_WINOGRAD", "0")
    assert direct(deep())
    assert regions.settings_key("graph", {}) != before  # no compiled graph of the other setting is reused


@pytest.mark.parametrize("isa", ISAS)
def test_the_choice_by_layer(isa: algorithm.Isa) -> None:
    def choose(images: int, inputs: int, outputs: int, size: int, threads: int = 1) -> int:
        return algorithm.choose_tile(algorithm.Layer(images, inputs, outputs, size, size), isa, threads)

    assert choose(1, 64, 64, 56) == choose(1, 64, 64, 56, 2) == choose(1, 256, 256, 56, 2) == 4
    assert choose(1, 512, 512, 2) == choose(1, 16, 16, 4, 2) == 0
    # Weights that change are transformed at each call: that pays for many images or pixels only.
    changing = [algorithm.Layer(n, c, c, size, size, prepared=False) for n, c, size in ((16, 64, 56), (1, 512, 7))]
    assert [algorithm.choose_tile(layer, isa, 1) for layer in changing] == [4, 0]
    # With many images the weights are read once for all of them.
    assert choose(32, 512, 512, 14) == choose(32, 256, 256, 8) == 4


def test_the_choice_where_avx512_runs_in_halves() -> None:
    """Multiply-adds cost twice as much, transforms less than that: layers of SqueezeNet."""
    def choose(inputs: int, outputs: int, size: int, threads: int, halves: bool) -> int:
        return algorithm.choose_tile(algorithm.Layer(1, inputs, outputs, size, size), "avx512", threads, halves)

    for layer in ((16, 64, 55), (32, 128, 27), (48, 192, 13), (64, 256, 13)):
        assert choose(*layer, 1, True) == 4, layer
    assert choose(64, 256, 13, 1, False) == 2 and choose(64, 256, 13, 2, False) == 0
    assert choose(32, 128, 27, 2, True) == choose(64, 256, 13, 2, True) == 4
    assert choose(16, 64, 55, 2, True) == 0  # what two cores exchange costs more than it saves


def test_who_runs_avx512_in_halves() -> None:
    wide = {"avx512f": True, "sse4a": False, "avx512vp2intersect": False}
    assert not halves_avx512(wide) and not halves_avx512({**wide, "avx512f": False, "sse4a": True})
    assert halves_avx512({**wide, "sse4a": True})
    assert not halves_avx512({**wide, "sse4a": True, "avx512vp2intersect": True})


def test_the_choice_of_measured_layers() -> None:
    """AVX2: those that an earlier model got wrong."""
    def choose(images: int, channels: int, size: int, threads: int) -> int:
        return algorithm.choose_tile(algorithm.Layer(images, channels, channels, size, size), "avx2", threads)

    assert choose(1, 512, 14, 1) == choose(1, 512, 14, 2) == 4
    assert choose(1, 32, 8, 1) == choose(1, 64, 8, 1) == 4
    assert choose(1, 16, 32, 2) == choose(1, 64, 8, 2) == 0  # what two cores exchange costs more than it saves
