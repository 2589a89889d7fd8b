"""Which parts of a model run on a backend, and why the others do not."""

from __future__ import annotations

import glob
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group
from rich.text import Text

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.error_texts import brief
from ngraph_mxnet.bridges.mxnet.importer import lower_graph
from ngraph_mxnet.bridges.mxnet.judging.judgement import Cut, argument_types, pins_of
from ngraph_mxnet.bridges.mxnet.judging.nameless import NamelessGraph
from ngraph_mxnet.bridges.mxnet.symbols.sparse_storage import why_not_dense
from ngraph_mxnet.bridges.mxnet.symbols.symbol_inputs import check_inputs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import parse_symbol
from ngraph_mxnet.distributed.gradients import bucket_bytes, make_plan
from ngraph_mxnet.errors import ModelError
from ngraph_mxnet.ir import Graph
from ngraph_mxnet.ir.types import ELEMENT_TYPES
from ngraph_mxnet.placement.verdicts.render import render
from ngraph_mxnet.placement.verdicts.report import Partition, Verdict
from ngraph_mxnet.rendered import Rendered
from ngraph_mxnet.runtime.backend import Backend, get_backend

if TYPE_CHECKING:
    from mxnet.symbol import Symbol
    from rich.console import RenderableType

    from ngraph_mxnet.bridges.mxnet.training.program import TrainingProgram


Shapes = Mapping[str, Sequence[int]]
DTypes = Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class Explanation(Rendered):
    """Prints as tables; `to_dict` is for programs.

    `details`: what the backend tells of each region (`Backend.explain`), if asked for.
    `precisions`: of each region's convolutions and matrix products; with a recipe, how many are in 8 bits.
    `notices`: settings that this machine can't follow.
    """

    partition: Partition
    details: Any = None
    plans: list[Any] = field(default_factory=list)
    notices: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()

    @property
    def compiles(self) -> bool:
        """True if any node runs on the backend."""
        return bool(self.partition.regions)

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {**self.partition.to_dict(), "notices": list(self.notices)}
        for region, precision in zip(found["regions"], self.precisions, strict=True):
            region["precision"] = precision
        if self.details is not None:
            found |= self.details.to_dict()
        if self.plans:
            found["plans"] = [plan.to_dict() for plan in self.plans]
        return found

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [render(self.partition, self.precisions)]
        if self.details is not None:
            parts.append(self.details)
        for number, plan in enumerate(self.plans, 1):
            parts += [Text(f"Region {number}", style="bold"), plan] if len(self.plans) > 1 else [plan]
        return Group(*parts, *(Text(notice, style="yellow") for notice in self.notices))


def explain(symbol: Symbol | str | Path, shapes: Shapes, dtypes: DTypes | None = None, *,
            backend: str | None = None, kernels: bool = False, options: Mapping[str, Any] | None = None,
            ) -> Explanation:
    """Partition `symbol` as a bind for inference would. No array is made and nothing runs.

    Args:
        symbol: a Symbol, or the path of a symbol file (`model-symbol.json`).
        shapes: of the data inputs, by name; MXNet infers the others.
        dtypes: by name; float32 where not given.
        backend: by default the one of NGRAPH_BACKEND.
        kernels: compile the regions too, and tell what the backend makes of them: of the CPU's, how each contraction
            is computed, and the memory.
        options: the backend's own, which its plan of each region depends on.

    Raises:
        ModelError: the file is corrupt, an input's name or dtype is wrong, a shape is missing, or MXNet finds the
            shapes inconsistent.
        ConfigError: no such backend or option, or `kernels` of one that has none.
    """
    import mxnet as mx

    from ngraph_mxnet.bridges.mxnet.judging import partitioner

    if not isinstance(symbol, mx.symbol.Symbol):
        symbol = load_symbol(Path(symbol))
    planner = get_backend(backend or config.get("NGRAPH_BACKEND"))
    planner.plan(Graph(), options or {})  # refuses options before any node is judged
    if kernels:
        planner.explain([])  # refuses, likewise, if there is nothing to tell
    check_inputs(symbol, shapes, dtypes)
    text = partitioner.json_of(symbol)
    sparse = why_not_dense(text)
    if sparse is not None:
        nodes = parse_symbol(text).operators()
        return Explanation(Partition(planner.name, [Verdict(node.name, node.op, sparse) for node in nodes]))
    shapes = {name: tuple(shape) for name, shape in shapes.items()}
    try:
        told = all_dtypes(symbol, dtypes or {})
        types = {name: (shapes.get(name), told.get(name)) for name in {**shapes, **told}}
        found, regions = region_graphs(symbol, types, planner)
        precisions = tuple(planner.precision_of(graph.clone(), {}) for graph, _ in regions)
        details = planner.explain([graph for graph, _ in regions]) if kernels else None
        plans = [planner.plan(graph, {**pins, **(options or {})}) for graph, pins in regions]
    except mx.base.MXNetError as error:
        raise ModelError(f"MXNet can't infer the model's shapes from {shapes}: {brief(error)}") from None
    return Explanation(found, details, [plan for plan in plans if plan is not None], tuple(planner.notices()),
                       precisions)


