"""The import of an ONNX model: its graph, its weights, and the nodes that are left where the graph ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ModelError, NGraphError, TypeRuleError, UnsupportedError, listed
from ngraph_mxnet.frontends.onnx.inputs import Shapes, bind_shapes, dimensions, element_name
from ngraph_mxnet.frontends.onnx.model import (
    BoundedBuilder,
    Model,
    all_nodes,
    domain_of,
    element_of,
    function_of,
    names_around,
    names_from_outside,
    names_in_subgraphs,
    naming,
    to_array,
    unfold,
)
from ngraph_mxnet.frontends.onnx.pieces import proto_type, rest_of
from ngraph_mxnet.frontends.onnx.rules.registry import Call, find_rule
from ngraph_mxnet.frontends.onnx.values import (
    FEW_ELEMENTS,
    MOST_ELEMENTS,
    Attributes,
    Between,
    BetweenError,
    CutError,
    DataDependentError,
    EmptyOptional,
    Item,
    Ragged,
    Statics,
    TakenError,
    TensorSequence,
    have_symbols,
    is_of_lists,
    of_sizes_at_hand,
    parts_of,
)
from ngraph_mxnet.ir import Graph, Value
from ngraph_mxnet.ir.ranges import because
from ngraph_mxnet.ir.sizes import at_hand
from ngraph_mxnet.ir.types import TensorType
from ngraph_mxnet.program.feeds import Draw, draws_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Imported:
    """A graph, and arrays for those of its parameters that are the model's weights."""

    graph: Graph
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    specialised: list[str] = field(default_factory=list)
    """Parameters whose elements, at the call that it was imported for, decided about shapes."""
    outputs: list[tuple[str, Item]] = field(default_factory=list)
    """Names and items whose parts are the graph's results, in the order of the results."""
    rest: Model | None = None
    """The nodes from the one on at which the graph ends, if what is lowered there depends on the data; `outputs` are
    what it reads, beside inputs of the model."""
    reason: str = ""
    """Why the graph ends there; the text names the node."""


