"""The graph: values and nodes, its text, its verifier, its cost and fingerprint, and the primitives that passes use.

    graph @head(%data: f32[8,512,7,7], %w: f32[10,512] weight) -> (f32[8,10]) {
      %0: f32[8,512] = reduce_mean(%data) {axes=[2,3]}       # mx:pool1 Pooling
      %1: f32[8,10] = matmul(%0, %w) {transpose_b=true}      # mx:fc1 FullyConnected
      return %1
    }

Operands of a contraction's epilogue have names: `convolution(%x, %w, bias=%b, residual=%y) {lower=0.0}`. A text may
leave them out.

Sizes that are symbols are declared behind the name, with their bounds, and `guard` lines say what is assumed of them:

    graph @flat<N: 1..32, H: 1..>(%data: f32[N,3,H,8]) -> (f32[N,24*H]) {
      guard H - 7 > 0
      %0: f32[N,24*H] = reshape(%data) {shape=[N,24*H]}
      return %0
    }

Attributes that equal their default are left out. A graph in an attribute follows its node's line:

      %0: f32[4,8] = fused(%x)
        body @body(%a: f32[4,8]) -> (f32[4,8]) {
          %0: f32[4,8] = sigmoid(%a)
          %1: f32[4,8] = multiply(%a, %0)
          return %1
        }

`parser.parse_graph` reads it back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.base import registry
from ngraph_mxnet.base.errors import GraphError, TypeRuleError, listed
from ngraph_mxnet.ir.opdef import OpDef, get_op
from ngraph_mxnet.ir.ranges import Guard, because, bounds_text, relying
from ngraph_mxnet.ir.sizes import Atom, Dim, evaluate, symbols_in
from ngraph_mxnet.ir.types import Attribute, ElementType, Role, Shape, TensorType, element_type, format_attribute


def _operator(op: str, *, turned: bool = False) -> Callable[[Value, Value | float], Value]:
    """Return a method that applies an elementwise op to a value and an operand, which comes first if `turned`."""
    def method(value: Value, other: Value | float) -> Value:
        return value._apply(op, *((other, value) if turned else (value, other)))

    return method


@dataclass(eq=False)
class Value:
    """One tensor: a graph parameter (`node is None`) or output `index` of `node`.

    `role` is a parameter's; what a node makes is MADE. Arithmetic and comparisons of values that a Builder makes append
    nodes to its graph: `x * 0.5 > y`. A number takes the other operand's element type. `==` compares identities.
    """

    type: TensorType
    node: Node | None = None
    index: int = 0
    name: str = ""
    role: Role = Role.MADE
    origin: str = ""
    builder: Builder | None = field(default=None, repr=False)

    __array_ufunc__ = None  # a NumPy scalar as left operand leaves the operation to us

    def _apply(self, op: str, *operands: Value | float) -> Value:
        builders = [x.builder for x in operands if isinstance(x, Value) and x.builder is not None]
        if not builders:
            raise GraphError(f"{op} of {self.type}: no Builder made it; write `b.{op}(...)`")
        return builders[0].apply(op, *operands)

    __add__, __radd__ = _operator("add"), _operator("add", turned=True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", turned=True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", turned=True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", turned=True)
    __mod__, __rmod__ = _operator("mod"), _operator("mod", turned=True)
    __pow__, __rpow__ = _operator("power"), _operator("power", turned=True)
    __gt__, __ge__ = _operator("greater"), _operator("greater_equal")
    __lt__, __le__ = _operator("less"), _operator("less_equal")
    __and__, __or__ = _operator("logical_and"), _operator("logical_or")

    def __neg__(self) -> Value:
        return self._apply("negative", self)

    def __invert__(self) -> Value:
        return self._apply("logical_not", self)

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def rank(self) -> int:
        return self.type.rank

    @property
    def size(self) -> int:
        return self.type.size

    @property
    def element(self) -> ElementType:
        return self.type.element

    @property
    def is_parameter(self) -> bool:
        return self.node is None

    @property
    def is_weight(self) -> bool:
        return self.role is Role.WEIGHT


@dataclass(eq=False)
class Node:
    """One application of an op. `origin` is the framework's name for it, e.g. `mx:conv0 Convolution`."""

    op: OpDef
    inputs: list[Value]
    attrs: dict[str, Any]
    outputs: list[Value] = field(default_factory=list)
    origin: str = ""

    @property
    def output(self) -> Value:
        (only,) = self.outputs
        return only

    @property
    def epilogue(self) -> dict[str, Value]:
        """The operands of a contraction's epilogue that there are, by name and in order."""
        return dict(zip(self.op.epilogue, self.inputs[2:], strict=False))

    def __str__(self) -> str:
        return f"{self.op.name}" + (f" ({self.origin})" if self.origin else "")


