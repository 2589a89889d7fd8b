"""Runs functions of this process on an emulated CPU with AVX-512 (BF16 too), for machines without one.

The emulator (Bochs' CPU, from the optional package bochscpu-python) sees this process's memory at its own
addresses, so pointers, the C library and tables mean the same inside and outside. Nothing else of a PC is
there: no operating system, no system calls.
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


def _ignore(*_: object) -> None:
    pass


def _segment(selector: int, attributes: int, base: int = 0) -> bochscpu.Segment:
    segment = bochscpu.Segment()
    segment.present, segment.selector, segment.attr = True, selector, attributes
    segment.base, segment.limit = base, 0xFFFF_FFFF
    return segment


def _session_with_bf16() -> bochscpu.Session:
    """A CPU that has AVX512_BF16 too: the package's is a Tiger Lake, which lacks it.

    Making a CPU takes what it lacks out of Bochs' table of instructions. There a row has two handlers, of the
    forms with a memory and with a register operand; those of BF16 are put back. What follows them describes the
    operands: it says that the memory operand of the dot product is one element, by whose size its one-byte
    displacements are scaled then, and not by the whole vector's (type 0).
    """
    library = ctypes.CDLL(bochscpu._bochscpu.__file__)

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
        """Take in what the process has mapped and unmapped since."""
        maps = Path("/proc/self/maps").read_bytes()
        if maps == self._maps:
            return
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
        self._session = _session_with_bf16()
        self._hook = bochscpu.Hook()
        self._hook.hlt = lambda session, _: session.stop()
        self._hook.exception = self._on_exception

    def _on_exception(self, session: bochscpu.Session, _: int, vector: int, code: int) -> None:
        state = session.cpu.state
        kind = InvalidOpcodeError if vector == _INVALID_OPCODE else EmulationError
        self._failure = kind(f"CPU exception {vector}, code {code:#x}, at {state.rip:#x}, cr2 {state.cr2:#x}")
        session.stop()

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

        The emulator keeps decoded instructions: code must not change after it was called.
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
        state.cs = _segment(0x10, 0xA09B)
        state.ds = state.es = state.ss = state.gs = _segment(0x18, 0xC093)
        state.fs = _segment(0x18, 0xC093, _thread_pointer())
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
