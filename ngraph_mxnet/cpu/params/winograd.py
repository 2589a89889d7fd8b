"""The records of Winograd's transforms."""

from ngraph_mxnet.cpu.params.record import BLOCK, Kernels

OUTPUT_FLAGS = {"residual": 1, "output2": 2}

INPUT = Kernels(
    "winograd_input_2 winograd_input_4", tensors="image >matrices",
    ints="strip_rows blocks tile_rows tile_columns first_row rows columns origin in_n in_c in_row out_matrix out_c "
         "row_step column_step",
    sizes=4, tasks=lambda p: p.strip_rows * p.blocks,
)
"""`rows` and `columns` of the image with its padding, whose first pixel is `origin` from the input's pointer (0 or
negative); the steps are the dilation."""

OUTPUT = Kernels(
    "winograd_output_2 winograd_output_4", tensors="products bias residual? >output2? scale2? shift2? >output",
    ints="strip_rows blocks tile_rows tile_columns first_row rows columns flags in_matrix in_c out_n out_c out_row "
         "res_n res_c res_row out2_n out2_c out2_row row_step column_step",
    sizes=4, floats="lower upper lower2 upper2", tasks=lambda p: p.strip_rows * p.blocks,
)
"""`flags` as `OUTPUT_FLAGS`."""

PACK = Kernels(
    "pack_winograd", tensors="weights >packed", ints="out_channels in_channels side oc_tile", sizes=4,
    tasks=lambda p: -(-p.out_channels // p.oc_tile) * -(-p.in_channels // BLOCK), more=lambda p: (0, 3 * p.side),
)
"""The floats are `winograd.weight_matrix`, row by row."""
