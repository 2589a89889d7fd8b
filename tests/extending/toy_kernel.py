"""A toy kernel and its lowering, for the toy op on the CPU: a record, a function, a rule."""

from __future__ import annotations

from math import prod

import toy_op  # noqa: F401  (registers the op)
from numba import types

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.targets.cpu.kernels.pointers import pointer, reader, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.params.record import Kernels, whole

IMAGE_TO_TENSOR = Kernels(
    {"image_to_tensor_u8": 1, "image_to_tensor_f32": 4}, tensors="images >tensor", ints="images channels pixels",
    sizes=3, floats="largest", tasks=lambda p: p.images * p.channels,
    reach=lambda p, size: [whole("images", size, *p[:3]), whole("tensor", 4, *p[:3])],
)
read = reader(IMAGE_TO_TENSOR)


def planes_of(element):
    def planes(tensors, ints, floats, begin, end):
        """tensor[i][c][p] = images[i][p][c] / largest; both contiguous. Tasks: (image, channel)."""
        p = read(ints, floats)
        largest = types.float32(p.largest)
        for task in range(begin, end):
            image, channel = task // p.channels, task % p.channels
            source = shift(pointer(tensors, 0, element), image * p.pixels * p.channels + channel)
            target = shift(pointer(tensors, 1, types.float32), task * p.pixels)
            for pixel in range(p.pixels):
                target[pixel] = types.float32(source[pixel * p.channels]) / largest

    return planes


kernel("image_to_tensor_u8")(planes_of(types.uint8))
kernel("image_to_tensor_f32")(planes_of(types.float32))


@lowers("image_to_tensor")
def image_to_tensor(ctx: Lowering, node: Node) -> None:
    source, out = ctx.contiguous(node.inputs[0]), ctx.new_plain(node.output.type)
    *batch, height, width, channels = source.type.shape
    params = IMAGE_TO_TENSOR(images=prod(batch), channels=channels, pixels=height * width,
                             largest=node.attrs["largest"])
    ctx.emit(f"image_to_tensor_{source.type.element}", params, images=source, tensor=out)
    ctx.set_plain(node.output, out)
