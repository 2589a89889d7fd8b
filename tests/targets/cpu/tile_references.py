"""Machine code with tiles, made by LLVM, and what tile instructions compute, in NumPy."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence

import llvmlite.binding as llvm
import numpy as np
from hypothesis import strategies as st
from kernel_library import pointer_to, widened
from packing_references import round_bf16_reference

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
    """A function of four pointers and two strides, `%0` to `%5`, that executes these intrinsics on them."""
    lines = []
    for name, *arguments in instructions:
        given = ", ".join(f"{type_} {each}" for type_, each in zip(_SIGNATURES[name], arguments, strict=True))
        lines.append(f"call void @llvm.x86.{name}({given})")
    parameters = "ptr %0, ptr %1, ptr %2, ptr %3, i64 %4, i64 %5"
    body = "\n".join(lines)
    (address,) = compiled(f"define void @f({parameters}) #0 {{\n{body}\nret void\n}}", "f")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 2)(address)


def assembled(*texts: str) -> list[int]:
    """Addresses of instructions, each with a `ret` behind it."""
    functions = [f'define void @f{n}() naked #0 {{\ncall void asm sideeffect "{text}; ret{tail}", ""()\nunreachable\n}}'
                 for n, (text, _, tail) in enumerate(text.partition("|") for text in texts)]
    return compiled("\n".join(functions), *(f"f{n}" for n in range(len(texts))))


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


PRODUCTS = {
    "tdpbssd": (np.int8, np.int8),
    "tdpbsud": (np.int8, np.uint8),
    "tdpbusd": (np.uint8, np.int8),
    "tdpbuud": (np.uint8, np.uint8),
}
"""The types of the bytes that are multiplied."""


def bf16_numbers(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Numbers of any size in a few cases, of about 1 in the others."""
    if random.random() < 0.5:
        return round_bf16_reference(random.normal(size=shape).astype(np.float32))
    kinds = ([0x0001, 0x807F, 0x0080, 0x8080, 0x7F80, 0xFF80, 0x7FC0, 0x7F7F, 0], random.integers(0, 2**16, 20))
    return random.choice(np.concatenate([*kinds, random.integers(0x1F00, 0x2100, 40)]), shape).astype(np.uint16)


def multiplied(name: str, registers: Sequence[int], c: np.ndarray, a: np.ndarray, b: np.ndarray,
               call: Callable[..., object] = lambda function, *arguments: function(*arguments)) -> np.ndarray:
    """What one product, called so, makes of `c`, on tiles of just these sizes."""
    shapes = [(0, 0)] * 8
    for tile, array in zip(registers, (c, a, b), strict=True):
        shapes[tile] = (len(array), array.strides[0])
    result, config = c.copy(), configuration(shapes)
    loads = [("tileloadd64", tile, f"%{n}", f"%{4 + n % 2}") for n, tile in enumerate(registers)]
    product = function_of(("ldtilecfg", "%3"), *loads, (name, *registers),
                          ("tilestored64", registers[0], "%0", "%4"), ("tilerelease",))
    call(product, *map(pointer_to, (result, a, b, config)), c.strides[0], a.strides[0])
    return result


def check_bf16_product(sizes: tuple[int, int, int], registers: Sequence[int], seed: int, **how: Callable) -> None:
    """Hold a product of m, n, k random pairs on these tiles to NumPy, bit by bit; `how`: see `multiplied`."""
    (m, n, k), random = sizes, np.random.default_rng(seed)
    a, b = bf16_numbers(random, (m, 2 * k)), bf16_numbers(random, (k, 2 * n))
    c = (bf16_numbers(random, (m, n)).astype(np.uint32) << 16 | random.integers(0, 2**16, (m, n)).astype(np.uint32))
    c = c.view(np.float32)
    found, wanted = multiplied("tdpbf16ps", registers, c, a, b, **how), bf16_product(c, a, b)
    np.testing.assert_array_equal(found, wanted)
    zeros = wanted == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))


def check_byte_product(name: str, sizes: tuple[int, int, int], registers: Sequence[int], seed: int,
                       **how: Callable) -> None:
    """The same for a product of bytes."""
    (m, n, k), random = sizes, np.random.default_rng(seed)
    a, b = (random.integers(0, 256, shape, np.uint8) for shape in ((m, 4 * k), (k, 4 * n)))
    c = random.integers(-(2**31), 2**31, (m, n), np.int32)
    left, right = PRODUCTS[name]
    wanted = byte_product(c, a.view(left), b.view(right))
    np.testing.assert_array_equal(multiplied(name, registers, c, a, b, **how), wanted)


SIZES = st.tuples(st.integers(1, 16), st.integers(1, 16), st.integers(1, 16))
TILES = st.permutations(range(8)).map(lambda order: order[:3])
