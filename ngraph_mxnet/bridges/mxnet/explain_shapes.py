"""Which regions of a symbol are compiled for ranges of sizes, and why the others are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.error_texts import brief
from ngraph_mxnet.bridges.mxnet.explain import DTypes, Shapes, all_dtypes, load_symbol
from ngraph_mxnet.bridges.mxnet.importer import lower_graph
from ngraph_mxnet.bridges.mxnet.judging.judgement import Cut, argument_types
from ngraph_mxnet.bridges.mxnet.judging.nameless import NamelessGraph
from ngraph_mxnet.bridges.mxnet.symbols.symbol_inputs import check_inputs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolGraph
from ngraph_mxnet.errors import ModelError, listed
from ngraph_mxnet.ir import TensorType
from ngraph_mxnet.runtime.backend import Backend, get_backend
from ngraph_mxnet.runtime.changing import ChangingShapes
from ngraph_mxnet.runtime.range_report import RangeExplanation, RangeVerdict, check_axes
from ngraph_mxnet.runtime.ranges import Template, attempt, require_fixed_weights

if TYPE_CHECKING:
    from mxnet.symbol import Symbol

    from ngraph_mxnet.bridges.mxnet.judging.partitioning import Partitioned


def explain_shapes(symbol: Symbol | str | Path, shapes: Shapes, axes: Mapping[str, Sequence[int]],
                   dtypes: DTypes | None = None, *, backend: str | None = None) -> RangeExplanation:
    """Explain what a bind of `symbol` would compile once for all sizes of these axes, and what it assumes of the sizes.

    Args:
        symbol: a Symbol, or the path of a symbol file (`model-symbol.json`).
        shapes: of the data inputs, by name; MXNet infers the others.
        axes: those whose sizes change, by the input's name.
        dtypes: by name; float32 where not given.
        backend: by default the one of NGRAPH_BACKEND.

    Raises:
        ModelError: as for `explain`; also where MXNet finds other sizes of these axes inconsistent.
        ConfigError: no such backend, or no such axis.
    """
    import mxnet as mx

    from ngraph_mxnet.bridges.mxnet.judging import partitioner
    from ngraph_mxnet.bridges.mxnet.judging.partitioning import partition

    if not isinstance(symbol, mx.symbol.Symbol):
        symbol = load_symbol(Path(symbol))
    planner = get_backend(backend or config.get("NGRAPH_BACKEND"))
    check_inputs(symbol, shapes, dtypes)
    given = {name: tuple(shape) for name, shape in shapes.items()}
    nameless = NamelessGraph(partitioner.json_of(symbol))
    told = all_dtypes(symbol, dtypes or {})

    def regions(sizes: Shapes) -> _Regions:
        types = {name: (sizes.get(name), told.get(name)) for name in {**sizes, **told}}
        try:
            return _Regions.of(nameless, sizes, partition(symbol, nameless, types, planner))
        except mx.base.MXNetError as error:
            raise ModelError(f"MXNet can't infer the model's shapes from {sizes}: {brief(error)}") from None

    now, later = regions(given), regions(_others(given, axes))
    found = [_verdict(now, later, members, planner) for members in now.cuts]
    found += [now.missing(members) for members in later.cuts if members not in now.cuts]
    ranges = tuple(verdict for verdict in found if verdict is not None)
    return RangeExplanation(ranges, len(found) - len(ranges))


_Members = tuple[str, ...]
"""The nodes of a region, by their places in the model."""


@dataclass(frozen=True)
class _Regions:
    """The regions of the model at one set of sizes. `left`: the nodes that stay with MXNet, each with the reason."""

    nameless: NamelessGraph
    sizes: Shapes
    graph: SymbolGraph
    cuts: Mapping[_Members, Cut]
    left: Mapping[str, str]

    @staticmethod
    def of(nameless: NamelessGraph, sizes: Shapes, found: Partitioned) -> _Regions:
        cuts = {tuple(name for name, _ in region.nodes): cut
                for region, cut in zip(found.partition.regions, found.cuts, strict=True)}
        left = {verdict.name: nameless.named(str(verdict.reason)) for verdict in found.partition.left()}
        return _Regions(nameless, sizes, found.graph, cuts, left)

    def name(self, members: _Members) -> str:
        return self.nameless.named(members[-1])

    def missing(self, members: _Members) -> RangeVerdict:
        """On nodes that are a region, but not at these sizes."""
        return RangeVerdict(self.name(members), (), (), self._why_missing(members))

    def _why_missing(self, members: _Members) -> str:
        at = listed(f"{name}={tuple(shape)}" for name, shape in self.sizes.items())
        for node in members:
            if node in self.left:
                return f"at {at} {self.nameless.named(node)} stays with MXNet: {self.left[node]}"
        return f"at {at} other nodes are in its region, too"


def _others(shapes: Mapping[str, tuple[int, ...]], axes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Larger shapes, in which no two axes have grown alike."""
    check_axes(axes, shapes)
    factors = count(2)
    others = {name: list(shape) for name, shape in shapes.items()}
    for name, changing in axes.items():
        for axis in changing:
            others[name][axis] *= next(factors)
    return {name: tuple(shape) for name, shape in others.items()}


def _verdict(regions: _Regions, others: _Regions, members: _Members, backend: Backend) -> RangeVerdict | None:
    """None where the sizes of the region's inputs are the same."""
    if members not in others.cuts:
        return others.missing(members)
    name, cut, nameless = regions.name(members), regions.cuts[members], regions.nameless
    now, later = argument_types(cut.graph), argument_types(others.cuts[members].graph)
    assert now is not None and later is not None  # a node that reads an unknown type is in no region
    if [type_.rank for type_ in now] != [type_.rank for type_ in later]:
        return RangeVerdict(name, (), (), "its inputs have other ranks when the sizes change")
    changing = ChangingShapes()
    changing.symbolic(tuple(type_.shape for type_ in later))
    symbolic = changing.symbolic(tuple(type_.shape for type_ in now))
    if symbolic is None:
        return None
    types = [TensorType(type_.element, shape) for type_, shape in zip(now, symbolic[0], strict=True)]
    inputs = [f"{nameless.named(regions.graph.nodes[edge.node].name)}: {type_}"
              for edge, type_ in zip(cut.sources, types, strict=True) if type_.is_symbolic]

    def template() -> Template | None:
        graph = lower_graph(cut.graph, types)
        nameless.put_names(graph)
        require_fixed_weights(graph)
        return backend.template(graph, {})

    return RangeVerdict.of(name, inputs, attempt(symbolic[1], template), nameless.named)
