"""What the C++ plugin asks: which nodes we take, whether a region is worth it, and the compiled region.

MXNet calls in this order: `supported_ops` with the whole graph; `review_subgraph` for each region that it
cuts out; `compile_subgraph` when an op is created and no compiled one fits. A bind cuts the regions out a
second time, then without shapes: `review_subgraph` repeats what it said the first time.

The options that `optimize_for` and `hybridize` pass through: `ngraph_backend`, by default NGRAPH_BACKEND, and
`ngraph_<option>` for an option of that backend. Others are MXNet's and mean nothing here.

`partitions()` has the last verdicts; the logger `ngraph_mxnet` tells them at level INFO.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ngraph_mxnet import config
from ngraph_mxnet.errors import ModelError, NGraphError, UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, TensorType, Value
from ngraph_mxnet.mxnet_bridge.importer import lower_graph, lower_node, unread_output
from ngraph_mxnet.mxnet_bridge.symbol_json import VARIABLE, Edge, SymbolGraph, SymbolNode, mxnet_element, parse_symbol
from ngraph_mxnet.partition.cost import Cost, graph_cost, not_worth_it
from ngraph_mxnet.partition.report import Partition, PartitionLog, Region, count_kinds
from ngraph_mxnet.partition.support import Verdict, backend_reason
from ngraph_mxnet.runtime.backend import Backend, get_backend
from ngraph_mxnet.runtime.trace import span

logger = config.logger("ngraph_mxnet")
log = PartitionLog()

_PREFIX = "ngraph_"
_BACKEND = "ngraph_backend"
_STRUCTURE = "ngraph_structure"

Review = tuple[bool, dict[str, str]]


def partitions() -> list[Partition]:
    """The last partitionings of this process, the oldest first."""
    return log.last()


class PartitionedGraph(Protocol):
    """What the partitioner is given: `_core.MXNetGraph`, which parses nothing that is not asked for."""

    def json(self) -> str: ...

    def digest(self, *, with_types: bool) -> str:
        """Of all that lowering depends on, with or without types, whatever the names."""

    @property
    def has_types(self) -> bool: ...

    @property
    def nodes(self) -> list[tuple[str, str]]:
        """(name, operator) of each; names here and below stand as in JSON, with its escapes."""

    @property
    def arguments(self) -> list[str]: ...

    @property
    def outputs(self) -> list[str]: ...


def _nodes(graph: PartitionedGraph) -> list[tuple[str, str]]:
    return [(_unescaped(name), op) for name, op in graph.nodes]


def _unescaped(name: str) -> str:
    return json.loads(f'"{name}"') if "\\" in name else name


# ---- which nodes ----------------------------------------------------------------------------------------

def supported_ops(graph: PartitionedGraph, options: Mapping[str, str]) -> list[bool]:
    """One verdict for each node; variables are no concern of ours and get False. Never raises."""
    try:
        backend = chosen_backend(options)
        reasons = _reasons(graph, backend)
    except Exception as error:
        logger.warning("MXNet runs the whole graph: %s", error, exc_info=not isinstance(error, NGraphError))
        return [False] * len(graph.nodes)
    verdicts = [Verdict(name, op, reason) for (name, op), reason in zip(_nodes(graph), reasons, strict=True)
                if op != VARIABLE]
    # The partitioner also gets a lone variable, to make it forget the graph before.
    if verdicts:
        log.begin(Partition(backend.name, verdicts))
        for (op, reason), count in count_kinds(verdicts).items():
            logger.info("left to MXNet: %d x %s: %s", count, op, reason)
    return [op != VARIABLE and reason is None for (_, op), reason in zip(graph.nodes, reasons, strict=True)]


def _reasons(graph: PartitionedGraph, backend: Backend) -> list[str | None]:
    """For each node why it stays with MXNet; None for what is supported, and for variables."""
    key = ("verdicts", backend.name, graph.digest(with_types=True))
    reasons = _memory.get(key)
    if reasons is None:
        symbol = parse_symbol(graph.json())
        verdicts = judge(symbol, backend)
        reasons = [verdicts[node.index].reason if node.index in verdicts else None for node in symbol.nodes]
        _memory.put(key, reasons)
    return reasons


def judge(symbol: SymbolGraph, backend: Backend) -> dict[int, Verdict]:
    """The verdict on each operator by its number, from lowering it alone."""
    highest: dict[int, int] = {}
    for edge in [*symbol.readers(), *symbol.heads]:
        highest[edge.node] = max(edge.output, highest.get(edge.node, 0))
    return {
        node.index: Verdict(node.name, node.op, _reason(symbol, node, highest.get(node.index, 0), backend))
        for node in symbol.operators()
    }


def _reason(symbol: SymbolGraph, node: SymbolNode, highest: int, backend: Backend) -> str | None:
    """Why the node stays with MXNet. `highest`: the last of its outputs that someone reads."""
    b = Builder()
    try:
        inputs = [_stand_in(b, symbol, slot, edge) for slot, edge in enumerate(node.inputs)]
        outputs = lower_node(b, node, inputs)
        if highest >= len(outputs):
            return unread_output(node, highest)
        return _type_mismatch(node, outputs) or backend_reason(backend, b.graph.nodes)
    except (UnsupportedError, ModelError) as error:
        return str(error)
    except Exception as error:
        # A bug of a rule: the node stays with MXNet, and the log has what is needed to mend it.
        logger.warning("the rule for %s failed: %s", node.origin, error, exc_info=True)
        return f"its rule failed: {error!r}"


def _stand_in(b: Builder, symbol: SymbolGraph, slot: int, edge: Edge) -> Value:
    """A parameter of the type of `edge`."""
    types = symbol.nodes[edge.node].types
    type_ = types[edge.output] if types is not None and edge.output < len(types) else None
    if type_ is None:
        raise UnsupportedError(f"the shape or type of input {slot} is unknown")
    return b.parameter(f"input{slot}", type_.shape, type_.element)


def _type_mismatch(node: SymbolNode, outputs: Sequence[Value]) -> str | None:
    """A net under the rules: MXNet and the IR must agree on every output's type."""
    for position, (found, expected) in enumerate(zip(outputs, node.types or (), strict=False)):
        if expected is not None and found.type != expected:
            return f"output {position} would be {found.type}, for MXNet it is {expected}"
    return None


