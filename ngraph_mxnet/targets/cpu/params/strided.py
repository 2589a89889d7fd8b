"""The records of elementwise kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from itertools import permutations, product
from typing import Any

from ngraph_mxnet.ir.opdef import OpDef
from ngraph_mxnet.ir.sizes import are_same, at_hand, cached, greatest, is_one, least, where
from ngraph_mxnet.ops.elementwise import SCALARS
from ngraph_mxnet.targets.cpu.params.record import (
    BLOCK,
    GRAIN,
    KERNELS,
    Kernels,
    Params,
    Span,
    by_name,
    numbered,
    span,
    whole,
)

Ints = Sequence[int]
Shape = tuple[int, ...]
SIZE_SUFFIX = {1: "1", 2: "2", 4: "4", 8: "8"}
"""`copy_<suffix>` and `fill_<suffix>` move elements of that many bytes."""


def _elements(op: OpDef) -> str:
    """The element types of the op's float32 kernel, the output's last."""
    taken = "bool" if op.kind == "logical" else "f32"
    return " ".join((*(taken,) * op.least, "bool" if op.kind == "comparison" else taken))


def _wide(kind: str, count: int, element: str) -> dict[str, int]:
    """The numbers of the ops of a kernel in `kernels/wide.py`: their order is that of their rows."""
    own = [op for op in SCALARS.values()
           if op.kind == kind and op.least == count and element[0] in op.domain and len(op.schema) < 3 - count
           and not (op.rounds and element == "i64")]
    return numbered(" ".join(f"{op.name} {op.name}_unsigned" if op.signed and element == "i64" else op.name
                             for op in own))


WIDE_CODES: dict[str, dict[str, int]] = {
    f"{name}_{element}": _wide(kind, count, element)
    for name, kind, count in (("unary", "arithmetic", 1), ("binary", "arithmetic", 2), ("compare", "comparison", 2))
    for element in ("f64", "i64")
}
"""The kernels in `kernels/wide.py` that compute several ops: for each the ops, and the number that chooses one."""

_FLOAT32 = {op.name: (_elements(op), " ".join(op.schema)) for op in SCALARS.values()
            if op.float32 != "wide" and ("f" in op.domain or op.kind == "logical")}
EXPRESSIONS: dict[str, tuple[str, str]] = {
    **{name: row for name, row in _FLOAT32.items() if SCALARS[name].float32 == "vector" and name != "identity"},
    "select": ("bool f32 f32 f32", ""),
}
"""The kernels that are named as their ops and do not call libm: LLVM makes no vector code of a loop that calls it.

Each has the element types of its operands, the output's last, and the names of its floats."""

CONVERTED = ("f32", "f64", "i32", "i64", "i8", "u8", "bool")
"""`convert_<from>_<to>` exists for every two different of these."""

STRIDED: dict[str, tuple[str, str]] = {
    **EXPRESSIONS,
    **_FLOAT32,
    "unary_f64": ("f64 f64", "code parameter"),
    "unary_i64": ("i64 i64", "code parameter"),
    "binary_f64": ("i64 f64 f64 f64", ""),
    "binary_i64": ("i64 i64 i64 i64", ""),
    "compare_f64": ("i64 f64 f64 bool", ""),
    "compare_i64": ("i64 i64 i64 bool", ""),
    **{f"{kind}_{size}": (elements.replace("b", f"b{size}").replace("?", "bool"), floats)
       for size in (1, 2, 4, 8)
       for kind, elements, floats in (("copy", "b b", ""), ("fill", "b", "value"), ("select", "? b b b", ""))},
    **{f"quantize_{element}": (f"f32 {element}", "scale zero_point") for element in ("u8", "i8")},
    **{f"dequantize_{element}": (f"{element} f32", "scale zero_point") for element in ("u8", "i8")},
    **{f"convert_{a}_{b}": (f"{a} {b}", "") for a, b in permutations(CONVERTED, 2)},
    **{f"convert_{pair}": (pair.replace("_", " "), "")
       for pair in ("f32_bf16 bf16_f32 f16_f32 f32_f16 i16_i64 u16_i64 u32_i64 i64_i16 u64_f64 u64_f32 "
                    "f64_u64").split()},
}
"""All kernels on the strided convention, with the same two texts."""

ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "bool": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4,
                 "u32": 4, "i64": 8, "u64": 8, "b1": 1, "b2": 2, "b4": 4, "b8": 8}
