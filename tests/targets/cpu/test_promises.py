"""What plans promise is proven of every program: broken promises are found, told, and compiled another way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from bf16_machine import allow_bf16
from test_quantized_products import product_operands, quantized

from ngraph_mxnet import compile
from ngraph_mxnet.base.errors import BrokenPromiseError
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.types import TensorType, f32, u8
from ngraph_mxnet.targets.cpu import options
from ngraph_mxnet.targets.cpu.lower import context
from ngraph_mxnet.targets.cpu.lower.context import Lowering
from ngraph_mxnet.targets.cpu.params import KERNELS
from ngraph_mxnet.targets.cpu.params.strided import strided
from ngraph_mxnet.targets.cpu.planning import precision
from ngraph_mxnet.targets.cpu.planning.view import BF16, Halo, PlainView, View, blocked_view, plain_view, sub_blocks
from ngraph_mxnet.targets.cpu.program.builder import ProgramBuilder
from ngraph_mxnet.targets.cpu.program.promises import Promises, require_room, require_types


def emit(builder: ProgramBuilder, *reads: View, writes: View, after: tuple[View, ...] = (),
         around: tuple[View, ...] = ()) -> None:
    builder.emit("ng_k__baseline", [view.operand for view in (*reads, writes)], [], [], 1, reads=reads, writes=[writes],
                 after=after, around=around, origin="a node")


def matrix(builder: ProgramBuilder, *shape: int) -> PlainView:
    type_ = TensorType(f32, shape)
    return plain_view(type_, builder.arena(type_.bytes))


def rows(view: PlainView, first: int, count: int) -> PlainView:
    """A part of a matrix, with writers of its own."""
    return PlainView(view.type.with_shape((count, view.type.shape[1])), view.buffer,
                     view.offset + first * view.strides[0] * 4, strides=view.strides)


def columns(view: PlainView, first: int, count: int) -> PlainView:
    return PlainView(view.type.with_shape((view.type.shape[0], count)), view.buffer, view.offset + first * 4,
                     strides=view.strides)


def test_what_nobody_wrote_is_not_read() -> None:
    builder = ProgramBuilder()
    with pytest.raises(BrokenPromiseError, match=r"k of a node reads f32\[4,4\] .* no kernel of this program"):
        emit(builder, matrix(builder, 4, 4), writes=matrix(builder, 4, 4))


def test_who_is_said_to_have_written_did() -> None:
    builder = ProgramBuilder()
    other, whole = matrix(builder, 4, 4), matrix(builder, 4, 4)
    emit(builder, writes=other)
    emit(builder, writes=rows(whole, 0, 4))
    with pytest.raises(BrokenPromiseError, match="which writes elsewhere"):
        emit(builder, replace(whole, writers=other.writers), writes=matrix(builder, 4, 4))


@pytest.mark.parametrize("cut", [rows, columns])
def test_all_parts_are_written_and_waited_for(cut: Callable[[PlainView, int, int], PlainView]) -> None:
    builder = ProgramBuilder()
    whole = matrix(builder, 4, 4)
    first, second = cut(whole, 0, 2), cut(whole, 2, 2)
    emit(builder, writes=first)
    with pytest.raises(BrokenPromiseError, match="only a part is written"):
        emit(builder, replace(whole, writers=[*first.writers]), writes=matrix(builder, 4, 4))
    emit(builder, writes=second)  # waits for nobody: they have no byte in common
    emit(builder, first, writes=matrix(builder, 4, 4))
    with pytest.raises(BrokenPromiseError, match="does not wait for k of a node, which writes there"):
        emit(builder, replace(whole, writers=first.writers), writes=matrix(builder, 4, 4))
    emit(builder, replace(whole, writers=[*first.writers, *second.writers]), writes=matrix(builder, 4, 4))


def test_one_waits_by_way_of_others() -> None:
    builder = ProgramBuilder()
    whole, between = matrix(builder, 4, 4), matrix(builder, 4, 4)
    first, second = rows(whole, 0, 2), rows(whole, 2, 2)
    emit(builder, writes=first)
    emit(builder, first, writes=between)
    emit(builder, between, writes=second)
    emit(builder, replace(whole, writers=second.writers), writes=matrix(builder, 4, 4))


def test_nothing_is_written_over_before_it_is_read() -> None:
    builder = ProgramBuilder()
    room, result = matrix(builder, 4, 4), matrix(builder, 4, 4)
    emit(builder, writes=room)
    emit(builder, room, writes=result)
    with pytest.raises(BrokenPromiseError, match="which uses that"):
        emit(builder, writes=replace(room, writers=[]), after=(room,))
    again = replace(room, writers=[])
    emit(builder, writes=again, after=(result,))
    emit(builder, again, writes=matrix(builder, 4, 4))


def test_what_is_read_has_the_type_that_was_written() -> None:
    builder = ProgramBuilder()
    view = matrix(builder, 4, 4)
    emit(builder, writes=view)
    with pytest.raises(BrokenPromiseError, match="stores as f32"):
        emit(builder, replace(view, type=TensorType(BF16, (4, 4))), writes=matrix(builder, 4, 4))


def test_a_border_is_waited_for_by_who_reads_it() -> None:
    builder = ProgramBuilder()
    type_ = TensorType(u8, (1, 32, 4, 4))
    whole = blocked_view(type_, builder.arena(32 * 36), Halo(1, 1, 1, 1), 7)
    emit(builder, writes=whole, around=(whole,))
    part = replace(sub_blocks(whole, (1, 16, 4, 4), 0), writers=[])
    emit(builder, writes=part)
    emit(builder, part, writes=matrix(builder, 4, 4))
    with pytest.raises(BrokenPromiseError, match="which writes its border"):
        emit(builder, part, writes=matrix(builder, 4, 4), around=(part,))
    part.writers.extend(whole.writers)
    emit(builder, part, writes=matrix(builder, 4, 4), around=(part,))


def test_the_prepared_buffer_is_what_the_program_before_wrote() -> None:
    first = ProgramBuilder()
    second = ProgramBuilder(promises=Promises(first.promises))
    made, not_made = (plain_view(TensorType(f32, (4,)), first.prepared(16)) for _ in range(2))
    emit(first, writes=made)
    emit(second, replace(made, writers=[]), writes=matrix(second, 4, 4))
    with pytest.raises(BrokenPromiseError, match="no kernel"):
        emit(second, not_made, writes=matrix(second, 4, 4))


def test_kernels_have_the_types_that_were_planned() -> None:
    view = View(TensorType(BF16, (4,)), ProgramBuilder().arena(8), 0)
    with pytest.raises(BrokenPromiseError, match="a node: the operand output of the kernel k is u8, and was planned"):
        require_types("k", {"output": "u8"}, {"output": view}, "a node")
    require_types("k", {"output": "bf16"}, {"output": view}, "a node")
    require_types("k", {"output": "b2"}, {"output": view}, "a node")


def test_kernels_touch_the_memory_of_their_operands_alone() -> None:
    builder, record = ProgramBuilder(), KERNELS["copy_4"]
    views = {"a": matrix(builder, 4, 4), "o": matrix(builder, 4, 4)}

    def require(rows: int, columns: int, between: int) -> None:
        loops = strided("copy_4", (rows, columns), (between, 1), (4, 1))
        require_room("copy_4", record, loops.ints(), views, builder.constants, "a node")

    require(4, 4, 4)
    require(4, 0, 99)
    with pytest.raises(BrokenPromiseError, match="a node: the kernel copy_4 touches bytes 0 to 304 of the operand a"):
        require(4, 4, 24)
    with pytest.raises(BrokenPromiseError, match="a node: the kernel copy_4 touches bytes -48 to 16 of the operand a"):
        require(4, 4, -4)


# ---- plans that are wrong ----------------------------------------------------------------------------------


def joined() -> Graph:
    """Two convolutions of bytes of one image, that by itself and as a part of a concat, with a border of 30."""
    b = Builder()
    x = quantized(b, b.parameter("x", (1, 16, 6, 6)))
    whole = b.concat(x, quantized(b, b.parameter("y", (1, 16, 6, 6))), axis=1)
    pads = {"pads_begin": [1, 1], "pads_end": [1, 1], "pad_value": 30}
    return b.results(*(b.quantized_convolution(data, *product_operands(b, (8, data.shape[1], 3, 3), 8), **pads)
                       for data in (x, whole)))


def gated() -> Graph:
    b = Builder()
    x = b.parameter("x", (1, 16, 8, 8))
    return b.results(b.hard_swish(b.convolution(x, b.weight("w", (16, 16, 1, 1)))))


def arrays_of(graph: Graph) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [(random.standard_normal(p.shape) * 9).astype(p.type.element.numpy) for p in graph.parameters]


def forget_the_border(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "sub_blocks", lambda *args: replace(sub_blocks(*args), writers=[]))


def leave_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part that is said to be in its place is elsewhere."""
    new = Lowering._new

    def elsewhere(ctx: Lowering, value: object, element: object) -> object:
        view = new(ctx, value, element)  # type: ignore[arg-type]
        if value in ctx.layout.placement:
            ctx.converted = lambda source, destination, floats=(): source  # type: ignore[assignment,method-assign]
            return ctx.framed(view.type, view.halo, view.fill)
        return view

    monkeypatch.setattr(Lowering, "_new", elsewhere)


