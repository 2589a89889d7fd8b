"""Matrix products, on the contraction microkernels: the matrices of a batch are the kernel's groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import are_same, at_hand, cached, is_one, is_zero
from ngraph_mxnet.ir.types import Shape, TensorType, f16, f32
from ngraph_mxnet.targets.cpu.lower import movement
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers, name_end
from ngraph_mxnet.targets.cpu.lower.contraction import Vectors, check_depth, clamps
from ngraph_mxnet.targets.cpu.microkernels.params import contraction_params
from ngraph_mxnet.targets.cpu.microkernels.tables import Plane, pixel_table, step_table
from ngraph_mxnet.targets.cpu.microkernels.tiles import ContractionSize, TileChoice, Wanted, choose_tiles
from ngraph_mxnet.targets.cpu.params import Params
from ngraph_mxnet.targets.cpu.params.layout import TO_BLOCKED, packed_matrices
from ngraph_mxnet.targets.cpu.params.strided import merged_dims
from ngraph_mxnet.targets.cpu.planning.view import BF16, BLOCK, PlainView, View, contiguous_strides


class Axis(NamedTuple):
    """A batch dimension: its size, and the strides in elements of a, of the packed b (in matrices), of the result."""

    size: int
    a: int
    b: int
    out: int

    def joins(self, inner: Axis) -> bool:
        """True if this dimension and the one inside it form one longer dimension."""
        mine, others = (self.a, self.b, self.out), (inner.a, inner.b, inner.out)
        return all(are_same(stride, other * inner.size) for stride, other in zip(mine, others, strict=True))


ONE = Axis(1, 0, 0, 0)
"""No batch dimension."""


def _check_matmul(node: Node) -> str | None:
    element = node.inputs[0].type.element
    if element is f16:
        return f"{node.op.name} of f16 has no CPU kernel"
    return check_depth(node)


@lowers("matmul", check=_check_matmul)
def matmul(ctx: Lowering, node: Node) -> None:
    """A product takes operands of any rank from 2, whose batches broadcast."""
    if node.inputs[0].type.element is not f32:
        movement.wide_product(ctx, node)
        return
    a, b = node.inputs[:2]
    *batch, rows, _ = node.output.shape
    out = ctx.new_rows(node.output.type)
    if node.output.type.size:
        left = _left(ctx, a, node.attrs["transpose_a"])
        axes = _axes(batch, a.shape[:-2], left.view.strides[:-2], b.shape[:-2], out.strides[:-2])
        # One matrix for all: more rows.
        while axes and is_zero(axes[-1].b) and are_same(axes[-1].a, rows * left.view.strides[-2]):
            rows *= axes.pop().size
        _emit(ctx, node, left, out, axes, rows)
    ctx.set_plain(node.output, out)
    if node.output.type.rank == 2:
        ctx.set_blocked(node.output, out.in_blocks())


class Left(NamedTuple):
    """Operand a, not transposed: the elements of 16 steps of a row are neighbours, and finite up to whole blocks.

    `view` has the strides of batch and rows; `block` is the one of 16 steps.
    """

    view: PlainView
    block: int = BLOCK


def _left(ctx: Lowering, a: Value, transpose: bool) -> Left:
    """Products that share the operand (queries, keys and values) share its copy."""
    key = (a, transpose)
    if key not in ctx.rows:
        ctx.rows[key] = _made_left(ctx, a, transpose)
    return ctx.rows[key]


def _made_left(ctx: Lowering, a: Value, transpose: bool) -> Left:
    if a.type.rank == 2 and not transpose:
        return Left((ctx.narrow(a) if ctx.bf16 else ctx.blocked(a)).as_rows())
    view = ctx.plain(a)
    shape, strides = list(a.shape), list(view.strides)
    if transpose:
        shape[-2:], strides[-2:] = shape[:-3:-1], strides[:-3:-1]
    seen = view.seen(TensorType(f32, tuple(shape)), strides)
    if is_one(strides[-1]) and is_zero(shape[-1] % BLOCK) and not ctx.bf16:
        return Left(seen)
    if not is_one(strides[-1]) and not (ctx.bf16 and ctx.settings.amx):  # a tile takes 32 steps of a row
        return _in_blocks(ctx, seen)
    rows = ctx.new_rows(TensorType(BF16 if ctx.bf16 else f32, seen.type.shape))
    ctx.fill_rest(rows)
    return Left(ctx.copy(seen, rows))


def _in_blocks(ctx: Lowering, seen: PlainView) -> Left:
    """A copy as [.., blocks of 16 steps, rows, 16]: whole tiles are transposed, each into one piece of memory, and rows
    lie 64 bytes apart, where whole rows at a power of 2 would contend for the same sets of a cache."""
    *batch, rows, depth = seen.type.shape
    element = BF16 if ctx.bf16 else f32
    blocks = -(-depth // BLOCK)
    matrix = blocks * rows * BLOCK
    out = ctx.new_plain(TensorType(element, (prod(batch) * matrix,)))
    end = name_end(seen, out)
    dims = merged_dims(batch, [seen.strides[:-2], contiguous_strides((*batch, matrix))[:-1]]) or [(1, (0, 0))]
    *outer, (count, (step, to)) = dims
    for index in product(*(range(size) for size, _ in outer)):
        at, target = (sum(i * steps[k] for i, (_, steps) in zip(index, outer, strict=True)) for k in (0, 1))
        params = TO_BLOCKED[end](
            n=count, c=depth, h=1, w=rows, input=(step, seen.strides[-1], 0, seen.strides[-2]),
            output=(to, rows * BLOCK, 0, BLOCK))
        ctx.emit(f"to_blocked{end}", params, input=seen.moved(4 * at), output=out.moved(element.size * target))
    strides = (*contiguous_strides((*batch, matrix))[:-1], BLOCK, 1)
    return Left(out.seen(TensorType(element, seen.type.shape), strides), rows * BLOCK)


def _axes(batch: Sequence[int], a_shape: Shape, a_strides: Sequence[int], b_shape: Shape,
          out_strides: Sequence[int]) -> list[Axis]:
    """The batch dimensions, with neighbours joined where the strides allow; a stride is 0 where one broadcasts."""

    def aligned(shape: Shape, strides: Sequence[int]) -> list[int]:
        missing = len(batch) - len(shape)
        own = [0 if is_one(d) or not (are_same(d, size) or d != 1) else s
               for d, s, size in zip(shape, strides, batch[missing:], strict=True)]
        return [0] * missing + own

    a, b = aligned(a_shape, a_strides), aligned(b_shape, contiguous_strides(b_shape))
    joined: list[Axis] = []
    for axis in map(Axis, batch, a, b, out_strides):
        if is_one(axis.size):
            continue
        if joined and joined[-1].joins(axis):
            axis = axis._replace(size=joined.pop().size * axis.size)
        joined.append(axis)
    return joined


class ProductNumbers(NamedTuple):
    """The part of a product that follows from sizes and strides alone."""

    choice: TileChoice
    pixels: Any
    steps: Any
    params: Params
    """But for the clamps."""
    matrix_bytes: int
    """Bytes of one packed matrix b."""


@cached(1024)  # chains of layers ask for the same again and again
def product_numbers(wanted: Wanted, threads: int, rows: int, channels: int, depth: int, left: tuple[int, int],
                    pitch: int, group: Axis = ONE, image: Axis = ONE) -> ProductNumbers:
    """`left`: the strides in bytes of rows and of 16 steps; `pitch`: of the result's rows."""
    size, blocks, plane = 2 if wanted.bf16 else 4, -(-depth // BLOCK), Plane(0, left[0])
    steps = step_table(plane, channels=blocks, channel_stride=left[1])
    product = ContractionSize.of_product(rows, -(-channels // BLOCK), steps.size, groups=group.size * image.size,
                                         joined=are_same(left[1], BLOCK * size))
    choice = choose_tiles(wanted, "k16", product, threads=threads)
    pixels = pixel_table(1, rows, inputs=plane, output=Plane(0, pitch))
    matrix_bytes = choice.oc_groups * choice.oc_tile * blocks * BLOCK * size
    params = contraction_params(**{
        **choice.fields(), "images": image.size, "groups": group.size, "steps": steps.size,
        "weight_group_stride": group.b * matrix_bytes, "channel_group_stride": 0, "pixel_stride": plane.pixel,
        "input": (image.a * size, group.a * size), "output": (image.out * 4, group.out * 4, BLOCK * 4),
    })
    return ProductNumbers(choice, pixels, steps, params, matrix_bytes)


def _emit(ctx: Lowering, node: Node, left: Left, out: PlainView, axes: list[Axis], rows: int) -> None:
    """One instruction if the batch is one dimension with a matrix b each and one without, else several."""
    channels, view = node.output.shape[-1], left.view
    depth, size = view.type.shape[-1], view.type.element.size  # of the packed right operand's elements too
    group, image = (max((axis for axis in axes if is_zero(axis.b) is shared), key=lambda axis: at_hand(axis.size),
                        default=ONE) for shared in (False, True))
    choice, pixels, steps, params, matrix_bytes = product_numbers(
        ctx.settings.wanted(bf16=ctx.bf16), ctx.settings.threads, rows, channels, depth,
        (view.strides[-2] * size, left.block * size), out.strides[-2] * 4, group, image)
    params = params.with_floats(clamps(node))
    packed = packed_right(ctx, node.inputs[1], node.attrs["transpose_b"], choice.oc_tile, matrix_bytes,
                          bf16=ctx.bf16)
    bias = Vectors(ctx, channels, choice.oc_tile).bias(node.epilogue.get("bias"))
    matrices, rights = group.size * image.size, 1 if is_zero(group.b) else group.size
    touched = (matrices * rows * depth + rights * depth * channels) * size + matrices * rows * channels * 4
    for a, b, o in _rest([axis for axis in axes if axis is not group and axis is not image]):
        ctx.emit(choice.kernel, params, input=view.moved(a * size), weights=packed.moved(b * matrix_bytes), bias=bias,
                 output=out.moved(o * 4), pixels=ctx.table(pixels), steps=ctx.table(steps),
                 operations=2 * matrices * rows * channels * depth, bytes=touched, exact=True)


def _rest(axes: list[Axis]) -> Iterator[tuple[int, int, int]]:
    """The offsets of a, b and the result at every index of `axes`."""
    for index in product(*(range(axis.size) for axis in axes)):
        yield tuple(sum(i * getattr(axis, name) for i, axis in zip(index, axes, strict=True))
                    for name in ("a", "b", "out"))


def packed_right(ctx: Lowering, b: Value, transpose: bool, oc_tile: int, matrix_bytes: int, *,
                 bf16: bool = False) -> View:
    """Operand b, every matrix packed, in the order of its own batch."""

    def emit(context: Lowering, source: PlainView, destination: View) -> None:
        channels, depth = (-2, -1) if transpose else (-1, -2)
        shape, strides = source.type.shape, source.strides
        batch, steps = list(shape[:-2]), list(strides[:-2])
        count, between = 1, 0
        # The innermost dimensions at one stride.
        while batch and (is_one(count) or are_same(steps[-1], count * between)):
            size, step = batch.pop(), steps.pop()
            between, count = (step, size) if is_one(count) else (between, count * size)
        params = packed_matrices((shape[channels], shape[depth]), (strides[channels], strides[depth]), count=count,
                                 between=between, oc_tile=oc_tile)
        for number, index in enumerate(product(*map(range, batch))):
            first = source.moved(4 * sum(i * step for i, step in zip(index, steps, strict=True)))
            part = View(destination.type, destination.buffer, destination.offset + number * count * matrix_bytes,
                        destination.writers)
            context.emit(kernel, params, weights=first, packed=part)

    kernel = "pack_contraction_bf16" if bf16 else "pack_contraction"
    size = prod(b.shape[:-2]) * matrix_bytes
    return ctx.packed(b, (kernel, transpose, oc_tile), size, emit, contiguous=False)

