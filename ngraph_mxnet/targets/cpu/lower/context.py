"""The context in which a graph is lowered: the settings, the views of values, and the halos of zeros or a fill around
images."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.base import registry
from ngraph_mxnet.base.errors import BrokenPromiseError
from ngraph_mxnet.ir.graph import Graph, Node, Value, constant_of
from ngraph_mxnet.ir.sizes import are_same, is_zero, least, where
from ngraph_mxnet.ir.types import ElementType, Role, TensorType, f32, u8
from ngraph_mxnet.targets.cpu.codegen.generator import Generator
from ngraph_mxnet.targets.cpu.machine.isa import InstructionSet
from ngraph_mxnet.targets.cpu.microkernels.tables import TableRecipe
from ngraph_mxnet.targets.cpu.microkernels.tiles import Wanted
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa
from ngraph_mxnet.targets.cpu.params import KERNELS, Params
from ngraph_mxnet.targets.cpu.params.layout import FILL_HALO, FROM_BLOCKED, TO_BLOCKED, ZERO_HALO
from ngraph_mxnet.targets.cpu.params.record import Kernels, by_name
from ngraph_mxnet.targets.cpu.params.strided import SIZE_SUFFIX, strided, strided_parts
from ngraph_mxnet.targets.cpu.planning.layout import (
    LayoutPlan,
    plan_activations,
    plan_layout,
    plan_shuffles,
    read_as_images,
)
from ngraph_mxnet.targets.cpu.planning.precision import Affine, plan_fours, plan_narrow, plan_stores
from ngraph_mxnet.targets.cpu.planning.view import (
    BF16,
    BLOCK,
    BlockedView,
    Halo,
    PlainView,
    View,
    as_blocked,
    as_plain,
    blocked_bytes,
    blocked_view,
    images_4d,
    plain_view,
    spatial,
    sub_blocks,
)
from ngraph_mxnet.targets.cpu.program.builder import ProgramBuilder
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Instruction, Space
from ngraph_mxnet.targets.cpu.program.promises import DEFECT, Promises, require_room, require_types


def keep_zeros(symbol: str, images: View, halo: Halo, **sizes: int) -> None:
    """Zeros around the images in a buffer of a region, which keeps them.

    Args:
        symbol: of the kernel `zero_halo`.
        sizes: its planes, height, width and words.
    """
    params = ZERO_HALO(**sizes, halo=halo)
    images.buffer.zeroing = Instruction(symbol, [(images.buffer, 0)], params.ints(), [], params.tasks, [],
                                        bytes=images.buffer.bytes)


def write_fill(emit: Callable[..., None], images: View, halo: Halo, fill: int, **sizes: int) -> None:
    """In each run the u8 `fill` around the images; nothing else is written: readers wait for both writers."""
    word = int.from_bytes(bytes([fill]) * 4, "little", signed=True)
    emit("fill_halo", FILL_HALO(**sizes, halo=halo, word=word), images=replace(images, offset=0),
         around=("images",))


Strides = Sequence[int]
Placed = PlainView | BlockedView | tuple[View, Strides]
"""An operand of a strided kernel: a view, or a view with other strides than its own."""


def layout_params(record: Kernels, blocked: BlockedView, source: View, out: View) -> Params:
    """Rows that are shorter than the 16 pixels that the kernels transpose at once are taken together, where they follow
    each other without gaps in both layouts."""
    (images, channels), (height, width) = blocked.type.shape[:2], spatial(blocked.type.shape)
    steps = [view.strides[:4] if isinstance(view, BlockedView) else _plain_strides(view) for view in (source, out)]
    if all(are_same(row, width * pixel) for _, _, row, pixel in steps):
        short = width < BLOCK
        height, width = where(short, 1, height), where(short, height * width, width)
    return record(n=images, c=channels, h=height, w=width, **by_name("input output", steps))


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


def name_end(source: View, out: View) -> str:
    """Return the end of a kernel's name, which tells how its operands are stored."""
    read, stored = source.type.element, out.type.element
    if read is stored:
        return "" if read is f32 else f"_{read}"
    return f"_{read}_{stored}"


