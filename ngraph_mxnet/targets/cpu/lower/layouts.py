"""How tensors lie in both layouts, as the numbers of kernels that read and convert them."""

from __future__ import annotations

from collections.abc import Sequence

from ngraph_mxnet.ir.sizes import are_same, where
from ngraph_mxnet.ir.types import u8
from ngraph_mxnet.targets.cpu.params import Params
from ngraph_mxnet.targets.cpu.params.record import Kernels, by_name
from ngraph_mxnet.targets.cpu.params.strided import SIZE_SUFFIX
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, BlockedView, PlainView, View, spatial

Strides = Sequence[int]


def layout_params(record: Kernels, blocked: BlockedView, source: View, out: View) -> Params:
    """Rows that are shorter than the 16 pixels that the kernels transpose at once are taken together, where they follow
    each other without gaps in both layouts."""
    (images, channels), (height, width) = blocked.type.shape[:2], spatial(blocked.type.shape)
    steps = [blocked_strides(view)[:4] if isinstance(view, BlockedView) else _plain_strides(view)
             for view in (source, out)]
    if all(are_same(row, width * pixel) for _, _, row, pixel in steps):
        short = width < BLOCK
        height, width = where(short, 1, height), where(short, height * width, width)
    return record(n=images, c=channels, h=height, w=width, **by_name("in_n in_c in_row in_column", steps[0]),
                  **by_name("out_n out_c out_row out_column", steps[1]))


def _plain_strides(view: View) -> Strides:
    """Strides of N, C, H, W of a tensor of rank 2 to 4."""
    assert isinstance(view, PlainView)
    rank, strides = view.type.rank, view.strides
    return (*strides, 0, 0) if rank == 2 else (*strides[:2], 0, strides[2]) if rank == 3 else strides


def moving_kernel(source: View, destination: View) -> str:
    """The strided kernel that copies, and converts between float32 and bf16 or u8."""
    before, after = source.type.element, destination.type.element
    if u8 in (before, after) and before != after:
        return "quantize_u8" if after is u8 else "dequantize_u8"
    return f"copy_{SIZE_SUFFIX[before.size]}" if before == after else f"convert_{before}_{after}"


def blocked_strides(view: BlockedView) -> tuple[int, int, int, int, int]:
    """Strides over (image, block, row, pixel, lane)."""
    return view.image, view.block, view.row, BLOCK, 1


def named_strides(**views: BlockedView) -> dict[str, int]:
    """Strides over (image, block, row, pixel) of each view, as a kernel's record calls them: `x_n`, `x_c16`, .."""
    return {f"{name}_{axis}": stride for name, view in views.items()
            for axis, stride in zip(("n", "c16", "row", "pixel"), blocked_strides(view), strict=False)}


def blocked_dims(view: BlockedView) -> tuple[int, int, int, int, int]:
    """Sizes of (image, block, row, pixel, lane)."""
    return view.images, view.blocks, view.height, view.width, BLOCK


Part = tuple[tuple[int, ...], tuple[tuple[int, tuple[int, ...]], tuple[int, tuple[int, ...]]]]
"""Sizes; of each of two views the first element, and strides."""


def block_parts(plain: PlainView, blocked: BlockedView) -> list[Part]:
    """A tensor of rank 2 to 4 over (image, block, row, pixel, lane) in both layouts: its whole blocks of channels, and
    the channels of the last one."""
    image, channel, row, pixel = _plain_strides(plain)
    images, channels = plain.type.shape[:2]
    whole, rest = divmod(channels, BLOCK)
    found: list[Part] = []
    for first, blocks, lanes in ((0, whole, BLOCK), (whole, 1, rest)):
        if blocks and lanes:
            found.append(((images, blocks, blocked.height, blocked.width, lanes),
                          ((first * BLOCK * channel, (image, BLOCK * channel, row, pixel, channel)),
                           (first * blocked.block, blocked_strides(blocked)))))
    return found
