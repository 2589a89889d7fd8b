"""What is around images in memory: zeros, or what stands for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ngraph_mxnet.targets.cpu.params.layout import FILL_HALO, ZERO_HALO
from ngraph_mxnet.targets.cpu.planning.view import Halo, View
from ngraph_mxnet.targets.cpu.program.instruction import Instruction


def keep_zeros(symbol: str, images: View, halo: Halo, **sizes: int) -> None:
    """Zeros around the images in a buffer of a region, which keeps them.

    Args:
        symbol: of the kernel `zero_halo`.
        sizes: its planes, height, width and words.
    """
    params = ZERO_HALO(**sizes, **vars(halo))
    images.buffer.zeroing = Instruction(symbol, [(images.buffer, 0)], params.ints(), [], params.tasks, [],
                                        bytes=images.buffer.bytes)


def write_fill(emit: Callable[..., None], images: View, halo: Halo, fill: int, **sizes: int) -> None:
    """In each run the u8 `fill` around the images; nothing else is written: readers wait for both writers."""
    word = int.from_bytes(bytes([fill]) * 4, "little", signed=True)
    emit("fill_halo", FILL_HALO(**sizes, **vars(halo), word=word), images=replace(images, offset=0), around=("images",))
