"""The record of attention."""

from ngraph_mxnet.cpu.params.record import Kernels

ATTENTION = Kernels(
    "attention", tensors="queries keys values mask? >output",
    ints="outer inner queries keys depth width rows mask_kind zeroed key_matrix q_outer q_inner q_row "
         "v_outer v_inner v_row out_outer out_inner out_row mask_outer mask_inner mask_row mask_column",
    sizes=7, floats="scale fill", tasks=lambda p: p.outer * p.inner * -(-p.queries // p.rows),
)
"""Batch dimensions, sizes, queries a task (a multiple of six, or all), kinds, strides.

`mask_kind`: 0 none, 1 bool, 2 float32 to be added. `key_matrix`: floats between two matrices of packed keys. There are
at most 2,048 keys; `rows` by keys, rounded up to 16, is at most 12,288.
"""
