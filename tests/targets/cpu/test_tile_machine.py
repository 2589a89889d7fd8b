"""The emulated tile instructions, one by one, against NumPy.

Where the CPU has tiles and the process may use them, the same tests hold the CPU itself to NumPy.
"""

from __future__ import annotations

import ctypes
import faulthandler
import itertools
import mmap
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import SEEDS, pointer_to, widened
from packing_references import round_bf16_reference
from tile_machine import configured_threads, emulated_tiles, runs_natively, step

_FEATURES = '"target-features"="+amx-tile,+amx-bf16,+amx-int8"'
_SIGNATURES = {
    **dict.fromkeys(("ldtilecfg", "sttilecfg"), ("ptr",)),
    "tilerelease": (),
    "tilezero": ("i8",),
    **dict.fromkeys(("tileloadd64", "tileloaddt164", "tilestored64"), ("i8", "ptr", "i64")),
    **dict.fromkeys(("tdpbf16ps", "tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud"), ("i8", "i8", "i8")),
}
"""The direct intrinsics of LLVM, whose tiles are immediates."""
_ENGINES: list[llvm.ExecutionEngine] = []

Function = Callable[..., None]


def compiled(text: str, *names: str) -> list[int]:
    """Addresses of functions in LLVM's language, for this CPU with tiles; `#0` has the features."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    declared = [f"declare void @llvm.x86.{name}({', '.join(types)})" for name, types in _SIGNATURES.items()]
    module = llvm.parse_assembly("\n".join([*declared, text, f"attributes #0 = {{ {_FEATURES} }}"]))
    module.verify()
    engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    _ENGINES.append(engine)  # which has the code
    return [engine.get_function_address(name) for name in names]


def function_of(*instructions: tuple[str, object]) -> Function:
    """A function of four pointers and three strides, `%0` to `%6`, that executes these intrinsics on them."""
    lines = []
    for name, *arguments in instructions:
        given = ", ".join(f"{type_} {each}" for type_, each in zip(_SIGNATURES[name], arguments, strict=True))
        lines.append(f"call void @llvm.x86.{name}({given})")
    parameters = "ptr %0, ptr %1, ptr %2, ptr %3, i64 %4, i64 %5, i64 %6"
    body = "\n".join(lines)
    (address,) = compiled(f"define void @f({parameters}) #0 {{\n{body}\nret void\n}}", "f")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 3)(address)


def configuration(shapes: Sequence[tuple[int, int]], start_row: int = 0) -> np.ndarray:
    """The 64 bytes for `ldtilecfg`: rows and bytes of a row of each tile."""
    config = np.zeros(64, np.uint8)
    config[:2] = 1, start_row
    for tile, (rows, row_bytes) in enumerate(shapes):
        config[48 + tile] = rows
        config[16 + 2 * tile : 18 + 2 * tile].view(np.uint16)[0] = row_bytes
    return config


def flushed(values: np.ndarray) -> np.ndarray:
    """Zero, of the same sign, in the place of denormal numbers."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values)