def constant_of(value: Value) -> np.ndarray | None:
    """The array, if `value` is a constant."""
    return value.node.attrs["value"] if value.node is not None and value.node.op.name == "constant" else None


class Structure:
    """From `parameters` to `results`, in topological order of `nodes`."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.parameters: list[Value] = []
        self.nodes: list[Node] = []
        self.results: list[Value] = []
        self.names: list[str] = []
        """The names of the results, once passes may have put others in their place; see `module.result_names`."""
        self.guards: list[Guard] = []
        """Assumptions about the symbols among the graph's sizes."""

    def values(self) -> Iterator[Value]:
        yield from self.parameters
        for node in self.nodes:
            yield from node.outputs

    def readers(self) -> dict[Value, list[tuple[Node, int]]]:
        """Who reads each value, and as which operand."""
        table: dict[Value, list[tuple[Node, int]]] = {value: [] for value in self.values()}
        for node in self.nodes:
            for position, operand in enumerate(node.inputs):
                table[operand].append((node, position))
        return table


def count_ops(nodes: Iterable[Node]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.op.name] = counts.get(node.op.name, 0) + 1
    return dict(sorted(counts.items()))


_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.\-]*\Z")


def print_graph(graph: Structure, *, elide: bool = False, origins: bool = True) -> str:
    """The text; `elide` shortens constants of over 16 elements (such text does not parse back)."""
    names = value_names(graph)
    parameters = ", ".join(f"{names[p]}: {p.type}" + (" weight" if p.is_weight else "") for p in graph.parameters)
    results = ", ".join(str(r.type) for r in graph.results)
    symbols = _symbols_of(graph)
    declared = f"<{bounds_text(symbols)}>" if symbols else ""
    lines = [f"graph @{_quote(graph.name)}{declared}({parameters}) -> ({results}) {{"]
    lines += [f"  guard {guard}" for guard in graph.guards]
    for node in graph.nodes:
        lines.append(format_node(node, names, elide=elide, origins=origins))
        for key, value in node.attrs.items():
            if isinstance(value, Structure):
                text = print_graph(value, elide=elide, origins=origins).replace("graph ", f"{key} ", 1)
                lines += ["    " + line for line in text.splitlines()]
    lines += ["  return " + ", ".join(names[r] for r in graph.results), "}"]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _symbols_of(graph: Structure) -> list[Atom]:
    """The symbols among the sizes of its values and attributes, as they come."""
    sizes: list[Any] = [size for value in graph.values() for size in value.shape]
    for node in graph.nodes:
        for attribute in node.attrs.values():
            sizes += attribute if isinstance(attribute, tuple) else [attribute]
    return symbols_in(sizes)


def value_names(graph: Structure) -> dict[Value, str]:
    """`%name` for parameters, `%0`, `%1` ... for node outputs."""
    names = {parameter: "%" + _quote(parameter.name) for parameter in graph.parameters}
    outputs = (value for node in graph.nodes for value in node.outputs)
    names.update((value, f"%{number}") for number, value in enumerate(outputs))
    return names


def format_node(node: Node, names: dict[Value, str], *, elide: bool = False, origins: bool = True) -> str:
    outputs = ", ".join(f"{names[v]}: {v.type}" for v in node.outputs)
    labels = map(node.op.operand_name, range(len(node.inputs)))
    operands = ", ".join(f"{label}={names.get(v, '%?')}" if label else names.get(v, "%?")
                         for label, v in zip(labels, node.inputs, strict=True))
    shown = []
    for key, value in node.attrs.items():
        if isinstance(value, Structure):
            continue  # printed below the node
        kind = node.op.schema.get(key)  # None in a damaged graph, which the verifier's errors show
        if (kind is None or isinstance(value, np.ndarray) or type(value) is not type(kind.default)
                or value != kind.default):
            big = elide and isinstance(value, np.ndarray) and value.size > 16
            shown.append(f"{key}={'dense<...>' if big else format_attribute(value)}")
    attrs = f" {{{', '.join(shown)}}}" if shown else ""
    line = f"  {outputs} = {node.op.name}({operands}){attrs}"
    if not origins or not node.origin:
        return line
    origin = re.sub(" $", r"\\x20", _escape(node.origin))  # so that stripping takes no last space
    return f"{line:<60}  # {origin}"


