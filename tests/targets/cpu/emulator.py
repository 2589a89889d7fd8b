"""Runs functions of this process on an emulated CPU with AVX-512 (BF16 and tiles too), for machines without one.

The emulator (Bochs' CPU, from the optional package bochscpu-python) sees this process's memory at its own
addresses, so pointers, the C library and tables mean the same inside and outside. Nothing else of a PC is
there: no operating system, no system calls. The emulator knows no tiles: to the CPU their instructions are invalid, and
`tile_machine` executes them.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bochscpu
import bochscpu.cpu
import bochscpu.memory
import numpy as np
from tile_machine import step

_PAGE, _TABLE_REACH, _GIB, _USER_END = 1 << 12, 1 << 21, 1 << 30, 1 << 47
_ENTRIES = 512
_PRESENT, _WRITABLE = 1, 2
_TABLE_BYTES, _STACK_BYTES = 1 << 26, 1 << 20
_CR4_OSFXSR, _CR4_OSXMMEXCPT, _CR4_OSXSAVE = 1 << 9, 1 << 10, 1 << 18
_XCR0_AVX, _XCR0_AVX512 = 0b111, 0b1110_0111
_MXCSR_ALL_MASKED = 0x1F80
_FPCW_ALL_MASKED = 0x37F  # the x87 control word as a process starts with it; libm's gamma functions use the x87
_HLT = b"\xf4"
_INVALID_OPCODE = 6
_CODE, _DATA = 0x10, 0x18  # selectors of segments
_GDT = (0, 0, 0x00AF_9B00_0000_FFFF, 0x00CF_9300_0000_FFFF)
_GATE = b"\x0f\xae\x3d\x00\x00\x00\x00\x48\xcf"  # clflush [rip], which has a hook; iretq
_GATE_AT, _GDT_AT, _IDT_AT, _TSS_AT = 16, 64, 128, 256
_INTERRUPT_GATE, _TSS_FIRST_STACK, _TABLE_LIMIT = 0x8E01, 36, 0x7F
_FRAME_WORDS = 5  # rip, cs, rflags, rsp, ss
_REGISTERS = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15".split()
_RSP = 4
_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_OPCODE_WORDS = 3 * 3212
_BF16_HANDLERS = (
    "VDPBF16PS_MASK_VpsHdqWdqR",
    "VCVTNEPS2BF16_MASK_Vbf16WpsR",
    "VCVTNE2PS2BF16_MASK_Vbf16HpsWpsR",
)
_DOT_OPERAND_TYPE = 0x38 << 16
_ARCH_PRCTL, _ARCH_GET_FS = 158, 0x1003


class EmulationError(Exception):
    """What was emulated raised a CPU exception or touched memory that this process does not have."""


class InvalidOpcodeError(EmulationError):
    """An instruction that the emulated CPU does not have, or has not enabled."""


def _thread_pointer() -> int:
    """Base of the fs segment, where the C library keeps what belongs to a thread."""
    value = ctypes.c_uint64()
    if ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ARCH_GET_FS, ctypes.byref(value)):
        raise OSError("arch_prctl cannot read the fs base")
    return value.value


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(bochscpu._bochscpu.__file__)


def _ignore(*_: object) -> None:
    pass


def _segment(selector: int, attributes: int, base: int = 0) -> bochscpu.Segment:
    segment = bochscpu.Segment()
    segment.present, segment.selector, segment.attr = True, selector, attributes
    segment.base, segment.limit = base, 0xFFFF_FFFF
    return segment


def _table(base: int) -> bochscpu.GlobalSegment:
    table = bochscpu.GlobalSegment()
    table.base, table.limit = base, _TABLE_LIMIT
    return table


def _session_with_bf16() -> bochscpu.Session:
    """A CPU that has AVX512_BF16 too: the package's is a Tiger Lake, which lacks it.

    Making a CPU takes what it lacks out of Bochs' table of instructions. There a row has two handlers, of the
    forms with a memory and with a register operand; those of BF16 are put back. What follows them describes the
    operands: it says that the memory operand of the dot product is one element, by whose size its one-byte
    displacements are scaled then, and not by the whole vector's (type 0).
    """
    library = _library()

    def address(symbol: str) -> int:
        return ctypes.addressof(ctypes.c_char.in_dll(library, symbol))

    table = np.ctypeslib.as_array((ctypes.c_uint64 * _OPCODE_WORDS).from_address(address("BxOpcodesTable")))
    handlers = [address(f"_ZN8BX_CPU_C{len(name)}{name}EP15bxInstruction_c") for name in _BF16_HANDLERS]
    rows = [slice(int(word) - 1, int(word) + 1) for word in np.flatnonzero(np.isin(table, handlers))]
    saved = [table[row].copy() for row in rows]
    session = bochscpu.Session()
    for row, pair in zip(rows, saved, strict=True):
        table[row] = pair
        if pair[1] == handlers[0]:
            table[row.stop] &= ~np.uint64(_DOT_OPERAND_TYPE)
    return session


class _AddressSpace:
    """Page tables that map every readable address of this process to itself.

    Physical addresses have 40 bits, too few for a process's: each GiB that the process uses gets the next
    GiB of physical memory.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _TABLE_BYTES)
        self._tables = np.frombuffer(self._memory, np.uint64).reshape(-1, _ENTRIES)
        self._base = self._tables.ctypes.data
        self._children: dict[tuple[int, int], int] = {}
        self._gibs: dict[int, int] = {}
        self._maps = b""
        self._ranges: set[tuple[int, int, int]] = set()
        self.root = self._physical(self._base)

    def _physical(self, address: int) -> int:
        gib, offset = divmod(address, _GIB)
        return self._gibs.setdefault(gib, len(self._gibs)) * _GIB + offset

    def _child(self, table: int, index: int) -> int:
        """The table that entry `index` of `table` points to, made when there is none."""
        child = self._children.setdefault((table, index), len(self._children) + 1)
        self._tables[table, index] = self._physical(self._base + child * _PAGE) | _PRESENT | _WRITABLE
        return child

    def _entries(self, start: int, end: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The addresses of the pages in a range and views of their table entries, table by table."""
        for part in range(start & -_TABLE_REACH, end, _TABLE_REACH):
            low, high = max(start, part), min(end, part + _TABLE_REACH)
            table = 0
            for shift in (39, 30, 21):
                table = self._child(table, part >> shift & _ENTRIES - 1)
            yield (
                np.arange(low, high, _PAGE, dtype=np.uint64),
                self._tables[table, (low - part) // _PAGE : (high - part) // _PAGE],
            )

    def refresh(self) -> None:
        """Take in what the process has mapped and unmapped since; code may be another where it was."""
        maps = Path("/proc/self/maps").read_bytes()
        if maps == self._maps:
            return
        _library()._Z12flushICachesv()
        ranges = set()
        for span, mode, _ in (line.split(maxsplit=2) for line in maps.splitlines()):
            start, end = (int(address, 16) for address in span.split(b"-"))
            if mode.startswith(b"r") and end <= _USER_END:
                ranges.add((start, end, _PRESENT | _WRITABLE * mode.startswith(b"rw")))
        for start, end, _ in self._ranges - ranges:
            for _, entries in self._entries(start, end):
                entries &= ~np.uint64(_PRESENT)
        for start, end, flags in ranges - self._ranges:
            for addresses, entries in self._entries(start, end):
                new = entries == 0
                offset = np.uint64((self._physical(int(addresses[0])) - int(addresses[0])) % 2**64)
                entries[:] = addresses + offset | np.uint64(flags)
                for address in addresses[new].tolist():
                    bochscpu.memory.page_insert(self._physical(address), address)
        self._maps, self._ranges = maps, ranges


class Emulator:
    """One emulated CPU; there can be only one in a process: see `emulator()`."""

    def __init__(self) -> None:
        self._space = _AddressSpace()
        self._memory = mmap.mmap(-1, _PAGE + _STACK_BYTES)
        self._memory[: len(_HLT)] = _HLT
        self._code = np.frombuffer(self._memory, np.uint8).ctypes.data
        self._failure: EmulationError | None = None
        self._frame = (ctypes.c_uint64 * _FRAME_WORDS).from_address(self._code + _PAGE - 8 * _FRAME_WORDS)
        self._write_tables()
        self._session = _session_with_bf16()
        self._hook = bochscpu.Hook()
        self._hook.hlt = lambda session, _: session.stop()
        self._hook.exception = self._on_exception
        self._hook.clflush = self._on_invalid_opcode

    def _write_tables(self) -> None:
        """Let invalid opcodes come to `_GATE`, with a stack of its own (the function's may be in use below rsp)."""
        gate = self._code + _GATE_AT
        low = gate & 0xFFFF | _CODE << 16 | _INTERRUPT_GATE << 32 | (gate >> 16 & 0xFFFF) << 48
        idt = (_IDT_AT + 16 * _INVALID_OPCODE, (low, gate >> 32))
        for at, words in ((_GDT_AT, _GDT), idt, (_TSS_AT + _TSS_FIRST_STACK, (self._code + _PAGE,))):
            self._memory[at : at + 8 * len(words)] = np.array(words, np.uint64).tobytes()
        self._memory[_GATE_AT : _GATE_AT + len(_GATE)] = _GATE

    def _fail(self, session: bochscpu.Session, vector: int, code: int, at: int, more: str) -> None:
        kind = InvalidOpcodeError if vector == _INVALID_OPCODE else EmulationError
        self._failure = kind(f"CPU exception {vector}, code {code:#x}, at {at:#x}, {more}")
        session.stop()

    def _on_exception(self, session: bochscpu.Session, _: int, vector: int, code: int) -> None:
        if vector != _INVALID_OPCODE:  # which comes to the gate, with the address that the hook is not told
            state = session.cpu.state
            self._fail(session, vector, code, state.rip, f"cr2 {state.cr2:#x}")

    def _on_invalid_opcode(self, session: bochscpu.Session, *_: object) -> None:
        registers = [getattr(session.cpu, name) for name in _REGISTERS]
        at, _, _, registers[_RSP], _ = self._frame
        done = step(at, registers)
        if isinstance(done, tuple):
            self._fail(session, done[0], 0, at, done[1])
        elif done:
            self._frame[0] = at + done
        else:
            self._fail(session, _INVALID_OPCODE, 0, at, "an instruction that it does not have")

    @contextmanager
    def tracing(self) -> Iterator[list[bytes]]:
        """The first four bytes of every instruction that is executed inside the block, in order."""
        executed: list[bytes] = []
        self._hook.before_execution = lambda session, *_: executed.append(ctypes.string_at(session.cpu.rip, 4))
        try:
            yield executed
        finally:
            self._hook.before_execution = _ignore

    def call(self, function: int, *arguments: int, avx512: bool = True) -> None:
        """Call `function` (an address) with up to six integers or pointers.

        The emulator keeps decoded instructions: code must not change after it was called, while it is mapped.
        `avx512=False` leaves the AVX-512 registers disabled, as an operating system can.

        Raises:
            InvalidOpcodeError: an instruction is not available.
            EmulationError: any other CPU exception, or an access to memory that is not there.
        """
        self._space.refresh()
        state = bochscpu.State()
        bochscpu.cpu.set_long_mode(state)
        state.cr3 = self._space.root
        state.cr4 |= _CR4_OSFXSR | _CR4_OSXMMEXCPT | _CR4_OSXSAVE
        state.xcr0 = _XCR0_AVX512 if avx512 else _XCR0_AVX
        state.rflags = 2
        state.mxcsr, state.mxcsr_mask = _MXCSR_ALL_MASKED, 0xFFFF
        state.fpcw, state.fpsw, state.fptw = _FPCW_ALL_MASKED, 0, 0xFFFF
        state.cs = _segment(_CODE, 0xA09B)
        state.ds = state.es = state.ss = state.gs = _segment(_DATA, 0xC093)
        state.fs = _segment(_DATA, 0xC093, _thread_pointer())
        state.tr = _segment(0, 0x008B, self._code + _TSS_AT)
        state.gdtr, state.idtr = (_table(self._code + at) for at in (_GDT_AT, _IDT_AT))
        top = self._code + _PAGE + _STACK_BYTES - 64
        ctypes.c_uint64.from_address(top - 8).value = self._code
        state.rip, state.rsp = function, top - 8
        for register, value in zip(_ARGUMENTS, arguments, strict=False):
            setattr(state, register, value)
        self._failure = None
        self._session.cpu.state = state
        self._session.run([self._hook])
        if self._failure:
            raise self._failure


@functools.cache
def emulator() -> Emulator:
    """The process's emulator."""
    # The package's destructors crash after Python's end: leave before them, with the same status.
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)
    return Emulator()
