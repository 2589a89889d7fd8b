"""Attention: one kernel for scores, softmax and the sum of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.sizes import greatest, least
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.lower.contraction import check_depth
from ngraph_mxnet.targets.cpu.lower.matmul import packed_right
from ngraph_mxnet.targets.cpu.lower.movement import broadcast_strides
from ngraph_mxnet.targets.cpu.params.attention import (
    ATTENTION,
    ATTENTION_FEW,
    ATTENTION_GRADIENT,
    BLOCK_KEYS,
    MOST_KEYS,
    MOST_NEAR,
    MOST_ROWS,
    MOST_SCORES,
    SIX,
)
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, PlainView, View, contiguous_strides

_BLOCK_SCORES = 8192
"""Floats of a task's scores, about, where that is more: they stay in L1 or L2."""
FEW = 4
"""So many queries read keys in less time than packing takes (of 12 to 2048 keys)."""


def _check(node: Node) -> str | None:
    queries, keys = node.inputs[:2]
    if queries.type.element.name != "f32":
        return f"{node.op.name} of {queries.type.element} has no CPU kernel, only f32"
    if queries.type.rank > 4:
        return f"{node.op.name} of more than two leading axes has no CPU kernel"
    if keys.shape[-2] > MOST_KEYS:
        return f"{node.op.name} to {keys.shape[-2]} keys has no CPU kernel, only to {MOST_KEYS}"
    return check_depth(node)