def inferred_types(model: Model, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> dict[str, TensorType]:
    """Infer the types of those outputs of a node that are tensors of known shapes and of element types that the IR has.

    Args:
        types: the known types of the node's inputs, by name.
    """
    known = {tensor.name: tensor for tensor in model.proto.graph.initializer if tensor.name in types}
    domain = domain_of(node)
    try:
        schema = onnx.defs.get_schema(node.op_type, model.opsets[domain], domain)
        plain = helper.make_node(node.op_type, node.input, node.output, domain=domain)
        plain.attribute.extend(each for each in node.attribute if each.name in schema.attributes)
        told = onnx.shape_inference.infer_node_outputs(schema, plain, dict(types), known)
    except Exception:  # ONNX knows no such operator, or can't tell; what is raised is not documented
        return {}
    found = {}
    for name, type_ in told.items():
        shape = dimensions(type_.tensor_type)
        if type_.HasField("tensor_type") and shape is not None and all(isinstance(size, int) for size in shape):
            with suppress(UnsupportedError):  # the IR has no such elements
                found[name] = TensorType(element_of(type_.tensor_type.elem_type), shape)  # type: ignore[arg-type]
    return found


Scope = dict[str, "Item | None"]


def import_model(model: Model, shapes: Shapes | None = None, values: Mapping[str, np.ndarray] | None = None, *,
                 partly: bool = False, between: Between | None = None, keep_loops: bool = False) -> Imported:
    """The model's graph; parameters are its inputs, then its weights.

    Args:
        shapes: of inputs, where the model leaves dimensions open.
        values: elements of inputs, for what must be known when the model is compiled.
        partly: end the graph where shapes, or the branch of an If, depend on data; else that is an error.
        between: which nodes are run between programs; None: none is.
        keep_loops: make an op of each loop and choice that can be one (`ops/bodies.py`).

    Raises:
        CutError: there is such a node.
        ModelError: the model is damaged, or a shape does not fit.
        UnsupportedError: a node can't be lowered; the text names it and the reason.
    """
    config.logger(__name__).debug("imported model %s", model.name)
    importer = _Importer(model, between, keep_loops=keep_loops)
    return importer.run(bind_shapes(model, shapes or {}), values or {}, partly=partly)


def find_refusals(model: Model, shapes: Shapes | None = None) -> list[str]:
    """A line for each node of the model's graph that can't be lowered, before there are data, with the reason.

    Behind one that is refused it goes on with what ONNX says of the node's outputs; where that says too little, the
    nodes that read them are not looked at, and the last line says how many.

    Raises:
        ModelError: as `import_model`.
        UnsupportedError: an input or initialiser is refused; the text names it.
    """
    return _Importer(model).refusals(bind_shapes(model, shapes or {}))


class _Importer:
    def __init__(self, model: Model, between: Between | None = None, *, keep_loops: bool = False) -> None:
        self._model, self._between, self._keep_loops = model, between, keep_loops
        self._varying: dict[Value, np.ndarray] = {}
        """Elements of inputs that change from trip to trip of the loop whose body this is."""
        self._weights: dict[str, np.ndarray] = {}
        self._b = BoundedBuilder(name=model.name)
        self._statics = Statics()
        self._unfolded: list[onnx.TensorProto] = []
        """Initialisers of the branches whose nodes stand in place of an If."""
        self._may_end = False
        """True if the graph can end before the node that is being lowered: a node of the graph, or of a branch within
        the graph."""
        self._is_within = False
        """True if the node that is being lowered is in a subgraph."""
        self._has_taken = False
        """True if the nodes of a branch stand in place of an If."""
        self._reason = ""

    def run(self, types: Mapping[str, TensorType | list[TensorType] | None], values: Mapping[str, np.ndarray], *,
            partly: bool) -> Imported:
        graph, b = self._model.proto.graph, self._b
        scope = self._inputs(types, values)
        inputs = set(b.graph.parameters)
        self._may_end = partly
        left = self._lower_graph(graph, scope, partly=partly)
        b.origin = ""
        rest = rest_of(self._model, left, self._unfolded, scope, types, self._statics) if left else None
        names = [value.name for value in (rest.inputs if rest else graph.output) if not rest or value.name not in types]
        outputs: list[tuple[str, Item]] = [(name, scope[name]) for name in names]  # type: ignore[misc]
        named: list[Value] = []
        for name, item in outputs:
            parts = parts_of(item)
            for place, part in enumerate(parts):
                named.append(self._own(part, named))
                named[-1].name = name if len(parts) == 1 and isinstance(item, Value) else element_name(name, place)
        done = b.results(*named)
        done.remove_dead()
        with because("sizes that the model computes with"):
            self._statics.fix_sizes(done.nodes)
        used = {parameter for node in done.nodes for parameter in node.inputs if parameter.is_parameter}
        done.parameters = [p for p in done.parameters if p in inputs or p in used]
        kept = {parameter.name for parameter in done.parameters}
        return Imported(done, {name: array for name, array in self._weights.items() if name in kept},
                        [value.name for value in done.parameters if value in self._statics.used], outputs, rest,
                        self._reason)

    def refusals(self, types: Mapping[str, TensorType | list[TensorType] | None]) -> list[str]:
        scope, found, unknown, passed_over = self._inputs(types, {}), list[str](), set[str](), 0
        nodes, produced = self._enter(self._model.proto.graph, scope)
        for position, node in enumerate(nodes):
            if unknown.intersection(names_from_outside([node])):
                passed_over += 1
                unknown.update(node.output)
                continue
            try:
                self._lower_named(node, position, scope, produced)
            except UnsupportedError as error:
                found.append(str(error))
                stand_ins = self._stand_ins(node, scope)
                scope.update(stand_ins)
                unknown.update(name for name in node.output if name and name not in stand_ins)
        more = f"not looked at, since they read what these compute, of unknown types: {passed_over} nodes"
        return [*found, more] if passed_over else found

    def _stand_ins(self, node: onnx.NodeProto, scope: Scope) -> dict[str, Value]:
        """Parameters in place of a refused node's outputs, as far as ONNX tells their types."""
        types = {name: proto_type(item) for name in node.input if isinstance(item := scope[name], Value)}
        return {name: self._b.parameter(name, type_.shape, type_.element)
                for name, type_ in inferred_types(self._model, node, types).items()}

    def _inputs(self, types: Mapping[str, TensorType | list[TensorType] | None],
                values: Mapping[str, np.ndarray]) -> Scope:
        scope: Scope = {"": None}
        for name, type_ in types.items():
            self._b.origin = f"onnx:{name}"
            scope[name] = self._input(name, type_, values)
        return scope

    def _input(self, name: str, type_: TensorType | list[TensorType] | None, values: Mapping[str, np.ndarray]) -> Item:
        if type_ is None:
            return EmptyOptional()
        if isinstance(type_, list):
            return TensorSequence(tuple(self._parameter(element_name(name, place), each, values)
                                        for place, each in enumerate(type_)))
        return self._parameter(name, type_, values)

    def _parameter(self, name: str, type_: TensorType, values: Mapping[str, np.ndarray]) -> Value:
        value = self._b.parameter(name, type_.shape, type_.element)
        if name in values:
            varies = self._between is not None and name in (self._between.varying or ())
            (self._varying if varies else self._statics.offered)[value] = values[name]
        return value

    def _own(self, value: Value, before: Sequence[Value]) -> Value:
        """Every output is a value of its own: no parameter, and none twice."""
        return self._b.identity(value) if value.is_parameter or value in before or value.name else value

    def _lower_graph(self, graph: onnx.GraphProto, scope: Scope, *, partly: bool = False) -> list[onnx.NodeProto]:
        """Appends the nodes; `scope` holds the outer values and the graph's inputs, and gets the inner ones.

        Returns:
            The nodes that are left: with `partly` those from one on that asks for data, else none.
        """
        nodes, produced = self._enter(graph, scope)
        position = 0
        while position < len(nodes):
            self._statics.most_computed = FEW_ELEMENTS if partly and position else MOST_ELEMENTS
            try:
                self._lower_named(nodes[position], position, scope, produced)
                position += 1
            except TakenError as error:
                if not partly:
                    raise DataDependentError(str(error)) from None
                nodes[position : position + 1] = self._unfold(nodes[position], error.branch, scope, produced)
            except DataDependentError as error:
                self._cut(error, nodes, position)
                if not (partly and position):
                    raise
                self._reason = str(error)
                return nodes[position:]
        missing = [output.name for output in graph.output if scope.get(output.name) is None]
        if missing:
            raise ModelError(f"graph {graph.name!r}: no node computes its outputs {missing}")
        return []

    def _cut(self, error: DataDependentError, nodes: Sequence[onnx.NodeProto], position: int) -> None:
        """Raise CutError if the model is to be divided at this node of its graph."""
        runs_node = isinstance(error, BetweenError)
        if self._is_within or self._between is None or not (runs_node or (self._between.is_body and position)):
            return
        used = [value.name for value in self._b.graph.parameters if value in self._statics.used]
        raise CutError(str(error), nodes, position, runs_node=runs_node, initializers=self._unfolded, specialised=used,
                       is_fixed=not self._has_taken) from None

    def _enter(self, graph: onnx.GraphProto, scope: Scope) -> tuple[list[onnx.NodeProto], set[str]]:
        """The nodes and what they compute; `scope` gets the initialisers."""
        if graph.sparse_initializer:
            raise UnsupportedError("sparse initialisers")
        nodes = list(graph.node)
        produced = {name for node in nodes for name in node.output if name}
        for tensor in graph.initializer:
            if tensor.name in produced:
                raise ModelError(f"{tensor.name!r} is an initialiser and the output of a node")
            scope[tensor.name] = self._initializer(tensor)
        return nodes, produced

    def _lower_named(self, node: onnx.NodeProto, position: int, scope: Scope, produced: set[str]) -> None:
        """`_lower_node`, with the node's name in what is raised."""
        where = f"node {node.name or position} {node.op_type}"
        try:
            self._lower_node(node, position, scope, produced)
        except (ModelError, UnsupportedError) as error:
            text = str(error)
            text = text if text.startswith("node ") else f"{where}: {text}"
            raise (TakenError(text, error.branch) if isinstance(error, TakenError) else type(error)(text)) from None
        except TypeRuleError as error:
            raise UnsupportedError(f"{where}: {error}") from None
        except MemoryError as error:
            raise UnsupportedError(f"{where}: there is not enough memory for its constants: {error}") from error
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # a damaged file's doing
            raise ModelError(f"{where}: its inputs or attributes do not fit: {error}") from error

    def _unfold(self, node: onnx.NodeProto, branch: onnx.GraphProto, scope: Scope,
                produced: set[str]) -> list[onnx.NodeProto]:
        """Return the nodes that stand in place of an If whose taken branch is `branch`."""
        unfolded = unfold(node, branch, {*scope, *produced})
        self._has_taken = True
        produced.update(name for part in unfolded.nodes for name in part.output if name)
        for tensor in unfolded.initializers:
            scope[tensor.name] = self._initializer(tensor)
        self._unfolded += unfolded.initializers
        return unfolded.nodes

    def _initializer(self, tensor: onnx.TensorProto) -> Value:
        with naming(f"initialiser {tensor.name!r}"):
            array = self._to_array(tensor)
        self._b.origin = f"onnx:{tensor.name}"
        if array.dtype.kind != "f" or not array.ndim or tensor.name in self._weights:
            return self._b.constant(array)
        value = self._b.weight(tensor.name, array.shape, array.dtype)
        self._weights[tensor.name] = array
        self._statics.add(value, array)
        return value

    def _to_array(self, tensor: onnx.TensorProto) -> np.ndarray:
        return to_array(tensor, self._model.folder)

    def _lower_node(self, node: onnx.NodeProto, number: int, scope: Scope, produced: set[str]) -> None:
        self._b.count_node()
        for name in node.input:
            if name not in scope:
                reason = ("before the node that computes it: the graph is not sorted, or has a cycle"
                          if name in produced else "which is no input, initialiser or output of a node")
                raise ModelError(f"reads {name!r}, {reason}")
        domain = domain_of(node)
        opset = self._model.opsets.get(domain)
        if opset is None:
            raise ModelError(f"its domain {node.domain!r} is not among the operator sets that the model imports")
        name = node.name or (node.output[0] if node.output else str(number))
        self._b.origin = f"onnx:{name} {node.op_type}"
        inputs = [scope[name] for name in node.input]
        if any(isinstance(item, Ragged) for item in inputs) or self._reads_ragged(node, scope):
            raise DataDependentError("the shape of what it reads depends on the data")
        if self._between is not None and self._between.lists and is_of_lists(node, domain, inputs):
            raise BetweenError("it is of sequences, whose lengths change")
        while inputs and inputs[-1] is None:
            inputs.pop()
        names = list(node.output)
        while names and not names[-1]:
            names.pop()
        with because(self._b.origin):
            outputs = self._applied(node, domain, opset, inputs, len(names), scope)
        outputs += [None] * (len(names) - len(outputs))
        for position, (name, value) in enumerate(zip(names, outputs, strict=False)):
            if name and value is None:
                raise UnsupportedError(f"output {position} is read, which is not computed")
            if name and name in scope:
                raise ModelError(f"{name!r} is computed twice")
            scope[name] = value if name else None

    def _applied(self, node: onnx.NodeProto, domain: str, opset: int, inputs: list[Item | None], outputs: int,
                 scope: Scope) -> list[Item | None]:
        """Return the node's outputs. A node that can't be lowered for a range of sizes is lowered for the sizes at hand
        alone."""
        undo = self._mark()
        try:
            return self._by_rule(node, domain, opset, inputs, outputs, scope)
        except DataDependentError:
            raise
        except (NGraphError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            if not have_symbols(inputs, self._statics.find):
                raise
            undo()
            fixed = of_sizes_at_hand(self._b, inputs, self._statics.find)
            return self._by_rule(node, domain, opset, fixed, outputs, scope)

    def _by_rule(self, node: onnx.NodeProto, domain: str, opset: int, inputs: list[Item | None], outputs: int,
                 scope: Scope) -> list[Item | None]:
        rule = find_rule(node.op_type, domain)
        if rule is None:
            return list(self._lower_function(node, domain, opset, inputs, scope))
        attrs = Attributes(node)
        call = Call(node.op_type, attrs, inputs, outputs, opset, self._statics.find, self._required,
                    lambda body, values: self._lower_body(body, values, scope), self._to_array, self._may_end,
                    self._between is not None, self._decision, self._mark, self._statics.note_sizes,
                    (lambda bodies, inputs: self._graphs(bodies, inputs, scope)) if self._keep_loops else None)
        lowered = rule(self._b, call)
        attrs.require_all_read()
        return list(lowered) if isinstance(lowered, (list, tuple)) else [lowered]  # type: ignore[list-item]

    def _reads_ragged(self, node: onnx.NodeProto, scope: Scope) -> bool:
        return any(isinstance(scope.get(name), Ragged) for name in names_in_subgraphs(node))

    def _lower_body(self, body: onnx.GraphProto, values: Sequence[Item], scope: Scope) -> list[Item]:
        """A subgraph in place; it sees the values around it."""
        inner = dict(scope)
        if len(body.input) != len(values):
            raise ModelError(f"its subgraph has {len(body.input)} inputs, expected {len(values)}")
        inner.update(zip((value.name for value in body.input), values, strict=True))
        before = self._b.origin, self._statics.most_computed, self._may_end, self._is_within
        self._may_end = self._may_end and not values  # a body with inputs is a loop's, which is repeated
        self._is_within = True
        try:
            self._lower_graph(body, inner)
        finally:
            self._b.origin, self._statics.most_computed, self._may_end, self._is_within = before
        results = [inner[output.name] for output in body.output]
        if any(isinstance(item, Ragged) for item in results):
            raise DataDependentError("the shape of a result of its subgraph depends on the data")
        return results  # type: ignore[return-value]

    def _graphs(self, bodies: Sequence[onnx.GraphProto], inputs: Sequence[TensorType | np.ndarray],
                scope: Scope) -> tuple[list[Graph], list[Value]]:
        """Subgraphs as graphs of their own (`Call.graphs`). Their initialisers stand outside.

        Raises:
            ModelError, UnsupportedError: one can't be lowered by itself; what it reads or gives is no tensor.
        """
        around = [self._read_by(body, scope) for body in bodies]
        captured = list(dict.fromkeys(value for values in around for value in values.values()))
        known = {value: array for value in captured if value.size <= FEW_ELEMENTS
                 and (array := self._statics.find(value)) is not None and array.dtype != object}
        captured = [value for value in captured if value not in known]
        graphs = []
        for body, values in zip(bodies, around, strict=True):
            inner = _Importer(self._model, keep_loops=True)
            b = inner._b
            own = [b.constant(each) if isinstance(each, np.ndarray) else
                   b.parameter(f"x{place}", each.shape, each.element) for place, each in enumerate(inputs)]
            seen = {value: b.constant(array) for value, array in known.items()}
            seen.update((value, b.parameter(f"around{place}", value.shape, value.type.element))
                        for place, value in enumerate(captured))
            plain = onnx.GraphProto()
            plain.CopyFrom(body)
            del plain.initializer[:]
            results = inner._lower_body(plain, own, {"": None, **{name: seen[value] for name, value in values.items()}})
            graph = b.results(*(inner._known(item) for item in results))
            graph.remove_dead()
            inner._statics.fix_sizes(graph.nodes)
            graphs.append(graph)
        return graphs, captured

    def _known(self, item: Item) -> Value:
        """A tensor, as a constant where its few elements depend on no data."""
        if not isinstance(item, Value):
            raise UnsupportedError("its subgraph gives a sequence or optional where a tensor belongs")
        array = self._statics.find(item) if item.size <= FEW_ELEMENTS else None
        return item if array is None or array.dtype == object else self._b.constant(array)

    def _read_by(self, body: onnx.GraphProto, scope: Scope) -> dict[str, Value]:
        """The values that a subgraph reads from outside, its initialisers among them, by name."""
        read = {name: scope.get(name) for name in names_around(body)}
        found = {name: item for name, item in read.items() if isinstance(item, Value)}
        if len(found) < len(read):
            raise UnsupportedError(f"its subgraph reads {listed(sorted(read.keys() - found.keys()))}: no tensor")
        return {**found, **{tensor.name: self._initializer(tensor) for tensor in body.initializer}}

    def _decision(self, condition: Value) -> np.ndarray | None:
        """A condition that is computed has two values, and what it is computed from any number: if the graph can end,
        the program is not for the latter. Nor is a branch within another tried for what its own branches are."""
        varying = self._varying.get(condition)
        is_given = condition in self._statics.offered or varying is not None
        if (self._is_within and (self._may_end or self._between)) or (self._may_end and not is_given):
            return None
        if varying is None:
            return self._statics.require(condition)
        self._statics.used.add(condition)
        return varying

    def _required(self, value: Value) -> np.ndarray | None:
        found = self._statics.require(value)
        if found is None and self._between is not None and self._between.is_body:
            raise BetweenError("it needs elements that change from trip to trip")
        return found

    def _mark(self) -> Callable[[], None]:
        mark, weights, used = self._b.mark(), len(self._weights), set(self._statics.used)

        def undo() -> None:
            self._b.undo(mark)
            for name in list(self._weights)[weights:]:
                del self._weights[name]
            self._statics.forget(used)

        return undo

    def _lower_function(self, node: onnx.NodeProto, domain: str, opset: int,
                        inputs: list[Item | None], around: Scope) -> list[Item]:
        """A node without a rule by what ONNX defines it as, if that is a function."""
        function = function_of(node, domain, opset, [None if item is None else proto_type(item) for item in inputs])
        if function is None:
            raise UnsupportedError(" ".join(filter(None, ("no rule for the operator", domain, node.op_type))))
        scope: Scope = {name: around[name] for name in names_in_subgraphs(node) if name in around}
        scope.update({"": None, **dict.fromkeys(function.input)})
        scope.update(zip(function.input, inputs, strict=False))
        opsets = {**self._model.opsets, **function.opsets}
        inner = _Importer(Model(self._model.proto, opsets, self._model.folder), self._between,
                          keep_loops=self._keep_loops)
        inner._b, inner._statics, inner._weights, inner._varying = self._b, self._statics, self._weights, self._varying
        origin = self._b.origin
        produced = {name for part in function.nodes for name in part.output}
        for position, part in enumerate(function.nodes):
            inner._lower_node(part, position, scope, produced)
        self._b.origin = origin
        return [scope.get(name) for name in function.output]  # type: ignore[misc]


def draws_of_model(model: Model, shapes: Mapping[str, Sequence[int]]) -> dict[str, Draw]:
    """Return `draws_of` for a model that is compiled before there are data. Return an empty dict where the model can't
    be imported, or a shape is missing; the code that draws reports that."""
    try:
        imported = import_model(model, shapes, partly=True, between=Between())
    except NGraphError:
        return {}
    return draws_of(imported.graph, imported.weights)


def import_whole(model: Model, shapes: Shapes, *, keep_loops: bool = False) -> tuple[Graph, dict[str, np.ndarray]]:
    """The model's graph for these shapes, and its weights. `keep_loops`: as for `import_model`.

    Raises:
        ModelError: the model is damaged, or a shape is missing or does not fit.
        UnsupportedError: it can't be lowered before there are data, or not at all; the text names all such nodes.
    """

    try:
        imported = import_model(model, shapes, keep_loops=keep_loops)
    except UnsupportedError as error:
        numbers = {name: tuple(map(at_hand, shape)) for name, shape in shapes.items()}  # ONNX is asked for types
        refused = find_refusals(model, numbers) if str(error).startswith("node ") else []
        named = "\n".join(refused)
        within = [f"node {node.name or '?'} {node.op_type}: no rule for the operator" for node in _without_rule(model)
                  if not node.name or f"node {node.name} " not in named]
        raise UnsupportedError("\n  ".join(dict.fromkeys(
            ["the model can't be compiled as a whole:", *(refused or [str(error)]), *within]))) from None
    others = [name for name, item in imported.outputs if not isinstance(item, Value)]
    if others:
        raise UnsupportedError(f"outputs {listed(others)} are no tensors whose shapes are known before there are data")
    return imported.graph, imported.weights


def unknown_operators(model: Model) -> list[str]:
    """Return the names of operators in the model that have no rule and that ONNX does not define as functions."""
    return sorted({f"{domain_of(node)} {node.op_type}".lstrip() for node in _without_rule(model)})


def _without_rule(model: Model) -> Iterator[onnx.NodeProto]:
    for node in all_nodes(model.proto.graph.node):
        domain = domain_of(node)
        if find_rule(node.op_type, domain) is None:
            version = model.opsets.get(domain, 1)
            known = onnx.defs.has(node.op_type, version, domain)
            schema = onnx.defs.get_schema(node.op_type, version, domain) if known else None
            defined = schema is not None and (schema.has_function or schema.has_context_dependent_function)  # type: ignore[attr-defined]
            if not defined:
                yield node