def leave_out_what_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hard swish that its convolution does not compute is left out."""
    init = Lowering.__init__

    def merged(ctx: Lowering, *args: object, **more: object) -> None:
        init(ctx, *args, **more)  # type: ignore[arg-type]
        ctx.merged.update(ctx.activations.values())
        ctx.activations.clear()

    monkeypatch.setattr(Lowering, "__init__", merged)


@pytest.mark.parametrize(("graph", "break_it", "why"), [
    (joined, forget_the_border, "which writes its border"),
    (joined, leave_a_part, "part is written|no kernel of this program has written|writes elsewhere"),
    (gated, leave_out_what_is_merged, "hard_swish: its result was to be made, and there is nothing"),
])
def test_a_broken_plan_is_told_once_and_compiled_another_way(
        graph: Callable[[], Graph], break_it: Callable[[pytest.MonkeyPatch], None], why: str,
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    wanted = compile(graph(), "INTERPRETER")(*(arrays := arrays_of(graph())))
    options.tell_once.cache_clear()
    break_it(monkeypatch)
    with caplog.at_level(logging.WARNING, "ngraph_mxnet"):
        for _ in range(2):
            for found, right in zip(compile(graph(), "CPU")(*arrays), wanted, strict=True):
                np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-4)
    (said,) = {record.message for record in caplog.records}
    assert "is compiled another way, which is slower: " in said and "please report it" in said
    with pytest.raises(BrokenPromiseError, match=why):
        raise BrokenPromiseError(said)


def test_bytes_that_were_planned_as_bf16(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    allow_bf16(monkeypatch)
    plan = precision.plan_narrow

    def with_concats(graph: Graph, **options: bool) -> frozenset[Value]:
        return plan(graph, **options) | {node.output for node in graph.nodes if node.op.name == "concat"}

    monkeypatch.setattr(context, "plan_narrow", with_concats)
    b = Builder()
    x, y = (quantized(b, b.parameter(name, (1, 16, 6, 6))) for name in "xy")
    graph = b.results(b.max_pool(b.concat(x, y, axis=1), kernel=(2, 2)))
    arrays = arrays_of(graph)
    (wanted,) = compile(graph.clone(), "INTERPRETER")(*arrays)
    options.tell_once.cache_clear()
    np.testing.assert_array_equal(compile(graph, "CPU", precision="bf16")(*arrays)[0], wanted)
    assert "a value of u8 was planned as bf16" in caplog.text


def reads_what_nobody_wrote(ctx: Lowering, node: Node) -> None:
    ctx.set_plain(node.output, ctx.copy(ctx.new_plain(node.output.type), ctx.new_plain(node.output.type)))


def makes_nothing(ctx: Lowering, node: Node) -> None:
    pass


@pytest.mark.parametrize(("lower", "why"), [
    (reads_what_nobody_wrote, "no kernel of this program has written"),
    (makes_nothing, "own_op: its result was to be made, and there is nothing"),
])
def test_what_can_be_compiled_no_other_way_is_an_error(lower: Callable[[Lowering, Node], None], why: str,
                                                       own_op: Callable[..., None]) -> None:
    own_op(lower)
    b = Builder()
    graph = b.results(b.relu(b.own_op(b.parameter("x", (4, 8)))))
    with pytest.raises(BrokenPromiseError, match=why):
        compile(graph, "CPU")