# ---- which regions --------------------------------------------------------------------------------------

def review_subgraph(graph: PartitionedGraph, options: Mapping[str, str]) -> Review:
    """Whether the region is to be ours, and the attributes that `compile_subgraph` will get. Never raises."""
    try:
        return _review(graph, options)
    except Exception as error:
        logger.warning("MXNet runs a region: %s", error, exc_info=not isinstance(error, NGraphError))
        return False, {}


def _review(graph: PartitionedGraph, options: Mapping[str, str]) -> Review:
    backend, structure = chosen_backend(options), graph.digest(with_types=False)
    attrs = {**_own_options(options), _BACKEND: backend.name, _STRUCTURE: _settings(structure)}
    key = ("review", structure, tuple(sorted(options.items())))
    facts = _region_facts(graph, backend)
    if facts is None:
        said = _memory.get(key)
        if said is None:
            logger.info("MXNet runs a region of %d nodes: its shapes are unknown", len(graph.nodes))
            return False, {}
        return said
    nodes = tuple((name, op) for name, op in _nodes(graph) if op != VARIABLE)
    region = Region(nodes, tuple(map(_unescaped, graph.arguments)), tuple(map(_unescaped, graph.outputs)), *facts)
    number = log.add(region)
    if region.rejected is None:
        logger.info("region %d on %s: %s", number, backend.name, describe(region))
        review = (True, attrs)
    else:
        logger.info("region %d left to MXNet: %s: %s", number, describe(region), region.rejected)
        review = (False, {})
    _memory.put(key, review)
    return review


def _region_facts(graph: PartitionedGraph, backend: Backend) -> tuple[Cost, str | None] | None:
    """The region's work, and why it is rejected; None when MXNet has not told the types of all its inputs."""
    if not graph.has_types:
        return None
    key = ("region", backend.name, graph.digest(with_types=True))
    facts = _memory.get(key)
    if facts is None:
        symbol = parse_symbol(graph.json())
        types = argument_types(symbol)
        if types is None:
            return None
        facts = _judge_region(symbol, types, backend)
        _memory.put(key, facts)
    return facts


