"""Which parts of a model run on a backend, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.console import Group
from rich.text import Text

from ngraph_mxnet import config
from ngraph_mxnet.cpu.describe import Contraction, contractions
from ngraph_mxnet.cpu.kernel_table import kernel_table, memory_table
from ngraph_mxnet.cpu.memory import MemoryUse
from ngraph_mxnet.errors import ConfigError, ModelError
from ngraph_mxnet.ir import Graph, TensorType, element_type
from ngraph_mxnet.mxnet_bridge import callbacks, environment
from ngraph_mxnet.mxnet_bridge.importer import lower_graph
from ngraph_mxnet.mxnet_bridge.judgement import argument_types, judge_graph, review_region
from ngraph_mxnet.mxnet_bridge.pins import pins_of
from ngraph_mxnet.mxnet_bridge.symbol_inputs import check_inputs
from ngraph_mxnet.mxnet_bridge.symbol_json import SymbolGraph, SymbolNode, cut_region, parse_symbol
from ngraph_mxnet.partition.regions import ALONE
from ngraph_mxnet.partition.render import render
from ngraph_mxnet.partition.report import Partition
from ngraph_mxnet.partition.support import Verdict
from ngraph_mxnet.runtime.backend import Backend, get_backend
from ngraph_mxnet.runtime.compile import compile as compile_graph

if TYPE_CHECKING:
    from mxnet.symbol import Symbol
    from rich.console import RenderableType

    from ngraph_mxnet.cpu.backend import CPUExecutable

Shapes = Mapping[str, Sequence[int]]
DTypes = Mapping[str, Any]

_OUTPUTS = {"RNN": ("output", "state_output", "statecell_output")}
"""How MXNet names the outputs of operators of which it does not number them."""


@dataclass(frozen=True)
class Explanation:
    """Prints as tables; `to_dict` is for programs.

    `exact`: MXNet's own partitioner cut the regions. Where the library `_core` can't be loaded they are our
    estimate, the verdicts on nodes are the same. `kernels` and `memory`: of each region, if asked for. `notices`:
    settings that this machine can't follow.
    """

    partition: Partition
    exact: bool
    kernels: list[list[Contraction]] | None = None
    memory: list[MemoryUse] | None = None
    plans: list[Any] = field(default_factory=list)
    notices: tuple[str, ...] = ()

    @property
    def compiles(self) -> bool:
        """Whether any node runs on the backend."""
        return bool(self.partition.regions)

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {**self.partition.to_dict(), "exact": self.exact, "notices": list(self.notices)}
        if self.kernels is not None:
            found["kernels"] = [[asdict(contraction) for contraction in region] for region in self.kernels]
        if self.plans:
            found["plans"] = [plan.to_dict() for plan in self.plans]
        if self.memory is not None:
            found["memory"] = [asdict(use) for use in self.memory]
        return found

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [render(self.partition, exact=self.exact)]
        if self.kernels is not None:
            parts.append(kernel_table(self.kernels))
        if self.memory is not None:
            parts.append(memory_table(self.memory))
        for number, plan in enumerate(self.plans, 1):
            parts += [Text(f"Region {number}", style="bold"), plan] if len(self.plans) > 1 else [plan]
        return Group(*parts, *(Text(notice, style="yellow") for notice in self.notices))

    def __str__(self) -> str:
        from rich.console import Console

        console = Console()
        with console.capture() as capture:
            console.print(self)
        return capture.get().rstrip()

    __repr__ = __str__


def explain(symbol: Symbol | str | Path, shapes: Shapes, dtypes: DTypes | None = None, *,
            backend: str | None = None, kernels: bool = False, options: Mapping[str, Any] | None = None,
            ) -> Explanation:
    """Partition `symbol` as a bind for inference would. No array is made and nothing runs.

    Args:
        symbol: a Symbol, or the path of a symbol file (`model-symbol.json`).
        shapes: of the data inputs, by name; MXNet infers the others.
        dtypes: by name; float32 where not given.
        backend: by default the one of NGRAPH_BACKEND.
        kernels: compile the regions too, and tell how the CPU backend computes each contraction, and the memory.
        options: the backend's own, which its plan of each region depends on.

    Raises:
        ModelError: the file is corrupt, an input's name or dtype is wrong, a shape is missing, or MXNet finds the
            shapes inconsistent.
        ConfigError: no such backend or option, or `kernels` of one that has none.
    """
    import mxnet as mx

    if not isinstance(symbol, mx.symbol.Symbol):
        symbol = load_symbol(Path(symbol))
    planner = get_backend(backend or config.get("NGRAPH_BACKEND"))
    planner.plan(Graph(), options or {})  # refuses options before any node is judged
    if kernels and planner.name != "CPU":
        raise ConfigError(f"the backend {planner.name} has no kernels to tell of; the backend CPU has")
    check_inputs(symbol, shapes, dtypes)
    shapes = {name: tuple(shape) for name, shape in shapes.items()}
    try:
        exact = environment.problem() is None
        symbol = _with_distinct_names(symbol)
        partition = (_partition if exact else _estimate)(symbol, shapes, dtypes or {}, planner)
        regions = _regions(symbol, shapes, dtypes or {}, partition)
        compiled = [cast("CPUExecutable", compile_graph(graph, "CPU")) for graph, _ in regions] if kernels else None
        plans = [planner.plan(graph, {**pins, **(options or {})}) for graph, pins in regions]
    except mx.base.MXNetError as error:
        raise ModelError(f"MXNet can't infer the model's shapes from {shapes}: {error}") from None
    found = Explanation(partition, exact, plans=[plan for plan in plans if plan is not None],
                        notices=tuple(planner.notices()))
    if compiled is None:
        return found
    return replace(found, kernels=[contractions(region.main.instructions) for region in compiled],
                   memory=[region.memory for region in compiled])


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
    parse_symbol(text)  # MXNet's own parser crashes on some corrupt files
    try:
        return mx.sym.load_json(text)
    except mx.base.MXNetError as error:
        raise ModelError(f"MXNet can't load {path}: {error}") from None


def _with_distinct_names(symbol: Symbol) -> Symbol:
    """As a bind gives them."""
    from ngraph_mxnet.mxnet_bridge import partitioner

    return partitioner.with_distinct_names(symbol, partitioner.json_of(symbol))[0]


def _partition(symbol: Symbol, shapes: Shapes, dtypes: DTypes, backend: Backend) -> Partition:
    """By MXNet's own partitioner; it infers shapes without arrays if the mapping of arrays is not empty."""
    import mxnet as mx

    from ngraph_mxnet.mxnet_bridge import partitioner

    with callbacks.log.listening() as heard:
        partitioner.optimize_for(
            symbol, environment.BACKEND, {"": None}, {"": None}, mx.cpu(), shape_dict=dict(shapes),
            type_dict=all_dtypes(symbol, dtypes), ngraph_backend=backend.name)
    if heard:
        return heard[0]
    return Partition(backend.name, [])


