"""The lowering's task counts are the kernels' own."""

from __future__ import annotations

import pytest

from ngraph_mxnet.cpu import abi
from ngraph_mxnet.cpu.kernels import ALL_KERNELS
from ngraph_mxnet.cpu.view import Buffer, Halo, Space, blocked_view, plain_view
from ngraph_mxnet.ir import TensorType, element_type

F32 = element_type("f32")
BUFFER = Buffer(Space.ARENA, 1 << 20)
IMAGE = TensorType(F32, (2, 20, 7, 5))
PLAIN, BLOCKED = plain_view(IMAGE, BUFFER), blocked_view(IMAGE, BUFFER, Halo(1, 2, 1, 0))
POOLED = blocked_view(TensorType(F32, (2, 20, 3, 2)), BUFFER, Halo())

WINDOW = {"kernel": (3, 2), "strides": (2, 2), "pads_begin": (0, 0), "pads_end": (0, 0)}

INTS = {
    "relu": abi.strided_ints((300, 70, 9), (630, 9, 1), (700, 10, 1)),
    "add": abi.strided_ints((40, 1000), (1000, 1), (0, 1), (2000, 2)),
    "to_blocked": abi.to_blocked_ints(PLAIN, BLOCKED),
    "from_blocked": abi.from_blocked_ints(BLOCKED, PLAIN),
    "max_pool_blocked": abi.pool_ints(BLOCKED, POOLED, **WINDOW),
    "avg_pool_blocked": abi.pool_ints(BLOCKED, POOLED, **WINDOW),
    "scale_shift_blocked": abi.scale_shift_ints(BLOCKED, BLOCKED),
    "pack_contraction": abi.pack_contraction_ints(
        (24, 3, 3, 3), (27, 9, 3, 1), groups=8, supers=1, oc_tile=16, lanes=16
    ),
    "pack_depthwise": abi.pack_depthwise_ints((20, 1, 3, 3)),
    "pack_channels": abi.pack_channels_ints(40, groups=2, oc_tile=16),
    "softmax": abi.softmax_ints((3, 40, 5), 1),
    "log_softmax": abi.softmax_ints((3, 40, 5), -1),
    "argmax": abi.arg_ints((3, 40, 5), 1),
    "argmin": abi.arg_ints((3, 40, 5), 0),
    "layer_norm": [12, 40, 40, 40],
    "lrn": [2, 20, 35, 5, 700, 35, 700, 35],
    **dict.fromkeys(
        ("reduce_sum", "reduce_mean", "reduce_prod", "reduce_max", "reduce_min"),
        abi.reduce_ints((3, 40, 5), (1,), (200, 5, 1), (5, 1)),
    ),
}


@pytest.mark.parametrize("kernel", sorted(INTS))
def test_task_counts_agree(kernel: str) -> None:
    assert abi.tasks_of(kernel, INTS[kernel]) == ALL_KERNELS[kernel].tasks(INTS[kernel])


def test_every_kernel_with_a_count_of_its_own_is_listed() -> None:
    assert set(abi._TASKS) <= set(INTS)
