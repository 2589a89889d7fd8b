"""Weight gradients: the kernels by themselves on every instruction set, and whole nodes against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest import mock

import numpy as np
import pytest
from bf16_machine import address_in, allow_bf16, amx, legalised
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_library import SEEDS, SPLITS, Blocked, aligned, close, every_isa, images, library, run, widened
from packing_references import round_bf16_reference
from tile_machine import emulated_tiles

from ngraph_mxnet import _core, compile
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.targets.cpu.machine.isa import supported
from ngraph_mxnet.targets.cpu.microkernels.params import BF16_WEIGHT_GRADIENTS, DEPTHWISE_GRADIENTS, WEIGHT_GRADIENT
from ngraph_mxnet.targets.cpu.params.layout import GATHER_WEIGHT_GRADIENT
from ngraph_mxnet.targets.cpu.planning.gradients import Pairing

SIZES = st.integers(1, 9)
CHANNELS = st.sampled_from([1, 3, 8, 16, 17, 32, 40, 64])


def reference(padded: np.ndarray, head: np.ndarray, kernel: tuple[int, int], strides: tuple[int, int],
              dilations: tuple[int, int]) -> np.ndarray:
    """[O, C, KH, KW] in float64, of data that have their padding."""
    height, width = head.shape[2:]
    result = np.zeros((head.shape[1], padded.shape[1], *kernel))
    for i, j in np.ndindex(*kernel):
        met = padded[:, :, i * dilations[0]:, j * dilations[1]:][:, :, ::strides[0], ::strides[1]]
        result[:, :, i, j] = np.einsum("nohw,nchw->oc", head.astype(np.float64),
                                       met[:, :, :height, :width].astype(np.float64))
    return result


def gathered(isa: str, sums: np.ndarray, splits: list[int], **numbers: int) -> np.ndarray:
    """Between others' taps, which are not touched."""
    taps = numbers["taps"]
    out = np.full((numbers["outputs"], numbers["channels"], taps + 2), np.nan, np.float32)
    params = GATHER_WEIGHT_GRADIENT(**numbers, row=taps + 2)
    run(isa, "gather_weight_gradient", [sums, out[:, :, 1:]], params, (), splits)
    assert np.isnan(out[:, :, [0, -1]]).all()
    alone = np.full((*out.shape[:2], taps), np.nan, np.float32)
    run(isa, "gather_weight_gradient", [sums, alone], GATHER_WEIGHT_GRADIENT(**numbers, row=taps), (), splits)
    np.testing.assert_array_equal(alone, out[:, :, 1:-1])
    return alone


