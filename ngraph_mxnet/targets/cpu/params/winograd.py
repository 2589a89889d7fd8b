"""The records of Winograd's transforms."""

from __future__ import annotations

from typing import Any

from ngraph_mxnet.targets.cpu.params.record import BLOCK, MOST, Kernels, Span, blocked_span, span, whole

OUTPUT_FLAGS = {"residual": 1, "output2": 2}
_SIDES = {2: 4, 4: 6}
"""The side of the input tile, by that of the output tile."""


def _image(p: Any, operand: str, prefix: str, size: int, first: int = 0) -> Span:
    """All rows and columns of the images that a strip meets; pixel 0 of image 0 is `first` from the pointer."""
    steps = p.row_step * p.column_step
    if p.first_row < 0 or p.row_step < 1 or p.column_step < 1 or steps > MOST:
        raise ValueError(f"every {p.row_step} by {p.column_step} pixels from row {p.first_row} of tiles")
    begin, end = (row // p.tile_rows // steps for row in (p.first_row, p.first_row + p.strip_rows - 1))
    strides = [getattr(p, f"{prefix}_{axis}") for axis in ("n", "c", "row")]
    _, low, high = blocked_span(operand, size, *zip((end - begin + 1, p.blocks, p.rows), strides, strict=True),
                                (p.columns, BLOCK))
    at = size * (first + begin * strides[0])
    return operand, low + at, high + at


def _matrices(p: Any, operand: str, size: int, tile: int, matrix: int, block: int) -> Span:
    return blocked_span(operand, size, (_SIDES[tile] ** 2, matrix), (p.blocks, block),
                        (p.strip_rows * p.tile_columns, BLOCK))


def _input_reach(p: Any, tile: int) -> list[Span]:
    return [_image(p, "image", "in", 4, p.origin), _matrices(p, "matrices", 4, tile, p.out_matrix, p.out_c)]


def _output_reach(p: Any, tile: int) -> list[Span]:
    spans = [_matrices(p, "products", 4, tile, p.in_matrix, p.in_c), whole("bias", 4, p.blocks, BLOCK),
             _image(p, "output", "out", 4)]
    if p.flags & OUTPUT_FLAGS["residual"]:
        spans.append(_image(p, "residual", "res", 4))
    if p.flags & OUTPUT_FLAGS["output2"]:
        spans += [_image(p, "output2", "out2", 4), *(whole(name, 4, p.blocks, BLOCK) for name in ("scale2", "shift2"))]
    return spans


def _packed_reach(p: Any, size: int) -> list[Span]:
    if p.oc_tile % BLOCK:
        raise ValueError(f"tiles of {p.oc_tile} channels")
    outputs, inputs = -(-p.out_channels // p.oc_tile) * p.oc_tile, -(-p.in_channels // BLOCK) * BLOCK
    axes = (p.out_channels, p.oc_stride), (p.in_channels, p.ic_stride), (3, p.kh_stride), (3, p.kw_stride)
    return [span("weights", size, *axes),
            whole("packed", size, p.side, p.side, outputs, inputs)]


INPUT = Kernels(
    {f"winograd_{kind}_{tile}": tile for tile in _SIDES for kind in ("input", "head")}, tensors="image >matrices",
    ints="strip_rows blocks tile_rows tile_columns first_row rows columns origin in_n in_c in_row out_matrix out_c "
         "row_step column_step",
    sizes=4, tasks=lambda p: p.strip_rows * p.blocks, reach=_input_reach,
    elements="image:f32 matrices:f32",
)
"""`rows` and `columns` of the image with its padding, whose first pixel is `origin` from the input's pointer (0 or
negative); the steps are the dilation. `winograd_head` takes squares that do not overlap, of a head gradient without
padding."""

OUTPUT = Kernels(
    {f"winograd_output_{tile}": tile for tile in _SIDES},
    tensors="products bias residual? >output2? scale2? shift2? >output",
    ints="strip_rows blocks tile_rows tile_columns first_row rows columns flags in_matrix in_c out_n out_c out_row "
         "res_n res_c res_row out2_n out2_c out2_row row_step column_step",
    sizes=4, floats="lower upper lower2 upper2", tasks=lambda p: p.strip_rows * p.blocks, reach=_output_reach,
    elements="products:f32 residual:f32 output2:f32 output:f32",
)
"""`flags` is a sum of `OUTPUT_FLAGS`."""

PACK = Kernels(
    "pack_winograd", tensors="weights >packed",
    ints="out_channels in_channels side oc_tile oc_stride ic_stride kh_stride kw_stride", sizes=4,
    tasks=lambda p: -(-p.out_channels // p.oc_tile) * -(-p.in_channels // BLOCK), more=lambda p: (0, 3 * p.side),
    reach=_packed_reach,
)
"""The floats are `winograd.weight_matrix`, row by row. Strides are in elements."""

GATHER = Kernels(
    "gather_winograd", tensors="sums >output", ints="outputs channels side", sizes=3,
    tasks=lambda p: -(-p.outputs // BLOCK) * -(-p.channels // BLOCK), more=lambda p: (0, 3 * p.side),
    reach=lambda p, size: [
        whole("sums", size, p.side, p.side, -(-p.outputs // BLOCK), -(-p.channels // BLOCK), BLOCK, BLOCK),
        whole("output", size, p.outputs, p.channels, 9)],
)
"""The floats are `winograd.weight_matrix`, row by row."""
