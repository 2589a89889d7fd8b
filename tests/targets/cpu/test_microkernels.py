"""Contraction kernels against a plain NumPy convolution."""

from __future__ import annotations

import functools
import itertools
import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import packing_references as references
import pytest
from bf16_machine import address_in, legalised
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_library import AVX512, AVX512_BF16, aligned, call_kernel, library, widened
from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels import target
from ngraph_mxnet.targets.cpu.microkernels.contraction import MULTIPLY_ADD, build_module
from ngraph_mxnet.targets.cpu.microkernels.params import (
    FLAG_OUTPUT2,
    FLAG_OUTPUT2_NARROW,
    FLAG_OUTPUT_NARROW,
    FLAG_RESIDUAL,
    FLAG_RESIDUAL_NARROW,
    contraction_params,
    super_groups,
)
from ngraph_mxnet.targets.cpu.microkernels.tables import Plane, pixel_table, step_table
from ngraph_mxnet.targets.cpu.microkernels.tiles import ContractionSize, Wanted, choose_tiles, loop_nest
from ngraph_mxnet.targets.cpu.microkernels.variants import (
    ACTIVATIONS,
    FIRST_CALLED,
    ISAS,
    Isa,
    Tile,
    Variant,
    symbol,
    variants,
)
from ngraph_mxnet.targets.cpu.params import Params

# (kernels, instruction set that runs them): AVX-512's tiles are also checked through AVX2's legaliser.
TARGETS = [
    ("avx2", "avx2"),
    ("baseline", "baseline"),
    ("avx512", "avx2"),
    pytest.param("avx512", "avx512", marks=AVX512),
]
BF16_TARGETS = [("avx512", "avx2"), pytest.param("avx512", "avx512", marks=AVX512_BF16),
                pytest.param("avx512", "amx", marks=AVX512_BF16)]


FORMULAS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "none": lambda x, slopes: x,
    "hard_swish": lambda x, slopes: x * clip(0.25 * x + 0.375, (0.0, 1.0)) * 1.5 - 0.125,
    "prelu": lambda x, slopes: np.where(x > 0, x, x * slopes),
    "silu": lambda x, slopes: x / (1 + np.exp(-x)),
    "gelu": lambda x, slopes: x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "sigmoid": lambda x, slopes: 1 / (1 + np.exp(-x)),
    "tanh": lambda x, slopes: np.tanh(x),
}
"""Of each activation, with the numbers that the tests give the hard swish."""