def cuts(n: int, height: int, image_chunk: int, row_chunk: int, copies: int) -> dict[str, int]:
    chunks = -(-n // image_chunk) * -(-height // row_chunk)
    copy_chunks = -(-chunks // copies)
    return {"copies": -(-chunks // copy_chunks), "copy_chunks": copy_chunks, "images": n, "height": height,
            "image_chunk": image_chunk, "row_chunk": row_chunk}


def operands(seed: int, n: int, c: int, o: int, size: tuple[int, int], kernel: tuple[int, int],
             strides: tuple[int, int], dilations: tuple[int, int]) -> tuple[Blocked, np.ndarray, Blocked, np.ndarray]:
    """Data inside a halo of zeros and NaN, padded by 1; the head gradient inside one of NaN."""
    each = zip(size, strides, kernel, dilations, strict=True)
    h, w = (max((count - 1) * stride + (taps - 1) * step - 1, 1) for count, stride, taps, step in each)
    x, head = images(seed, n, c, h, w), images(seed + 1, n, o, *size)
    source, gradient = Blocked(n, c, h, w, halo=(2, 3)), Blocked(n, o, *size, halo=(1, 2))
    source.whole[:, :, 1 : 3 + h, 2 : 4 + w] = 0
    source.fill(x)
    gradient.fill(head)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return source, padded, gradient, head


def strides_of(data: Blocked, head: Blocked, strides: tuple[int, int]) -> dict[str, Any]:
    image, block, row, pixel = (data.inner.itemsize * step for step in data.strides)
    return {"first": -row - pixel, "data": (image, block, strides[0] * row, strides[1] * pixel),
            "head": [head.inner.itemsize * step for step in head.strides[:3]], "tap": (row,)}


@every_isa
def test_the_kernel(isa: str) -> None:
    pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))

    @settings(max_examples=30, deadline=None)
    @given(SEEDS, st.integers(1, 4), CHANNELS, CHANNELS, st.tuples(SIZES, SIZES), pairs, pairs,
           st.tuples(*[st.integers(1, 3)] * 5), SPLITS, st.booleans())
    def check(seed: int, n: int, c: int, o: int, size: tuple[int, int], kernel: tuple[int, int],
              strides: tuple[int, int], cut: tuple[int, ...], splits: list[int], by_batches: bool) -> None:
        dilations = (1, 2) if kernel[1] > 1 else (1, 1)
        data, padded, head, values = operands(seed, n, c, o, size, kernel, strides, dilations)
        numbers = cuts(n, size[0], *cut[:3])
        places = strides_of(data, head, strides)
        if by_batches:  # of one image each
            numbers = {**cuts(n, size[0], 1, *cut[1:3]), "images": 1}
        blocks, lanes = -(-c // 16), min(c, 16)
        params = WEIGHT_GRADIENT(
            **numbers, **{**places, "tap": (*places["tap"], dilations[1] * 4 * data.strides[3])}, width=size[1],
            blocks=(blocks, -(-o // 16)), group=cut[3:], taps=kernel, lanes=lanes,
            last_lanes=c - (blocks - 1) * lanes, adds=0, batches=n if by_batches else 1,
            batch=(places["data"][0], places["head"][0]))
        shape = (numbers["copies"], -(-o // 16), blocks, kernel[0] * kernel[1], lanes, 16)
        sums = aligned(np.full(shape, np.nan, np.float32))
        run(isa, "weight_gradient", [data.inner, head.inner, sums], params, (), splits)
        found = gathered(isa, sums, splits, copies=shape[0], head_blocks=shape[1], data_blocks=blocks,
                         taps=shape[3], lanes=lanes, inner=lanes, outputs=o, channels=c)
        close(found.reshape(o, c, *kernel), reference(padded, values, kernel, strides, dilations),
              relative=1e-5, absolute=1e-4)

    check()


def has_bf16(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.skipif(
        not _core.cpu_features()["avx512bf16"], reason="the CPU has no AVX512_BF16"))


@pytest.mark.parametrize("isa", ["avx2", has_bf16("avx512"), has_bf16("amx")])
def test_the_kernels_of_bf16(isa: str) -> None:
    """The exact sums of rounded operands, but for how sums are rounded; operands may be rounded before."""
    tiled = isa == "amx"
    name = "weight_gradient_bf16" + "_amx" * tiled
    address = address_in(legalised() if isa == "avx2" else library(), f"ng_{name}__avx512")
    pairs, flags = st.tuples(st.integers(1, 3), st.integers(1, 3)), st.tuples(st.booleans(), st.booleans())

    @settings(max_examples=60, deadline=None)
    @given(SEEDS, st.integers(1, 4), st.sampled_from([16, 17, 32, 40, 64]), CHANNELS, st.tuples(SIZES, SIZES), pairs,
           pairs, pairs, st.tuples(*[st.integers(1, 3)] * 5), SPLITS, st.booleans(), flags)
    def check(seed: int, n: int, c: int, o: int, size: tuple[int, int], kernel: tuple[int, int],
              strides: tuple[int, int], dilations: tuple[int, int], cut: tuple[int, ...], splits: list[int],
              by_batches: bool, narrow: tuple[bool, bool]) -> None:
        dilations = tuple(step if taps > 1 else 1 for step, taps in zip(dilations, kernel, strict=True))
        pairing = Pairing(*size, kernel, strides, dilations, tiled)
        if tiled and pairing.lines[0] > 1:
            cut = cut[0], 1, *cut[2:]
        data, padded, head, values = operands(seed, n, c, o, size, kernel, strides, dilations)
        for each, is_narrow in zip((data, head), narrow, strict=True):
            if is_narrow:
                each.whole = round_bf16_reference(each.whole)
                row, column = each.halo
                each.inner = each.whole[:, :, row : row + each.shape[2], column : column + each.shape[3]]
        numbers = {**cuts(n, size[0], 1, *cut[1:3]), "images": 1} if by_batches else cuts(n, size[0], *cut[:3])
        places, (row, pixel) = strides_of(data, head, strides), (data.inner.itemsize * at for at in data.strides[2:])
        params = BF16_WEIGHT_GRADIENTS[tiled](
            **numbers, **{**places, "tap": (dilations[0] * row, dilations[1] * pixel)}, width=size[1],
            blocks=(-(-c // 16), -(-o // 16)), group=cut[3:], taps=kernel, lanes=16, last_lanes=(c - 1) % 16 + 1,
            adds=0, batches=n if by_batches else 1, batch=(places["data"][0], places["head"][0]),
            phases=pairing.phases, shift=pairing.shift, lines=(*pairing.lines, pairing.step * row), narrow=narrow)
        shape = (numbers["copies"], -(-o // 16), -(-c // 16), kernel[0] * kernel[1], 16, 16)
        sums = aligned(np.full(shape, np.nan, np.float32))
        with emulated_tiles() if tiled else nullcontext():
            run("avx512", name, [data.inner, head.inner, sums], params, (), splits, address)
        found = gathered("avx2", sums, splits, copies=shape[0], head_blocks=shape[1], data_blocks=shape[2],
                         taps=shape[3], lanes=16, inner=16, outputs=o, channels=c)
        assert not np.isnan(found).any()
        rounded = (widened(round_bf16_reference(value)) for value in (padded, values))
        close(found.reshape(o, c, *kernel), reference(*rounded, kernel, strides, dilations), relative=1e-5,
              absolute=1e-4)

    check()


@every_isa
@pytest.mark.parametrize("side", DEPTHWISE_GRADIENTS)
def test_the_depthwise_kernel(isa: str, side: int) -> None:
    kernel = (side, side)

    @settings(max_examples=30, deadline=None)
    @given(SEEDS, st.integers(1, 4), CHANNELS, st.tuples(SIZES, SIZES), st.tuples(*[st.integers(1, 2)] * 2),
           st.tuples(*[st.integers(1, 3)] * 3), SPLITS)
    def check(seed: int, n: int, c: int, size: tuple[int, int], strides: tuple[int, int], cut: tuple[int, ...],
              splits: list[int]) -> None:
        data, padded, head, values = operands(seed, n, c, c, size, kernel, strides, (1, 1))
        numbers, blocks = cuts(n, size[0], *cut), -(-c // 16)
        params = DEPTHWISE_GRADIENTS[side](**numbers, **strides_of(data, head, strides), width=size[1], blocks=blocks)
        sums = aligned(np.full((numbers["copies"], blocks, side**2, 16), np.nan, np.float32))
        run(isa, f"weight_gradient_depthwise_{side}", [data.inner, head.inner, sums], params, (), splits)
        found = gathered(isa, sums, splits, copies=len(sums), head_blocks=blocks, data_blocks=1, taps=side**2, lanes=1,
                         inner=1, outputs=c, channels=1)
        every = reference(padded, values, kernel, strides, (1, 1))
        close(found.reshape(c, *kernel), every[range(c), range(c)], relative=1e-5, absolute=1e-4)

    check()


def gradient_graph(data: tuple[int, ...], outputs: int, **attrs: Any) -> Graph:
    """Of a convolution of `data`."""
    b = Builder()
    x = b.parameter("x", data)
    weights = b.parameter("w", (outputs, data[1] // attrs.get("groups", 1), *attrs["kernel"]))
    others = {name: value for name, value in attrs.items() if name != "kernel"}
    head = b.convolution(x, weights, **others).shape
    b = Builder()
    return b.results(b.convolution_weight_gradient(b.parameter("x", data), b.parameter("head", head), **attrs))


LAYERS = {
    "1x1": ((3, 32, 7, 7), 64, {"kernel": (1, 1)}),
    "1x1, uneven": ((2, 17, 9, 11), 33, {"kernel": (1, 1)}),
    "1x1, stride 2": ((2, 64, 14, 14), 32, {"kernel": (1, 1), "strides": (2, 2)}),
    "3x3": ((2, 64, 14, 14), 64, {"kernel": (3, 3), "pads_begin": (1, 1), "pads_end": (1, 1)}),
    "3x3, many pixels": ((2, 16, 60, 50), 17, {"kernel": (3, 3), "pads_begin": (1, 1), "pads_end": (1, 1)}),
    "3x3, stride 2": ((2, 17, 15, 14), 32, {"kernel": (3, 3), "strides": (2, 2), "pads_begin": (1, 1),
                                            "pads_end": (0, 1)}),
    "dilated": ((1, 32, 20, 20), 16, {"kernel": (3, 2), "dilations": (2, 3), "pads_begin": (2, 0)}),
    "a wide row": ((1, 16, 3, 300), 16, {"kernel": (2, 3)}),
    "one axis": ((2, 32, 40), 17, {"kernel": (5,), "pads_begin": (2,), "pads_end": (2,)}),
    "stem": ((2, 3, 40, 37), 32, {"kernel": (7, 7), "strides": (2, 2), "pads_begin": (3, 3), "pads_end": (3, 3)}),
    "one channel": ((2, 1, 28, 28), 20, {"kernel": (5, 5)}),
    "depthwise": ((2, 40, 20, 19), 40, {"kernel": (3, 3), "pads_begin": (1, 1), "pads_end": (1, 1), "groups": 40}),
    "depthwise, stride 2": ((3, 32, 16, 16), 32, {"kernel": (3, 3), "strides": (2, 2), "pads_begin": (1, 1),
                                                 "pads_end": (1, 1), "groups": 32}),
    "depthwise 5x5, stride 2": ((2, 24, 17, 16), 24, {"kernel": (5, 5), "strides": (2, 2), "pads_begin": (2, 2),
                                                      "pads_end": (2, 2), "groups": 24}),
    "depthwise 7x7": ((1, 16, 9, 9), 16, {"kernel": (7, 7), "groups": 16}),
    "three axes": ((1, 16, 4, 5, 6), 17, {"kernel": (2, 2, 2)}),
    "three axes, strides": ((3, 33, 7, 8, 9), 16, {"kernel": (3, 2, 3), "strides": (2, 1, 2), "pads_begin": (2, 1, 1),
                                                   "pads_end": (1, 0, 1), "dilations": (1, 2, 1)}),
    "three axes, a stem": ((2, 3, 8, 20, 21), 24, {"kernel": (3, 3, 3), "pads_begin": (1, 1, 1),
                                                   "pads_end": (1, 1, 1)}),
    "three axes, many pixels": ((2, 16, 9, 40, 30), 32, {"kernel": (3, 1, 3), "pads_begin": (1, 0, 1),
                                                         "pads_end": (1, 0, 1)}),
    "transposed": ((1, 16, 5, 5), 16, {"kernel": (3, 3), "data_dilations": (2, 2)}),
    "transposed, cut": ((2, 40, 9, 8), 17, {"kernel": (4, 2), "data_dilations": (2, 3), "dilations": (1, 2),
                                            "pads_begin": (5, 1), "pads_end": (2, 3)}),
    "transposed, depthwise": ((2, 24, 9, 8), 24, {"kernel": (3, 3), "data_dilations": (2, 2), "groups": 24,
                                                  "pads_begin": (1, 1), "pads_end": (2, 2)}),
    "transposed, three axes": ((2, 20, 4, 5, 3), 8, {"kernel": (2, 4, 3), "data_dilations": (2, 2, 1),
                                                     "pads_begin": (1, 2, 1), "pads_end": (1, 2, 0)}),
}
OTHERS = {
    "groups": ((2, 32, 8, 8), 32, {"kernel": (3, 3), "groups": 2}),
    "depthwise 3x5": ((1, 16, 9, 9), 16, {"kernel": (3, 5), "groups": 16}),
    "three axes, groups": ((1, 16, 4, 5, 6), 16, {"kernel": (2, 2, 2), "groups": 4}),
    "three axes, a tap beyond all data": ((1, 16, 1, 5, 6), 16, {"kernel": (3, 3, 3), "pads_begin": (0, 1, 1),
                                                                 "pads_end": (2, 1, 1)}),
    "transposed with strides": ((1, 16, 5, 5), 16, {"kernel": (3, 3), "data_dilations": (2, 2), "strides": (2, 1)}),
}
"""What is made of other ops."""


@every_isa
@pytest.mark.parametrize("layer", [*LAYERS, *OTHERS])
def test_layers(isa: str, layer: str) -> None:
    """Any number of threads gives the same bits."""
    data, outputs, attrs = {**LAYERS, **OTHERS}[layer]
    graph = gradient_graph(data, outputs, **attrs)
    arrays = [images(seed, 1, 1, 1, parameter.type.size).reshape(parameter.shape)
              for seed, parameter in enumerate(graph.parameters)]
    (wanted,) = compile(graph, "INTERPRETER")(*arrays)
    found = []
    for threads in (1, 2, 5):
        executable = compile(graph, "CPU", threads=threads, isa=isa)
        kernels = {instruction.name for instruction in executable.main.instructions}
        assert any(name.startswith("weight_gradient") for name in kernels) == (layer in LAYERS), kernels
        found += executable(*arrays)
    np.testing.assert_allclose(found[0], wanted, rtol=0, atol=5e-6 * max(abs(wanted).max(), 1))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


SIZED = {
    "a long row, halved groups": ((1, 32, 4, 330), 144, {"kernel": (3, 3), "pads_begin": (1, 1), "pads_end": (1, 1)}),
    "a row too long": ((1, 16, 3, 900), 16, {"kernel": (3, 3)}),
    "taps too far": ((1, 16, 40, 3), 16, {"kernel": (40, 1)}),
    "7x7, stride 2": ((2, 32, 56, 56), 48, {"kernel": (7, 7), "strides": (2, 2), "pads_begin": (3, 3),
                                            "pads_end": (3, 3)}),
    "ResNet's last stage": ((3, 512, 7, 7), 512, {"kernel": (3, 3), "pads_begin": (1, 1), "pads_end": (1, 1)}),
    "ResNet's projection": ((2, 256, 28, 28), 512, {"kernel": (1, 1), "strides": (2, 2)}),
}
IN_FLOAT32 = ("a row too long", "stem", "one channel", "three axes, a stem", "transposed, three axes")
"""What the kernel of bf16 has no room for, or less than 16 channels. So is all that is depthwise."""


@pytest.mark.parametrize(("isa", "layer"), [each for layer in (*LAYERS, *SIZED)
                                           for each in (("avx512", layer), has_bf16("amx", layer))])
def test_layers_in_bf16(isa: str, layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of operands that are rounded; any number of threads gives the same bits."""
    if "avx2" not in supported(_core.cpu_features()):
        pytest.skip("the CPU has no AVX2")
    if not _core.cpu_features()["avx512bf16"]:
        allow_bf16(monkeypatch)
    with amx(monkeypatch) if isa == "amx" else nullcontext():
        _check_layer(isa, layer)


def _check_layer(isa: str, layer: str) -> None:
    data, outputs, attrs = {**LAYERS, **SIZED}[layer]
    graph = gradient_graph(data, outputs, **attrs)
    arrays = [images(seed, 1, 1, 1, parameter.type.size).reshape(parameter.shape)
              for seed, parameter in enumerate(graph.parameters)]
    in_float32 = layer in IN_FLOAT32 or "depthwise" in layer
    rounded = arrays if in_float32 else [widened(round_bf16_reference(array)) for array in arrays]
    (wanted,) = compile(graph, "INTERPRETER")(*rounded)
    found = []
    for threads in (1, 2, 5):
        executable = compile(graph, "CPU", threads=threads, precision="bf16")
        kernels = {instruction.name for instruction in executable.main.instructions}
        assert (f"weight_gradient_bf16{'_amx' * (isa == 'amx')}" in kernels) != in_float32, kernels
        found += executable(*arrays)
    np.testing.assert_allclose(found[0], wanted, rtol=0, atol=5e-6 * max(abs(wanted).max(), 1))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@pytest.mark.parametrize("isa", supported(_core.cpu_features()))
@pytest.mark.parametrize("tile", [2, 4])
def test_winograd(isa: str, tile: int, tiles_of: Callable[[int], None]) -> None:
    """Strips add to each other; any number of threads gives the same bits."""
    tiles_of(tile)

    @settings(max_examples=20, deadline=None)
    @given(SEEDS, st.integers(1, 3), *[st.integers(16, 40)] * 2, *[st.integers(3, 15)] * 2,
           st.tuples(*[st.integers(0, 2)] * 4), st.sampled_from([1, 7, 1000]))
    def check(seed: int, n: int, c: int, k: int, h: int, w: int, pads: tuple[int, ...], tiles: int) -> None:
        graph = gradient_graph((n, c, h, w), k, kernel=(3, 3), pads_begin=pads[:2], pads_end=pads[2:])
        arrays = [images(seed + i, *parameter.shape) for i, parameter in enumerate(graph.parameters)]
        (wanted,), found = compile(graph, "INTERPRETER")(*arrays), []
        with mock.patch.multiple("ngraph_mxnet.targets.cpu.lower.weight_gradient", _CACHE=0, _FEWEST_TILES=tiles):
            for threads in (1, 3):
                executable = compile(graph, "CPU", threads=threads, isa=isa)
                assert f"winograd_head_{tile}" in {instruction.name for instruction in executable.main.instructions}
                found += [executable(*arrays)[0] for _ in range(2)]  # the arena keeps what the first call left
        assert np.linalg.norm(found[0] - wanted) <= 5e-6 * np.linalg.norm(wanted)
        for other in found[1:]:
            np.testing.assert_array_equal(found[0], other)

    check()


def test_winograd_where_it_pays() -> None:
    def kernels(channels: int, size: int) -> set[str]:
        graph = gradient_graph((4, channels, size, size), channels, kernel=(3, 3), pads_begin=(1, 1), pads_end=(1, 1))
        return {instruction.name for instruction in compile(graph, "CPU", threads=1).main.instructions}

    assert "winograd_head_4" in kernels(64, 56)
    assert "gather_weight_gradient" in kernels(16, 4)


def test_float64_is_made_of_other_ops() -> None:
    b = Builder()
    x, head = b.parameter("x", (2, 16, 5, 5), "f64"), b.parameter("head", (2, 16, 5, 5), "f64")
    graph = b.results(b.convolution_weight_gradient(x, head, kernel=(1, 1)))
    arrays = [images(seed, 2, 16, 5, 5).astype(np.float64) for seed in (0, 1)]
    (found,), (wanted,) = compile(graph, "CPU")(*arrays), compile(graph, "INTERPRETER")(*arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