def rounded(values: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """float64 sums to float32, denormal ones to zero, where `rest` is what the sums lack: rounded once, to even."""
    bits = values.view(np.int64)
    inexact = (rest != 0) & np.isfinite(values) & (bits & 1 == 0)
    outward = np.signbit(rest) == np.signbit(values)
    odd = np.where(inexact, bits + np.where(outward, 1, -1), bits).view(np.float64)
    scaled = (odd * 2.0**64).astype(np.float32)  # denormal numbers of float32 keep their 24 bits so
    tiny = np.abs(scaled) < 2.0 ** (64 - 126)
    return np.where(tiny, np.copysign(np.float32(0), scaled), odd.astype(np.float32))


def added(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The float32 sum of float64 numbers, rounded once; denormal numbers are zero."""
    total = a + b
    most, least = np.where(np.abs(a) > np.abs(b), (a, b), (b, a))
    return rounded(total, least - (total - most))


def bf16_product(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """c (m, n) += a (m, 2k) times b in pairs (k, 2n), in float32: sums of even and of odd products first."""
    with np.errstate(all="ignore"):
        a, b, c = (flushed(x).astype(np.float64) for x in (widened(a), widened(b), c))
        sums = [np.zeros(c.shape), np.zeros(c.shape)]
        for k, parity in itertools.product(range(len(b)), (0, 1)):
            product = a[:, 2 * k + parity, None] * b[k, None, parity::2]
            sums[parity] = added(sums[parity], product).astype(np.float64)
        return added(c, added(*sums).astype(np.float64))


def byte_product(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """c (m, n) += a (m, 4k) times b in fours (k, 4n), modulo 2^32."""
    fours = b.reshape(len(b), -1, 4).transpose(0, 2, 1).reshape(a.shape[1], -1)
    return (c + a.astype(np.int64) @ fours.astype(np.int64)).astype(np.int32)


def bf16_numbers(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Numbers of any size in a few cases, of about 1 in the others."""
    if random.random() < 0.5:
        return round_bf16_reference(random.normal(size=shape).astype(np.float32))
    kinds = ([0x0001, 0x807F, 0x0080, 0x8080, 0x7F80, 0xFF80, 0x7FC0, 0x7F7F, 0], random.integers(0, 2**16, 20))
    return random.choice(np.concatenate([*kinds, random.integers(0x1F00, 0x2100, 40)]), shape).astype(np.uint16)


@pytest.fixture(autouse=True)
def _tiles() -> Iterator[None]:
    with emulated_tiles():
        yield
        assert not configured_threads()


SHAPES = st.tuples(st.integers(1, 16), st.integers(1, 16), st.integers(1, 16))
TRIPLES = st.permutations(range(8)).map(lambda order: order[:3])


def multiplied(name: str, registers: Sequence[int], c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What one product makes of `c`, on tiles of just these sizes."""
    shapes = [(0, 0)] * 8
    for tile, array in zip(registers, (c, a, b), strict=True):
        shapes[tile] = (len(array), array.strides[0])
    result, config = c.copy(), configuration(shapes)
    loads = [("tileloadd64", tile, f"%{n}", f"%{n + 4}") for n, tile in enumerate(registers)]
    product = function_of(("ldtilecfg", "%3"), *loads, (name, *registers),
                          ("tilestored64", registers[0], "%0", "%4"), ("tilerelease",))
    arrays = (result, a, b)
    product(*map(pointer_to, (*arrays, config)), *(array.strides[0] for array in arrays))
    return result


@given(SHAPES, TRIPLES, SEEDS)
def test_products_of_bf16(sizes: tuple[int, int, int], registers: Sequence[int], seed: int) -> None:
    (m, n, k), random = sizes, np.random.default_rng(seed)
    a, b = bf16_numbers(random, (m, 2 * k)), bf16_numbers(random, (k, 2 * n))
    c = (bf16_numbers(random, (m, n)).astype(np.uint32) << 16 | random.integers(0, 2**16, (m, n)).astype(np.uint32))
    c = c.view(np.float32)
    found, wanted = multiplied("tdpbf16ps", registers, c, a, b), bf16_product(c, a, b)
    np.testing.assert_array_equal(found, wanted)
    zeros = wanted == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))


@pytest.mark.parametrize(("name", "left", "right"), [
    ("tdpbssd", np.int8, np.int8),
    ("tdpbsud", np.int8, np.uint8),
    ("tdpbusd", np.uint8, np.int8),
    ("tdpbuud", np.uint8, np.uint8),
])
@given(SHAPES, TRIPLES, SEEDS)
def test_products_of_bytes(name: str, left: type, right: type, sizes: tuple[int, int, int], registers: Sequence[int],
                           seed: int) -> None:
    (m, n, k), random = sizes, np.random.default_rng(seed)
    a, b = (random.integers(0, 256, shape, np.uint8) for shape in ((m, 4 * k), (k, 4 * n)))
    c = random.integers(-(2**31), 2**31, (m, n), np.int32)
    wanted = byte_product(c, a.view(left), b.view(right))
    np.testing.assert_array_equal(multiplied(name, registers, c, a, b), wanted)


@pytest.mark.parametrize("load", ["tileloadd64", "tileloaddt164"])
@given(st.integers(1, 16), st.integers(1, 16), st.integers(0, 15), st.integers(0, 7), SEEDS)
def test_rows_of_memory(load: str, rows: int, columns: int, start: int, tile: int, seed: int) -> None:
    """Loads and stores move a tile's own rows and bytes; loads leave the rows before the start row as they are."""
    random, start, row_bytes = np.random.default_rng(seed), start % rows, 4 * columns
    source, target = (random.integers(1, 256, (rows, width), np.uint8) for width in (100, 80))
    wanted, config, told = target.copy(), configuration([(rows, row_bytes)] * 8, start), np.ones(64, np.uint8)
    wanted[:, :row_bytes] = source[::-1, :row_bytes]
    wanted[:start, :row_bytes] = 0
    move = function_of(("ldtilecfg", "%2"), (load, tile, "%0", "%4"), ("sttilecfg", "%3"),
                       ("tilestored64", tile, "%1", "%5"), ("tilerelease",))
    move(*map(pointer_to, (source[-1], target, config, told)), -100, 80, 0)
    np.testing.assert_array_equal(target, wanted)
    np.testing.assert_array_equal(told, configuration([(rows, row_bytes)] * 8))


def test_zeros_and_configurations() -> None:
    shapes = [(n + 1, 64 - 4 * n) for n in range(8)]
    source, target, told = np.ones((16, 64), np.uint8), np.full((16, 64), 7, np.uint8), np.ones((3, 64), np.uint8)
    rows = [pointer_to(row) for row in told]
    run = function_of(
        ("ldtilecfg", "%2"), *(("tileloadd64", tile, "%0", "%4") for tile in range(8)), ("tilezero", 3),
        *(("tilestored64", tile, "%1", "%4") for tile in (2, 3)), ("sttilecfg", "%3"), ("ldtilecfg", "%2"),
        ("tilestored64", 0, "%1", "%4"), ("tilerelease",), ("sttilecfg", f"inttoptr (i64 {rows[1]} to ptr)"),
        ("ldtilecfg", f"inttoptr (i64 {rows[1]} to ptr)"), ("sttilecfg", f"inttoptr (i64 {rows[2]} to ptr)"))
    config = configuration(shapes)
    with emulated_tiles() as ran:
        run(*map(pointer_to, (source, target, config, told)), 64, 0, 0)
    np.testing.assert_array_equal(told, [config, np.zeros(64), np.zeros(64)])
    wanted = np.full((16, 64), 7)
    wanted[:3, :56], wanted[:4, :52], wanted[:1] = 1, 0, 0  # tile 2, then 3, then 0 of the second configuration
    np.testing.assert_array_equal(target, wanted)
    assert runs_natively() or ran() == Counter(ldtilecfg=3, sttilecfg=3, tileloadd=8, tilezero=1, tilestored=3,
                                               tilerelease=1)


# ---- encodings ---------------------------------------------------------------------------------------------

RANKS = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15".split()


def assembled(*texts: str) -> list[int]:
    """Addresses of instructions, each with a `ret` behind it."""
    functions = [f'define void @f{n}() naked #0 {{\ncall void asm sideeffect "{text}; ret{tail}", ""()\nunreachable\n}}'
                 for n, (text, _, tail) in enumerate(text.partition("|") for text in texts)]
    return compiled("\n".join(functions), *(f"f{n}" for n in range(len(texts))))


def executed(address: int, registers: Sequence[int]) -> None:
    length = step(address, [each % 2**64 for each in registers])
    assert isinstance(length, int) and ctypes.string_at(address + length, 1) == b"\xc3", length


@given(st.data())
def test_operands(data: st.DataObject) -> None:
    """Memory operands of all forms, at bases and indices in all registers."""
    draw = data.draw
    base, index = draw(st.sampled_from(RANKS)), draw(st.sampled_from(RANKS[:4] + RANKS[5:]))
    scale, step_ = draw(st.sampled_from([1, 2, 4, 8])), draw(st.integers(-3, 3))
    displacement = draw(st.sampled_from([0, 1, -1, 127, -128, 128, -129, 2**31 - 1, -(2**31)]))
    name, tile = draw(st.sampled_from(["tileloadd", "tileloaddt1"])), draw(st.integers(0, 7))
    operand = f"{displacement or ''}(%{base},%{index},{scale})" if base != index else f"{displacement or ''}(%{base})"
    stride = step_ * 8 * 8 if base != index else 0
    memory = np.random.default_rng(0).integers(0, 256, 4096, np.uint8)
    result, config, told = np.zeros((3, 8), np.uint8), configuration([(3, 8)] * 8), np.zeros(64, np.uint8)
    registers = list(range(10**15, 10**15 + 16))
    texts = ("ldtilecfg (%rax)", f"{name} {operand}, %tmm{tile}", f"tilestored %tmm{tile}, (%rax,%rcx)",
             f"sttilecfg {operand}", "tilerelease")
    configure, load, store, tell, release = assembled(*texts)
    registers[0] = pointer_to(config)
    executed(configure, registers)
    registers[RANKS.index(index)] = stride // scale
    registers[RANKS.index(base)] = pointer_to(memory) + 2048 - displacement
    executed(load, registers)
    executed(store, [pointer_to(result), 8, *registers[2:]])
    np.testing.assert_array_equal(result, [memory[2048 + stride * n :][:8] for n in range(3)])
    registers[RANKS.index(base)] = pointer_to(told) - displacement - stride
    executed(tell, registers)
    executed(release, registers)
    np.testing.assert_array_equal(told, config)


def test_operands_without_a_base() -> None:
    zeros = [0] * 16
    bytes_ = ",".join(map(str, configuration([(1, 4)])))
    here, absolute, load, store = assembled(
        f"ldtilecfg 1f(%rip)|; 1: .byte {bytes_}", "sttilecfg 8192(,%rax,2)", "tileloadd -4096(,%rax,1), %tmm0",
        "tilestored %tmm0, 4096")
    executed(here, zeros)
    assert step(absolute, [256, *zeros[1:]]) == (14, "memory that cannot be written, address 0x2200")
    assert step(load, zeros) == (14, "memory that cannot be read, address 0xfffffffffffff000")
    assert step(store, zeros) == (14, "memory that cannot be written, address 0x1000")
    executed(*assembled("tilerelease"), zeros)


@pytest.mark.parametrize("text", [
    "ud2", "nop", "vzeroupper", "vpmaddwd %ymm1, %ymm2, %ymm3", "vpshufb (%rax), %ymm1, %ymm2", "andn %rax, %rbx, %rcx",
    ".byte 0xc4, 0xe2, 0x7b, 0x4b, 0x00", ".byte 0xc4, 0xe2, 0xfb, 0x49, 0xc0", ".byte 0xc4, 0xe2, 0x7f, 0x49, 0xc0",
    ".byte 0xc4, 0xe2, 0x73, 0x49, 0xc0", ".byte 0xc4, 0xe2, 0x78, 0x49, 0xc1", ".byte 0xc4, 0xe2, 0x7b, 0x5e, 0x00",
])
def test_what_is_another_instruction(text: str) -> None:
    """A load without SIB, W, L, a third operand, tilerelease with operands, a product with memory: none exists."""
    assert step(*assembled(text), [0] * 16) == 0


def test_registers_of_the_process() -> None:
    """What the handler takes for a register is that register."""
    memory, config = np.arange(4096, dtype=np.uint16), configuration([(2, 4)])
    ranks = [rank for rank in RANKS if rank != "rsp"]
    for base, index in zip(ranks, ranks[1:] + ranks[:1], strict=True):
        target = np.zeros((2, 2), np.uint16)
        text = f"""define void @f(ptr %0, i64 %1, ptr %2, ptr %3) #0 {{
            call void @llvm.x86.ldtilecfg(ptr %3)
            call void asm sideeffect "tileloadd 6($0,$1,8), %tmm0", "{{{base}}},{{{index}}}"(ptr %0, i64 %1)
            call void @llvm.x86.tilestored64(i8 0, ptr %2, i64 4)
            call void @llvm.x86.tilerelease()
            ret void
        }}"""
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        function(*compiled(text, "f"))(pointer_to(memory), 25, pointer_to(target), pointer_to(config))
        np.testing.assert_array_equal(target, [[3, 4], [103, 104]])


def test_a_page_that_comes_later() -> None:
    """Behind a fault the instruction goes on at the row that had none."""
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    array = np.frombuffer(memory, np.uint8)
    array[:] = np.arange(len(array)) % 251
    config, told, found = configuration([(4, 64)] * 8), np.zeros(64, np.uint8), np.zeros((4, 64), np.uint8)
    edge = pointer_to(array) + mmap.PAGESIZE
    protect = ctypes.CDLL(None).mprotect
    configure, load, tell, store, release = assembled(
        "ldtilecfg (%rax)", "tileloadd (%rax,%rcx), %tmm5", "sttilecfg (%rax)", "tilestored %tmm5, (%rax,%rcx)",
        "tilerelease")

    def run(instruction: int, address: int) -> None:
        executed(instruction, [address, 64, *[0] * 14])

    run(configure, pointer_to(config))
    assert not protect(ctypes.c_void_p(edge), mmap.PAGESIZE, 0)
    assert step(load, [edge - 128, 64, *[0] * 14]) == (14, f"memory that cannot be read, address {edge:#x}")
    run(tell, pointer_to(told))
    assert told[1] == 2
    array[:mmap.PAGESIZE] = 0
    assert not protect(ctypes.c_void_p(edge), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
    run(load, edge - 128)
    run(store, pointer_to(found))
    run(release, 0)
    np.testing.assert_array_equal(found.ravel(), np.arange(mmap.PAGESIZE - 128, mmap.PAGESIZE + 128) % 251)


# ---- threads, processes and faults -------------------------------------------------------------------------


def test_threads() -> None:
    """Each thread has tiles of its own."""
    threads, (m, n, k) = 6, (16, 16, 16)
    together = Barrier(threads)

    def run(seed: int) -> None:
        random, rows = np.random.default_rng(seed), m - seed
        a, b = (random.integers(0, 256, shape, np.uint8) for shape in ((rows, 4 * k), (k, 4 * n)))
        c, config = np.zeros((rows, n), np.int32), configuration([(rows, 64)] * 2 + [(k, 64)])
        pointers = tuple(map(pointer_to, (c, a, b, config)))
        together.wait()
        for turn in range(1, 200):
            product(*pointers, 4 * n, 4 * k, 4 * n)
            np.testing.assert_array_equal(c, byte_product(np.zeros_like(c), a, b) * turn)

    loads = [("tileloadd64", tile, f"%{tile}", f"%{tile + 4}") for tile in range(3)]
    product = function_of(("ldtilecfg", "%3"), *loads, ("tdpbuud", 0, 1, 2), ("tilestored64", 0, "%0", "%4"),
                          ("tilerelease",))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(threads)))


def ended(action: Callable[[], object]) -> tuple[int, bytes]:
    """How a forked process ends that does this, as `waitpid` says it, and what it writes to stderr."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        if faulthandler.is_enabled():
            faulthandler.enable(write)
        os.dup2(write, 2)
        action()
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        written = pipe.read()
    return os.waitpid(child, 0)[1], written


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
class TestForks:
    def test_a_child_has_no_tiles(self) -> None:
        config, told = configuration([(4, 8)] * 8), np.ones(64, np.uint8)
        configure, tell = (function_of((name, "%3")) for name in ("ldtilecfg", "sttilecfg"))
        release = function_of(("tilerelease",))

        def child() -> None:
            tell(0, 0, 0, pointer_to(told), 0, 0, 0)
            os._exit(1 + configured_threads() if not told.any() else 99)

        configure(0, 0, 0, pointer_to(config), 0, 0, 0)
        assert ended(child) == (1 << 8, b"")
        tell(0, 0, 0, pointer_to(told), 0, 0, 0)
        release(*[0] * 7)
        np.testing.assert_array_equal(told, config)

    @pytest.mark.parametrize(("at", "value", "reason"), [
        (0, 2, "palette 2: there are 0 and 1"),
        (5, 1, "byte 5 of the configuration is 1: it must be 0"),
        (32, 1, "byte 32 of the configuration is 1: it must be 0"),
        (63, 9, "byte 63 of the configuration is 9: it must be 0"),
        (50, 17, "tile 2 has 17 rows of 64 bytes: at most 16 of 64, and none of none"),
        (16, 65, "tile 0 has 16 rows of 65 bytes: at most 16 of 64, and none of none"),
        (55, 0, "tile 7 has 0 rows of 64 bytes: at most 16 of 64, and none of none"),
        (20, 0, "tile 2 has 16 rows of 0 bytes: at most 16 of 64, and none of none"),
    ])
    def test_configurations_that_do_not_exist(self, at: int, value: int, reason: str) -> None:
        config, configure = configuration([(16, 64)] * 8), function_of(("ldtilecfg", "%3"))
        config[at] = value
        status, written = ended(lambda: configure(0, 0, 0, pointer_to(config), 0, 0, 0))
        assert os.WTERMSIG(status) == signal.SIGSEGV
        assert runs_natively() or written.startswith(f"tile machine: ldtilecfg: {reason}\n".encode())

    @pytest.mark.parametrize(("instruction", "reason"), [
        (("tilezero", 6), "tile 6 is not configured"),
        (("tileloadd64", 6, "%0", "%4"), "tile 6 is not configured"),
        (("tileloaddt164", 5, "%0", "%4"), "tile 5 has rows of 6 bytes, no multiple of 4"),
        (("tilestored64", 7, "%0", "%4"), "start row 1 of tile 7, which has 1 rows"),
        (("tdpbssd", 0, 0, 1), "tiles 0, 0 and 1: they must differ"),
        (("tdpbsud", 0, 2, 2), "tiles 0, 2 and 2: they must differ"),
        (("tdpbf16ps", 0, 1, 6), "tile 6 is not configured"),
        (("tdpbusd", 1, 0, 5), "tile 5 has rows of 6 bytes, no multiple of 4"),
        (("tdpbuud", 0, 1, 3), "tiles of 4 x 32, 4 x 16 and 8 x 32 bytes"),
        (("tdpbuud", 0, 3, 2), "tiles of 4 x 32, 8 x 32 and 4 x 32 bytes"),
        (("tdpbf16ps", 0, 1, 4), "tiles of 4 x 32, 4 x 16 and 4 x 64 bytes"),
    ])
    def test_tiles_that_do_not_fit(self, instruction: tuple[str, ...], reason: str) -> None:
        shapes = [(4, 32), (4, 16), (4, 32), (8, 32), (4, 64), (4, 6), (0, 0), (1, 4)]
        config = configuration(shapes, start_row=1)
        use = function_of(("ldtilecfg", "%3"), instruction)
        status, written = ended(lambda: use(0, 0, 0, pointer_to(config), 64, 0, 0))
        assert os.WTERMSIG(status) == signal.SIGILL
        assert runs_natively() or reason.encode() in written.splitlines()[0]

    def test_tiles_before_a_configuration(self) -> None:
        clear = function_of(("tilezero", 0))
        status, written = ended(lambda: clear(*[0] * 7))
        assert os.WTERMSIG(status) == signal.SIGILL
        reason = b"tile machine: tilezero: tile 0 before ldtilecfg, or behind tilerelease\n"
        assert runs_natively() or written.startswith(reason)


HANDLERS = """
import ctypes, faulthandler, mmap, os, signal
from tile_machine import emulated_tiles

kept = []

def code(text):
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(bytes.fromhex(text) + bytes.fromhex("c3"))
    kept.append(ctypes.c_char.from_buffer(memory))
    return ctypes.CFUNCTYPE(None)(ctypes.addressof(kept[-1]))

release, undefined = code("c4e27849c0"), code("0f0b")

def handle():
    signal.signal(signal.SIGILL, lambda *_: print("handled"))

def send():
    os.kill(os.getpid(), signal.SIGILL)

"""


@pytest.mark.parametrize(("script", "status", "printed", "told"), [
    ("with emulated_tiles():\n    release()\nprint('ran', flush=True)\nrelease()", -signal.SIGILL, "ran\n", ""),
    ("with emulated_tiles(): undefined()", -signal.SIGILL, "", ""),
    ("with emulated_tiles(): send()", -signal.SIGILL, "", ""),
    ("faulthandler.enable()\nwith emulated_tiles():\n    release()\n    print('ran', flush=True)\n    undefined()",
     -signal.SIGILL, "ran\n", "Fatal Python error: Illegal instruction"),
    ("faulthandler.enable()\nwith emulated_tiles(): release()\nundefined()", -signal.SIGILL, "",
     "Fatal Python error: Illegal instruction"),
    ("handle()\nwith emulated_tiles():\n    release()\n    send()\nsend()", 0, "handled\nhandled\n", ""),
    ("signal.signal(signal.SIGILL, signal.SIG_IGN)\nwith emulated_tiles(): send()\nprint('ran')", 0, "ran\n", ""),
    ("with emulated_tiles():\n    with emulated_tiles(): pass\n    release()", 0, "", ""),
    ("with emulated_tiles(): handle()", 1, "",
     "RuntimeError: another handler of SIGILL was set while tiles were emulated: set it before"),
], ids=["outside", "default", "sent", "faulthandler", "faulthandler_after", "python", "ignored", "nested", "inside"])
def test_handlers(script: str, status: int, printed: str, told: str) -> None:
    """What is no tile instruction goes to the handler that was there, which is there again behind the block."""
    if script.endswith("release()") and status and runs_natively():
        status = 0
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run([sys.executable, "-c", HANDLERS + script], env={**os.environ, "PYTHONPATH": paths},
                          capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (status, printed)
    assert told in done.stderr and bool(told) == bool(done.stderr)