def neighbourhood(graph: Structure, node: Node) -> str:
    """The lines of IR around `node`, its own marked."""
    names = value_names(graph)
    at = graph.nodes.index(node)
    lines = []
    for position in range(max(0, at - 3), min(len(graph.nodes), at + 4)):
        mark = ">" if position == at else " "
        lines.append(mark + format_node(graph.nodes[position], names, elide=True))
    return "\n".join(lines)


def _quote(name: str) -> str:
    if _PLAIN_NAME.match(name):
        return name
    return '"' + _escape(name).replace('"', "\\u0022") + '"'


def _escape(text: str) -> str:
    return text.encode("unicode_escape").decode("ascii")


_MOST_DRAWN = 300
"""Nodes; of more a picture takes long, and shows nothing."""


class Graph(Structure):
    """A stateless computation from `parameters` to `results`, in topological order of `nodes`."""

    def add_parameter(self, type: TensorType, name: str, role: Role = Role.INPUT, *, origin: str = "") -> Value:
        value = Value(type, name=name, role=role, origin=origin)
        self.parameters.append(value)
        return value

    def replace(self, mapping: dict[Value, Value]) -> None:
        """Redirect every read of a key to its value (chains are followed), results included."""

        def final(value: Value) -> Value:
            while value in mapping:
                value = mapping[value]
            return value

        for node in self.nodes:
            if not mapping.keys().isdisjoint(node.inputs):
                node.inputs = [final(operand) for operand in node.inputs]
        self.results = [final(result) for result in self.results]

    def remove_dead(self) -> int:
        """Drop the nodes that no result needs; parameters stay. Returns how many went."""
        needed: set[Node] = set()
        stack = [result.node for result in self.results]
        while stack:
            node = stack.pop()
            if node is not None and node not in needed:
                needed.add(node)
                stack += [operand.node for operand in node.inputs]
        before = len(self.nodes)
        self.nodes = [node for node in self.nodes if node in needed]
        return before - len(self.nodes)

    def sort(self) -> None:
        """Restore topological order, stable with respect to the present one."""
        done: set[Node] = set()
        order: list[Node] = []
        for root in list(self.nodes):
            stack: list[tuple[Node, Iterator[Value]]] = []
            if root not in done:
                done.add(root)
                stack.append((root, iter(root.inputs)))
            while stack:
                node, operands = stack[-1]
                child = next((v.node for v in operands if v.node is not None and v.node not in done), None)
                if child is None:
                    order.append(node)
                    stack.pop()
                else:
                    done.add(child)
                    stack.append((child, iter(child.inputs)))
        self.nodes = order

    def clone(self) -> Graph:
        """A deep copy of structure (attribute values are shared: they are immutable)."""
        copy, table = Graph(self.name), dict[Value, Value]()
        for parameter in self.parameters:
            table[parameter] = copy.add_parameter(parameter.type, parameter.name, parameter.role,
                                                  origin=parameter.origin)
        for node in self.nodes:
            copy.nodes.append(copied(node, table, dict(node.attrs)))
        copy.results, copy.names = [table[v] for v in self.results], list(self.names)
        copy.guards = list(self.guards)
        return copy

    def symbols(self) -> list[Atom]:
        """Return the symbols in the sizes of the graph's parameters, in the order in which they come."""
        return symbols_in(*(parameter.shape for parameter in self.parameters))

    def at(self, binding: Mapping[str, int]) -> Graph:
        """A copy where each symbol has a value. Raises UnknownSize: a symbol has none."""
        copy = self.clone()
        for value in copy.values():
            value.type = value.type.at(binding)
        for node in copy.nodes:
            node.attrs = {name: _at(attribute, binding) for name, attribute in node.attrs.items()}
        copy.guards = []
        return copy

    def __str__(self) -> str:
        return print_graph(self)

    def __repr__(self) -> str:
        parameters, results = (listed(texts) or "nothing" for texts in (
            (f"{value.name}: {value.type}" for value in self.parameters), (str(value.type) for value in self.results)))
        return f"<Graph @{self.name} of {len(self.nodes)} nodes: {parameters} -> {results}>"

    def _repr_svg_(self) -> str | None:
        """For notebooks, where the graph can be taken in at a glance."""
        if len(self.nodes) > _MOST_DRAWN:
            return None
        found: str = registry.loaded(registry.DRAW_GRAPH)(self)
        return found


