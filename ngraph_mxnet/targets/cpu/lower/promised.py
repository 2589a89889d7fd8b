"""What a node's lowering owes to the plans of the whole graph; what instructions owe is in `program/promises.py`."""

from __future__ import annotations

from ngraph_mxnet.errors import BrokenPromiseError
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.targets.cpu.lower.context import Lowering
from ngraph_mxnet.targets.cpu.planning.view import BlockedView, Halo, View
from ngraph_mxnet.targets.cpu.program.promises import DEFECT


def require_made(ctx: Lowering, node: Node) -> None:
    """That there are the results of a node that was lowered, or what others read in their place.

    Raises:
        BrokenPromiseError: there are none.
    """
    if node.op.name == "constant":
        return
    for value in node.outputs:
        if ctx.is_at_hand(value) or _is_made(ctx, value):
            continue
        reader = ctx.activations.get(node)
        if reader is None or not _is_made(ctx, reader.output):
            raise BrokenPromiseError(f"{node}: {_how(ctx, value)}, and there is nothing. {DEFECT}")


def _is_made(ctx: Lowering, value: Value) -> bool:
    if ctx.is_at_hand(value):
        return True
    return value in ctx.stores and any(view.type.element is ctx.stores[value][0].type.element
                                       for view in ctx.views(ctx.stores[value][0]))


def _how(ctx: Lowering, value: Value) -> str:
    if value in ctx.stores:
        return f"its result was to be stored as {ctx.stores[value][0].type.element} by a kernel of another node"
    return "its result was to be made"


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
