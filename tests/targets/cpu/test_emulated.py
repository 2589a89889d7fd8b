"""The CPU backend for AVX-512, in the emulator: whole graphs, and what really ran.

`every_isa` and `test_microkernels.py` test the kernels one by one.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_library import EMULATED, SEEDS, aligned, pointer_to
from op_records import array_of
from random_graphs import graphs
from test_backend import arrays_for, assert_agree, attention_graphs, convolution_graphs, dense_block
from test_bf16 import assert_near, kernels_of, residual_block
from test_quantized_images import stems
from test_quantized_products import chain as quantized_chain
from test_quantized_products import check as check_quantized
from test_quantized_products import convolutions as quantized_convolutions
from tile_references import (
    PRODUCTS,
    SIZES,
    TILES,
    assembled,
    check_bf16_product,
    check_byte_product,
    configuration,
    function_of,
)

from ngraph_mxnet import _core, compile
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.targets.cpu.kernels import symbol
from ngraph_mxnet.targets.cpu.machine.isa import NEEDS
from ngraph_mxnet.targets.cpu.params.strided import strided as strided_params

pytestmark = EMULATED

_EVEX, _LENGTH_512 = 0x62, 2


def is_512_bits_wide(instruction: bytes) -> bool:
    """Whether this is an AVX-512 instruction (EVEX prefix, the only meaning of 0x62) on whole registers."""
    return instruction[0] == _EVEX and instruction[3] >> 5 & 3 == _LENGTH_512


class EmulatedProgram:
    """Runs what `_core.BoundProgram` holds."""

    def __init__(self, bound: Any) -> None:
        self.levels, self.arena_bytes, constants = bound.listed()
        self.constants = list(map(aligned, constants))

    def run(self, inputs: list[np.ndarray], outputs: list[np.ndarray], prepared: np.ndarray) -> Iterator[str]:
        """Run all instructions, and give the name of each kernel that has run."""
        from emulator import emulator

        arena = aligned(np.zeros(self.arena_bytes, np.uint8))
        spaces = ([arena], inputs, outputs, self.constants, [prepared])
        for name, operands, ints, floats, tasks, *_ in itertools.chain(*self.levels):
            tables = (
                np.array([pointer_to(spaces[space][index]) + offset for space, index, offset in operands]),
                np.array(ints, np.int64),
                np.array(floats, np.float64),
            )
            emulator().call(_core.kernel_address(name), *map(pointer_to, tables), 0, tasks)
            yield name


class EmulatedExecutable:
    """In the place of `_core.Executable`: prepares at every call, runs one kernel after the other."""

    def __init__(self, main: Any, prepare: Any, prepared_bytes: int, *_: Any) -> None:
        self.programs = [EmulatedProgram(each) for each in (prepare, main) if each is not None]
        self.prepared_bytes = prepared_bytes

    def steps(self, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> Iterator[str]:
        """See `EmulatedProgram.run`."""
        prepared = aligned(np.zeros(self.prepared_bytes, np.uint8))
        for program in self.programs:
            yield from program.run(inputs, outputs, prepared)

    def run(self, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        collections.deque(self.steps(inputs, outputs), maxlen=0)

    def call(self, *_: np.ndarray) -> None:
        """Nothing fits as it is, so `run` is called."""


@pytest.fixture
def _emulated_cpu(on_cpu: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU backend compiles for AVX-512 and runs in the emulator."""
    monkeypatch.setenv("NGRAPH_CPU_ISA", "avx512")
    on_cpu(dict.fromkeys(NEEDS["avx512"], True))
    monkeypatch.setattr(_core, "Executable", EmulatedExecutable)


