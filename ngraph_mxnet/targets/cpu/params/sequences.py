"""The records of attention and recurrent cells."""

from __future__ import annotations

from functools import partial
from typing import Any

from ngraph_mxnet.targets.cpu.microkernels.variants import AMX, PAIRS
from ngraph_mxnet.targets.cpu.params.record import BLOCK, Kernels, Span, span, whole

MOST_KEYS = 2048
"""The most keys: where scores are not taken by blocks of keys, a task has those of six queries or more on its stack,
which holds `MOST_SCORES`."""
MOST_SCORES = 12_288
"""The most scores that a task has at a time, in floats."""
MOST_ROWS = 96
"""The most queries of a task of `attention`."""
MOST_BLOCK_KEYS = 1024
"""The most keys of a block."""
BLOCK_KEYS = 256
"""The most that the lowering gives it: they, and as many values, stay in the second cache for all queries of a task."""
SIX = 6
"""Queries that share a register tile."""
MOST_NEAR = 16_384
"""The most floats of a block of rows that are copied, so that they lie close together, and of a task's sums."""
_MASK_BYTES = {1: 1, 2: 4}


def _tiles(p: Any) -> int:
    """Return the number of tiles of keys."""
    tiles = -(-p.keys // BLOCK)
    if p.keys > MOST_KEYS or -(-p.rows // SIX) * SIX * tiles * BLOCK > MOST_SCORES:
        raise ValueError(f"{p.rows} queries by {p.keys} keys do not fit in a task")
    return tiles


def _strided(p: Any, size: int, operand: str, prefix: str, rows: int, last: int) -> Span:
    """Return the span of an operand with a stride for each head and row."""
    strides = (getattr(p, f"{prefix}_{axis}") for axis in ("outer", "inner", "row"))
    return span(operand, size, *zip((p.outer, p.inner, rows), strides, strict=True), last=last)


def attention_units(*, tiled: bool) -> tuple[int, int]:
    """Queries that are multiplied together, and of how many keys a block is a multiple; `tiled`: in AMX's tiles."""
    return (BLOCK, 2 * BLOCK) if tiled else (SIX, BLOCK)


def _fits(units: int, rows: int, key_rows: int, *columns: int) -> bool:
    """True if there is room for a task's scores by blocks of keys, and for rows of so many `columns`, whole `units`."""
    rows = -(-rows // units) * units
    return (rows <= MOST_ROWS and key_rows <= MOST_BLOCK_KEYS and rows * key_rows <= MOST_SCORES
            and all(rows * -(-each // BLOCK) * BLOCK <= MOST_NEAR for each in columns))


def _attention_reach(bf16: bool, tiled: bool, p: Any, size: int) -> list[Span]:
    (rows, keys), depth = attention_units(tiled=tiled), -(-p.depth // BLOCK) * BLOCK
    if p.key_rows % keys or p.key_rows < 1 or not _fits(
            rows, p.rows, p.key_rows, p.width, *([p.depth] if bf16 else [])):
        raise ValueError(f"{p.rows} queries by {p.key_rows} keys of width {p.width} do not fit in a task")
    tiles, strided = -(-p.keys // BLOCK), partial(_strided, p, size)
    words = depth // 2 if bf16 else depth
    return [strided("queries", "q", p.queries, p.depth),
            span("keys", size, (p.outer * p.inner, p.key_matrix), (tiles, words * BLOCK),
                 last=words * BLOCK if bf16 else p.depth * BLOCK),
            strided("values", "v", p.keys, -(-p.width // BLOCK) * BLOCK),
            strided("output", "out", p.queries, p.width), *_of_mask(p)]


def _few_reach(p: Any, size: int) -> list[Span]:
    if p.keys > MOST_KEYS:
        raise ValueError(f"{p.keys} keys do not fit in a task")
    strided = partial(_strided, p, size)
    return [strided("queries", "q", p.queries, p.depth), strided("keys", "k", p.keys, p.depth),
            strided("values", "v", p.keys, p.width), strided("output", "out", p.queries, p.width), *_of_mask(p)]


def _of_mask(p: Any) -> list[Span]:
    axes = ((p.outer, p.mask_outer), (p.inner, p.mask_inner), (p.queries, p.mask_row), (p.keys, p.mask_column))
    return [span("mask", bytes_, *axes) for kind, bytes_ in _MASK_BYTES.items() if p.mask_kind == kind]


def _attention_gradient_reach(p: Any, size: int) -> list[Span]:
    tiles, strided = _tiles(p), partial(_strided, p, size)
    depth, width = (-(-columns // BLOCK) * BLOCK for columns in (p.depth, p.width))
    matrices = p.outer * p.inner
    return [strided("queries", "q", p.queries, depth), strided("keys", "k", p.keys, depth),
            strided("head", "h", p.queries, width),
            span("packed_keys", size, (matrices, tiles * depth * BLOCK), last=tiles * depth * BLOCK),
            span("packed_values", size, (matrices, tiles * width * BLOCK), last=tiles * width * BLOCK),
            whole("of_queries", size, matrices, p.queries, p.depth), whole("of_keys", size, matrices, p.keys, p.depth),
            whole("of_values", size, matrices, p.keys, p.width), *_of_mask(p)]


ATTENTION_GRADIENT = Kernels(
    "attention_gradient",
    tensors="queries keys head packed_keys packed_values mask? >of_queries >of_keys >of_values",
    ints="outer inner queries keys depth width rows mask_kind zeroed q_outer q_inner q_row k_outer k_inner k_row "
         "h_outer h_inner h_row mask_outer mask_inner mask_row mask_column",
    sizes=7, floats="scale fill", tasks=lambda p: p.outer * p.inner, reach=_attention_gradient_reach,
)
"""The record of attention's gradient, with parameters as of attention. A task is a matrix, and goes through the
matrix's queries `rows` at a time. The outputs are contiguous. Both packed operands are packed like the keys of
attention, with depth and with width."""

ATTENTION, PAIRED_ATTENTION, TILED_ATTENTION = (Kernels(
    f"attention{end}", tensors="queries keys values mask? >output",
    ints="outer inner queries keys depth width rows key_rows mask_kind zeroed wide key_matrix q_outer q_inner q_row "
         "v_outer v_inner v_row out_outer out_inner out_row mask_outer mask_inner mask_row mask_column",
    sizes=7, floats="scale fill", tasks=lambda p: p.outer * p.inner * -(-p.queries // p.rows),
    reach=partial(_attention_reach, bool(needs), needs is AMX), needs=needs,
) for end, needs in (("", ()), ("_bf16", PAIRS), ("_bf16_amx", AMX)))
"""The ints are two batch dimensions, sizes, the queries of a task (`rows`: a multiple of six, or all) and the keys that
it takes at a time (`key_rows`: a multiple of 16), kinds, strides.

`mask_kind`: 0 none, 1 bool, 2 float32 to be added. `wide`: register tiles of 32 columns, for 32 registers of 16 floats.
`key_matrix`: floats between two matrices of packed keys. `rows` by `key_rows` is at most `MOST_SCORES`, by the width,
rounded up to 16, at most `MOST_NEAR`.

Those of bf16 take keys packed in pairs, each in the place of a float, and round queries, values and the powers of
scores; `rows` by the depth is also at most `MOST_NEAR`. In AMX's tiles `key_rows` is a multiple of 32.
"""

ATTENTION_FEW = Kernels(
    "attention_few", tensors="queries keys values mask? >output",
    ints="outer inner queries keys depth width mask_kind zeroed q_outer q_inner q_row k_outer k_inner k_row "
         "v_outer v_inner v_row out_outer out_inner out_row mask_outer mask_inner mask_row mask_column",
    sizes=6, floats="scale fill", tasks=lambda p: p.outer * p.inner, reach=_few_reach,
)
"""The record of attention for few queries, with parameters as of attention. Keys are not packed, and a task is a
matrix."""


CHUNK = 128
"""Units in a task at most, each some ten times as much work as a simple element."""

_GATES = {"lstm": 4, "gru": 3, "relu": 1, "tanh": 1}


_SLOPES = {"lstm": 6, "gru": 5, "relu": 1, "tanh": 1}


def _rows(p: Any, size: int, lengths: dict[str, int]) -> list[Span]:
    if p.chunk % BLOCK:
        raise ValueError(f"found tasks of {p.chunk} units, expected a multiple of {BLOCK}")
    return [span(name, size, (p.rows, getattr(p, f"{name}_row")), last=length) for name, length in lengths.items()]


def _whole(columns: Any) -> Any:
    return -(-columns // BLOCK) * BLOCK


def _reach(gates: int, slopes: int, p: Any, size: int) -> list[Span]:
    lengths = {"x": gates * p.units, "p": gates * p.units, "h": _whole(p.units)}
    if gates > 1:
        lengths["before"] = p.units
    if gates == _GATES["lstm"]:
        lengths["c"] = p.units
    if slopes:
        lengths["slopes"] = slopes * p.units
    return _rows(p, size, lengths)


def _gradient_reach(gates: int, slopes: int, p: Any, size: int) -> list[Span]:
    lengths = {"slopes": slopes * p.units, "head": p.units, "product": p.units, "x": _whole(gates * p.units)}
    if gates > 1:
        lengths.update(before=p.units, carry=p.units)
    if gates == _GATES["gru"]:
        lengths["sums"] = lengths["x"]
    return _rows(p, size, lengths)


def _tasks(p: Any) -> Any:
    return p.rows * -(-p.units // p.chunk)


_ROWS = "rows units chunk x_row p_row before_row h_row c_row"
CELLS = {
    cell: Kernels(
        f"{cell}_cell", tensors="x p before >h >c?", ints=_ROWS, sizes=3, tasks=_tasks,
        reach=partial(_reach, gates, 0),
    ) for cell, gates in _GATES.items()
}
"""`chunk`, a multiple of 16, is the units of a task, the last five are strides between rows."""


def _half_reach(gates: int, p: Any, size: int) -> list[Span]:
    sums = gates * p.units
    return _rows(p, size, {"x": sums, "p": sums, "before": p.units, "h": _whole(p.units), "c": p.units})


GRU_RESET = Kernels("gru_reset_cell", tensors="x p before >h >c", ints=_ROWS, sizes=3, tasks=_tasks,
                    reach=partial(_half_reach, 2))
"""The first half of a step of `gru_reset_first`: `h` is the second product's operand, `c` is z."""
GRU_UPDATE = Kernels("gru_update_cell", tensors="x p before >h c", ints=_ROWS, sizes=3, tasks=_tasks,
                     reach=partial(_half_reach, 1))
"""The second half, behind that product: `x` is the last third alone."""

TRAINING_CELLS = {
    cell: Kernels(
        f"{cell}_cell_training", tensors="x p before >h >c? >slopes", ints=f"{_ROWS} slopes_row", sizes=3,
        tasks=_tasks, reach=partial(_reach, gates, _SLOPES[cell]),
    ) for cell, gates in _GATES.items()
}
"""The same, and what the way back needs."""

CELL_GRADIENTS = {
    cell: Kernels(
        f"{cell}_cell_gradient", tensors="slopes head product before? >carry? >x >sums?",
        ints="rows units chunk slopes_row head_row product_row before_row carry_row x_row sums_row", sizes=3,
        tasks=_tasks, reach=partial(_gradient_reach, _GATES[cell], _SLOPES[cell]),
    ) for cell in ("lstm", "gru", "tanh")
}
"""A step back; that of `tanh` serves relu too, as the slopes are all that differs."""
