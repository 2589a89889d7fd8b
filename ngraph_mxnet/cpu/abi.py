"""Parameters and task counts of the kernels, for the lowering: no Numba is needed to call a compiled kernel.

Each function gives a kernel's `ints`; `tasks_of` counts the tasks they make. The kernels' docstrings in
`kernels/` say what the entries mean, and a test holds both against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod

from ngraph_mxnet.cpu.view import BLOCK, BlockedView, PlainView, spatial
from ngraph_mxnet.cpu.winograd import Strip

Ints = Sequence[int]

GRAIN = 8192
"""Elements in a task of an elementwise kernel: some microseconds of work."""

CELL_GRAIN = 128
"""Units in a task of a recurrent cell's gates, each some ten times as much work as a simple element."""

SIZE_SUFFIX = {1: "1", 2: "2", 4: "4", 8: "8"}
"""`copy_<suffix>` and `fill_<suffix>` move elements of that many bytes."""


def _numbered(names: str) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split())}


_COMPARISONS = _numbered("equal greater greater_equal less less_equal not_equal")
WIDE_CODES: dict[str, dict[str, int]] = {
    "unary_f64": _numbered(
        "abs acos acosh asin asinh atan atanh cbrt ceiling cos cosh elu erf erfinv exp expm1 floor gamma gelu "
        "leaky_relu lgamma log log10 log1p log2 negative reciprocal relu round rsqrt sigmoid sign sin sinh softplus "
        "softsign sqrt square tan tanh trunc"
    ),
    "unary_i64": _numbered("abs bitwise_not negative relu sign square"),
    "binary_f64": _numbered("add atan2 divide maximum minimum mod multiply power subtract"),
    "binary_i64": _numbered("add bitwise_and bitwise_or bitwise_xor divide divide_unsigned maximum minimum mod "
                            "mod_unsigned multiply power subtract"),
    "compare_f64": _COMPARISONS,
    "compare_i64": _COMPARISONS,
}
"""The ops of each kernel in `kernels/wide.py` that takes more than one, and their numbers."""

SCATTER_CODES = _numbered("add mul max min")
"""What the kernels `scatter_<f32, f64, i64>` do with an element and the update for it, and their numbers."""

REDUCE_CODES = _numbered("reduce_sum reduce_mean reduce_prod reduce_max reduce_min")
"""The ops of `reduce_f64` and `reduce_i64`, and their numbers."""


def merged_dims(shape: Ints, strides: Sequence[Ints]) -> list[tuple[int, tuple[int, ...]]]:
    """Size and strides of each dimension, without those of 1, neighbours merged that are contiguous in every tensor."""
    dims: list[tuple[int, tuple[int, ...]]] = []
    for size, steps in zip(shape, zip(*strides, strict=True), strict=True):
        if size == 1:
            continue
        if dims and all(outer == size * inner for outer, inner in zip(dims[-1][1], steps, strict=True)):
            dims[-1] = (dims[-1][0] * size, steps)
        else:
            dims.append((size, steps))
    return dims


def strided_parts(shape: Ints, strides: Sequence[Ints]) -> Iterator[tuple[list[int], list[int], list[list[int]]]]:
    """Loops over `shape` that each fit a strided kernel: shape, first element and strides of each tensor.

    Mostly one. When more than five dimensions remain, the smallest are walked here.
    """
    dims = merged_dims(shape, strides)
    count = len(strides)
    by_size = sorted(range(len(dims)), key=lambda i: dims[i][0])
    walked = sorted(by_size[:max(len(dims) - 5, 0)])
    inner = [dims[i] for i in range(len(dims)) if i not in walked]
    part, steps = [size for size, _ in inner], [[steps[i] for _, steps in inner] for i in range(count)]
    for place in product(*(range(dims[i][0]) for i in walked)):
        yield part, [sum(at * dims[i][1][tensor] for at, i in zip(place, walked, strict=True))
                     for tensor in range(count)], steps


