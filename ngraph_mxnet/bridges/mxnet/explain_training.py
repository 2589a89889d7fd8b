"""An explanation of training: where each node and each update of a model runs, and why not elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ngraph_mxnet.bridges.mxnet.error_texts import brief
from ngraph_mxnet.bridges.mxnet.explain import BucketTraining, all_dtypes, buckets_of, load_symbol
from ngraph_mxnet.bridges.mxnet.symbols.sparse_storage import (
    A_SPARSE_GRADIENT,
    sparse_gradients,
    why_left,
    why_not_dense,
)
from ngraph_mxnet.bridges.mxnet.symbols.symbol_inputs import check_inputs, inferred_shapes
from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.rendered import Rendered

if TYPE_CHECKING:
    from mxnet.symbol import Symbol
    from rich.console import RenderableType

    from ngraph_mxnet.bridges.mxnet.training.program import TrainingProgram

MXNET, NOTHING = "MXNet", "nothing goes back"


@dataclass(frozen=True)
class NodeTraining:
    """`forward`, `backward`: what runs it, `MXNet` or a program of ours (`whole`, `part 2`); `reason`: why MXNet."""

    name: str
    op: str
    forward: str
    backward: str
    reason: str | None = None


@dataclass(frozen=True)
class UpdateTraining:
    """`where`: what updates the parameter, with an optimizer that has a compiled update; `reason`: why MXNet."""

    name: str
    bytes: int
    where: str
    reason: str | None = None


@dataclass(frozen=True, repr=False)
class TrainingExplanation(Rendered):
    """Prints as tables; `to_dict` is for programs.

    Attributes:
        whole: why the model is not one program; None where it is.
        buckets: in which the gradients of one program would travel between processes, in their order.
        backward_seconds: of that program's backward pass; 0 without one.
        saved_bytes: what our programs keep from forward to backward.
        optimizers: the classes that have a compiled update.
    """

    nodes: tuple[NodeTraining, ...]
    updates: tuple[UpdateTraining, ...]
    saved_bytes: int
    optimizers: tuple[str, ...]
    whole: str | None = None
    buckets: tuple[BucketTraining, ...] = ()
    backward_seconds: float = 0.0

    @property
    def compiles(self) -> bool:
        """True if any node trains compiled."""
        return any(node.forward != MXNET for node in self.nodes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __rich__(self) -> RenderableType:
        ours = sum(node.forward != MXNET for node in self.nodes)
        parts: list[RenderableType] = [Text(
            f"{ours} of {len(self.nodes)} nodes train compiled, {self.saved_bytes} bytes are saved from forward to "
            "backward", style="bold")]
        if self.whole is not None:
            parts.append(Text(f"Not trained as a whole: {self.whole}", style="yellow"))
        table = Table("node", "operator", "forward", "backward", "why MXNet", title="Nodes", title_justify="left")
        for node in self.nodes:
            table.add_row(Text(node.name), node.op, node.forward, node.backward, Text(node.reason or ""))
        parts.append(table)
        updated = [update for update in self.updates if update.where != MXNET]
        parts.append(Text(f"{len(updated)} of {len(self.updates)} parameters are updated by one program with "
                          f"{', '.join(self.optimizers)}; with other optimizers by MXNet"))
        parts += [Text(f"MXNet updates {update.name}: {update.reason}", style="yellow")
                  for update in self.updates if update.where == MXNET]
        if self.buckets:
            parts.append(self._buckets())
        return Group(*parts)


    def _buckets(self) -> Table:
        table = Table("bucket", "gradients", "first", "last", "MB", "ready", title_justify="left",
                      title="Sums over processes (dist_sync_ngraph): when buckets are ready, in shares of the "
                            f"{1e3 * self.backward_seconds:.1f} ms of the backward pass")
        for number, bucket in enumerate(self.buckets):
            first, *_, last = *bucket.gradients, bucket.gradients[-1]
            table.add_row(str(number), str(len(bucket.gradients)), Text(first), Text(last),
                          f"{bucket.bytes / 1e6:.1f}", f"{bucket.ready:.2f}")
        return table


def explain_training(symbol: Symbol | str | Path, shapes: Mapping[str, Sequence[int]],
                     dtypes: Mapping[str, Any] | None = None) -> TrainingExplanation:
    """Explain what training would compile of `symbol`. All arguments are trained, except those in `shapes` and labels.

    The programs are compiled, and the backward half of a model that is one program is run on zeros.

    Args:
        symbol: a Symbol, or the path of a symbol file (`model-symbol.json`).
        shapes: of the data inputs, by name; MXNet infers the others.
        dtypes: by name; float32 where not given.

    Raises:
        ModelError: the file is corrupt, an input's name or dtype is wrong, a shape is missing, or MXNet finds the
            shapes inconsistent.
    """
    import mxnet as mx

    if not isinstance(symbol, mx.symbol.Symbol):
        symbol = load_symbol(Path(symbol))
    check_inputs(symbol, shapes, dtypes)
    try:
        types = _types(symbol, {name: tuple(shape) for name, shape in shapes.items()}, dtypes or {})
    except mx.base.MXNetError as error:
        raise ModelError(f"MXNet can't infer the model's shapes from {dict(shapes)}: {brief(error)}") from None
    trained = [name for name in symbol.list_arguments()
               if name not in shapes and not name.endswith("label") and np.dtype(types[name][1]).kind == "f"]
    return _explained(symbol, types, trained)


def _types(symbol: Symbol, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, Any]) -> dict[str, Any]:
    """Shape and dtype of each variable."""
    told = {**all_dtypes(symbol, dtypes), **dtypes}
    return {name: (shape, np.dtype(told.get(name) or np.float32))
            for name, shape in inferred_shapes(symbol, shapes).items()}


def _explained(symbol: Symbol, types: Mapping[str, Any], trained: Sequence[str]) -> TrainingExplanation:
    from ngraph_mxnet.bridges.mxnet.judging import partitioner
    from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import parse_symbol
    from ngraph_mxnet.bridges.mxnet.training.parts import part
    from ngraph_mxnet.bridges.mxnet.training.program import TrainingProgram
    from ngraph_mxnet.bridges.mxnet.training.updates.optimizers import compiled_optimizers
    from ngraph_mxnet.ir import TensorType, element_type

    text = partitioner.json_of(symbol)
    graph = parse_symbol(text)
    sparse = sparse_gradients(graph)
    optimizers = tuple(compiled_optimizers())
    updates = _updates({name: types[name] for name in trained}, sparse)

    def all_mxnets(reason: str, whole: str) -> TrainingExplanation:
        nodes = [NodeTraining(node.name, node.op, MXNET, MXNET, reason) for node in graph.operators()]
        return TrainingExplanation(tuple(nodes), updates, 0, optimizers, whole)

    if (reason := why_not_dense(text)) is not None:
        return all_mxnets(reason, reason)
    try:
        if sparse:
            raise UnsupportedError(A_SPARSE_GRADIENT)
        program = TrainingProgram(
            text, {name: TensorType(element_type(dtype), shape) for name, (shape, dtype) in types.items()}, trained,
            recorded=True)
        nodes = [_ours(node.name, node.op, "whole", program) for node in graph.operators()]
        return TrainingExplanation(tuple(nodes), updates, program.saved_bytes, optimizers, None,
                                   *buckets_of(program, trained))
    except UnsupportedError as error:
        whole = " ".join(str(error).split())
    try:
        parted = part(symbol, types, trained, why_left(sparse))
    except UnsupportedError as error:
        return all_mxnets(str(error), whole)
    found = {member: (f"part {number}", one.program) for number, one in enumerate(parted.trained, 1)
             for member in one.cut.members}
    left = {verdict.name: verdict.reason for verdict in parted.partition.left()}
    nodes = [_ours(node.name, node.op, *found[node.index]) if node.index in found
             else NodeTraining(node.name, node.op, MXNET, MXNET, left.get(node.name))
             for node in parted.graph.operators()]
    saved = sum(one.program.saved_bytes for one in parted.trained)
    return TrainingExplanation(tuple(nodes), updates, saved, optimizers, whole)


def _ours(name: str, op: str, where: str, program: TrainingProgram) -> NodeTraining:
    return NodeTraining(name, op, where, where if f"mx:{name} {op}" in program.gone_back else NOTHING)


def _updates(types: Mapping[str, tuple[Sequence[int], np.dtype[Any]]], sparse: Sequence[str]
             ) -> tuple[UpdateTraining, ...]:
    """One program updates all with dense gradients or none: one that is not float32 leaves the others to MXNet."""
    other = next((name for name, (_, dtype) in types.items() if name not in sparse and dtype != np.float32), None)

    def update(name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> UpdateTraining:
        reason = None
        if name in sparse:
            reason = "its gradient is sparse"
        elif dtype != np.float32:
            reason = f"it is {dtype}, not float32"
        elif other is not None:
            reason = f"{other} is {types[other][1]}, and one program updates all or none"
        return UpdateTraining(name, int(np.prod(shape)) * dtype.itemsize, "one program" if reason is None else MXNET,
                              reason)

    return tuple(update(name, *found) for name, found in types.items())