def named_strides(**views: BlockedView) -> dict[str, Strides]:
    """Strides over (image, block, row, pixel) of each view, which are a group of a kernel's record."""
    return {name: view.strides[:4] for name, view in views.items()}


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
                           (first * blocked.block, blocked.strides))))
    return found


class Settings(NamedTuple):
    """The settings that a graph is compiled for. With a `generator`, `fused` nodes get kernels of their own."""

    isa: Isa
    threads: int
    generator: Generator | None = None
    winograd: bool = True
    """True if Winograd's algorithm may compute 3x3 convolutions."""
    bf16: bool = False
    """Contractions of the main graph in bf16."""
    vnni: bool = False
    """Contractions of u8 may be those that need VNNI."""
    halves: bool = False
    """True if the CPU computes AVX-512 in halves: see `machine.isa.halves_avx512`."""
    amx: bool = False
    """Contractions of bf16 may be in AMX's tiles."""
    every_algorithm: bool = False
    """True if a Program for a range of sizes also has the algorithms that are the best for some sizes, but not for
    most."""

    as_planned: bool = True
    """True if the producer of a value stores it as its readers want it: in a concat's place, in bytes, bf16 or fours.
    If False, each node is lowered by itself."""

    @property
    def instruction_set(self) -> InstructionSet:
        """By its name for callers and files."""
        return "amx" if self.amx else "avx_vnni" if self.isa == "avx2" and self.vnni else self.isa

    def symbol(self, kernel: str) -> str:
        return f"ng_{kernel}__{self.isa}"

    def wanted(self, *, bf16: bool = False, u8: bool = False, short: bool = False) -> Wanted:
        """Return the kernels that a contraction of these numbers may have."""
        return Wanted(self.isa, bf16, u8, self.vnni, short, self.halves, self.amx)