def strided_ints(shape: Ints, *strides: Ints, grain: int = GRAIN) -> list[int]:
    """`rows, chunk, d0..d4`, then each tensor's 5 strides: a loop over `shape`; `strides[-1]` is the output's.

    Drops dimensions of 1 and merges neighbours that are contiguous in every tensor.

    Raises:
        ValueError: more than five dimensions remain.
    """
    dims = merged_dims(shape, strides)
    if len(dims) > 5:
        raise ValueError(f"{len(dims)} dimensions remain of {tuple(shape)}; a strided kernel takes 5")
    dims = [(1, (0,) * len(strides))] * (5 - len(dims)) + dims
    sizes = [size for size, _ in dims]
    chunk = max(1, min(sizes[4], grain))
    rows = max(1, min(sizes[3], grain // chunk))
    if prod(sizes) and rows < sizes[3]:
        rows = -(-sizes[3] // -(-sizes[3] // rows))
    return [rows, chunk, *sizes, *(steps[i] for i in range(len(strides)) for _, steps in dims)]


def reduce_ints(shape: Ints, axes: Ints, in_strides: Ints, out_strides: Ints) -> list[int]:
    """Kept and reduced sizes (5 each), then strides; `out_strides` are those of the kept dimensions, in order.

    Raises:
        ValueError: more than five kept or five reduced dimensions remain after dropping those of size 1.
    """
    kept = [i for i in range(len(shape)) if i not in axes]
    rows = [(shape[i], in_strides[i], out) for i, out in zip(kept, out_strides, strict=True) if shape[i] != 1]
    columns = [(shape[i], in_strides[i]) for i in axes if shape[i] != 1]
    for index in range(len(columns) - 1, 0, -1):
        (outer, outer_stride), (inner, stride) = columns[index - 1 : index + 1]
        if outer_stride == inner * stride:
            columns[index - 1 : index + 1] = [(outer * inner, stride)]
    if len(rows) > 5 or len(columns) > 5:
        raise ValueError(f"reduction of {tuple(shape)} over {tuple(axes)} has too many dimensions")
    rows = [(1, 0, 0)] * (5 - len(rows)) + rows
    columns = [(1, 0)] * (5 - len(columns)) + columns
    sizes, in_kept, out_kept = zip(*rows, strict=True)
    reduced, in_reduced = zip(*columns, strict=True)
    return [*sizes, *reduced, *in_kept, *out_kept, *in_reduced]


def _plain4(view: PlainView) -> tuple[int, int, int, int]:
    """Strides of N, C, H, W of a tensor of rank 2 to 4."""
    rank, strides = view.type.rank, view.strides
    return (*strides, 0, 0) if rank == 2 else (*strides[:2], 0, strides[2]) if rank == 3 else strides  # type: ignore


def _blocked4(view: BlockedView) -> tuple[int, int, int, int]:
    return view.image, view.block, view.row, BLOCK


def to_blocked_ints(source: PlainView, out: BlockedView) -> list[int]:
    return _layout_ints(out, _plain4(source), _blocked4(out))


def zero_halo_ints(view: BlockedView) -> list[int]:
    """Of a dense view."""
    halo = view.halo
    return [view.images * view.blocks, view.height, view.width, halo.top, halo.bottom, halo.left, halo.right,
            BLOCK * view.type.element.size // 4]


def from_blocked_ints(source: BlockedView, out: PlainView) -> list[int]:
    return _layout_ints(source, _blocked4(source), _plain4(out))


def _layout_ints(blocked: BlockedView, source: Ints, out: Ints) -> list[int]:
    """Sizes and both strides. Rows that are shorter than the 16 pixels that the kernels transpose at once are taken
    together, where they follow each other without gaps in both layouts."""
    (images, channels), (height, width) = blocked.type.shape[:2], spatial(blocked.type.shape)
    if width < BLOCK and all(strides[2] == width * strides[3] for strides in (source, out)):
        height, width = 1, height * width
    return [images, channels, height, width, *source, *out]


def pool_ints(source: BlockedView, out: BlockedView, *, kernel: Ints, strides: Ints, pads_begin: Ints, pads_end: Ints,
              include_pad: bool = False) -> list[int]:
    """Every list has three entries, for D, H and W."""
    batch, depth, out_depth = source.type.shape[0], _depth(source), _depth(out)
    spaces = [(view.image * slices, *_blocked4(view)[1:]) for view, slices in ((source, depth), (out, out_depth))]
    return [batch, source.blocks, source.height, source.width, out.height, out.width, *kernel[1:], *strides[1:], 1, 1,
            *pads_begin[1:], *pads_end[1:], int(include_pad), *spaces[0], *spaces[1], depth, out_depth, kernel[0],
            strides[0], pads_begin[0], pads_end[0], source.image, out.image]


def _depth(view: BlockedView) -> int:
    """Slices of an element of the batch."""
    return view.type.shape[2] if view.type.rank == 5 else 1


def scale_shift_ints(source: BlockedView, out: BlockedView) -> list[int]:
    return [source.images, source.blocks, source.height, source.width, *_blocked4(source), *_blocked4(out)]


def pack_contraction_ints(shape: Ints, strides: Ints, *, groups: int, supers: int, oc_tile: int,
                          lanes: int) -> list[int]:
    """Weights of `shape` [OC][IC / groups][KH][KW] at element `strides`, merged into `supers` groups."""
    merged, outputs = groups // supers, shape[0] // groups
    return [supers, merged, outputs, *shape[1:], oc_tile, lanes, *strides, merged * outputs * strides[0]]


def pack_matrices_ints(shape: Ints, strides: Ints, *, count: int, between: int, oc_tile: int) -> list[int]:
    """`count` matrices of `shape` [N][K] at element `strides` and `between` each other, as weights of k16."""
    return [count, 1, *shape, 1, 1, oc_tile, BLOCK, *strides, 0, 0, between]


def gather_ints(shape: Ints, axis: int, count: int, *, wrap: bool = False) -> list[int]:
    """`count` indices into axis `axis` of a contiguous tensor of `shape`; those outside are clipped, or wrap."""
    outer, size, inner = _around(shape, axis)
    return [outer, size, inner, count, max(1, min(count, GRAIN // max(inner, 1))), int(wrap)]


def scatter_ints(inner: int, count: int) -> list[int]:
    """`count` rows of `inner` elements."""
    return [inner, count, max(1, min(inner, GRAIN // max(count, 1)))]


def product_ints(batch: int, rows: int, inner: int, columns: int, a: Ints, b: Ints) -> list[int]:
    """`a` and `b` are strides between matrices, and along the kept and the summed axis of one."""
    return [batch, rows, inner, columns, *a, *b]


def coordinate_positions_ints(sizes: Ints, count: int) -> list[int]:
    """`count` coordinates in a tensor of `sizes`."""
    return [len(sizes), count, GRAIN, *sizes]


def element_positions_ints(shape: Ints, axis: int, count: int, *, wrap: bool = False) -> list[int]:
    """Indices into axis `axis` of a contiguous tensor of `shape`; they have `count` entries there."""
    return [*_around(shape, axis), count, int(wrap)]


def axis_ints(shape: Ints, axis: int, *, descending: bool = False, count: int = 0) -> list[int]:
    """Of a contiguous tensor."""
    return [*_around(shape, axis), int(descending), count]


def cell_ints(rows: int, units: int, strides: Ints) -> list[int]:
    """A step of `rows` x `units`; `strides` between the rows of x, p, the state before, h and the cell state."""
    return [rows, units, min(-(-units // BLOCK) * BLOCK, CELL_GRAIN), *strides]


def pack_depthwise_ints(shape: Ints, strides: Ints) -> list[int]:
    """Weights of `shape` [C][1][KH][KW] at element `strides`."""
    return [shape[0], *shape[2:], strides[0], *strides[2:]]


def pack_channels_ints(channels: int, *, groups: int, oc_tile: int) -> list[int]:
    """A contiguous vector of `channels` values."""
    return [groups, channels // groups, oc_tile, 1]


def winograd_input_ints(source: BlockedView, strip: Strip, matrix: int, block: int, *, padding: tuple[int, int],
                        rows: int, columns: int, dilation: tuple[int, int] = (1, 1)) -> list[int]:
    """`rows` and `columns` of the image with its padding; `matrix` and `block` are strides of the matrices."""
    origin = -padding[0] * source.row - padding[1] * BLOCK
    return [strip.count, source.blocks, strip.tile_rows, strip.tile_columns, strip.first, rows, columns, origin,
            *_blocked4(source)[:3], matrix, block, *dilation]


def winograd_output_ints(out: BlockedView, strip: Strip, matrix: int, block: int, *,
                         residual: BlockedView | None = None, second: BlockedView | None = None,
                         dilation: tuple[int, int] = (1, 1)) -> list[int]:
    """`matrix` and `block` are strides of the products."""
    optional = [_blocked4(view)[:3] if view else (0, 0, 0) for view in (residual, second)]
    return [strip.count, out.blocks, strip.tile_rows, strip.tile_columns, strip.first, out.height, out.width,
            (residual is not None) + 2 * (second is not None), matrix, block, *_blocked4(out)[:3],
            *optional[0], *optional[1], *dilation]


def pack_winograd_ints(shape: Ints, *, tile: int, oc_tile: int) -> list[int]:
    """Contiguous weights of `shape` [OC][IC][3][3]."""
    return [shape[0], shape[1], tile + 2, oc_tile]


def _around(shape: Ints, axis: int) -> tuple[int, int, int]:
    axis %= len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1:])


def softmax_ints(shape: Ints, axis: int) -> list[int]:
    """Of contiguous tensors."""
    outer, size, inner = _around(shape, axis)
    return [outer, size, inner, *2 * (size * inner, inner, 1)]


def arg_ints(shape: Ints, axis: int) -> list[int]:
    """Of a contiguous tensor."""
    outer, size, inner = _around(shape, axis)
    return [outer, size, inner, size * inner, inner, 1, inner, 1]


def resample_ints(source: BlockedView, out: BlockedView, taps: tuple[int, int]) -> list[int]:
    """`taps`: weights of an output row and of a column."""
    return [source.images, source.blocks, source.height, source.width, out.height, out.width, *taps,
            *_blocked4(source)[:3], *_blocked4(out)[:3]]


def region_ints(source: BlockedView, out: BlockedView, samples: int) -> list[int]:
    """An image of `out` is a region."""
    return [source.images, source.blocks, source.height, source.width, out.images, out.height, out.width, samples,
            *_blocked4(source)[:3], *_blocked4(out)[:3]]


def tasks_of(kernel: str, ints: Ints) -> int:
    """Number of tasks that `ints` make for `kernel`."""
    return TASKS.get(kernel, _strided_tasks)(ints)


def _strided_tasks(ints: Ints) -> int:
    rows, chunk, d0, d1, d2, d3, d4 = ints[:7]
    return d0 * d1 * d2 * -(-d3 // rows) * -(-d4 // chunk)


def _reduce_tasks(ints: Ints) -> int:
    return prod(ints[:4]) * -(-ints[4] // 16)


def _layout_tasks(ints: Ints) -> int:
    return ints[0] * -(-ints[1] // BLOCK) * ints[2]


def _planes(ints: Ints) -> int:
    return ints[0]


def _pool_tasks(ints: Ints) -> int:
    return ints[0] * ints[26] * ints[1] * ints[4]


def _pack_tasks(ints: Ints) -> int:
    return ints[0] * -(-ints[1] * ints[2] // ints[6]) * -(-ints[1] * ints[3] // ints[7])


def _depthwise_tasks(ints: Ints) -> int:
    images, blocks, height, _, chunk_rows = ints[:5]
    return images * blocks * -(-height // chunk_rows)


TASKS: dict[str, Callable[[Ints], int]] = {  # of kernels that are not strided loops
    "depthwise3x3_s1": _depthwise_tasks,
    "depthwise3x3_s2": _depthwise_tasks,
    "to_blocked": _layout_tasks,
    "zero_halo": _planes,
    "from_blocked": _layout_tasks,
    **dict.fromkeys(("max_pool_blocked", "max_pool_blocked_bf16"), _pool_tasks),
    **dict.fromkeys(("avg_pool_blocked", "avg_pool_blocked_bf16", "avg_pool_blocked_bf16_f32"), _pool_tasks),
    **dict.fromkeys(("scale_shift_blocked", "scale_shift_blocked_bf16"), lambda ints: ints[0] * ints[1] * ints[2]),
    **dict.fromkeys(("pack_contraction", "pack_contraction_bf16"), _pack_tasks),
    "pack_depthwise": lambda ints: -(-ints[0] // BLOCK),
    "pack_winograd": lambda ints: -(-ints[0] // ints[3]) * -(-ints[1] // BLOCK),
    **dict.fromkeys(("winograd_input_2", "winograd_input_4", "winograd_output_2", "winograd_output_4"),
                    lambda ints: ints[0] * ints[1]),
    "pack_channels": lambda ints: ints[0] * -(-ints[1] // ints[2]),
    **dict.fromkeys(("gather_1", "gather_2", "gather_4", "gather_8"), lambda ints: ints[0] * -(-ints[3] // ints[4])),
    "resample_blocked": lambda ints: ints[0] * ints[1] * ints[4],
    **dict.fromkeys(("roi_align_blocked", "roi_max_pool_blocked"), lambda ints: ints[4] * ints[1] * ints[5]),
    "bilinear_sample": lambda ints: ints[0] * ints[1],
    "box_nms": lambda ints: ints[0],
    **dict.fromkeys(("scatter_1", "scatter_2", "scatter_4", "scatter_8"), lambda ints: -(-ints[0] // ints[2])),
    **dict.fromkeys(("scatter_f32", "scatter_f64", "scatter_i64"), lambda ints: -(-ints[0] // ints[2])),
    **dict.fromkeys(("product_f64", "product_i64"), lambda ints: ints[0] * ints[1]),
    "coordinate_positions": lambda ints: -(-ints[1] // ints[2]),
    "element_positions": lambda ints: ints[0],
    **dict.fromkeys((f"{op}_{element}" for op in ("argsort", "first", "cumsum") for element in ("f32", "f64", "i64")),
                    lambda ints: ints[0] * ints[2]),
    **dict.fromkeys(("lstm_cell", "gru_cell", "relu_cell", "tanh_cell"),
                    lambda ints: ints[0] * -(-ints[1] // ints[2])),
    "softmax": lambda ints: ints[0] * -(-ints[2] // 16),
    "log_softmax": lambda ints: ints[0] * -(-ints[2] // 16),
    "attention": lambda ints: ints[0] * ints[1] * -(-ints[2] // ints[6]),
    **dict.fromkeys(("argmax", "argmax_f64", "argmax_i64", "argmin", "argmin_f64", "argmin_i64"),
                    lambda ints: ints[0] * ints[2]),
    "batch_norm_factors": lambda ints: 1,
    "layer_norm": lambda ints: ints[0],
    "lrn": lambda ints: ints[0] * ints[1],
    **dict.fromkeys((*REDUCE_CODES, "reduce_f64", "reduce_i64"), _reduce_tasks),
}
