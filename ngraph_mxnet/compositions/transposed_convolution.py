"""The transpose of a convolution, of the ops that there are."""

from __future__ import annotations

from math import prod

from ngraph_mxnet.ir import Builder, Value

Ints = tuple[int, ...]


def transposed_convolution(b: Builder, x: Value, weight: Value, *, groups: int, stride: Ints, dilate: Ints, pad: Ints,
                           adjust: Ints) -> Value:
    """A weight [C, O / groups, *K] over x [N, C, *S]: stride (S - 1) + dilate (K - 1) + 1 - 2 pad + adjust places.

    A convolution of the data with zeros between its elements and of the kernel turned round.
    """
    count, kernel = len(stride), weight.shape[2:]
    flipped = _turned(b, weight, groups)
    # What padding would have to remove is cut off behind.
    full = [step * (size - 1) for step, size in zip(dilate, kernel, strict=True)]
    begin = [reach - cut for reach, cut in zip(full, pad, strict=True)]
    end = [first + extra for first, extra in zip(begin, adjust, strict=True)]
    steps: Ints = stride
    if not _meets_kernel(kernel, stride, dilate):
        x, steps = _spread(b, x, stride), (1,) * count
    out = b.convolution(x, flipped, dilations=dilate, pads_begin=tuple(max(0, p) for p in begin),
                        pads_end=tuple(max(0, p) for p in end), groups=groups, data_dilations=steps)
    if min(*begin, *end) >= 0:
        return out
    first = (0, 0, *(max(0, -p) for p in begin))
    last = tuple(size - max(0, -p) for size, p in zip(out.shape, (0, 0, *end), strict=True))
    return b.slice(out, begin=first, end=last)


def _meets_kernel(kernel: Ints, stride: Ints, dilate: Ints) -> bool:
    """Whether each output meets an element of the data, so that the convolution can be cut into phases."""
    return all(len({tap * far % step for tap in range(size)}) == step
               for size, step, far in zip(kernel, stride, dilate, strict=True))


def _turned(b: Builder, weight: Value, groups: int) -> Value:
    """[C, O / groups, *K] as [O, C / groups, *K] with the kernel turned round."""
    channels, outputs, *kernel = weight.shape
    rank = len(weight.shape)
    grouped = b.reshape(weight, shape=(groups, channels // groups, outputs, *kernel))
    order = (0, 2, 1, *range(3, rank + 1))
    swapped = b.reshape(b.transpose(grouped, order=order), shape=(groups * outputs, channels // groups, *kernel))
    spatial = range(2, rank)
    return b.slice(swapped, begin=[weight.shape[i] - 1 if i in spatial else 0 for i in range(rank)],
                   end=[-1 if i in spatial else swapped.shape[i] for i in range(rank)],
                   strides=[-1 if i in spatial else 1 for i in range(rank)])


def _spread(b: Builder, x: Value, stride: Ints) -> Value:
    """x with zeros between its elements."""
    if prod(stride) == 1:
        return x
    sizes = x.shape[2:]
    apart = b.reshape(x, shape=(*x.shape[:2], *(d for size in sizes for d in (size, 1))))
    none = (0,) * (2 + 2 * len(sizes))
    wide = b.pad(apart, pads_begin=none, pads_end=(0, 0, *(d for step in stride for d in (0, step - 1))))
    whole = b.reshape(wide, shape=(*x.shape[:2], *(size * step for size, step in zip(sizes, stride, strict=True))))
    return b.slice(whole, begin=(0,) * len(x.shape),
                   end=(*x.shape[:2], *((size - 1) * step + 1 for size, step in zip(sizes, stride, strict=True))))