def review_region(symbol: SymbolGraph, types: Sequence[TensorType], backend: Backend) -> Region:
    """Lower the region as a whole, and say what it is and whether it is rejected."""
    nodes = tuple((node.name, node.op) for node in symbol.operators())
    inputs = tuple(node.argument for node in symbol.arguments())
    outputs = tuple(symbol.nodes[head.node].name for head in symbol.heads)
    return Region(nodes, inputs, outputs, *_judge_region(symbol, types, backend))


def _judge_region(symbol: SymbolGraph, types: Sequence[TensorType], backend: Backend) -> tuple[Cost, str | None]:
    """The region's work, and why it is rejected."""
    try:
        graph = lower_graph(symbol, types)
    except (UnsupportedError, ModelError) as error:
        return Cost(), str(error)
    return graph_cost(graph), backend_reason(backend, graph.nodes) or not_worth_it(graph)


def _settings(structure: str) -> str:
    """What, beside shapes and types, a compiled region depends on: its structure and the CPU settings."""
    return f"{structure} {config.compile_settings()}"


def argument_types(symbol: SymbolGraph) -> list[TensorType] | None:
    """The type of each argument in order; None when MXNet has not told one of them."""
    types = [node.types[0] if node.types else None for node in symbol.arguments()]
    return [type_ for type_ in types if type_ is not None] if None not in types else None


def describe(region: Region) -> str:
    """One line: how many nodes of which operators, and their work."""
    ops = ", ".join(f"{op} x{count}" for op, count in region.ops().items())
    return f"{len(region.nodes)} nodes ({ops}), {region.cost.macs / 1e6:.1f} million multiply-adds"


class _Memory:
    """What was found out of a structure, whatever its names: a bounded, least-recently-used table, for all threads."""

    def __init__(self, size: int = 1024) -> None:
        self._size, self._lock = size, threading.Lock()
        self._found: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any) -> Any:
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key)

    def put(self, key: Any, found: Any) -> None:
        with self._lock:
            self._found[key] = found
            self._found.move_to_end(key)
            if len(self._found) > self._size:
                self._found.popitem(last=False)


_memory = _Memory()


# ---- compiling ------------------------------------------------------------------------------------------

def compile_subgraph(subgraph_json: str, in_shapes: Sequence[Sequence[int]], in_types: Sequence[int],
                     attrs: Mapping[str, str]) -> Any:
    """The `_core.Executable` (or `_core.PythonExecutable`) of a region.

    Its inputs are the JSON's arguments, in order.

    Raises:
        NGraphError: the region can't be compiled for these shapes and types; MXNet shows the user the text.
    """
    with span("import", "compile"):
        symbol = parse_symbol(subgraph_json)
        types = [TensorType(mxnet_element(number), tuple(shape))
                 for number, shape in zip(in_types, in_shapes, strict=True)]
        graph = lower_graph(symbol, types, name=symbol.nodes[symbol.heads[0].node].name)
    return _native(graph, chosen_backend(attrs), _own_options(attrs))


def _native(graph: Graph, backend: Backend, options: Mapping[str, str]) -> Any:
    from ngraph_mxnet import _core
    from ngraph_mxnet.runtime.compile import compile as compile_graph

    specs = [[(value.type.element.name, value.shape) for value in values]
             for values in (graph.parameters, graph.results)]
    passed: dict[str, Any] = {
        key.removeprefix(_PREFIX): value for key, value in options.items() if key not in (_BACKEND, _STRUCTURE)
    }
    executable = compile_graph(graph, backend.name, **passed)
    native = getattr(executable, "native", None)
    if native is not None:
        return native
    return _core.PythonExecutable(lambda arrays: executable(*arrays), *specs)


def chosen_backend(options: Mapping[str, str]) -> Backend:
    """The backend that the options name, or the environment.

    Raises:
        ConfigError: there is no such backend.
    """
    return get_backend(options.get(_BACKEND) or config.get("NGRAPH_BACKEND"))


def _own_options(options: Mapping[str, str]) -> dict[str, str]:
    return {key: str(value) for key, value in options.items() if key.startswith(_PREFIX)}