@lowers("attention", check=_check)
def attention(ctx: Lowering, node: Node) -> None:
    """Queries and values are read where they lie, be it in the projection of all heads; keys are packed for more than
    a few queries."""
    queries, keys, values, *masks = node.inputs
    if not node.output.type.size:
        ctx.set_plain(node.output, ctx.new_plain(node.output.type))
        return
    *batch, rows, depth = queries.shape
    columns, width = values.shape[-2:]
    few = not ctx.is_prepared(keys) and rows <= FEW
    left, right = _with_rows(ctx, queries), _with_rows(ctx, values, whole=not few)
    out = ctx.new_plain(node.output.type)
    out = replace(out, strides=_as_read(ctx.graph, node.output) or out.strides)
    mask, kind, steps = _masked(ctx, masks, (*queries.shape[:-1], columns))
    common = {
        **by_name("outer inner", _two(batch, 1)), "queries": rows, "keys": columns, "depth": depth, "width": width,
        "mask_kind": kind, "zeroed": node.attrs["zeroed"],
        **_steps("q", left.strides), **_steps("v", right.strides), **_steps("out", out.strides),
        **_steps("mask", steps), "mask_column": steps[-1], "scale": node.attrs["scale"], "fill": node.attrs["fill"]}
    read: View
    if few:
        lying = _with_rows(ctx, keys)
        read, kernel, params = lying, "attention_few", ATTENTION_FEW(**common, **_steps("k", lying.strides))
    else:
        matrix = -(-columns // BLOCK) * -(-depth // BLOCK) * BLOCK * BLOCK
        read = packed_right(ctx, keys, True, BLOCK, matrix * 4)
        own, key_rows = block_of(rows, columns, width)
        kernel, params = "attention", ATTENTION(**common, rows=own, key_rows=key_rows,
                                                wide=ctx.settings.isa == "avx512", key_matrix=matrix)
    ctx.emit(kernel, params, queries=left, keys=read, values=right, mask=mask, output=out,
             operations=2 * prod(batch) * rows * columns * (depth + width), exact=True)
    ctx.set_plain(node.output, out)


@lowers("attention_gradient", check=_check)
def attention_gradient(ctx: Lowering, node: Node) -> None:
    """A task for each matrix; keys and values are packed, and keys read as they lie as well."""
    queries, keys, values, head, *masks = node.inputs
    *batch, rows, depth = queries.shape
    columns, width = values.shape[-2:]
    outs = [ctx.new_plain(value.type) for value in node.outputs]
    for value, view in zip(node.outputs, outs, strict=True):
        ctx.set_plain(value, view)
    if not prod(batch) * rows * columns * depth * width:
        for view in filter(lambda view: view.type.size, outs):
            ctx.strided("fill_4", view.type.shape, [], (view, view.strides), [0.0])
        return
    tiles = -(-columns // BLOCK) * BLOCK
    sizes = [tiles * -(-size // BLOCK) * BLOCK * 4 for size in (depth, width)]
    packed = [packed_right(ctx, value, True, BLOCK, size) for value, size in zip((keys, values), sizes, strict=True)]
    views = [_with_rows(ctx, value, whole=True) for value in (queries, keys, head)]
    mask, kind, steps = _masked(ctx, masks, (*queries.shape[:-1], columns))
    q, k, h = (_steps(name, view.strides) for name, view in zip("qkh", views, strict=True))
    params = ATTENTION_GRADIENT(
        **by_name("outer inner", _two(batch, 1)), queries=rows, keys=columns, depth=depth, width=width,
        rows=task_rows(rows, columns), mask_kind=kind, zeroed=node.attrs["zeroed"], **q, **k, **h,
        **_steps("mask", steps), mask_column=steps[-1], scale=node.attrs["scale"], fill=node.attrs["fill"])
    operations = 2 * prod(batch) * rows * columns * (3 * depth + 2 * width)
    ctx.emit("attention_gradient", params, **by_name("queries keys head", views),
             **by_name("packed_keys packed_values", packed), mask=mask,
             **by_name("of_queries of_keys of_values", outs), operations=operations, exact=True)


def _masked(ctx: Lowering, masks: Sequence[Value],
            scores: tuple[int, ...]) -> tuple[PlainView | None, int, tuple[int, ...]]:
    """The mask, its kind, and its strides over the scores."""
    if not masks:
        return None, 0, (0,) * len(scores)
    mask = ctx.plain(masks[0])
    return mask, 1 if masks[0].type.element.name == "bool" else 2, broadcast_strides(mask, scores)


def block_of(rows: int, columns: int, width: int) -> tuple[int, int]:
    """Queries of a task of `attention`, and the keys that it takes at a time: tasks, and blocks, of about the same
    size."""
    key_rows, broad = _share(columns, BLOCK_KEYS, BLOCK), -(-width // BLOCK) * BLOCK
    most = least(MOST_ROWS, MOST_SCORES // key_rows // SIX * SIX, MOST_NEAR // broad // SIX * SIX)
    return _share(rows, greatest(SIX, most), SIX), key_rows


def task_rows(rows: int, columns: int) -> int:
    """Queries of a task: tasks of about the same size, in whole register tiles."""
    most = greatest(SIX, _BLOCK_SCORES // (-(-columns // BLOCK) * BLOCK) // SIX * SIX)
    return _share(rows, most, SIX)


def _share(size: int, most: int, unit: int) -> int:
    """What each of as few parts as may be has, in whole units."""
    parts = -(-size // most)
    return -(-size // parts // unit) * unit


def _two(numbers: Sequence[int], fill: int) -> list[int]:
    """Sizes (`fill` 1) of two batch dimensions, or strides (`fill` 0) of these and of the row, filled up in front."""
    return [*[fill] * (3 - len(numbers) if fill == 0 else 2 - len(numbers)), *numbers]


def _steps(name: str, strides: Sequence[int]) -> dict[str, int]:
    """The ints of an operand's strides but for the last."""
    return by_name(f"{name}_outer {name}_inner {name}_row", _two(strides[:-1], 0))


def _with_rows(ctx: Lowering, value: Value, *, whole: bool = False) -> PlainView:
    """The value, elements of a row being neighbours; `whole`: rows may be read up to whole blocks."""
    view, width = ctx.plain(value), value.shape[-1]
    if view.strides[-1] == 1 and not (whole and width % BLOCK):
        return view
    pitch = -(-width // BLOCK) * BLOCK if whole else width
    wide = ctx.new_plain(value.type.with_shape((*value.shape[:-1], pitch)))
    return ctx.copy(view, replace(wide, type=value.type))


def _as_read(graph: Graph, value: Value) -> tuple[int, ...] | None:
    """Strides that make contiguous what a transpose, if it is the only reader, sees of the value."""
    readers = [node for node in graph.nodes if value in node.inputs]
    if len(readers) != 1 or readers[0].op.name != "transpose" or value in graph.results:
        return None
    order = readers[0].attrs["order"]
    if order[-1] != value.type.rank - 1:
        return None
    inner = contiguous_strides(tuple(value.shape[axis] for axis in order))
    return tuple(inner[order.index(axis)] for axis in range(value.type.rank))