@pytest.fixture
def _emulated_bf16(_emulated_cpu: None, on_cpu: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on a CPU that has AVX512_BF16 too."""
    on_cpu({**_core.cpu_features(), "avx512bf16": True})
    monkeypatch.setenv("NGRAPH_PRECISION", "bf16")


@pytest.fixture
def _emulated_vnni(_emulated_cpu: None, on_cpu: Callable[..., None]) -> None:
    """The same on a CPU that has AVX512_VNNI too."""
    on_cpu({**_core.cpu_features(), "avx512vnni": True})


def small_network() -> Graph:
    """A kernel of every family: stem, depthwise and pointwise convolutions, pools, residual, classifier."""
    b = Builder()

    def convolve(x: Value, channels: int, size: int, groups: int = 1, stride: int = 1) -> Value:
        w = b.weight(f"w{next(numbers)}", (channels, x.shape[1] // groups, size, size))
        pads = (size // 2, size // 2)
        return b.convolution(x, w, groups=groups, strides=(stride, stride), pads_begin=pads, pads_end=pads)

    numbers = itertools.count()
    x = b.relu(convolve(b.parameter("x", (2, 3, 16, 16)), 32, 3, stride=2))
    x = b.max_pool(x, kernel=(2, 2), strides=(2, 2))
    y = b.clamp(convolve(convolve(x, 32, 3, groups=32), 32, 5, groups=32), lower=0, upper=6)
    y = b.relu(b.add(convolve(y, 32, 1), x))
    vectors = [b.weight(name, (32,)) for name in ("gamma", "beta", "mean", "variance")]
    y = b.avg_pool(b.tanh(b.batch_norm(y, *vectors)), kernel=(2, 2), strides=(2, 2))
    y = b.reshape(y, shape=(2, 128))
    y = b.matmul(y, b.weight("dense", (10, 128)), transpose_b=True)
    return b.results(b.softmax(y), b.reduce_mean(y, axes=(1,)))


def three_by_three() -> Graph:
    """A padded convolution of images whose sizes are no multiples of a tile, with an odd number of blocks."""
    b = Builder()
    x, w = b.parameter("x", (2, 20, 7, 5)), b.weight("w", (40, 20, 3, 3))
    return b.results(b.relu(b.convolution(x, w, pads_begin=(1, 0), pads_end=(1, 1))))


@pytest.mark.usefixtures("_emulated_cpu")
class TestGraphs:
    def test_small_network(self) -> None:
        assert_agree(small_network())

    def test_dense_block(self) -> None:
        assert_agree(dense_block())

    @pytest.mark.parametrize("tile", [2, 4])
    def test_winograd(self, tile: int, tiles_of: Callable[[int], None]) -> None:
        tiles_of(tile)
        assert_agree(three_by_three())

    @settings(max_examples=100)
    @given(convolution_graphs())
    def test_convolutions(self, graph: Graph) -> None:
        assert_agree(graph)

    @settings(max_examples=100)
    @given(graphs(), st.integers(0, 1000))
    def test_random_graphs(self, graph: Graph, seed: int) -> None:
        arrays = [array_of(p.type, np.random.default_rng(seed)) for p in graph.parameters]
        expected = compile(graph, "INTERPRETER")(*arrays)
        for found, wanted in zip(compile(graph, "CPU")(*arrays), expected, strict=True):
            np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)

    def test_kernels_use_whole_registers(self) -> None:
        from emulator import emulator

        graph = small_network()
        executable, wide = compile(graph, "CPU"), collections.Counter[str]()
        outputs = [np.empty(port.type.shape, np.float32) for port in executable.outputs]
        with emulator().tracing() as executed:
            for kernel in executable.native.steps(arrays_for(graph), outputs):  # type: ignore[attr-defined]
                wide[kernel] += sum(map(is_512_bits_wide, executed))
                executed.clear()
        contractions = {"contraction_k1_n32", "contraction_k16_n32", "contraction_k16_n16", "contraction_depthwise"}
        others = {"depthwise3x3_s1", "max_pool_blocked", "avg_pool_blocked", "tanh", "softmax", "copy_4", "reduce_mean"}
        assert {symbol(name, "avx512") for name in contractions | others} <= {k for k, count in wide.items() if count}


@pytest.mark.usefixtures("_emulated_bf16")
class TestBf16:
    @pytest.mark.parametrize("graph", [small_network, dense_block, three_by_three, residual_block])
    def test_networks(self, graph: Callable[[], Graph]) -> None:
        assert_near(graph())

    @settings(max_examples=100)
    @given(convolution_graphs())
    def test_convolutions(self, graph: Graph) -> None:
        assert_near(graph)

    def test_kernels(self) -> None:
        found = [kernel for kernel in kernels_of(residual_block()) if "contraction" in kernel]
        assert found and all(kernel.endswith("_bf16__avx512") for kernel in found)

    @pytest.mark.xfail(reason="the emulator reads an operand of vcvtne2ps2bf16 after it wrote the lower half of the "
                              "result, so that a kernel which converts in place gets that half twice; CPUs do not")
    @settings(max_examples=40)
    @given(attention_graphs())
    def test_attention(self, graph: Graph) -> None:
        assert_near(graph)


def _contractions(graph: Graph, largest: int = 127) -> set[str]:
    return {name for name in check_quantized(graph, "avx512", largest=largest) if "contraction_k16" in name}


@pytest.mark.usefixtures("_emulated_vnni")
class TestVnni:
    """Sums are exact, and so is all that is stored but for one rounding."""

    @settings(max_examples=60)
    @given(quantized_convolutions(), st.integers(0, 99))
    def test_convolutions(self, graph: Graph, seed: int) -> None:
        check_quantized(graph, "avx512", seed)

    @settings(max_examples=20)
    @given(stems(), st.integers(0, 99))
    def test_stems(self, graph: Graph, seed: int) -> None:
        check_quantized(graph, "avx512", seed)

    def test_kernels(self) -> None:
        assert _contractions(quantized_chain()) <= {f"contraction_k16_n{tile}_u8" for tile in (16, 32, 48)}


@pytest.mark.usefixtures("_emulated_cpu")
class TestBytesWithoutVnni:
    @settings(max_examples=30)
    @given(quantized_convolutions(), st.integers(0, 99))
    def test_convolutions(self, graph: Graph, seed: int) -> None:
        check_quantized(graph, "avx512", seed)

    def test_kernels(self) -> None:
        assert _contractions(quantized_chain()) == {"contraction_k16_n16_u8_wide"}


def test_what_the_emulator_refuses() -> None:
    from emulator import EmulationError, InvalidOpcodeError, emulator

    source, target = np.linspace(-1, 1, 64, dtype=np.float32), np.zeros(64, np.float32)
    tables = [
        np.array([pointer_to(source), pointer_to(target)]),
        np.array(strided_params("relu", (64,), (1,), (1,)).ints()),
        np.zeros(1),
    ]
    relu = _core.kernel_address(symbol("relu", "avx512"))
    with pytest.raises(InvalidOpcodeError):
        emulator().call(relu, *map(pointer_to, tables), 0, 1, avx512=False)
    assert not target.any()
    emulator().call(relu, *map(pointer_to, tables), 0, 1)
    np.testing.assert_array_equal(target, np.maximum(source, 0))
    tables[0][1] = 4096
    with pytest.raises(EmulationError, match="cr2 0x1000"):
        emulator().call(relu, *map(pointer_to, tables), 0, 1)


def test_bf16_instructions() -> None:
    """What kernels for AVX512_BF16 need: the product, also with an operand from memory, and the conversion."""
    from emulator import emulator

    code = bytes.fromhex(
        "62f17c481007"  # vmovups zmm0, [rdi]
        "62f17c48100e"  # vmovups zmm1, [rsi]
        "62f276485202"  # vdpbf16ps zmm0, zmm1, [rdx]
        "62f276585202"  # vdpbf16ps zmm0, zmm1, [rdx]{1to16}
        "62f27648524201"  # vdpbf16ps zmm0, zmm1, [rdx + 64]
        "62f27658524201"  # vdpbf16ps zmm0, zmm1, [rdx + 4]{1to16}
        "62f27e4872d0"  # vcvtneps2bf16 ymm2, zmm0
        "c5fc1111"  # vmovups [rcx], ymm2
        "62f17c481107"  # vmovups [rdi], zmm0
        "c3"  # ret
    )
    memory = mmap.mmap(-1, len(code))
    memory[:] = code
    rng = np.random.default_rng(0)
    total = rng.standard_normal(16, dtype=np.float32)
    a, b, c = rng.standard_normal((3, 16, 2), dtype=np.float32).view(np.uint32) >> 16 << 16
    a, b, c = a.view(np.float32), b.view(np.float32), c.view(np.float32)
    wanted = total + (a.astype(np.float64) * (b + b[0] + c + b[1])).sum(1)
    pairs = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in (a, np.concatenate([b, c]))]
    rounded = np.zeros(16, np.uint16)
    emulator().call(pointer_to(np.frombuffer(memory, np.uint8)), *map(pointer_to, (total, *pairs, rounded)))
    np.testing.assert_allclose(total, wanted, 1e-5, 1e-5)
    bits = total.view(np.uint32)
    np.testing.assert_array_equal(rounded, bits + 0x7FFF + (bits >> 16 & 1) >> 16)


def call_emulated(function: Any, *arguments: int) -> None:
    from emulator import emulator

    emulator().call(ctypes.cast(function, ctypes.c_void_p).value, *arguments)


class TestTiles:
    """`test_tile_machine.py` has what is the same without this emulator."""

    @given(SIZES, TILES, SEEDS)
    def test_products_of_bf16(self, sizes: tuple[int, int, int], tiles: Sequence[int], seed: int) -> None:
        check_bf16_product(sizes, tiles, seed, call=call_emulated)

    @pytest.mark.parametrize("name", PRODUCTS)
    @given(SIZES, TILES, SEEDS)
    def test_products_of_bytes(self, name: str, sizes: tuple[int, int, int], tiles: Sequence[int], seed: int) -> None:
        check_byte_product(name, sizes, tiles, seed, call=call_emulated)

    def test_memory_below_the_stack(self) -> None:
        """Functions that call nothing keep values there, also over a tile instruction."""
        from emulator import emulator

        (function,) = assembled(
            "movq %rdi, -8(%rsp); movq %rsi, -16(%rsp); movq %rsi, -128(%rsp); tilerelease; sttilecfg -128(%rsp);"
            "movq -8(%rsp), %rax; addq -16(%rsp), %rax; addq -128(%rsp), %rax; movq %rax, (%rdx)")
        found = np.zeros(1, np.int64)
        emulator().call(function, 40, 2, pointer_to(found))
        assert found == [42]

    def test_faults(self) -> None:
        from emulator import EmulationError, InvalidOpcodeError

        config = configuration([(4, 64)])
        use = function_of(("ldtilecfg", "%0"), ("tilezero", 0), ("tileloadd64", 0, "%1", "%4"), ("tilezero", 1))
        given = [pointer_to(config), pointer_to(np.zeros((4, 64))), 0, 0, 64, 0]
        with pytest.raises(InvalidOpcodeError, match=r"exception 6, .*, tile 1 is not configured$"):
            call_emulated(use, *given)
        with pytest.raises(EmulationError, match=r"exception 14, .*, memory that cannot be read, address 0x1000$"):
            call_emulated(use, given[0], 4096, *given[2:])
        config[0] = 2
        with pytest.raises(EmulationError, match=r"exception 13, .*, palette 2: there are 0 and 1$"):
            call_emulated(use, *given)
        call_emulated(function_of(("tilerelease",)))