def all_dtypes(symbol: Symbol, dtypes: DTypes) -> dict[str, Any]:
    """Of every input: the partitioner takes float32 for those that it is not told."""
    if not dtypes:
        return {}
    arguments, _, states = symbol.infer_type(**dtypes)
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    return dict(zip(names, [*(arguments or []), *(states or [])], strict=False))


def _estimate(symbol: Symbol, shapes: Shapes, dtypes: DTypes, backend: Backend) -> Partition:
    """By our own grouping."""
    graph = with_types(parse_symbol(symbol.tojson(remove_amp_cast=False)), *_inferred(symbol, shapes, dtypes))
    reasons, numbers = judge_graph(graph, backend)
    verdicts = [Verdict(node.name, node.op, reasons[node.index]) for node in graph.operators()]
    partition = Partition(backend.name, verdicts)
    for number in range(max(numbers, default=ALONE) + 1):
        region = cut_region(graph, [node for node, of in enumerate(numbers) if of == number])
        types = argument_types(region)
        if types is not None:
            partition.reviewed.append(review_region(region, types, backend))
    return partition


def _regions(symbol: Symbol, shapes: Shapes, dtypes: DTypes,
             partition: Partition) -> list[tuple[Graph, dict[str, Any]]]:
    """The graph of each region, its weights unknown, and where its symbol wants nodes to run, as an option."""
    devices = get_backend(partition.backend).devices
    graph = with_types(parse_symbol(symbol.tojson(remove_amp_cast=False)), *_inferred(symbol, shapes, dtypes))
    number = {node.name: node.index for node in graph.operators()}
    found = []
    for region in partition.regions:
        part = cut_region(graph, sorted(number[name] for name, _ in region.nodes))
        types = argument_types(part)
        assert types is not None  # a region of unknown shapes is rejected
        found.append((lower_graph(part, types), {"pins": pins_of(part, devices)} if devices else {}))
    return found


def _inferred(symbol: Symbol, shapes: Shapes, dtypes: DTypes) -> tuple[dict[str, Any], dict[str, Any]]:
    """MXNet's shapes and dtypes of all values inside, by the names of outputs."""
    import mxnet as mx

    internals = symbol.get_internals()
    names = internals.list_outputs()
    _, found_shapes, _ = internals.infer_shape_partial(**shapes)
    try:
        _, found_types, _ = internals.infer_type_partial(**dict(dtypes))
    except (ValueError, mx.base.MXNetError):  # some operators (Dropout) insist on types
        told = {name: dtypes.get(name, "float32") for name in symbol.list_inputs()}
        _, found_types, _ = internals.infer_type_partial(**told)
    by_name = [dict(zip(names, found or [], strict=False)) for found in (found_shapes, found_types)]
    return by_name[0], by_name[1]


def with_types(graph: SymbolGraph, shapes: Mapping[str, Any], dtypes: Mapping[str, Any]) -> SymbolGraph:
    """`graph` with the types of its values; `shapes` and `dtypes` are by the names of outputs."""
    count = {node.index: 1 for node in graph.nodes}
    for edge in (*graph.readers(), *graph.heads):
        count[edge.node] = max(count[edge.node], edge.output + 1)

    def type_of(node: SymbolNode, output: int) -> TensorType | None:
        names = [node.name] if node.is_variable else [f"{node.name}_output{output}", f"{node.name}_output"]
        if output and output < len(own := _OUTPUTS.get(node.op, ())):
            names = [f"{node.name}_{own[output]}"]
        name = next((name for name in names if name in shapes), None)
        shape = shapes.get(name) if name else None
        if not name or not shape or 0 in shape or (output and name == f"{node.name}_output"):
            return None
        dtype = dtypes.get(name)
        return TensorType(element_type("f32" if dtype is None else dtype), tuple(shape))

    nodes = tuple(replace(node, types=tuple(type_of(node, i) for i in range(count[node.index])))
                  for node in graph.nodes)
    return replace(graph, nodes=nodes)
