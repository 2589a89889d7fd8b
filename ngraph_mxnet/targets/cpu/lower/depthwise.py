"""Depthwise 3x3 convolutions of stride 1 and 2, on their row kernels."""

from __future__ import annotations

from ngraph_mxnet.ir.sizes import greatest, least
from ngraph_mxnet.targets.cpu.lower.context import Lowering
from ngraph_mxnet.targets.cpu.lower.storing import Activation
from ngraph_mxnet.targets.cpu.microkernels.depthwise_params import DEPTHWISE, STRIDES
from ngraph_mxnet.targets.cpu.microkernels.variants import ACTIVATIONS
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, BlockedView, Halo, View

_TASKS_PER_THREAD = 8


def has_row_kernel(kernel: tuple[int, int], strides: tuple[int, int], dilations: tuple[int, int]) -> bool:
    return kernel == (3, 3) and dilations == (1, 1) and strides[0] == strides[1] and strides[0] in STRIDES


def convolution(ctx: Lowering, source: BlockedView, weights: View, bias: View, out: BlockedView, *, stride: int,
                padding: Halo, bounds: tuple[float, float], activation: Activation, slopes: View | None) -> None:
    """Emit the convolution; `weights` are packed `[blocks][9][16]`, `bias` and slopes `[blocks][16]`."""
    chunks = least(out.height, greatest(1, _TASKS_PER_THREAD * ctx.settings.threads // out.images))
    params = DEPTHWISE[stride](
        images=out.images, channels=out.type.shape[1], blocks=out.blocks, height=out.height, width=out.width,
        chunk_rows=-(-out.height // chunks),
        first=-4 * (padding.top * source.row + padding.left * BLOCK),
        in_image_stride=4 * source.image, in_block_stride=4 * source.block, in_row_stride=4 * source.row,
        out_image_stride=4 * out.image, out_block_stride=4 * out.block, out_row_stride=4 * out.row,
        activation=ACTIVATIONS[activation.op],
        **by_name("lower upper slope offset scale shift", (*bounds, *activation.gate)),
    )
    ctx.emit(f"depthwise3x3_s{stride}", params, input=source, weights=weights, bias=bias, output=out, slopes=slopes,
             around=("input",) if padding else (),
             operations=18 * out.type.size, bytes=4 * (source.type.size + out.type.size + 9 * out.type.shape[1]))