def _at(attribute: Any, binding: Mapping[str, int]) -> Any:
    if isinstance(attribute, Graph):
        return attribute.at(binding)
    if isinstance(attribute, tuple):
        return tuple(_at(each, binding) for each in attribute)
    return evaluate(attribute, binding) if isinstance(attribute, Dim) else attribute


class Body(Attribute):
    """A graph, not to be changed any more. It prints as lines of its own below the node."""

    expects = "a graph"

    def convert(self, value: Any) -> Graph:
        if not isinstance(value, Graph):
            raise TypeError(value)
        return value


@dataclass(frozen=True)
class Extract:
    """A copy of a part; `inputs` are the whole graph's values that its parameters stand for."""

    graph: Graph
    inputs: tuple[Value, ...]


def extract(graph: Graph, results: Sequence[Value], inputs: Iterable[Value], *, name: str,
            label: Callable[[Value, int], str]) -> Extract:
    """A copy of what `results` need, back to `inputs`. The whole graph stays as it is.

    Args:
        graph: the whole.
        results: values of it, which are the part's results.
        inputs: values to stop at; those that are needed become the part's parameters, in this order.
        name: the part's.
        label: the name of the parameter of that number for a value that a node computes; names of the whole graph's
            parameters are taken.
    """
    stops = dict.fromkeys(inputs)
    reached: set[Value] = set()
    needed: set[Node] = set()
    stack = list(results)
    while stack:
        value = stack.pop()
        if value.node is None or value in stops:
            reached.add(value)
        elif value.node not in needed:
            needed.add(value.node)
            stack.extend(value.node.inputs)
    part, table = Graph(name), dict[Value, Value]()
    taken = {parameter.name for parameter in graph.parameters}
    for value in stops:
        if value in reached:
            own = value.name if value.node is None else _fresh(label(value, len(table)), taken)
            origin = value.origin if value.node is None else value.node.origin
            role = value.role if value.is_parameter else Role.INPUT
            table[value] = part.add_parameter(value.type, own, role, origin=origin)
    read = tuple(table)
    for node in graph.nodes:
        if node in needed:
            part.nodes.append(copied(node, table, dict(node.attrs)))
    part.results = [table[value] for value in results]
    return Extract(part, read)


def copied(node: Node, table: dict[Value, Value], attrs: dict[str, Any]) -> Node:
    """The node on the values of `table`, which gets its outputs; one of several may be there already, as an input."""
    twin = Node(node.op, [table[value] for value in node.inputs], attrs, origin=node.origin)
    twin.outputs = [Value(value.type, twin, value.index, value.name) for value in node.outputs]
    for old, new in zip(node.outputs, twin.outputs, strict=True):
        table.setdefault(old, new)
    return twin


def last_reads(graph: Structure) -> dict[Node, list[Value]]:
    """The values that nothing reads after each node; results are always kept."""
    kept, table = set(graph.results), dict[Node, list[Value]]()
    last = {operand: node for node in graph.nodes for operand in node.inputs}
    for value, reader in last.items():
        if value not in kept:
            table.setdefault(reader, []).append(value)
    return table


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def verify(graph: Graph) -> None:
    """Check definition before use, single definition, attribute schemas, and that stored types are the inferred ones.

    Graphs in attributes are verified too.

    Raises:
        GraphError: with the node and the lines of IR around it.
    """
    defined: set[Value] = set()
    names: set[str] = set()
    for parameter in graph.parameters:
        if parameter.node is not None or parameter in defined:
            raise GraphError(f"graph {graph.name}: parameter {parameter.name!r} is not a fresh parameter")
        if parameter.name in names:
            raise GraphError(f"graph {graph.name}: two parameters are called {parameter.name!r}")
        if parameter.role is Role.MADE:
            raise GraphError(f"graph {graph.name}: parameter {parameter.name!r} has the role {parameter.role.value}")
        defined.add(parameter)
        names.add(parameter.name)
    with relying(graph.guards):
        _verify_nodes(graph, defined)
    for position, result in enumerate(graph.results):
        if result not in defined:
            raise GraphError(f"graph {graph.name}: result {position} is not defined in it")