class Lowering:
    """Lowers one graph. `prepare` lowers the graph whose results are kept with the weights.

    A value may live in both layouts, and in the blocked one as float32 and as bf16: `plain`, `blocked` and `narrow`
    convert on first demand.
    """

    def __init__(self, graph: Graph, settings: Settings, prepare: Lowering | None = None, *,
                 wave_bytes: int = 0, branches: int = 0) -> None:
        self.graph = graph
        self.settings = settings
        self.prepare = prepare
        self.builder: ProgramBuilder = ProgramBuilder(wave_bytes, branches,
                                                      promises=Promises(prepare.builder.promises if prepare else None))
        self.bf16 = settings.bf16 and prepare is not None
        planned = settings.as_planned
        self._stored_narrow = plan_narrow(graph, amx=settings.amx) if self.bf16 and planned else frozenset()
        self.layout: LayoutPlan = plan_layout(graph, self._stored_narrow, in_place=planned)
        self.activations: dict[Node, Node] = plan_activations(graph, narrow=self.bf16) if planned else {}
        self.stores: dict[Value, tuple[Value, Affine]] = plan_stores(graph, self.activations) if planned else {}
        self.shuffles, self.within_shuffles = plan_shuffles(graph) if planned and not self.bf16 else ({}, set())
        self.merged: set[Node] = set()
        """Nodes whose results those before them have made by now: an activation by its convolution."""
        self.quantized: dict[Value, tuple[Value, Affine]] = {}
        """Real numbers that are at hand as u8, which readers widen."""
        self.images = read_as_images(graph)
        self.in_fours = plan_fours(graph) if planned else frozenset()
        self.fours: dict[Value, PlainView] = {}
        """Images of u8 whose pixels are four bytes (`lower/quantized.py`)."""
        self.origin = ""
        self._plain: dict[Value, PlainView] = {}
        self._blocked: dict[Value, BlockedView] = {}
        self._narrow: dict[Value, BlockedView] = {}
        self.rows: dict[tuple[Value, bool], Any] = {}
        """Left operands of matrix products, transposed or not, as these read them."""
        self._source: dict[Value, Value] = {}
        self._packed: dict[tuple[Any, ...], View] = {}

    # ---- where values come from -------------------------------------------------------------------------

    def bind_input(self, value: Value, index: int) -> None:
        """`value` is the caller's input `index`."""
        self.set_plain(value, plain_view(value.type, Buffer(Space.INPUT, value.type.bytes, index=index)))

    def bind_prepared(self, value: Value, source: Value) -> None:
        """`value` is what the prepare graph computes as `source`."""
        self._source[value] = source

    def set_plain(self, value: Value, view: PlainView) -> None:
        self._plain[value] = view

    def set_blocked(self, value: Value, view: BlockedView) -> None:
        (self._narrow if view.type.element is BF16 else self._blocked)[value] = view

    def set_views(self, values: Sequence[Value], views: Iterable[PlainView | BlockedView]) -> None:
        """The views, each in its layout, are where the values are."""
        for value, view in zip(values, views, strict=True):
            if isinstance(view, PlainView):
                self.set_plain(value, view)
            else:
                self.set_blocked(value, view)

    def has_blocked(self, value: Value) -> bool:
        """True if the value lives in the blocked layout already."""
        return value in self._blocked or value in self._narrow

    def is_at_hand(self, value: Value) -> bool:
        """True if the value is stored anywhere, even only as bytes that readers widen."""
        return self.has_blocked(value) or value in self._plain or value in self.quantized or value in self.fours

    def views(self, value: Value) -> list[View]:
        """Return the views where the value is stored by now, in any layout."""
        return [views[value] for views in (self._plain, self._blocked, self._narrow) if value in views]

    def alias(self, value: Value, source: Value) -> None:
        """`value` is the same tensor as `source`."""
        if self.has_blocked(source) and not self.layout.halo.get(value):
            for views in (self._blocked, self._narrow):
                if source in views:
                    views[value] = views[source]
        else:
            self._plain[value] = self.plain(source)

    # ---- reading ----------------------------------------------------------------------------------------

    def plain(self, value: Value) -> PlainView:
        """The value in plain layout, at any strides."""
        if value not in self._plain:
            if value in self._source:
                assert self.prepare is not None
                self.prepare.origin = self.origin
                self._plain[value] = self.prepare.prepared(self._source[value])
            elif constant_of(value) is not None:
                self._plain[value] = self._constant(value)
            else:
                wide = value in self._narrow or value in self.quantized
                blocked = self.blocked(value) if wide else self._blocked[value]
                self._plain[value] = as_plain(blocked) or self._from_blocked(blocked)
        return self._plain[value]

    def contiguous(self, value: Value) -> PlainView:
        """The value in plain layout without gaps."""
        self._plain[value] = self.dense(self.plain(value))
        return self._plain[value]

    def dense(self, view: PlainView) -> PlainView:
        """The view, or a copy without gaps."""
        return view if view.is_contiguous else self.copy(view, self.new_plain(view.type))

    def blocked(self, value: Value) -> BlockedView:
        """The value in blocked layout and its own element type, with the halo that the layout plan gives it."""
        if value not in self._blocked and value in self._narrow:
            self._blocked[value] = self.converted(self._narrow[value], self.new_blocked(value))
        elif value not in self._blocked and value in self.quantized:
            source, affine = self.quantized[value]
            self._blocked[value] = self.converted(self.blocked(source), self.new_blocked(value), affine.floats)
        elif value not in self._blocked:
            plain, halo = self.plain(value), self.layout.halo.get(value, Halo())
            alias = as_blocked(plain) if not halo and value not in self.layout.placement else None
            self._blocked[value] = alias or self._to_blocked(plain, self.new_blocked(value))
        return self._blocked[value]

    def narrow(self, value: Value) -> BlockedView:
        """The value in blocked layout and bf16, with the same halo."""
        if value not in self._narrow:
            made = self._new(value, BF16)
            turned = value in self._blocked or value in self.quantized
            source = self.blocked(value) if turned else as_blocked(self.plain(value))
            self._narrow[value] = (self._to_blocked(self.plain(value), made) if source is None
                                   else self.converted(source, made))
        return self._narrow[value]

    def stored(self, value: Value) -> BlockedView:
        """The value in blocked layout as its producer stored it, float32 or bf16."""
        return self.narrow(value) if value in self._stored_narrow else self.blocked(value)

    def prepared(self, value: Value) -> PlainView:
        """In the prepare graph: the value, copied to the prepared buffer."""
        key = ("prepared", value)
        if key not in self._packed:
            view = plain_view(value.type, self.builder.prepared(value.type.bytes))
            self._packed[key] = self.copy(self.plain(value), view)
        # The main program may read it at once: prepare has finished when it starts.
        return replace(self._packed[key], writers=[])  # type: ignore[return-value]

    def packed(self, value: Value, spec: tuple[Any, ...], size: int,
               emit: Callable[[Lowering, PlainView, View], None], *, contiguous: bool = True) -> View:
        """`value` rearranged to `size` bytes by `emit(context, source, destination)`.

        Done in the prepare program when the value is known there, else at every call. `spec` identifies
        the arrangement, so that two readers share one. Without `contiguous`, `source` has any strides.
        """
        context, source = self._home(value)
        key = (*spec, source)
        if key not in context._packed:
            builder = context.builder
            buffer = builder.arena(size) if context is self else builder.prepared(size)
            destination = View(value.type, buffer, 0)
            context.origin = self.origin
            emit(context, context.contiguous(source) if contiguous else context.plain(source), destination)
            context._packed[key] = destination
        found = context._packed[key]
        return found if context is self else replace(found, writers=[])

    def is_prepared(self, value: Value) -> bool:
        """True if `packed` rearranges the value at prepare time."""
        return self.prepare is not None and self._home(value)[0] is self.prepare

    def _home(self, value: Value) -> tuple[Lowering, Value]:
        """The context that knows `value` earliest, and its name there."""
        if self.prepare is None:
            return self, value
        if value in self._source:
            return self.prepare, self._source[value]
        is_constant = constant_of(value) is not None
        if not is_constant and value.role is not Role.WEIGHT:
            return self, value
        if value not in self.prepare._plain:
            self.prepare._plain[value] = self.prepare._constant(value) if is_constant else self.plain(value)
        return self.prepare, value

    def _constant(self, value: Value) -> PlainView:
        assert value.node is not None
        return plain_view(value.type, self.builder.constant(value.node.attrs["value"]))

    def is_last_reader(self, node: Node, value: Value) -> bool:
        """True if only this node reads the value, and nothing else reads the value's memory. The memory may then be
        overwritten."""
        view = self.plain(value)
        views = [*self._plain.values(), *self._blocked.values(), *self._narrow.values()]
        readers = sum(other.inputs.count(value) for other in self.graph.nodes)
        return (view.buffer.space is Space.ARENA and view.buffer.region is None and view.is_contiguous
                and view.buffer.bytes == view.type.bytes and readers == node.inputs.count(value) == 1
                and value not in self.graph.results and sum(other.buffer is view.buffer for other in views) == 1
                and all(each in view.writers for each in self.builder.touching.get(view.buffer, ())))

    # ---- writing ----------------------------------------------------------------------------------------

    def new_plain(self, type_: TensorType) -> PlainView:
        """Fresh contiguous memory."""
        return plain_view(type_, self.builder.arena(type_.bytes))

    def new_rows(self, type_: TensorType) -> PlainView:
        """Fresh memory in which each row has room for whole blocks."""
        *outer, columns = type_.shape
        whole = self.new_plain(type_.with_shape((*outer, -(-columns // BLOCK) * BLOCK)))
        return whole.seen(type_, whole.strides)

    def fill_rest(self, rows: PlainView) -> None:
        """Write zeros to the rest of the last block of each of such rows."""
        *outer, columns = rows.type.shape
        rest = -(-columns // BLOCK) * BLOCK - columns
        if not is_zero(rest):
            behind = rows.seen(rows.type.with_shape((*outer, rest)), rows.strides, columns)
            self.strided(f"fill_{rows.type.element.size}", behind.type.shape, [], behind, [0.0])

    def new_blocked(self, value: Value, *, narrow: bool = False) -> BlockedView:
        """Memory for who makes `value`, where the layout plan wants it. `narrow`: who makes it can store bf16, and does
        where `plan_narrow` wants that; others store the value's own type, and its readers convert."""
        return self._new(value, BF16 if narrow and value in self._stored_narrow else value.type.element)

    def _new(self, value: Value, element: ElementType) -> BlockedView:
        """Memory for `value` in blocked layout, in its concat's place if that is of `element`; its halo is zero, from
        the start or by `zero_halo`, or is filled."""
        if element is BF16 and value.type.element is not f32:
            raise BrokenPromiseError(f"{self.origin}: a value of {value.type.element} was planned as bf16. {DEFECT}")
        if value in self.layout.placement:
            parent, first = self.layout.placement[value]
            if self._element_of(parent) is element:
                return sub_blocks(self.destination(parent), value.shape, first)
        return self.framed(TensorType(element, value.shape), self.layout.halo.get(value, Halo()),
                           self.layout.fill.get(value, 0))

    def _element_of(self, value: Value) -> ElementType:
        """Return the element type of the view that `stored` gives."""
        return BF16 if value in self._stored_narrow else value.type.element

    def destination(self, concat: Value) -> BlockedView:
        """The memory of a concat, in which its operands are made (see `LayoutPlan.placement`): here from the first of
        them on, before it is lowered itself."""
        if not self.has_blocked(concat):
            self.set_blocked(concat, self._new(concat, self._element_of(concat)))
        return self.stored(concat)

    def framed(self, type_: TensorType, halo: Halo, fill: int) -> BlockedView:
        """The same for anything, with a border of zeros, or of the u8 `fill`."""
        region = ("halo", str(type_), halo) if halo and not fill else None
        view = blocked_view(type_, self.builder.arena(blocked_bytes(type_, halo), region), halo, fill)
        sizes = {"planes": view.images * view.blocks, "height": view.height, "width": view.width,
                 "words": BLOCK * type_.element.size // 4}
        if halo and fill:
            write_fill(self.emit, view, halo, fill, **sizes)
        elif halo:
            keep_zeros(self.settings.symbol("zero_halo"), view, halo, **sizes)
        return view

    def table(self, array: np.ndarray | TableRecipe) -> View:
        """A constant that a kernel reads."""
        return View(TensorType(f32, (array.nbytes // f32.size,)), self.builder.constant(array), 0)

    def emit(self, kernel: str, params: Params, /, *, after: Sequence[View] = (), bytes: int | None = None,
             operations: float = 0.0, exact: bool = False, around: Collection[str] = (),
             **operands: View | None) -> None:
        """A call of `kernel` with its operands by name; it also waits for the writers of `after`.

        In the place of one that is left out, or None, stands the first, and the kernel does not touch it. Of the
        operands `around` it reads the border as well, or writes nothing else.

        Raises BrokenPromiseError where what it reads is not what was written, or not what it takes.
        """
        record = KERNELS[kernel]
        given = {name: view for name, view in operands.items() if view is not None}
        if not record.required <= given.keys() <= record.all or params.record is not record:
            raise TypeError(f"{kernel}: found operands {', '.join(given)}, expected {', '.join(record.tensors)} and "
                            "numbers of its own")
        first, ints = given[record.tensors[0]], params.ints()
        require_types(kernel, record.elements(kernel, ints), given, self.origin)
        require_room(kernel, record, ints, given, self.builder.constants, self.origin)
        self.builder.emit(self.settings.symbol(kernel), [given.get(name, first).operand for name in record.tensors],
                          ints, params.floats(), params.tasks,
                          reads=[given[name] for name in record.reads if name in given],
                          writes=[given[name] for name in record.written if name in given], after=after,
                          around=[given[name] for name in around], origin=self.origin, bytes=bytes,
                          operations=operations, exact=exact)

    def computed(self, kernel: str, reads: Sequence[PlainView], type_: TensorType,
                 floats: Sequence[float] = ()) -> PlainView:
        """Fresh memory of `type_` with what an elementwise kernel makes of operands that broadcast to its shape."""
        out = self.new_plain(type_)
        self.strided(kernel, type_.shape, [(view, view.over(type_.shape)) for view in reads], out, floats)
        return out

    def make_plain(self, value: Value, kernel: str, params: Params, **given: Any) -> None:
        """Make `value` in fresh plain memory by one call, whose operand `output` it is. `given`: see `emit`."""
        out = self.new_plain(value.type)
        self.emit(kernel, params, output=out, **given)
        self.set_plain(value, out)

    def strided(self, kernel: str, shape: Sequence[int], reads: Sequence[Placed], out: Placed,
                floats: Sequence[float] = (), *, after: Sequence[View] = ()) -> None:
        """An elementwise kernel over `shape`, with each operand's strides; several calls if its rank is too high."""
        operands = [placed if isinstance(placed, tuple) else (placed, placed.strides) for placed in (*reads, out)]
        for part, offsets, strides in strided_parts(tuple(shape), tuple([tuple(strides) for _, strides in operands])):
            views = [replace(view, offset=view.offset + at * view.type.element.size) if at else view
                     for (view, _), at in zip(operands, offsets, strict=True)]
            # Of a part of a tensor, or of one that is broadcast, only so many bytes are touched.
            touched = sum(least(view.type.bytes, prod(part) * view.type.element.size) for view in views)
            self.emit(kernel, strided(kernel, part, *strides, floats=floats), after=after, bytes=touched, exact=True,
                      **by_name(KERNELS[kernel].tensors, views))

    def copy(self, source: PlainView, destination: PlainView) -> PlainView:
        """Copy element for element, also between float32 and bf16; returns `destination`."""
        self.strided(moving_kernel(source, destination), source.type.shape, [source], destination)
        return destination

    # ---- layout conversions -----------------------------------------------------------------------------

    def converted(self, source: BlockedView, destination: BlockedView, floats: Sequence[float] = ()) -> BlockedView:
        """Copy within the blocked layout, also between float32 and bf16 and between halos; returns `destination`.

        `floats`: scale and zero point, between float32 and u8.
        """
        self.strided(moving_kernel(source, destination), source.dims, [source], destination, floats)
        return destination

    def _to_blocked(self, source: PlainView, destination: BlockedView) -> BlockedView:
        if source.type.element.size != f32.size:
            self._move_blocks(source, destination, into=True)
            return destination
        end = name_end(source, destination)
        for plain, blocked in images_4d(source, destination):
            params = layout_params(TO_BLOCKED[end], blocked, plain, blocked)
            self.emit(f"to_blocked{end}", params, input=plain, output=blocked)
        return destination

    def _from_blocked(self, source: BlockedView) -> PlainView:
        destination = self.new_plain(source.type)
        if source.type.element.size != f32.size:
            self._move_blocks(destination, source, into=False)
            return destination
        for plain, blocked in images_4d(destination, source):
            self.emit("from_blocked", layout_params(FROM_BLOCKED, blocked, blocked, plain), input=blocked, output=plain,
                      exact=True)
        return destination

    def _move_blocks(self, plain: PlainView, blocked: BlockedView, *, into: bool) -> None:
        """Copy elements that are no float32 between the layouts. Lanes beyond the channels stay as they are."""
        for views in images_4d(plain, blocked):
            for dims, strides in block_parts(*views):
                pairs = [(replace(view, offset=view.offset + first * view.type.element.size), steps)
                         for view, (first, steps) in zip(views, strides, strict=True)]
                source, target = pairs if into else pairs[::-1]
                self.strided(f"copy_{plain.type.element.size}", dims, [source], target)


def require_border(ctx: Lowering, view: View, halo: Halo, fill: int = 0) -> None:
    """That there is the border around an image that a reader wants. A view that is no blocked image has its own.

    Raises:
        BrokenPromiseError: there is none, it is too small, or it is filled with something else.
    """
    if not halo or not isinstance(view, BlockedView):
        return
    is_there = view.halo == halo or view.halo.cover(halo) == view.halo
    if not is_there or view.fill != fill or not (fill or view.buffer.zeroing):
        raise BrokenPromiseError(f"{ctx.origin}: expected a border of {fill} around its data, {halo}, found "
                                 f"{view.halo or 'none'} of {view.fill}. {DEFECT}")


Rule = Callable[[Lowering, Node], None]
Check = Callable[[Node], "str | None"]


class LoweringRule(NamedTuple):
    """How an op is lowered; `check` gives the reason why a node can't be, or None."""

    lower: Rule
    check: Check


RULES: dict[str, LoweringRule] = {}


def lowers(*ops: str, check: Check = lambda node: None) -> Callable[[Rule], Rule]:
    """Decorator: the rule for `ops`. Two rules for one op are an error."""

    def declare(rule: Rule) -> Rule:
        for op in ops:
            if op in RULES:
                raise ValueError(f"two lowering rules for {op}")
            RULES[op] = LoweringRule(rule, check)
        registry.note_outside(rule)
        return rule

    return declare
