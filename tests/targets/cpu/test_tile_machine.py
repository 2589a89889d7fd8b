"""The emulated tile instructions, one by one, against NumPy.

Where the CPU has tiles and the process may use them, the same tests hold the CPU itself to NumPy.
"""

from __future__ import annotations

import ctypes
import faulthandler
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

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_library import SEEDS, pointer_to
from tile_machine import configured_threads, emulated_tiles, runs_natively, step
from tile_references import (
    PRODUCTS,
    SIZES,
    TILES,
    assembled,
    byte_product,
    check_bf16_product,
    check_byte_product,
    compiled,
    configuration,
    function_of,
    multiplied,
)

pytestmark = pytest.mark.skipif("avx2" not in Path("/proc/cpuinfo").read_text().split(), reason="the CPU has no AVX2")


@pytest.fixture(autouse=True)
def _tiles() -> Iterator[None]:
    with emulated_tiles():
        yield
        assert not configured_threads()


@given(SIZES, TILES, SEEDS)
def test_products_of_bf16(sizes: tuple[int, int, int], tiles: Sequence[int], seed: int) -> None:
    check_bf16_product(sizes, tiles, seed)


@pytest.mark.parametrize("name", PRODUCTS)
@given(SIZES, TILES, SEEDS)
def test_products_of_bytes(name: str, sizes: tuple[int, int, int], tiles: Sequence[int], seed: int) -> None:
    check_byte_product(name, sizes, tiles, seed)


@pytest.mark.parametrize(("c", "a", "b", "wanted"), [
    (0.0, (2.0**-130, 0), (2.0**100, 0), 0.0),
    (0.0, (2.0**100, 0), (-(2.0**-130), 0), 0.0),
    (2.0**-130, (0, 0), (0, 0), 0.0),
    (-(2.0**-130), (-0.0, -0.0), (1, 1), 0.0),
    (1.5 * 2.0**-126, (2.0**-100, 0), (-(2.0**-26), 0), 0.0),
    (-1.5 * 2.0**-126, (2.0**-100, 0), (2.0**-26, 0), -0.0),
    (1 - 2.0**-24, (2.0**-25, 2.0**-25), (1, 1), 1.0),
    (1.0, (2.0**-24, 2.0**-24), (1, 1), 1 + 2.0**-23),
    (1.0, (2.0**-24, 0), (1, 0), 1.0),
    (-(2.0**127), (2.0**127, -(2.0**127)), (2, 1), np.inf),
    (0.0, (np.inf, 0), (0, 0), np.nan),
    (-np.inf, (np.inf, 0), (1, 0), np.nan),
])
def test_sums_of_bf16(c: float, a: tuple[float, float], b: tuple[float, float], wanted: float) -> None:
    """Denormal operands and results are zero, and the two products are added before the sum that was there."""
    pairs = [np.array([pair], np.float32).view(np.uint32) >> 16 for pair in (a, b)]
    found = multiplied("tdpbf16ps", (0, 1, 2), np.array([[c]], np.float32), *(x.astype(np.uint16) for x in pairs))
    np.testing.assert_array_equal(found, [[wanted]])
    assert np.isnan(wanted) or np.signbit(found[0, 0]) == np.signbit(wanted)


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
    move(*map(pointer_to, (source[-1], target, config, told)), -100, 80)
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
        run(*map(pointer_to, (source, target, config, told)), 64, 0)
    np.testing.assert_array_equal(told, [config, np.zeros(64), np.zeros(64)])
    wanted = np.full((16, 64), 7)
    wanted[:3, :56], wanted[:4, :52], wanted[:1] = 1, 0, 0  # tile 2, then 3, then 0 of the second configuration
    np.testing.assert_array_equal(target, wanted)
    assert runs_natively() or ran() == Counter(ldtilecfg=3, sttilecfg=3, tileloadd=8, tilezero=1, tilestored=3,
                                               tilerelease=1)


# ---- encodings ---------------------------------------------------------------------------------------------

RANKS = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15".split()


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


def test_a_step_leaves_the_rounding_of_the_caller() -> None:
    config = configuration([(1, 4)] * 3)
    for instruction in assembled("ldtilecfg (%rax)", "tdpbf16ps %tmm2, %tmm1, %tmm0", "tilerelease"):
        executed(instruction, [pointer_to(config)] * 16)
    assert np.float32(2.0**-130) * np.float32(2) == np.float32(2.0**-129) != 0


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
            product(*pointers, 4 * n, 4 * k)
            np.testing.assert_array_equal(c, byte_product(np.zeros_like(c), a, b) * turn)

    loads = [("tileloadd64", tile, f"%{tile}", f"%{4 + tile % 2}") for tile in range(3)]
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
            tell(0, 0, 0, pointer_to(told), 0, 0)
            os._exit(1 + configured_threads() if not told.any() else 99)

        configure(0, 0, 0, pointer_to(config), 0, 0)
        assert ended(child) == (1 << 8, b"")
        tell(0, 0, 0, pointer_to(told), 0, 0)
        release(*[0] * 6)
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
        status, written = ended(lambda: configure(0, 0, 0, pointer_to(config), 0, 0))
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
        (("tdpbf16ps", 0, 1, 4), "tiles of 4 x 32, 4 x 16 and 4 x 64 bytes: rows of the first two, bytes of the"
                                 " first and last, and bytes / 4 and rows of the last two must agree"),
    ])
    def test_tiles_that_do_not_fit(self, instruction: tuple[str, ...], reason: str) -> None:
        shapes = [(4, 32), (4, 16), (4, 32), (8, 32), (4, 64), (4, 6), (0, 0), (1, 4)]
        config = configuration(shapes, start_row=1)
        use = function_of(("ldtilecfg", "%3"), instruction)
        status, written = ended(lambda: use(0, 0, 0, pointer_to(config), 64, 0))
        assert os.WTERMSIG(status) == signal.SIGILL
        assert runs_natively() or reason.encode() in written.splitlines()[0]

    def test_tiles_before_a_configuration(self) -> None:
        clear = function_of(("tilezero", 0))
        status, written = ended(lambda: clear(*[0] * 6))
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