def region_graphs(symbol: Symbol, types: Mapping[str, Any],
                  backend: Backend) -> tuple[Partition, list[tuple[Graph, dict[str, Any]]]]:
    """How `symbol` is partitioned for inputs of these shapes and dtypes, and the graph of each region, its weights
    unknown, with where its nodes are pinned, as an option.

    Raises:
        UnsupportedError, MXNetError: the symbol has names, or shapes, that it can't have.
    """
    from ngraph_mxnet.bridges.mxnet.judging import cached_partitions, partitioner
    from ngraph_mxnet.bridges.mxnet.judging.partitioning import partition

    nameless = NamelessGraph(partitioner.json_of(symbol))
    found = partition(symbol, nameless, types, backend)
    regions = [_lowered(nameless, cut, backend) for cut in found.cuts]
    return cached_partitions.with_names(found.partition, nameless), regions


def load_symbol(path: Path) -> Symbol:
    """The symbol in a file.

    Raises:
        ModelError: the file can't be read, or is corrupt.
    """
    import mxnet as mx

    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"can't read {path}: {error}") from None
    try:
        parse_symbol(text)  # MXNet's own parser crashes on some corrupt files
        return mx.sym.load_json(text)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    except mx.base.MXNetError as error:
        raise ModelError(f"MXNet can't load {path}: {brief(error)}") from None


def all_dtypes(symbol: Symbol, dtypes: DTypes) -> dict[str, Any]:
    """The dtype of every input: the partitioner takes float32 for those that it is not told."""
    if not dtypes:
        return {}
    arguments, _, states = symbol.infer_type(**dtypes)
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    return dict(zip(names, [*(arguments or []), *(states or [])], strict=False))


def _lowered(nameless: NamelessGraph, cut: Cut, backend: Backend) -> tuple[Graph, dict[str, Any]]:
    """A region's graph, its weights unknown, and where its symbol wants nodes to run, as an option."""
    types = argument_types(cut.graph)
    assert types is not None  # a node that reads an unknown type is in no region
    graph = lower_graph(cut.graph, types)
    nameless.put_names(graph)
    if not backend.devices:
        return graph, {}
    pins = {glob.escape(nameless.named(origin)): pin for origin, pin in pins_of(cut.graph, backend.devices).items()}
    return graph, {"pins": pins}


@dataclass(frozen=True)
class BucketTraining:
    """`gradients`: names, in the order in which they become final; `bytes`: of all; `ready`: the share of the backward
    pass, from 0 to 1, after which the last of them is final."""

    gradients: tuple[str, ...]
    bytes: int
    ready: float


def buckets_of(program: TrainingProgram, trained: Sequence[str]) -> tuple[tuple[BucketTraining, ...], float]:
    """The buckets in the order in which they are sent, and the seconds of the backward pass, which is run twice on
    zeros.

    Args:
        program: made for recorded calls.
        trained: names of its gradients, in the order of the backward half's results.
    """
    from ngraph_mxnet import _core

    native = program.backward.native
    inputs, outputs = ([np.zeros(shape, ELEMENT_TYPES[element].numpy) for element, shape in each]
                       for each in (native.inputs, native.outputs))
    native.run(inputs, outputs)  # memory is touched
    watch = _core.ResultWatch([(each.__array_interface__["data"][0], 0) for each in outputs])
    begin = time.monotonic()
    native.run(inputs, outputs)
    seconds = time.monotonic() - begin
    ready = {number: at - begin for number, at, _ in watch.take(0.0)}
    sizes, dtypes = [each.size for each in outputs], [each.dtype for each in outputs]
    plan = make_plan(sizes, dtypes, list(ready), bucket_bytes())
    return tuple(BucketTraining(tuple(trained[slot.gradient] for slot in bucket.slots),
                                sum(slot.bytes for slot in bucket.slots),
                                max(ready[slot.gradient] for slot in bucket.slots) / seconds)
                 for bucket in plan), seconds
