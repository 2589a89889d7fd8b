"""The kernel that makes weights of the sums of the weight gradient microkernels."""

from __future__ import annotations

from numba import float32

from ngraph_mxnet.targets.cpu.kernels.lanes import load_lanes, store_lanes, transpose_lanes
from ngraph_mxnet.targets.cpu.kernels.pointers import pointer, reader, scratch, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.params.layout import GATHER_WEIGHT_GRADIENT

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
    step = p.row
    room, rows = scratch(256), scratch(4096)
    for task in range(begin, end):
        head, data = task // p.data_blocks, task % p.data_blocks
        source = shift(pointer(tensors, 0, float32), task * block_size)
        first = data * inner
        target = shift(pointer(tensors, 1, float32), (head * 16 * channels + first) * step)
        valid_outputs, valid = min(16, outputs - head * 16), min(inner, channels - first)
        if after == 1 and valid == 16:
            # Up to 16 taps at once: their tiles [channel][output] are transposed, then written channel by channel.
            for first_tap in range(0, taps, 16):
                count = min(16, taps - first_tap)
                for tap in range(count):
                    tile = shift(source, (first_tap + tap) * lanes * 16)
                    for lane in range(16):
                        total = load_lanes(tile, lane * 16)
                        for copy in range(1, copies):
                            total = total + load_lanes(tile, copy * copy_size + lane * 16)
                        store_lanes(room, lane * 16, total)
                    transpose_lanes(room, 16, shift(rows, tap * 16), 256)
                for o in range(valid_outputs):
                    row = shift(target, o * channels * step + first_tap)
                    if step == 1:
                        store_lanes(row, 0, load_lanes(rows, o * 256))
                        continue
                    for i in range(16):
                        for tap in range(count):
                            row[i * step + tap] = rows[o * 256 + tap * 16 + i]
            continue
        for o in range(valid_outputs):
            row = shift(target, o * channels * step)
            for i in range(valid):
                for tap in range(taps):
                    for a in range(after):
                        cell = shift(source, (tap * lanes + a * inner + i) * 16 + o)
                        value = cell[0]
                        for copy in range(1, copies):
                            value += cell[copy * copy_size]
                        row[i * step + tap * after + a] = value
