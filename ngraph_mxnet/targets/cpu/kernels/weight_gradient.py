"""What makes weights of the sums of the weight gradient microkernels."""

from __future__ import annotations

from numba import float32

from ngraph_mxnet.targets.cpu.kernels.lanes import load_lanes, store_lanes, transpose_lanes
from ngraph_mxnet.targets.cpu.kernels.pointers import pointer, reader, scratch, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.weight_gradient import GATHER_WEIGHT_GRADIENT

read_gather_weight_gradient = reader(GATHER_WEIGHT_GRADIENT)


@kernel("gather_weight_gradient")
def gather_weight_gradient(tensors, ints, floats, begin, end):
    """Sums over the copies, from blocks of channels to `[outputs][channels][taps]`; see the record.

    tensors: sums, output. Tasks: (head block, data block).
    """
    p = read_gather_weight_gradient(ints, floats)
    copies, taps, lanes, inner, outputs, channels = p.copies, p.taps, p.lanes, p.inner, p.outputs, p.channels
    block_size = taps * lanes * 16
    copy_size = p.head_blocks * p.data_blocks * block_size
    after = lanes // inner
    per_channel = taps * after
    room = scratch(256)
    for task in range(begin, end):
        head, data = task // p.data_blocks, task % p.data_blocks
        source = shift(pointer(tensors, 0, float32), task * block_size)
        first = data * inner
        target = shift(pointer(tensors, 1, float32), (head * 16 * channels + first) * per_channel)
        valid_outputs, valid = min(16, outputs - head * 16), min(inner, channels - first)
        if per_channel == 1 and valid == 16 and valid_outputs == 16:
            for lane in range(16):
                total = load_lanes(source, lane * 16)
                for copy in range(1, copies):
                    total = total + load_lanes(source, copy * copy_size + lane * 16)
                store_lanes(room, lane * 16, total)
            transpose_lanes(room, 16, target, channels)
            continue
        for o in range(valid_outputs):
            row = shift(target, o * channels * per_channel)
            for i in range(valid):
                for tap in range(taps):
                    for a in range(after):
                        cell = shift(source, (tap * lanes + a * inner + i) * 16 + o)
                        value = cell[0]
                        for copy in range(1, copies):
                            value += cell[copy * copy_size]
                        row[i * per_channel + tap * after + a] = value