"""`b<size>` are elements of any type of that size."""


def _tensors(count: int) -> str:
    """The inputs, then the output; the five strides of each are `a0` to `a4`, `o0` to `o4`."""
    return f"{'abc'[:count - 1]}o"


@cache
def _names(count: int) -> tuple[str, ...]:
    """The names of the ints of a kernel with `count` tensors."""
    return (*"rows chunk d0 d1 d2 d3 d4".split(), *(f"{tensor}{i}" for tensor in _tensors(count) for i in range(5)))


def _tasks(p: Any) -> int:
    return p.d0 * p.d1 * p.d2 * -(-p.d3 // p.rows) * -(-p.d4 // p.chunk)


def _reach(sizes: Ints, p: Any, _: int) -> list[Span]:
    return [span(name, size, *zip(p[2:7], p[7 + 5 * number:12 + 5 * number], strict=True))
            for number, (name, size) in enumerate(zip(_tensors(len(sizes)), sizes, strict=True))]


def _declare() -> None:
    alike: dict[tuple[str, str], list[str]] = {}
    for name, row in STRIDED.items():
        alike.setdefault(row, []).append(name)
    for (elements, floats), kernels in alike.items():
        sizes = [ELEMENT_BYTES[element] for element in elements.split()]
        count = len(sizes)
        Kernels(" ".join(kernels), tensors=" ".join((*_tensors(count)[:-1], ">o")), ints=" ".join(_names(count)),
                sizes=7, floats=floats, tasks=_tasks, reach=partial(_reach, sizes),
                elements=" ".join(map("{}:{}".format, _tensors(count), elements.split())))


_declare()
LOOPS = {1: KERNELS["fill_4"], 2: KERNELS["copy_4"], 3: KERNELS["add"], 4: KERNELS["select"]}
"""One record for each number of tensors: all records with as many tensors have the same ints."""


def merged_dims(shape: Ints, strides: Sequence[Ints]) -> list[tuple[int, tuple[int, ...]]]:
    """Size and strides of each dimension, without those of 1, neighbours merged that are contiguous in every tensor."""
    dims: list[tuple[int, tuple[int, ...]]] = []
    for size, steps in zip(shape, zip(*strides, strict=True), strict=True):
        if is_one(size):
            continue
        if dims and all(are_same(outer, size * inner) for outer, inner in zip(dims[-1][1], steps, strict=True)):
            dims[-1] = (dims[-1][0] * size, steps)
        else:
            dims.append((size, steps))
    return dims


@cached(1024)
def strided_parts(shape: Shape, strides: tuple[Shape, ...]) -> list[tuple[Shape, Shape, tuple[Shape, ...]]]:
    """Loops over `shape` that each fit a strided kernel: shape, first element and strides of each tensor.

    Mostly one. When more than five dimensions remain, the smallest are walked here.
    """
    dims = merged_dims(shape, strides)
    count = len(strides)
    by_size = sorted(range(len(dims)), key=lambda i: at_hand(dims[i][0]))
    walked = sorted(by_size[:max(len(dims) - 5, 0)])
    inner = [dims[i] for i in range(len(dims)) if i not in walked]
    part = tuple([size for size, _ in inner])
    steps = tuple([tuple([steps[i] for _, steps in inner]) for i in range(count)])
    return [(part, tuple([sum(at * dims[i][1][tensor] for at, i in zip(place, walked, strict=True))
                          for tensor in range(count)]), steps)
            for place in product(*(range(dims[i][0]) for i in walked))]


@cached(1024)
def loops(shape: Shape, *strides: Shape, grain: int = GRAIN) -> dict[str, int]:
    """The ints of a loop over `shape` with each tensor's strides; `strides[-1]` is the output's.

    Drops dimensions of 1 and merges neighbours that are contiguous in every tensor.

    Raises:
        ValueError: more than five dimensions remain.
    """
    dims = merged_dims(shape, strides)
    if len(dims) > 5:
        raise ValueError(f"{len(dims)} dimensions remain of {tuple(shape)}; a strided kernel takes 5")
    dims = [(1, (0,) * len(strides))] * (5 - len(dims)) + dims
    sizes = [size for size, _ in dims]
    chunk = greatest(1, least(sizes[4], grain))
    rows = greatest(1, least(sizes[3], grain // chunk))
    even = -(-sizes[3] // greatest(1, -(-sizes[3] // rows)))
    # Transposed copies go by squares.
    rows = where(rows < sizes[3], where(even > BLOCK, -(-even // BLOCK) * BLOCK, even), rows)
    steps = (steps[i] for i in range(len(strides)) for _, steps in dims)
    return by_name(_names(len(strides)), (rows, chunk, *sizes, *steps))


def strided(kernel: str, shape: Ints, *strides: Ints, floats: Sequence[float] = (), grain: int = GRAIN) -> Params:
    """The call of an elementwise kernel over `shape`."""
    record = KERNELS[kernel]
    return record(**loops(tuple(shape), *map(tuple, strides), grain=grain), **by_name(record.floats, floats))


CHAIN_STEPS = {op.name: op.step for op in sorted(SCALARS.values(), key=lambda op: op.step or 0) if op.step is not None}
"""The ops that a step may be, and the number of each."""
CHAIN_CHUNK = 512
"""Elements that go through all steps before the next ones do: all registers fit in a core's first cache."""
CHAIN_REGISTERS = 8
CHAIN_INPUTS = 16
CHAIN_OUTPUTS = 4
CHAIN_MEMORY = 16
"""Added to the number of an input that a step reads, and of an output that it writes; the others are registers."""
CHAIN_STEP_INTS = 4
"""Ints of each step: the op, its operands (twice the same where the op has one), the target."""

_INPUTS = [f"i{number}" for number in range(CHAIN_INPUTS)]
_OUTPUTS = [f"o{number}" for number in range(CHAIN_OUTPUTS)]


def _chain_reach(p: Any, size: int) -> list[Span]:
    spans = [whole(name, size, count) for name, count in zip(_INPUTS, p[4:4 + CHAIN_INPUTS], strict=True)]
    spans.append(whole(_OUTPUTS[0], size, p.size))
    # One condition inside the other: four ways through this, not eight.
    if p.outputs > 1:
        spans.append(whole(_OUTPUTS[1], size, p.size))
        if p.outputs > 2:
            spans.append(whole(_OUTPUTS[2], size, p.size))
            if p.outputs > 3:
                spans.append(whole(_OUTPUTS[3], size, p.size))
    return spans


CHAIN = Kernels(
    "chain", tensors=" ".join((_INPUTS[0], *(f"{name}?" for name in _INPUTS[1:]), f">{_OUTPUTS[0]}",
                               *(f">{name}?" for name in _OUTPUTS[1:]))),
    ints=" ".join(("size chunk steps outputs", *(f"count_{number}" for number in range(CHAIN_INPUTS)))),
    sizes=4 + CHAIN_INPUTS, tasks=lambda p: -(-p.size // p.chunk), reach=_chain_reach,
    more=lambda p: (CHAIN_STEP_INTS * p.steps, 0),
)
"""Every output has `size` elements, input i has `count_<i>`: as many, or else its first one stands for all. Where one
is left out, that is 1. The steps follow the named ints, each with `CHAIN_STEP_INTS`."""
