"""The lowering knows the task numbering of every kernel."""

from __future__ import annotations

from ngraph_mxnet.cpu import abi
from ngraph_mxnet.cpu.kernels import ALL_KERNELS
from ngraph_mxnet.cpu.microkernels.depthwise_params import STRIDES


def test_kernels_outside_the_strided_convention_have_a_task_count() -> None:
    rows = {f"depthwise3x3_s{stride}" for stride in STRIDES}
    strided = {name for name, record in ALL_KERNELS.items() if record.expression or record.family == "wide"}
    assert set(abi.TASKS) == rows | (set(ALL_KERNELS) - strided)