def _verify_nodes(graph: Graph, defined: set[Value]) -> None:
    for node in graph.nodes:
        for position, operand in enumerate(node.inputs):
            if operand not in defined:
                raise _error(graph, node, f"operand {position} is used before it is defined, or is of another graph")
        for value in node.attrs.values():
            if isinstance(value, Graph):
                verify(value)
        try:
            attrs = node.op.check_attrs(node.attrs)
            types = node.op.infer([v.type for v in node.inputs], attrs)
        except TypeRuleError as error:
            raise _error(graph, node, str(error)) from None
        if types != [v.type for v in node.outputs]:
            found = ", ".join(str(v.type) for v in node.outputs)
            raise _error(graph, node, f"outputs are {found}, the type rule gives {', '.join(map(str, types))}")
        for index, output in enumerate(node.outputs):
            if output in defined or output.node is not node or output.index != index:
                raise _error(graph, node, f"output {index} is not its own")
            defined.add(output)


def _error(graph: Graph, node: Node, what: str) -> GraphError:
    return GraphError(f"graph {graph.name}, node {node}: {what}\n{neighbourhood(graph, node)}")


class Builder:
    """Appends to `graph`. Any op is a method: `b.convolution(x, w, strides=(2, 2))` returns its output.

    `origin` is written on the nodes that follow: set it to the framework's name before lowering each node.
    """

    def __init__(self, graph: Graph | None = None, *, name: str = "main") -> None:
        self.graph = graph if graph is not None else Graph(name)
        self.origin = ""

    def parameter(self, name: str, shape: Sequence[int], dtype: str | ElementType = "f32",
                  role: Role = Role.INPUT) -> Value:
        type_ = TensorType(element_type(dtype), tuple(d if isinstance(d, Dim) else int(d) for d in shape))
        value = self.graph.add_parameter(type_, name, role, origin=self.origin)
        value.builder = self
        return value

    def weight(self, name: str, shape: Sequence[int], dtype: str | ElementType = "f32") -> Value:
        """A new graph input whose content seldom changes."""
        return self.parameter(name, shape, dtype, Role.WEIGHT)

    def constant(self, value: Any, dtype: str | ElementType | None = None) -> Value:
        """A constant from anything NumPy takes; Python floats become f32."""
        array = np.asarray(value)
        if dtype is not None:
            array = array.astype(element_type(dtype).numpy)
        elif array.dtype == np.float64 and not isinstance(value, (np.ndarray, np.generic)):
            array = array.astype(np.float32)
        return self.apply("constant", value=array)

    def apply(self, op_name: str, *inputs: Value | float, **attrs: Any) -> Value:
        """Apply an op of one result. A number among the operands takes the element type of the last that is a value."""
        values = [x for x in inputs if isinstance(x, Value)]
        if len(values) < len(inputs):
            values = [x if isinstance(x, Value) else self.constant(x, values[-1].element) for x in inputs]
        return self.node(op_name, values, attrs).output

    def node(self, op_name: str, inputs: Sequence[Value], attrs: dict[str, Any]) -> Node:
        """Apply an op and return the node.

        Raises:
            KeyError: no such op.
            TypeRuleError: operands or attributes do not fit; the text names the node and the operand types.
        """
        node = make_node(op_name, inputs, attrs, self.origin)
        for value in node.outputs:
            value.builder = self
        self.graph.nodes.append(node)
        return node

    def results(self, *values: Value) -> Graph:
        self.graph.results = list(values)
        return self.graph

    def __getattr__(self, op_name: str) -> Any:
        if op_name.startswith("_"):
            raise AttributeError(op_name)
        try:
            get_op(op_name)
        except KeyError as error:
            raise AttributeError(str(error)) from None
        return lambda *inputs, **attrs: self.apply(op_name, *inputs, **attrs)


def make_node(op_name: str, inputs: Sequence[Value], attrs: dict[str, Any], origin: str = "") -> Node:
    """A node with inferred output types that is in no graph yet (for passes)."""
    op = get_op(op_name)
    try:
        operand_types = [v.type for v in inputs]
        checked = op.complete(operand_types, op.check_attrs(attrs))
        with because(f"{op_name} ({origin})" if origin else op_name):
            types = op.infer(operand_types, checked)
    except TypeRuleError as error:
        operands = ", ".join(str(v.type) for v in inputs)
        raise TypeRuleError(f"{op_name}({operands})" + (f" from {origin}" if origin else "") + f": {error}") from None
    node = Node(op, list(inputs), checked, origin=origin)
    node.outputs = [Value(type_, node, index) for index, type_ in enumerate(types)]
    return node


