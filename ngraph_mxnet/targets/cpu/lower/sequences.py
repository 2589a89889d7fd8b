"""Attention, and recurrent layers, forth and back: two instructions a step, a product and the gates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.sizes import greatest, is_symbolic, least
from ngraph_mxnet.ir.types import TensorType, f32
from ngraph_mxnet.targets.cpu.lower.context import Lowering, lowers
from ngraph_mxnet.targets.cpu.lower.contraction import Vectors, check_depth
from ngraph_mxnet.targets.cpu.lower.elementwise import check_f32
from ngraph_mxnet.targets.cpu.lower.matmul import ProductNumbers, packed_right, product_numbers
from ngraph_mxnet.targets.cpu.microkernels.tables import zero_table
from ngraph_mxnet.targets.cpu.params import KERNELS
from ngraph_mxnet.targets.cpu.params.record import by_name
from ngraph_mxnet.targets.cpu.params.sequences import (
    ATTENTION_FEW,
    ATTENTION_GRADIENT,
    BLOCK_KEYS,
    CELL_GRADIENTS,
    CELLS,
    CHUNK,
    GRU_RESET,
    GRU_UPDATE,
    MOST_KEYS,
    MOST_NEAR,
    MOST_ROWS,
    MOST_SCORES,
    SIX,
    TRAINING_CELLS,
    attention_units,
)
from ngraph_mxnet.targets.cpu.planning.view import BF16, BLOCK, PlainView, View, contiguous_strides, plain_view


@lowers("lstm_cell", "gru_cell", "lstm_cell_training", "gru_cell_training", check=check_f32)
def cell(ctx: Lowering, node: Node) -> None:
    """One step, its products done."""
    x, product, before = (_rows(ctx, value) for value in node.inputs)
    cell, _, kind = node.op.name.partition("_cell")
    h, *others = node.outputs
    out = ctx.new_rows(h.type)
    slopes = ctx.new_plain(others[-1].type) if kind else None
    state = ctx.new_plain(h.type) if cell == "lstm" else None
    _emit_gates(ctx, cell, x, product, before, out, state, slopes)
    _set_padded(ctx, h, out)
    ctx.set_views(others, filter(None, (state, slopes)))


@lowers("lstm_cell_gradient", "gru_cell_gradient", check=check_f32)
def cell_gradient(ctx: Lowering, node: Node) -> None:
    """One step back, without its product."""
    slopes, of_h, *of_c = (_rows(ctx, value) for value in node.inputs)
    nothing = _zeros(ctx, of_h.type)
    of_x, *of_sums = (ctx.new_rows(value.type) for value in node.outputs[:-1])
    carry = ctx.new_plain(of_h.type)
    before, sums = of_c[0] if of_c else nothing, of_sums[0] if of_sums else of_x
    _emit_back(ctx, node.op.name.partition("_")[0], slopes, of_h, nothing, before, carry, of_x, sums)
    for value, view in zip(node.outputs, (of_x, *of_sums, carry), strict=True):
        if view is carry:
            ctx.set_plain(value, view)
        else:
            _set_padded(ctx, value, view)


@lowers("rnn", "rnn_training", check=check_f32)
def rnn(ctx: Lowering, node: Node) -> None:
    """One direction of one layer. The hidden states of all steps are one buffer, which the products read in place, or
    round to bf16 first.

    For training, which is float32, the slopes of all steps are one, too.
    """
    x, weights, bias, h, *rest = node.inputs
    if node.outputs[0].type.size == 0:
        _set_empty(ctx, node)
        return
    steps, rows, gates = x.shape
    slopes = ctx.new_plain(node.outputs[-1].type) if node.op.name == "rnn_training" else None
    source = _rows(ctx, x)
    of = partial(_Product.of, ctx, rows=rows, bf16=ctx.bf16 and slopes is None)
    product = of(weights, bias)
    projection = of(rest[1], None) if len(rest) > 1 else None
    out = ctx.new_rows(node.outputs[0].type)
    room = ctx.new_rows(TensorType(f32, (rows, gates)))
    inner = ctx.new_rows(TensorType(f32, (rows, rest[0].shape[1]))) if projection is not None else None
    before = _rows(ctx, rest[0]) if rest else None
    state_buffer = ctx.builder.arena(rest[0].type.bytes) if rest else None
    hidden, copied = _left(ctx, h), list[View]()

    def step(t: int, hidden: PlainView, before: PlainView | None) -> tuple[PlainView, PlainView | None]:
        """The hidden state behind it, and the memory."""
        # Views of their own at each step: that a buffer is used again is ordered by the chain of hidden states.
        sums = room.unwritten()
        product.emit(ctx, hidden, sums)
        after = plain_view(rest[0].type, state_buffer) if state_buffer is not None else None
        made = _step(out, t).unwritten()
        gated = made if inner is None else inner.unwritten()
        kept = _step(slopes, t).unwritten() if slopes is not None else None
        _emit_gates(ctx, node.attrs["cell"], _step(source, t), sums, before or hidden, gated, after, kept, copied[-1:])
        if projection is not None:
            projection.emit(ctx, gated, made)
        if slopes is not None and kept is not None:
            if projection is not None:
                ctx.copy(gated, columns := _last_columns(kept, gated.type).unwritten())
                kept.writers.extend(columns.writers)
                copied.append(columns)
            slopes.writers.extend(kept.writers)
        out.writers.extend(made.writers)
        return made, after

    hidden, before = _through(ctx, steps, node.attrs["reverse"], step, lambda t: _step(out, t), hidden, before)
    ctx.set_plain(node.outputs[0], out)
    _set_padded(ctx, node.outputs[1], hidden)
    if before is not None:
        ctx.set_plain(node.outputs[2], before)
    if slopes is not None:
        ctx.set_plain(node.outputs[-1], slopes)


@lowers("gru_reset_first", check=check_f32)
def gru_reset_first(ctx: Lowering, node: Node) -> None:
    """Four instructions a step: the products of h and of what is left of it, and the gates behind each."""
    x, weights, bias, own_weights, own_bias, h = node.inputs
    if node.outputs[0].type.size == 0:
        _set_empty(ctx, node)
        return
    steps, (rows, units) = x.shape[0], h.shape
    source, out = _rows(ctx, x), ctx.new_rows(node.outputs[0].type)
    product, own = (_Product.of(ctx, w, b, rows, bf16=ctx.bf16) for w, b in (
        (weights, bias), (own_weights, own_bias)))
    room, left = ctx.new_rows(TensorType(f32, (rows, 2 * units))), ctx.new_rows(h.type)
    last, share = ctx.new_rows(h.type), ctx.new_plain(h.type)

    def step(t: int, hidden: PlainView, before: PlainView | None) -> tuple[PlainView, None]:
        at, made = _step(source, t), _step(out, t).unwritten()
        sums, reset, z, inner = room.unwritten(), left.unwritten(), share.unwritten(), last.unwritten()
        product.emit(ctx, hidden, sums)
        _emit_gates(ctx, "gru_reset", at, sums, hidden, reset, z, None)
        own.emit(ctx, reset, inner)
        _emit_gates(ctx, "gru_update", _last_columns(at, h.type), inner, hidden, made, z, None)
        out.writers.extend(made.writers)
        return made, None

    hidden, _ = _through(ctx, steps, node.attrs["reverse"], step, lambda t: _step(out, t), _left(ctx, h), None)
    ctx.set_plain(node.outputs[0], out)
    _set_padded(ctx, node.outputs[1], hidden)


Step = Callable[[int, PlainView, "PlainView | None"], "tuple[PlainView, PlainView | None]"]


def _through(ctx: Lowering, steps: int, reverse: bool, step: Step, behind: Callable[[int], PlainView],
             hidden: PlainView, before: PlainView | None) -> tuple[PlainView, PlainView | None]:
    """All steps; `step` takes its number, hidden state and memory, and gives those behind it. Of a number of steps that
    is not known all but the first are a loop, in which the memory stays where it is, and the hidden state behind a step
    is where `behind` says."""

    def place(number: int) -> int:
        """Return the position of the step that is computed after `number` others."""
        return steps - 1 - number if reverse else number

    if not is_symbolic(steps):
        for number in range(steps):
            hidden, before = step(place(number), hidden, before)
        return hidden, before
    begun, first = step(place(0), hidden, before)
    last, after = begun, first
    for number in ctx.builder.each(steps - 1, lambda number: number + 1):
        previous = replace(behind(place(number - 1)), writers=begun.writers)
        last, after = step(place(number), previous, first)
    last = replace(behind(place(steps - 1)), writers=[*begun.writers, *last.writers])
    if first is None or after is None:
        return last, first
    return last, replace(first, writers=[*first.writers, *after.writers])


@lowers("rnn_gradient", check=check_f32)
def rnn_gradient(ctx: Lowering, node: Node) -> None:
    """Two instructions a step, as forth: the gradients of the gates' sums, and their product with the weights.

    A projection has two more: the sum of what comes to a hidden state, and its product.
    """
    if node.outputs[0].type.size == 0:
        _set_empty(ctx, node)
        return
    weights, slopes, of_states, of_h, *rest = node.inputs
    cell, (steps, rows, _) = node.attrs["cell"], slopes.shape
    product = _Product.of(ctx, weights, None, rows, turned=True)
    projection = _Product.of(ctx, rest[1], None, rows, turned=True) if len(rest) > 1 else None
    kept, heads, arriving = _rows(ctx, slopes), _rows(ctx, of_states), _rows(ctx, of_h)
    of_x, room = ctx.new_rows(node.outputs[0].type), ctx.new_rows(of_h.type)
    other = ctx.new_rows(node.outputs[-1].type) if cell == "gru" or projection is not None else of_x
    passed = rest[0] if rest else of_h  # what comes to a step past the gates of the one behind it
    inner, memory = ctx.new_rows(passed.type), ctx.builder.arena(passed.type.bytes)
    nothing, before = _zeros(ctx, passed.type), _rows(ctx, passed)
    if cell == "gru":
        arriving = nothing
    if projection is not None:
        ctx.fill_rest(other)
    filled = list(other.writers)

    def step(t: int, arriving: PlainView, before: PlainView | None) -> tuple[PlainView, PlainView | None]:
        """Emit one step. Return what comes to the step before it: through the product, and past the product."""
        head, made, beside, after = _step(heads, t), _step(of_x, t).unwritten(), _step(other, t).unwritten(), None
        if projection is not None:
            beside.writers.extend(filled)
            ctx.strided("add", head.type.shape, [head, arriving], beside)
            head, arriving = inner.unwritten(), nothing
            projection.emit(ctx, beside, head)
        if rest or cell == "gru":
            after = plain_view(passed.type, memory)
        _emit_back(ctx, cell, _step(kept, t), head, arriving, before or nothing, after, made, beside)
        product.emit(ctx, beside if cell == "gru" else made, summed := room.unwritten())
        of_x.writers.extend(made.writers)
        if other is not of_x:
            other.writers.extend(beside.writers)
        return summed, after or before

    arriving, past = _through(ctx, steps, not node.attrs["reverse"], step, lambda t: room, arriving, before)
    before = past or before
    if cell == "gru":
        last = inner.unwritten()
        ctx.strided("add", of_h.shape, [arriving, before], last)
        arriving = last
    ctx.set_views(node.outputs, [of_x, arriving, *([before] if rest else []), *([other] if other is not of_x else [])])


class _Product(NamedTuple):
    """left weights^T + bias for `rows` rows, weights [channels][depth] and bias packed once for all steps."""

    numbers: Callable[[tuple[int, int], int], ProductNumbers]
    """Those for the strides of `left` and `out`."""
    packed: View
    bias: View
    rows: int
    channels: int
    depth: int
    narrow: PlainView | None
    """Memory for `left` in bf16, if the product computes so."""

    @staticmethod
    def of(ctx: Lowering, weights: Value, bias: Value | None, rows: int, *, turned: bool = False,
           bf16: bool = False) -> _Product:
        """`turned`: left weights, instead. `bf16`: both operands are rounded to bf16."""
        channels, depth = weights.shape[::-1] if turned else weights.shape
        settings, element = ctx.settings, BF16 if bf16 else f32
        numbers = partial(product_numbers, settings.wanted(bf16=bf16), settings.threads, rows, channels, depth)
        step = BLOCK * element.size
        found = numbers((-(-depth // BLOCK) * step, step), -(-channels // BLOCK) * BLOCK * f32.size)
        tile = found.choice.oc_tile
        packed = packed_right(ctx, weights, not turned, tile, found.matrix_bytes, bf16=bf16)
        narrow = ctx.new_rows(TensorType(BF16, (rows, depth))) if bf16 else None
        if narrow is not None:
            ctx.fill_rest(narrow)
        return _Product(numbers, packed, Vectors(ctx, channels, tile).bias(bias), rows, channels, depth, narrow)

    def emit(self, ctx: Lowering, left: PlainView, out: PlainView) -> None:
        """`left` is finite, and `out` may be written, up to whole blocks."""
        if self.narrow is not None:
            left = ctx.copy(left, replace(self.narrow, writers=list(self.narrow.writers)))
        size = left.type.element.size
        choice, pixels, steps, params, _ = self.numbers((left.strides[0] * size, BLOCK * size),
                                                        out.strides[0] * f32.size)
        touched = (self.rows * self.depth + self.depth * self.channels) * size + self.rows * self.channels * f32.size
        ctx.emit(choice.kernel, params, input=left, weights=self.packed, bias=self.bias, output=out,
                 pixels=ctx.table(pixels), steps=ctx.table(steps),
                 operations=2 * self.rows * self.channels * self.depth, bytes=touched)


_RECORDS = {**CELLS, "gru_reset": GRU_RESET, "gru_update": GRU_UPDATE}


def _emit_gates(ctx: Lowering, cell: str, x: PlainView, product: PlainView, before: PlainView, out: PlainView,
                state: PlainView | None, slopes: PlainView | None, copied: Sequence[View] = ()) -> None:
    """`state`: LSTM's cell state after the step, which may lie where that `before` does, or half a GRU's z. `copied`:
    what was copied out of `out`, which is written over."""
    rows, units = out.type.shape
    views = (x, product, before, out, state or before)
    numbers = {"rows": rows, "units": units, "chunk": _chunk(units),
               **by_name("x_row p_row before_row h_row c_row", (view.strides[0] for view in views))}
    operands: dict[str, Any] = {"x": x, "p": product, "before": before, "h": out, "c": state}
    if slopes is None:
        ctx.emit(f"{cell}_cell", _RECORDS[cell](**numbers), after=copied, **operands)
    else:
        params = TRAINING_CELLS[cell](**numbers, slopes_row=slopes.strides[0])
        ctx.emit(f"{cell}_cell_training", params, after=copied, **operands, slopes=slopes)


def _emit_back(ctx: Lowering, cell: str, slopes: PlainView, head: PlainView, product: PlainView, before: PlainView,
               carry: PlainView | None, x: PlainView, sums: PlainView) -> None:
    """`carry` may lie where `before` does; both and `sums` only where the cell has such."""
    rows, units = head.type.shape
    name = cell if cell in CELL_GRADIENTS else "tanh"
    views = (slopes, head, product, before, carry or before, x, sums)
    params = CELL_GRADIENTS[name](rows=rows, units=units, chunk=_chunk(units), **by_name(
        "slopes_row head_row product_row before_row carry_row x_row sums_row", (view.strides[0] for view in views)))
    ctx.emit(f"{name}_cell_gradient", params, slopes=slopes, head=head, product=product, carry=carry, x=x,
             before=None if carry is None else before, sums=sums if cell == "gru" else None)


def _chunk(units: int) -> int:
    return min(-(-units // BLOCK) * BLOCK, CHUNK)


def _set_empty(ctx: Lowering, node: Node) -> None:
    ctx.set_views(node.outputs, [ctx.new_plain(value.type) for value in node.outputs])


def _zeros(ctx: Lowering, type_: TensorType) -> PlainView:
    """A matrix of zeros, whose rows are one."""
    row = ctx.table(zero_table(type_.shape[1]))
    return PlainView(type_, row.buffer, row.offset, row.writers, (0, 1))


def _rows(ctx: Lowering, value: Value) -> PlainView:
    """The value, its rows contiguous."""
    view = ctx.plain(value)
    return view if view.strides[-1] == 1 else ctx.contiguous(value)


def _left(ctx: Lowering, value: Value) -> PlainView:
    """A matrix whose rows are finite up to whole blocks."""
    return ctx.blocked(value).as_rows()


def _set_padded(ctx: Lowering, value: Value, view: PlainView) -> None:
    """A matrix in padded memory, which is the blocked layout too."""
    ctx.set_plain(value, view)
    ctx.set_blocked(value, view.in_blocks())


def _step(view: PlainView, t: int) -> PlainView:
    """The matrix `t` of a tensor of rank 3."""
    return view.seen(view.type.with_shape(view.type.shape[1:]), view.strides[1:], t * view.strides[0])


def _last_columns(view: PlainView, type_: TensorType) -> PlainView:
    return view.seen(type_, view.strides, view.type.shape[1] - type_.shape[1])


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
    bf16, tiled = _in_bf16(ctx, depth)
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
        matrix = -(-columns // BLOCK) * -(-depth // BLOCK) * BLOCK * BLOCK // (1 + bf16)
        read = packed_right(ctx, keys, True, BLOCK, matrix * 4, bf16=bf16)
        own, key_rows = block_of(rows, columns, greatest(width, depth) if bf16 else width, tiled=tiled)
        kernel = "attention" + "_bf16" * bf16 + "_amx" * tiled
        params = KERNELS[kernel](**common, rows=own, key_rows=key_rows, wide=ctx.settings.isa == "avx512",
                                 key_matrix=matrix)
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
    ctx.set_views(node.outputs, outs)
    if not prod(batch) * rows * columns * depth * width:
        for view in filter(lambda view: view.type.size, outs):
            ctx.strided("fill_4", view.type.shape, [], view, [0.0])
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
    return mask, 1 if masks[0].type.element.name == "bool" else 2, mask.over(scores)


def _in_bf16(ctx: Lowering, depth: int) -> tuple[bool, bool]:
    """True if attention multiplies bf16, and if it does so in AMX's tiles. Where the CPU has these, other products of
    bf16 are slower than float32's. A task has room for as many queries as are multiplied together."""
    tiled = ctx.settings.amx
    if not ctx.bf16 or ctx.settings.isa != "avx512":
        return False, False
    rows, _ = attention_units(tiled=tiled)
    fits = rows * -(-depth // BLOCK) * BLOCK <= MOST_NEAR
    return fits, fits and tiled


def block_of(rows: int, columns: int, width: int, *, tiled: bool = False) -> tuple[int, int]:
    """Queries of a task of `attention`, and the keys that it takes at a time: tasks, and blocks, of about the same
    size. `width`: that of the values, and of queries that are copied."""
    unit, keys = attention_units(tiled=tiled)
    key_rows, broad = _share(columns, BLOCK_KEYS, keys), -(-width // BLOCK) * BLOCK
    most = least(MOST_ROWS, MOST_SCORES // key_rows // unit * unit, MOST_NEAR // broad // unit * unit)
    return _share(rows, greatest(unit, most), unit), key_rows


def task_rows(rows: int, columns: int) -> int:
    """Queries of a task: tasks of about the same size, in whole register tiles."""
    most = greatest(SIX, _BLOCK_SCORES // (-(-columns // BLOCK) * BLOCK) // SIX * SIX)
    return _share(rows, most, SIX)


def _share(size: int, most: int, unit: int) -> int:
    """Split `size` into as few parts as possible of at most `most`. Return the size of a part, in whole units."""
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
    return ctx.copy(view, ctx.new_rows(value.type) if whole else ctx.new_plain(value.type))


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
