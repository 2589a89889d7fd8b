"""The record of recurrent cells' gates."""

from ngraph_mxnet.cpu.params.record import Kernels

CHUNK = 128
"""Units in a task at most, each some ten times as much work as a simple element."""

CELL = Kernels(
    "lstm_cell gru_cell relu_cell tanh_cell", tensors="x p before >h >c?",
    ints="rows units chunk x_row p_row before_row h_row c_row", sizes=3,
    tasks=lambda p: p.rows * -(-p.units // p.chunk),
)
"""`chunk`, a multiple of 16, is the units of a task, the last five are strides between rows."""