class Blocked:
    """A blocked tensor with a halo, and garbage around it that no kernel may touch; in bf16 where asked.

    `padding` is the value of the channels that fill the last block.
    """

    def __init__(self, values: np.ndarray, halo: tuple[int, int], halo_value: float = 0.0, bf16: bool = False,
                 padding: float = 0.0) -> None:
        n, c, h, w = values.shape
        self.shape, self.halo = values.shape, halo
        self.blocks = -(-c // 16)
        rows, columns = h + 2 * halo[0], w + 2 * halo[1]
        padded = np.full((n, self.blocks * 16, h, w), padding, np.float32)
        padded[:, :c] = values
        blocked = padded.reshape(n, self.blocks, 16, h, w).transpose(0, 1, 3, 4, 2)
        whole = np.full((n, self.blocks, rows, columns, 16), halo_value, np.float32)
        self.buffer = aligned(references.round_bf16_reference(whole) if bf16 else whole)
        self.inside = self.buffer[:, :, halo[0] : halo[0] + h, halo[1] : halo[1] + w]
        self.inside[...] = references.round_bf16_reference(blocked) if bf16 else blocked
        pixel = 32 if bf16 else 64
        self.plane = Plane(columns * pixel, pixel, self.blocks * rows * columns * pixel)
        self.block_stride = rows * columns * pixel
        self.address = self.buffer.ctypes.data + (halo[0] * columns + halo[1]) * pixel

    def plain(self) -> np.ndarray:
        return self.all_channels()[:, : self.shape[1]]

    def all_channels(self) -> np.ndarray:
        """With those that fill the last block."""
        n, _, h, w = self.shape
        return widened(self.inside).transpose(0, 1, 4, 2, 3).reshape(n, -1, h, w)

    def halo_values(self) -> np.ndarray:
        mask = np.ones(self.buffer.shape, bool)
        h, w = self.halo
        mask[:, :, h : mask.shape[2] - h, w : mask.shape[3] - w] = False
        return widened(self.buffer[mask])


def address_of(variant: Variant, kernels: Isa, isa: Isa) -> int:
    """Of the package's own kernel, unless it is to run on another instruction set."""
    return address_in(library() if isa in (kernels, "amx") else legalised(), symbol(variant, kernels))


def run(
    address: int, isa: Isa, tensors: list[int], params: Params, cuts: list[int], bf16: bool = False
) -> None:
    """Runs all tasks, split at `cuts`."""
    pointers = np.array(tensors, np.uint64)
    ints, floats = np.array(params.ints(), np.int64), np.array(params.floats(), np.float64)
    edges = [0, *sorted(c % (params.tasks + 1) for c in cuts), params.tasks]
    for begin, end in itertools.pairwise(edges):
        call_kernel(address, isa, pointers.ctypes.data, ints.ctypes.data, floats.ctypes.data, begin, end,
                    bf16=bf16)


def convolve(x, weights, stride, padding, dilation, groups) -> np.ndarray:
    """Convolution in float64 by its definition."""
    n, _, h, w = x.shape
    oc, icg, kh, kw = weights.shape
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2])
    out_h = (h + 2 * padding[0] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    out_w = (w + 2 * padding[1] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out = np.zeros((n, oc, out_h, out_w))
    ocg = oc // groups
    for g in range(groups):
        wg = weights[g * ocg : (g + 1) * ocg].astype(np.float64)
        for i in range(kh):
            for j in range(kw):
                top, left = i * dilation[0], j * dilation[1]
                part = x[:, g * icg : (g + 1) * icg, top:, left:][:, :, :: stride[0], :: stride[1]]
                part = part[:, :, :out_h, :out_w]
                out[:, g * ocg : (g + 1) * ocg] += np.einsum("nchw,oc->nohw", part, wg[:, :, i, j])
    return out


def clip(x: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    return np.where(np.isnan(x), x, np.clip(x, *bounds))


@dataclass
class Case:
    """One convolution; channels are per group."""

    kind: str = "k16"
    images: int = 1
    groups: int = 1
    ic: int = 16
    oc: int = 16
    size: tuple[int, int] = (5, 6)
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    residual: str = "none"
    output2: bool = False
    bounds: tuple[float, float] = (float("-inf"), float("inf"))
    activation: str = "none"
    halo: tuple[int, int] = (0, 0)
    nan: bool = False
    variant: int = 0
    order: int = 0
    chunk: int = 1
    step_block: int = 0
    fold: bool = False
    bf16: bool = False
    narrow: tuple[bool, bool, bool] = (False, False, False)
    cuts: tuple[int, ...] = ()
    seed: int = 0

    def out_size(self) -> tuple[int, int]:
        h, w = (
            (s + 2 * p - d * (k - 1) - 1) // t + 1
            for s, p, d, k, t in zip(
                self.size, self.padding, self.dilation, self.kernel, self.stride, strict=True
            )
        )
        return h, w


@st.composite
def cases(draw, bf16: bool = False) -> Case:
    small = st.integers(1, 3)
    pair = st.tuples(st.integers(0, 2), st.integers(0, 2))
    kernel = draw(st.tuples(small, small))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    kind = draw(st.sampled_from(["k16", "k1", "depthwise"]))
    return Case(
        kind=kind,
        images=draw(st.integers(1, 3)),
        groups=draw(st.integers(1, 40)) if kind == "depthwise" else draw(st.sampled_from([1, 1, 2, 3, 4, 8])),
        ic=1 if kind == "depthwise" else draw(st.sampled_from([1, 3, 4, 8, 16, 20, 32])),
        oc=1 if kind == "depthwise" else draw(st.sampled_from([1, 4, 8, 16, 24, 32, 40, 48])),
        size=(draw(st.integers(reach[0], 9)), draw(st.integers(reach[1], 17))),
        kernel=kernel,
        stride=draw(st.tuples(small, small)),
        padding=draw(pair),
        dilation=dilation,
        residual=draw(st.sampled_from(["none", "own", "in_place"])),
        output2=draw(st.booleans()),
        bounds=draw(
            st.sampled_from([(float("-inf"), float("inf")), (0.0, float("inf")), (0.0, 0.5), (-1.0, 1.0)])
        ),
        activation=draw(st.sampled_from([*ACTIVATIONS])),
        halo=draw(pair),
        nan=draw(st.booleans()),
        variant=draw(st.integers(0, 3)),
        order=draw(st.integers(0, 1)),
        chunk=draw(st.integers(1, 7)),
        step_block=draw(st.sampled_from([0, 1, 2, 5])),
        fold=draw(st.booleans()),
        bf16=bf16,
        narrow=draw(st.tuples(st.booleans(), st.booleans(), st.booleans())) if bf16 else (False, False, False),
        cuts=tuple(draw(st.lists(st.integers(0, 1000), max_size=4))),
        seed=draw(st.integers(0, 99)),
    )


def check(case: Case, kernels: Isa, isa: Isa) -> None:
    rng = np.random.default_rng(case.seed)
    wanted = (case.kind, case.bf16, False, isa == "amx" and case.kind == "k16")
    fits = [v for v in variants(kernels) if (v.kind, v.bf16, v.u8, v.amx) == wanted]
    variant = fits[case.variant % len(fits)]
    ic, oc = case.ic * case.groups, case.oc * case.groups
    h, w = case.size
    out_h, out_w = case.out_size()
    x = rng.standard_normal((case.images, ic, h, w)).astype(np.float32)
    weights = rng.standard_normal((oc, case.ic, *case.kernel)).astype(np.float32)
    bias, scale, shift, slopes = rng.standard_normal((4, oc)).astype(np.float32)
    add = rng.standard_normal((case.images, oc, out_h, out_w)).astype(np.float32)
    if case.nan:
        x.reshape(-1)[rng.integers(x.size)] = np.nan

    # Input: a blocked tensor with its padding as halo, or plain NCHW padded.
    if case.kind == "k1":
        ph, pw = case.padding
        padded = aligned(np.pad(x, [(0, 0), (0, 0), (ph, ph), (pw, pw)]))
        width = w + 2 * pw
        channel = (h + 2 * ph) * width * 4
        plane, group_stride = Plane(width * 4, 4, channel * ic), channel * case.ic
        address, step_channels = padded.ctypes.data + (ph * width + pw) * 4, (case.ic, channel)
        lanes = 1
    else:
        source = Blocked(x, case.padding, bf16=case.bf16)
        x = source.plain()
        plane, channel, address = source.plane, source.block_stride, source.address
        lanes = 16
    if case.kind == "depthwise":
        supers, group_stride, step_channels = -(-oc // 16), channel, (1, 0)
        packed = references.pack_depthwise_reference(weights)
        oc_groups, out_blocks, vectors = (
            1,
            1,
            [references.pack_channels_reference(v, groups=1, oc_tile=16) for v in (bias, scale, shift, slopes)],
        )
    else:
        supers = super_groups(case.groups, ic, oc, lanes)
        packed = references.pack_weights_reference(weights, groups=case.groups, oc_tile=variant.oc_tile, lanes=lanes)
        if case.bf16 and lanes == 16:
            packed = references.pack_pairs_reference(packed)
            weights = widened(references.round_bf16_reference(weights))
        oc_groups, out_blocks = packed.shape[1], -(-oc // supers // 16)
        vectors = [
            references.pack_channels_reference(v, groups=supers, oc_tile=variant.oc_tile)
            for v in (bias, scale, shift, slopes)
        ]
        blocks = -(-ic // supers // lanes)
        step_channels = (blocks, channel)
        group_stride = channel * blocks
    constants = [aligned(a) for a in (packed, *vectors)]

    output_bf16, residual_bf16, output2_bf16 = case.narrow
    if case.residual == "in_place":
        residual_bf16 = output_bf16
    own = case.residual != "in_place"
    output = Blocked(np.full_like(add, 9) if own else add, case.halo, 7.0, output_bf16, np.nan if own else 0.0)
    residual = output if case.residual == "in_place" else Blocked(add, (1, 0), 3.0, residual_bf16)
    add = residual.plain().copy()
    output2 = Blocked(np.full_like(add, 9), (0, 2), 5.0, output2_bf16, np.nan)
    activation = case.activation
    if ACTIVATIONS[activation] >= FIRST_CALLED and (output_bf16 or case.output2):
        activation = "prelu"
    fold = case.fold and case.images > 1
    pixels = pixel_table(
        out_h, out_w, inputs=plane, output=output.plane, residual=residual.plane, output2=output2.plane,
        stride=case.stride, padding=case.padding, images=case.images if fold else 1,
    ).table()
    steps = step_table(plane, channels=step_channels[0], channel_stride=step_channels[1], kernel=case.kernel,
                       dilation=case.dilation).table()
    all_rows = out_h * (case.images if fold else 1)
    rows, row_pixels = (all_rows, out_w) if variant.rows else (1, all_rows * out_w)
    flags = (FLAG_RESIDUAL if case.residual != "none" else 0) | (FLAG_OUTPUT2 if case.output2 else 0)
    flags |= FLAG_OUTPUT_NARROW * output_bf16 | FLAG_RESIDUAL_NARROW * residual_bf16
    flags |= FLAG_OUTPUT2_NARROW * output2_bf16
    params = contraction_params(
        images=1 if fold else case.images, groups=supers, oc_groups=oc_groups,
        out_blocks=out_blocks, rows=rows, row_pixels=row_pixels, row_tiles=-(-row_pixels // variant.tile),
        chunk_tiles=case.chunk, order=case.order, steps=steps.size, flags=flags,
        step_block=0 if case.residual == "in_place" or output_bf16 or variant.amx else case.step_block,
        pixel_stride=plane.pixel * case.stride[1], input=(plane.image, group_stride),
        weight_group_stride=constants[0][0].nbytes, channel_group_stride=constants[1].nbytes // supers,
        output=(output.plane.image, output.block_stride), residual=(residual.plane.image, residual.block_stride),
        output2=(output2.plane.image, output2.block_stride),
        lower=case.bounds[0], upper=case.bounds[1], lower2=0.0,
        activation=ACTIVATIONS[activation], slope=0.25, offset=0.375, scale=1.5, shift=-0.125,
    )
    tensors = [
        address, constants[0].ctypes.data, constants[1].ctypes.data, output.address, residual.address,
        pixels.ctypes.data, steps.ctypes.data, output2.address,
        *(c.ctypes.data for c in constants[2:]),
    ]
    kernel = address_of(variant, kernels, isa)
    run(kernel, isa, tensors, params, list(case.cuts), case.bf16)

    def per_channel(values: np.ndarray) -> np.ndarray:
        return values[:, None, None].astype(np.float64)

    with np.errstate(invalid="ignore"):
        want = convolve(x, weights, case.stride, case.padding, case.dilation, case.groups) + per_channel(bias)
    if case.residual != "none":
        want = want + add
    want = clip(want, case.bounds)
    want = FORMULAS[activation](want, per_channel(slopes))
    got = output.plain()
    # Super-groups spread a NaN to their other groups (0 * NaN): only finite results are compared there.
    finite = (
        np.isfinite(got) if supers < case.groups and case.kind != "depthwise" else np.full(got.shape, True)
    )
    assert np.all(~finite | (np.isnan(got) == np.isnan(want)))
    np.testing.assert_allclose(got[finite], want[finite], rtol=2**-8 if output_bf16 else 1e-4, atol=1e-4)
    if case.output2:
        # The second output is made of the sums before they are rounded.
        want2 = clip((want if output_bf16 else got) * per_channel(scale) + per_channel(shift), (0.0, np.inf))
        finite &= np.isfinite(want2)
        np.testing.assert_allclose(output2.plain()[finite], want2[finite], rtol=2**-8 if output2_bf16 else 1e-4,
                                   atol=1e-3 if case.bf16 else 1e-4)
    else:
        assert np.all(output2.plain() == 9)
    if not case.nan:  # a later convolution multiplies the padding by zero
        assert np.all(np.isfinite(output.all_channels()))
        assert not case.output2 or np.all(np.isfinite(output2.all_channels()))
    assert np.all(output.halo_values() == 7)
    assert np.all(output2.halo_values() == 5)

    if case.cuts and case.residual != "in_place":
        first = output.buffer.copy()
        output.inside[...] = 0
        run(kernel, isa, tensors, params, [], case.bf16)
        np.testing.assert_array_equal(output.buffer.view(np.uint16), first.view(np.uint16))


@pytest.mark.parametrize(("kernels", "isa"), TARGETS)
@settings(max_examples=150, deadline=None)
@given(case=cases())
def test_convolution(kernels: Isa, isa: Isa, case: Case) -> None:
    check(case, kernels, isa)


@pytest.mark.parametrize(("kernels", "isa"), BF16_TARGETS)
@settings(max_examples=150, deadline=None)
@given(case=cases(bf16=True))
def test_convolution_in_bf16(kernels: Isa, isa: Isa, case: Case) -> None:
    check(case, kernels, isa)


@pytest.mark.parametrize(("kernels", "isa"), BF16_TARGETS)
def test_bf16_rounds_to_nearest_even(kernels: Isa, isa: Isa) -> None:
    """The sums are exact here, so that the stored bits are known; NaN and infinity survive, 1 / 3 rounds up."""
    values = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-8, 3.39e38, np.inf, -np.inf, np.nan,
                       1 / 3, 2**-126, 2, 65504, 1e-30, -3, 7], np.float32)
    variant = next(v for v in variants(kernels) if v.kind == "k16" and v.bf16 and v.amx == (isa == "amx"))
    bias, weights = aligned(np.tile(values, variant.blocks)), aligned(np.zeros((8, variant.oc_tile, 2), np.uint16))
    source, out = aligned(np.zeros(16, np.uint16)), aligned(np.zeros(16 * variant.blocks, np.uint16))
    pixels = pixel_table(1, 1, inputs=Plane(0, 32), output=Plane(0, 32)).table()
    steps = step_table(Plane(0, 32), channels=1, channel_stride=32).table()
    params = contraction_params(oc_groups=1, out_blocks=variant.blocks, rows=1, row_pixels=1, row_tiles=1,
                                  chunk_tiles=1, steps=1, output=(0, 32), flags=FLAG_OUTPUT_NARROW)
    tensors = [a.ctypes.data for a in (source, weights, bias, out, source, pixels, steps, source, source, source)]
    run(address_of(variant, kernels, isa), isa, tensors, params, [], True)
    np.testing.assert_array_equal(out.reshape(-1, 16)[0], references.round_bf16_reference(values))


@pytest.mark.parametrize(("kernels", "isa"), TARGETS)
@pytest.mark.parametrize("kind", ["k16", "k1", "depthwise"])
def test_every_tile_size(kernels: Isa, isa: Isa, kind: str) -> None:
    _check_tile_sizes(kernels, isa, kind)


def _check_tile_sizes(kernels: Isa, isa: Isa, kind: str, bf16: bool = False) -> None:
    groups = 32 if kind == "depthwise" else 1
    channels = {"k16": 32, "k1": 3, "depthwise": 1}[kind]
    for variant in range(3):
        for width in range(1, 18):
            oc = 1 if kind == "depthwise" else 48
            check(
                Case(kind=kind, groups=groups, ic=channels, oc=oc, size=(1, width), variant=variant,
                     output2=True, residual="own", bounds=(0.0, 6.0), bf16=bf16, narrow=(bf16, bf16, False)),
                kernels, isa,
            )


@pytest.mark.parametrize(("kernels", "isa"), BF16_TARGETS)
@pytest.mark.parametrize("kind", ["k16", "k1", "depthwise"])
def test_every_tile_size_in_bf16(kernels: Isa, isa: Isa, kind: str) -> None:
    _check_tile_sizes(kernels, isa, kind, bf16=True)


@pytest.mark.parametrize(("blocks", "wide"), [(1, 16), (2, 32), (3, 48), (4, 32), (5, 48), (7, 32), (9, 48), (36, 48)])
def test_tiles_of_several_blocks_leave_few_zeros(blocks: int, wide: int) -> None:
    """Odd blocks are alone if the CPU computes AVX-512 in halves, and waits for its multiply-adds anyway."""
    size = ContractionSize.of_product(480, blocks, 20)
    assert choose_tiles(Wanted("avx512"), "k16", size).oc_tile == wide
    few = choose_tiles(Wanted("avx512"), "k16", ContractionSize.of_product(9, 36, 20))
    assert few.oc_tile == 32  # more of the weights for each pixel
    assert choose_tiles(Wanted("avx512", u8=True, vnni=True), "k16", size).oc_tile == wide
    assert choose_tiles(Wanted("avx512", halves=True), "k16", size).oc_tile == (16 if blocks % 2 else 32)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize(
    "shape", [(56, 56, 4, 36, False), (7, 7, 32, 288, False), (1, 9, 63, 128, True), (1, 1, 1, 1, True)]
)
def test_choice_is_valid(isa: Isa, images: int, shape) -> None:
    out_h, out_w, out_blocks, steps, flat = shape
    for kind in ("k16", "k1", "depthwise"):
        size = ContractionSize(images, out_h, out_w, out_blocks, steps, flat_input=flat)
        choice = choose_tiles(Wanted(isa), kind, size)
        assert choice.rows * choice.row_pixels * choice.images == images * out_h * out_w
        assert -(-choice.row_pixels // choice.row_tiles) <= choice.variant.tile
        assert choice.oc_groups * choice.variant.blocks >= out_blocks
        assert 1 <= choice.chunk_tiles <= choice.rows * choice.row_tiles
        assert 0 <= choice.step_block <= steps


@functools.cache
def assembly(isa: Isa) -> str:
    return target.emit_assembly(isa)


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm")
@pytest.mark.parametrize("isa", ISAS)
def test_object_is_self_contained(isa: Isa, tmp_path: Path) -> None:
    path = tmp_path / "kernels.o"
    if isa == "avx512":  # which takes LLVM long, and whose text is asked for below
        path.with_suffix(".s").write_text(assembly(isa))
        subprocess.run([os.environ.get("CC", "cc"), "-c", "-o", path, path.with_suffix(".s")], check=True)
    else:
        path.write_bytes(target.emit_object(isa))
    undefined = subprocess.run(["nm", "-u", str(path)], capture_output=True, text=True, check=True)
    assert undefined.stdout == ""
    defined = subprocess.run(["nm", "--defined-only", str(path)], capture_output=True, text=True, check=True)
    for variant in variants(isa):
        assert symbol(variant, isa) in defined.stdout


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_no_vector_spills_in_loops(isa: Isa) -> None:
    """No vector register visits the stack in a loop over steps (a block that jumps to itself)."""
    functions = re.split(r"^(?=ng_\w+:)", assembly(isa), flags=re.M)
    kernels = "".join(text for text in functions if not text.startswith("ng_activate_"))  # they have no steps
    assert kernels.count("\nng_contraction_") >= len(variants(isa)) - 1
    for block in re.split(r"^(?=\.LBB)", kernels, flags=re.M):
        label = block.split(":")[0]
        loop = re.match(rf"(?s).*\tj\w+\t{re.escape(label)}\n", block)
        if label.startswith(".LBB") and loop and re.search("vfmadd|vdpbf16ps|vpdpbusd", loop[0]):
            assert not re.search(r"mm\d+, -?\d*\(%rsp|\(%rsp\), %[yz]mm", loop[0])


NESTS = {
    "3x3 of 128 channels, 28x28, residual, second output": (
        "k16", ContractionSize(1, 28, 28, 8, steps=72), {"flags": FLAG_RESIDUAL | FLAG_OUTPUT2}),
    "7x7/2 of 3 channels, 112x112": ("k1", ContractionSize(1, 112, 112, 4, steps=147, stride=4, pixel_bytes=12), {}),
    "3x3 of 512 channels, 7x7, four images, hard swish": (
        "k16", ContractionSize(4, 7, 7, 32, steps=288), {"activation": ACTIVATIONS["hard_swish"]}),
}


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_loop_nests(isa: Isa, golden: Callable[[str, str], None]) -> None:
    texts = []
    for name, (kind, size, others) in NESTS.items():
        choice = choose_tiles(Wanted(isa), kind, size)  # type: ignore[arg-type]
        params = contraction_params(**choice.fields(), steps=size.steps, output=(0, 64), **others)
        texts.append(f"{name}\n{loop_nest(choice.variant, isa, params.ints())}")
    golden(f"contraction_{isa}.txt", "\n".join(texts))


def instructions_between(first: ir.Block, behind: ir.Block) -> list[ir.Instruction]:
    """Those of a loop's blocks, of which it may have several."""
    found, waiting = [], [first]
    while waiting:
        block = waiting.pop()
        if block not in (*found, behind):
            found.append(block)
            waiting += [each for each in block.terminator.operands if isinstance(each, ir.Block)]
    return [each for block in found for each in block.instructions]


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_loop_nests_are_those_of_the_code(isa: Isa) -> None:
    """The innermost loop of each tile of float32 has the sums, loads and products that its `Tile` says."""
    module = build_module(isa, isa, "")
    for variant in (v for v in variants(isa) if not v.bf16 and not v.u8):
        blocks = {block.name: block for block in module.get_global(symbol(variant, isa)).blocks}
        for pixels in range(1, variant.tile + 1):
            tile, name = Tile(variant, isa, pixels), f"steps_m{pixels}"
            inside = instructions_between(blocks[name], blocks[f"{name}_done"])
            vectors = [each for each in inside if isinstance(each.type, ir.VectorType)]
            sums = [each for each in vectors if isinstance(each, ir.PhiInstr)]
            products = [each for each in vectors if isinstance(each, ir.CallInstr)
                        and each.callee.name.startswith(MULTIPLY_ADD[isa])]
            loads = [each for each in vectors if isinstance(each, ir.LoadInstr)]
            of_inputs = pixels if variant.kind == "depthwise" else 0  # else in all lanes
            assert len(sums) == tile.sums * tile.sets, (variant.name, pixels)
            assert len(products) == tile.sums * tile.unroll, (variant.name, pixels)
            assert len(loads) == variant.blocks * tile.unroll + of_inputs, (variant.name, pixels)
