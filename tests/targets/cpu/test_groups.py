"""Convolutions of groups that share blocks of channels, in bands that leave out the zeros; and shuffles of channels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_library import SEEDS, SPLITS, Blocked, every_isa, images, run
from test_activations import ACTIVATIONS, check, kernels_of
from test_quantized_images import convolved
from test_quantized_products import check as check_bytes
from test_quantized_products import quantized

from ngraph_mxnet import _core, compile
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.targets.cpu.machine.isa import halves_avx512

GROUPS = st.tuples(st.sampled_from([2, 3, 5, 8]), st.sampled_from([8, 20, 24, 33, 40, 80]),
                   st.sampled_from([8, 20, 30, 40, 80]))
"""Groups, and the input and output channels of each."""


def contractions(names: list[str]) -> int:
    return sum("contraction" in name for name in names)


ODD_BLOCKS = st.tuples(st.just(1), st.sampled_from([16, 40]), st.sampled_from([72, 80, 100, 112, 170, 200]))
"""The same of convolutions without groups, whose outputs are 5, 7, 11 and 13 blocks."""


@st.composite
def convolutions(draw: st.DrawFn, sizes: st.SearchStrategy, most: int) -> Graph:
    """Of groups and channels from `sizes`, and images of at most so many rows."""
    groups, inputs, outputs = draw(sizes)
    kernel, dilation = draw(st.sampled_from([1, 1, 3])), draw(st.integers(1, 2))
    size = draw(st.integers(kernel * dilation, most))
    b = Builder()
    x = b.parameter("x", (draw(st.integers(1, 2)), groups * inputs, size, size + 1))
    weights = (b.weight if draw(st.booleans()) else b.parameter)("w", (groups * outputs, inputs, kernel, kernel))
    pad = (kernel // 2,) * 2
    attrs = {"groups": groups, "strides": (draw(st.integers(1, 2)),) * 2, "dilations": (dilation,) * 2,
             "pads_begin": pad, "pads_end": pad}
    y = b.convolution(x, weights, **attrs)
    if draw(st.booleans()):
        y = b.add(y, b.weight("bias", (groups * outputs, 1, 1)))
    if draw(st.booleans()):
        y = b.add(y, b.parameter("residual", y.shape))
    if draw(st.booleans()):
        y = ACTIVATIONS[draw(st.sampled_from([*ACTIVATIONS]))](b, y)
    if draw(st.booleans()):
        vectors = [b.weight(name, (groups * outputs,)) for name in ("scale", "shift")]
        y = b.scale_shift(y, *vectors, lower=-0.5)
    return b.results(y)


@every_isa
@pytest.mark.parametrize(("sizes", "most"), [(GROUPS, 9), (ODD_BLOCKS, 18)], ids=["groups", "odd blocks"])
def test_channels_of_any_number(isa: str, sizes: st.SearchStrategy, most: int) -> None:
    @settings(max_examples=60, deadline=None)
    @given(convolutions(sizes, most), st.integers(0, 99))
    def checks(graph: Graph, seed: int) -> None:
        check(graph, seed, isa=isa)

    checks()


@every_isa
@given(sizes=ODD_BLOCKS, kernel=st.integers(1, 3), seed=st.integers(0, 99))
@settings(max_examples=10)
def test_odd_numbers_of_blocks_of_bytes(isa: str, sizes: tuple[int, int, int], kernel: int, seed: int) -> None:
    b = Builder()
    x = quantized(b, b.parameter("x", (1, sizes[1], 18, 15)))
    check_bytes(b.results(convolved(b, x, sizes[2], (kernel, kernel), pads_begin=(1, 1), pads_end=(1, 1))), isa, seed)


@pytest.mark.parametrize(("outputs", "size", "isa", "number"), [
    (112, 14, "avx512", 2),  # blocks 3 and 4
    (80, 14, "avx512", 2),
    (208, 14, "avx512", 2),
    (144, 14, "avx512", 1),  # three tiles of three blocks
    (96, 14, "avx512", 1),
    (112, 3, "avx512", 1),  # too short for two calls
    (112, 14, "avx2", 1),  # tiles of one block
])
def test_a_rest_of_blocks_gets_tiles_of_its_own(outputs: int, size: int, isa: str, number: int) -> None:
    b = Builder()
    x = b.parameter("x", (1, 64, size, size))
    graph = b.results(b.convolution_bias(x, b.weight("w", (outputs, 64, 1, 1)), b.weight("b", (outputs,))))
    one = isa == "avx512" and halves_avx512(_core.cpu_features())  # there tiles of one block are as fast
    assert contractions(check(graph, isa=isa)) == (1 if one else number)


@every_isa
@given(sizes=GROUPS, kernel=st.integers(1, 3), seed=st.integers(0, 99), pad_value=st.sampled_from([0, 30]))
def test_groups_of_bytes(isa: str, sizes: tuple[int, int, int], kernel: int, seed: int, pad_value: int) -> None:
    groups, inputs, outputs = sizes
    b = Builder()
    x = quantized(b, b.parameter("x", (1, groups * inputs, 5, 6)))
    check_bytes(b.results(convolved(b, x, groups * outputs, (kernel, kernel), groups=groups, pads_begin=(1, 1),
                                    pads_end=(1, 1), pad_value=pad_value)), isa, seed)


@pytest.mark.parametrize(("groups", "inputs", "outputs", "bands"), [
    (3, 240, 60, 2),  # of 32 outputs each; 10 of 15 blocks of inputs
    (3, 60, 240, 4),  # 2, 3, 2 and 2 of 4 blocks
    (3, 48, 96, 1),  # whole blocks: the kernel's own groups
    (2, 24, 24, 1),  # few zeros
])
def test_bands(groups: int, inputs: int, outputs: int, bands: int) -> None:
    b = Builder()
    x = b.parameter("x", (1, inputs, 6, 6))
    graph = b.results(b.convolution(x, b.weight("w", (outputs, inputs // groups, 1, 1)),
                                         b.weight("b", (outputs,)), groups=groups))
    assert contractions(check(graph, isa="avx2")) == bands


def test_groups_do_not_meet_each_others_numbers() -> None:
    """A group of infinite inputs leaves those alone that share no block with it."""
    b = Builder()
    graph = b.results(b.convolution(b.parameter("x", (1, 240, 4, 4)), b.weight("w", (60, 80, 1, 1)), groups=3))
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(p.shape).astype(np.float32) for p in graph.parameters)
    x[:, :80] = np.inf
    (y,) = compile(graph, "CPU")(x, w)
    assert np.isfinite(y[:, 32:]).all()  # blocks 5 to 14


@every_isa
@given(seed=SEEDS, shape=st.tuples(st.integers(1, 2), st.sampled_from([1, 15, 16, 20, 48, 60]), st.integers(1, 5),
                                   st.integers(1, 7)),
       halos=st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * 2), splits=SPLITS)
def test_shuffle_kernel(isa: str, seed: int, shape: tuple, halos: tuple, splits: list[int]) -> None:
    plain = images(seed, *shape)
    places = np.random.default_rng(seed).permutation(shape[1]).astype(np.int32)
    source, found, wanted = Blocked(*shape, halos[0]).fill(plain), Blocked(*shape, halos[1]), Blocked(*shape, halos[1])
    run(isa, "shuffle_blocked", [source.inner, places, found.inner],
        [*shape, *source.strides[:3], *found.strides[:3]], (), splits)
    np.testing.assert_array_equal(found.whole, wanted.fill(plain[:, places]).whole)


def shuffled(b: Builder, x: Value, parts: tuple[int, ...], order: tuple[int, ...]) -> Value:
    """The channels cut into `parts`, which take the places that `order` says, as of axes from 0 on."""
    rest = tuple(range(len(parts) + 1, len(parts) + x.type.rank - 1))
    cut = b.reshape(x, shape=(x.shape[0], *parts, *x.shape[2:]))
    return b.reshape(b.transpose(cut, order=(0, *(axis + 1 for axis in order), *rest)), shape=x.shape)


def unit(parts: tuple[int, ...], order: tuple[int, ...], *, also: str = "", size: tuple[int, ...] = (6, 6)) -> Graph:
    """A grouped convolution, a shuffle and a depthwise convolution."""
    b, channels, ones = Builder(), int(np.prod(parts)), (1,) * len(size)
    x = b.parameter("x", (2, channels, *size))
    w = b.weight("w", (channels, channels // parts[0], *ones))
    y = b.clamp(b.convolution(x, w, groups=parts[0]), lower=0.0, upper=6.0)
    mixed = shuffled(b, y, parts, order)
    last = b.convolution(mixed, b.weight("d", (channels, 1, *(3,) * len(size))), groups=channels, pads_begin=ones,
                         pads_end=ones)
    return b.results(last, *{"": [], "result": [mixed], "read": [b.square(mixed)], "cut": [
        b.square(mixed.node.inputs[0])]}[also])  # type: ignore[union-attr]


@pytest.mark.parametrize("size", [(6,), (5, 6), (3, 5, 4)])
@pytest.mark.parametrize(("parts", "order"), [((3, 20), (1, 0)), ((2, 5, 6), (2, 0, 1)), ((2, 5, 6), (1, 0, 2))])
def test_shuffles_between_convolutions(parts: tuple[int, ...], order: tuple[int, ...], size: tuple[int, ...]) -> None:
    names = check(unit(parts, order, size=size))
    assert sum("shuffle_blocked" in name for name in names) == 1
    assert not any("copy_4" in name or "transpose" in name for name in names)


@pytest.mark.parametrize(("also", "shuffles"), [("result", 0), ("read", 1), ("cut", 0)])
def test_what_else_is_read_is_there(also: str, shuffles: int) -> None:
    names = check(unit((3, 20), (1, 0), also=also))
    assert sum("shuffle_blocked" in name for name in names) == shuffles


def test_what_is_no_shuffle_of_channels_stays() -> None:
    """A transpose that turns channels and rows, and one of images."""
    for shape, order in (((2, 4, 8, 8, 4, 4), (0, 1, 3, 2, 4, 5)), ((2, 8, 4, 8, 4, 4), (2, 1, 0, 3, 4, 5))):
        b = Builder()
        x = b.parameter("x", (2, 32, 8, 16))
        y = b.convolution(x, b.weight("w", (32, 32, 1, 1)))
        moved = b.reshape(b.transpose(b.reshape(y, shape=shape), order=order), shape=x.shape)
        graph = b.results(b.convolution(moved, b.weight("v", (16, 32, 1, 1))))
        assert not any("shuffle" in name for name in check(graph))


def test_an_image_that_a_convolution_does_not_make_is_moved_as_before() -> None:
    b = Builder()
    mixed = shuffled(b, b.parameter("x", (1, 32, 4, 4)), (2, 16), (1, 0))
    graph = b.results(b.convolution(mixed, b.weight("w", (16, 32, 1, 1))))
    assert not any("shuffle" in name for name in kernels_of(compile(graph, "CPU")))
    check(graph)