def make_folded(op_name: str, inputs: Sequence[Value], attrs: dict[str, Any], origin: str = "") -> Node:
    """Make a node as `make_node` does, of an op with one output. Where all operands are constants, make a constant of
    the op's result instead. Passes that ask for numbers find them so at once."""
    node = make_node(op_name, inputs, attrs, origin)
    arrays = [array for array in map(constant_of, inputs) if array is not None]
    if not inputs or len(arrays) < len(inputs):
        return node
    with np.errstate(all="ignore"):
        (value,) = node.op.evaluate(arrays, node.attrs)
    return make_node("constant", [], {"value": value}, origin)


@dataclass(frozen=True)
class Cost:
    """`macs` of contractions, `operations` of all else that computes, `bytes` read and written at least."""

    macs: int = 0
    operations: int = 0
    bytes: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.macs + other.macs, self.operations + other.operations, self.bytes + other.bytes)


def graph_cost(graph: Graph) -> Cost:
    """The cost of running `graph` once; unread parameters (labels) cost nothing."""
    read = {operand for node in graph.nodes for operand in node.inputs}
    border = sum(p.type.bytes for p in graph.parameters if p in read)
    border += sum(result.type.bytes for result in graph.results)
    costs = [node_cost(node) for node in graph.nodes]
    return Cost(sum([cost.macs for cost in costs]), sum([cost.operations for cost in costs]), border)


def node_cost(node: Node) -> Cost:
    operands, results = ([value.shape for value in values] for values in (node.inputs, node.outputs))
    assert node.op.counts is not None
    macs, operations = node.op.counts(operands, results, node.attrs)
    return Cost(macs, operations)


def touched(node: Node) -> dict[Value, int]:
    """The elements that the node reads of each operand and writes of each result: of a table the rows, not all."""
    operands, results = ([value.shape for value in values] for values in (node.inputs, node.outputs))
    found = {value: value.type.size for value in node.outputs}
    for value, elements in zip(node.inputs, node.op.elements_read(operands, results, node.attrs), strict=True):
        found[value] = max(found.get(value, 0), elements)
    return found


class Fingerprint(NamedTuple):
    """`digest`: of all that the graph's results depend on, types included, names and roles not. `parameters`: those
    that the results depend on, in an order that equal graphs share."""

    digest: str
    parameters: list[Value]


def fingerprint(graph: Graph) -> Fingerprint:
    """Return a graph's fingerprint. Graphs with the same digest have the same nodes, with the same attributes, on the
    same operands."""
    nodes, parameters = reached(graph)
    text = print_graph(_nameless(graph, nodes, parameters), origins=False)
    return Fingerprint(hashlib.sha256(text.encode()).hexdigest(), parameters)


def reached(graph: Graph) -> tuple[list[Node], list[Value]]:
    """Return the nodes and the parameters that the results depend on, as a walk from the results meets them. Each node
    is behind its operands."""
    nodes, parameters = dict[Node, None](), dict[Value, None]()
    waiting: list[tuple[Node | None, Iterator[Value]]] = [(None, iter(graph.results))]
    seen = set[Node]()
    while waiting:
        node, operands = waiting[-1]
        for value in operands:
            if value.node is None:
                parameters.setdefault(value)
            elif value.node not in seen:
                seen.add(value.node)
                waiting.append((value.node, iter(value.node.inputs)))
                break
        else:
            waiting.pop()
            if node is not None:
                nodes[node] = None
    return list(nodes), list(parameters)


def _nameless(graph: Graph, nodes: list[Node], parameters: list[Value]) -> Graph:
    """A copy of these of its nodes and parameters, called by their places."""
    copy, table = Graph("graph"), dict[Value, Value]()
    for place, parameter in enumerate(parameters):
        table[parameter] = copy.add_parameter(parameter.type, f"p{place}")
    for node in nodes:
        attrs = {name: _nameless(value, value.nodes, value.parameters) if isinstance(value, Graph) else value
                 for name, value in node.attrs.items()}
        copy.nodes.append(copied(node, table, attrs))
    copy.results = [table[value] for value in graph.results]
    return copy
