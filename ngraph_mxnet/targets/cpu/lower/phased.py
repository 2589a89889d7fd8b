"""Convolutions of data with zeros between its elements (transposed convolutions): one contraction for each phase."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ngraph_mxnet.targets.cpu.lower.context import Lowering
from ngraph_mxnet.targets.cpu.lower.contraction import Epilogue, Geometry, Input, Packing, contract
from ngraph_mxnet.targets.cpu.microkernels.tables import Plane
from ngraph_mxnet.targets.cpu.microkernels.variants import Kind
from ngraph_mxnet.targets.cpu.planning.phases import AxisPhase, Phases
from ngraph_mxnet.targets.cpu.planning.view import BLOCK, BlockedView, Halo, View


def convolution(ctx: Lowering, phases: Phases, source: Input, packing: Packing, geometry: Geometry,
                outputs: list[BlockedView], epilogue: Epilogue, residual: BlockedView | None) -> None:
    """Emit the phases, which may run at once: each writes pixels of its own."""
    for rows, columns in phases.pairs:
        outs = [_places(view, rows, columns, phases.steps) for view in outputs]
        kept = _places(residual, rows, columns, phases.steps) if residual is not None else None
        if not rows.taps * columns.taps:
            nothing(ctx, source, packing, outs, epilogue, kept)
            continue
        part = replace(geometry, kernel=(rows.taps, columns.taps), strides=(1, 1),
                       dilations=(rows.dilation, columns.dilation), halo=Halo(rows.pad, 0, columns.pad, 0))
        contract(ctx, source, packing.of_taps(rows, columns), part, outs, epilogue, kept)


def nothing(ctx: Lowering, source: Input, packing: Packing, outputs: list[BlockedView], epilogue: Epilogue,
            residual: BlockedView | None) -> None:
    """Emit the places that meet no data: the epilogue of zeros."""
    none = _NoWeights(packing.value, (packing.shape[0], 0, 1, 1), packing.strides, packing.groups)
    contract(ctx, _zeros(ctx, source), none, Geometry((1, 1), (1, 1), (1, 1), packing.groups, Halo()), outputs,
             epilogue, residual)


class _NoWeights(Packing):
    """Zeros, for places that meet no data: with one step of zeros as their sum, the epilogue is everyone's."""

    def pack(self, ctx: Lowering, source: Input, oc_tile: int, *, is_wide: bool = False) -> View:
        tiles = source.groups * -(-self.shape[0] // source.groups // oc_tile)
        return ctx.table(np.zeros(tiles * BLOCK * oc_tile, np.float32))


def _zeros(ctx: Lowering, source: Input) -> Input:
    """A block of channels that is zero at every pixel."""
    view = ctx.table(np.zeros(BLOCK, np.float32))
    kind: Kind = "depthwise" if source.kind == "depthwise" else "k16"
    return Input(kind, view, Plane(0, 0, 0), 1, 0, 0, source.groups)


def _places(view: BlockedView, rows: AxisPhase, columns: AxisPhase, steps: tuple[int, int]) -> BlockedView:
    """The pixels of the phase; the view shares the writers."""
    shape = (*view.type.shape[:2], rows.count, columns.count)
    offset = view.offset + (rows.first * view.row + columns.first * view.pixel) * view.type.element.size
    return replace(view, type=view.type.with_shape(shape), offset=offset, row=view.row * steps[0],
                   pixel=view.pixel * steps[1])
