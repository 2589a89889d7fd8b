"""The predicted time of single nodes: bounds that follow from the device, and the transfers."""

from __future__ import annotations

import numpy as np
import pytest

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.ir.graph import Builder, Node
from ngraph_mxnet.ir.types import TensorType, element_type
from ngraph_mxnet.targets.nnp.backend import device_costs, node_seconds, transfer_seconds
from ngraph_mxnet.targets.nnp.device import load_device
from ngraph_mxnet.targets.nnp.program import Buffer, Instruction, Program, whole
from ngraph_mxnet.targets.nnp.timing import simulate

I = load_device("nnp-i-1300:50W")  # noqa: E741
T = load_device("nnp-t-1400")
DRAM = I.memories["dram"].bandwidth


def convolution(n: int, c: int, o: int, size: int, kernel: int, groups: int = 1) -> Node:
    b = Builder()
    x = b.parameter("x", (n, c, size, size))
    w = b.weight("w", (o, c // groups, kernel, kernel))
    return b.convolution(x, w, pads_begin=(kernel // 2,) * 2, pads_end=(kernel // 2,) * 2, groups=groups).node


def matmul(rows: int, inner: int, columns: int, known: bool) -> Node:
    b = Builder()
    return b.matmul(b.parameter("x", (rows, inner)), (b.weight if known else b.parameter)("w", (inner, columns))).node


def test_a_large_convolution_nears_the_peak():
    node = convolution(12, 512, 512, 32, 3)
    macs = 12 * 512 * 512 * 1024 * 9
    assert macs / I.peak("i8") <= node_seconds(node, I, "i8") <= 1.05 * macs / I.peak("i8")
    assert node_seconds(node, I, "f16") == pytest.approx(4 * node_seconds(node, I, "i8"), rel=0.05)
    # 24 engines, 12 images: halves of them; the scratchpad gives what row reuse leaves of its operands
    assert macs / T.peak("bf16") <= node_seconds(node, T, "bf16") <= 1.2 * macs / T.peak("bf16")


def test_a_single_image_uses_all_engines():
    one, twelve = (node_seconds(convolution(n, 256, 384, 32, 3), I, "i8") for n in (1, 12))
    assert twelve / 12 <= one <= twelve / 6


def test_weights_come_from_dram():
    node = matmul(1, 4096, 4096, known=True)
    assert 4096 * 4096 / DRAM <= node_seconds(node, I, "i8") <= 1.1 * 4096 * 4096 / DRAM


def test_products_of_activations_are_no_i8():
    size = 2048
    known, unknown = (node_seconds(matmul(size, size, size, known), I, "i8") for known in (True, False))
    assert unknown == pytest.approx(4 * known, rel=0.1)


def test_elementwise_is_bound_by_dram_and_views_are_free():
    b = Builder()
    x = b.parameter("x", (64, 64, 56, 56))
    size = 64 * 64 * 56 * 56
    relu, flat, soft = b.relu(x).node, b.reshape(x, shape=(64, 64 * 56 * 56)).node, b.softmax(x, axis=1).node
    assert node_seconds(relu, I, "i8") == pytest.approx(2 * size / DRAM, rel=0.01)
    assert node_seconds(relu, I, "f16") == pytest.approx(4 * size / DRAM, rel=0.01)
    assert node_seconds(flat, I, "i8") == 0.0
    assert node_seconds(soft, I, "f16") >= node_seconds(relu, I, "f16")


def test_depthwise_is_far_from_the_peak():
    node = convolution(12, 512, 512, 14, 3, groups=512)
    macs = 12 * 512 * 196 * 9
    assert node_seconds(node, I, "i8") >= 32 * macs / I.peak("i8")


@pytest.mark.parametrize("size", [0, 1 << 10, 1 << 26])
def test_transfers_are_those_of_the_simulator(size: int):
    host, dram = (whole(Buffer(name, name, 0, "i8", (size,))) for name in ("host", "dram"))
    program = Program("p", I.name, [Instruction("host.dma0", "copy", (dram,), (host,))])
    if size:
        assert transfer_seconds(size, I) == pytest.approx(simulate(program).seconds)
    else:
        assert 0 < transfer_seconds(0, I) < 1e-5


def test_unknown_precision():
    with pytest.raises(ConfigError, match=r"nnp-t-1400:375W has no precision 'i8'; it has bf16"):
        node_seconds(matmul(2, 2, 2, known=True), T, "i8")


def test_other_results_and_empty_ones():
    b = Builder()
    x = b.parameter("x", (0, 4))
    assert node_seconds(b.relu(x).node, I, "i8") == 0.0
    y = b.parameter("y", (16, 100))
    index = b.argmax(y, axis=1).node
    assert np.isfinite(node_seconds(index, I, "f16")) and node_seconds(index, I, "f16") > 0


def test_the_nnp_copies_what_it_stores():
    device = load_device("nnp-i-1100")
    found = device_costs(device, "f16")
    tensors = {name: TensorType(element_type(name), (1000,)) for name in ("f32", "i32", "u8")}
    for name, size in (("f32", 2000), ("i32", 4000), ("u8", 1000)):
        assert found.transfer is not None
        assert found.transfer(tensors[name]) == transfer_seconds(size, device)
    assert (found.kind, found.memory) == ("simulated", "nnp-i-1100:12W")
    assert "not accessible from host CPU" in found.apart
    shared = device_costs(load_device("nnp-i-1100", {"host_link.shared": 1}), "f16")
    assert (shared.memory, shared.apart) == ("host", "")
    b = Builder(name="costs")
    b.matmul(b.parameter("x", (512, 512)), b.constant(np.ones((512, 512), np.float32)))
    assert 0 < found.seconds(b.graph.nodes[-1]) < 1e-3
