"""The subgraphs of nodes, and which names they read of what is around them."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage
from onnx import TensorProto, helper, inliner, numpy_helper, version_converter

from ngraph_mxnet.base.errors import ModelError, UnsupportedError, no_result
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.sizes import at_hand
from ngraph_mxnet.ir.types import ElementType, Role, TensorType, element_type

Message = TypeVar("Message", bound=ProtoMessage)


def copy_of(message: Message) -> Message:
    """A copy of a node, a tensor, a model or another part of it."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def domain_of(named: onnx.NodeProto | onnx.FunctionProto | onnx.OperatorSetIdProto) -> str:
    """The domain of an operator, function or set of operators; '' is the default one, under both of its names."""
    return "" if named.domain == "ai.onnx" else named.domain


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Put `where` before the text of a ModelError or UnsupportedError."""
    try:
        yield
    except (ModelError, UnsupportedError) as error:
        raise type(error)(f"{where}: {error}") from None


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the subgraphs that the node's attributes hold, without the subgraphs nested in those."""
    return [graph for attribute in node.attribute
            for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs)]


def names_from_outside(nodes: Iterable[onnx.NodeProto], made: Iterable[str] = ()) -> dict[str, None]:
    """Return, in order, the names that the nodes and their subgraphs read but do not make, and that are not in
    `made`."""
    own, found = {*made, ""}, dict[str, None]()
    for node in nodes:
        read = (*node.input, *names_in_subgraphs(node))
        found.update(dict.fromkeys(name for name in read if name not in own))
        own.update(node.output)
    return found


def names_in_subgraphs(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node's subgraphs read from the graphs around them."""
    return [name for graph in subgraphs(node) for name in names_around(graph)]


def names_around(graph: onnx.GraphProto) -> list[str]:
    """Return the names that a subgraph reads from the graphs around it."""
    own = {*(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)}
    read = names_from_outside(graph.node, own)
    own.update(name for node in graph.node for name in node.output)
    return list({**read, **dict.fromkeys(value.name for value in graph.output if value.name not in own)})


MOST_NODES = 1 << 16
"""The most nodes of a model when its functions are inlined, and again when its loops are repeated: those that are
lowered, and those of the IR that they become."""
MOST_INLINED_BYTES = 1 << 28
"""The size of the functions' nodes with their tensors, counted once for each call of a function."""
MOST_AXES = 32
"""A tensor's rank: NumPy's bound, of versions before 2."""
MOST_TENSOR_BYTES = 1 << 40
MOST_CONSTANT_BYTES = 1 << 28
"""The size of what is computed when the model is compiled, beside its weights."""
MOST_DECLARED_BYTES = 1 << 26
"""The size of inputs for whose shapes a model is compiled because it says so; larger ones the caller has to bring."""
MOST_VALUE_BYTES = 1 << 36
"""The size of all values together, in one call, ..."""
MOST_VALUE_FACTOR = 1 << 10
"""... and as many times the bytes of its inputs and weights."""

_Name = tuple[str, str, str]


@dataclass(frozen=True)
class Mark:
    """How many nodes and parameters a graph has, and the bytes that were counted for them."""

    nodes: int
    parameters: int
    sizes: tuple[int, int, int]


class BoundedBuilder(Builder):
    """Counts what it builds; its methods raise UnsupportedError when that is more than a model may ask for."""

    def __init__(self, *, name: str) -> None:
        super().__init__(name=name)
        self._nodes = self._constants = self._values = self._given = 0

    def parameter(self, name: str, shape: Sequence[int], dtype: str | ElementType = "f32",
                  role: Role = Role.INPUT) -> Value:
        value = super().parameter(name, shape, dtype, role)
        self._given += require_type(value.type)
        return value

    def node(self, op_name: str, inputs: Sequence[Value], attrs: dict[str, Any]) -> Node:
        node = super().node(op_name, inputs, attrs)
        self.count_node()
        size = sum(require_type(value.type) for value in node.outputs)
        if op_name == "constant":
            self._constants += size
            if self._constants > MOST_CONSTANT_BYTES:
                raise UnsupportedError(f"the constants up to here have more than {MOST_CONSTANT_BYTES} bytes, "
                                       "weights aside")
        else:
            self._values += size
            most = MOST_VALUE_BYTES + MOST_VALUE_FACTOR * self._given
            if self._values > most:
                raise UnsupportedError(f"the values up to here have more than {most} bytes together, "
                                       f"of {self._given} bytes of inputs and weights")
        return node

    def mark(self) -> Mark:
        """How far the graph is, for `undo`."""
        return Mark(len(self.graph.nodes), len(self.graph.parameters), (self._constants, self._values, self._given))

    def undo(self, mark: Mark) -> None:
        """Take back all nodes and parameters since `mark`, and their bytes. The nodes still count: trying branches of
        branches takes time without end, too."""
        del self.graph.nodes[mark.nodes :], self.graph.parameters[mark.parameters :]
        self._constants, self._values, self._given = mark.sizes

    def count_node(self) -> None:
        """One of the model's: repeated, it need not become one of the IR."""
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise UnsupportedError(f"more than {MOST_NODES} nodes, as loops are repeated in the graph, and branches "
                                   "tried")


def require_type(type_: TensorType) -> int:
    """The bytes that its shape asks for. Of an empty tensor these are what the other axes say, which must fit, too.

    Raises:
        UnsupportedError: they are too many, or it has too many axes.
    """
    size = prod([size if type(size) is int and size > 0 else max(at_hand(size), 1) for size in type_.shape])
    size *= type_.element.size
    if size > MOST_TENSOR_BYTES or type_.rank > MOST_AXES:
        raise UnsupportedError(f"a tensor of {size} bytes and {type_.rank} axes; supported: {MOST_TENSOR_BYTES} bytes "
                               f"and {MOST_AXES} axes")
    return size


def require_inlinable(proto: onnx.ModelProto) -> None:
    """Count what the model's functions come to in place of their calls.

    Raises:
        ModelError: a function calls itself.
        UnsupportedError: they come to too much.
    """
    functions = {(domain_of(function), function.name, function.overload): function for function in proto.functions}
    calls = {key: _calls(function.node, functions) for key, function in functions.items()}
    sizes: dict[_Name, tuple[int, int]] = {}
    for key in _callees_first(calls):
        nodes, size = _inlined(calls[key], sizes)
        body = functions[key].node
        sizes[key] = nodes + _count(body), size + sum(node.ByteSize() for node in body)
    # The graph's own bytes are not counted: to do so takes as long as to write the model.
    nodes, size = _inlined(_calls(proto.graph.node, functions), sizes)
    nodes += _count(proto.graph.node)
    if nodes > MOST_NODES or size > MOST_INLINED_BYTES:
        raise UnsupportedError(f"its functions come to {size} bytes when they are inlined, and with them there are "
                               f"{nodes} nodes; supported: {MOST_INLINED_BYTES} bytes, and {MOST_NODES} nodes")


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterable[onnx.NodeProto]:
    """Yield the nodes and the nodes of their subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def _calls(nodes: Iterable[onnx.NodeProto], functions: dict[_Name, onnx.FunctionProto]) -> Counter[_Name]:
    """How often they call each function."""
    if not functions:
        return Counter()
    keys = ((domain_of(node), node.op_type, node.overload) for node in all_nodes(nodes))
    return Counter(key for key in keys if key in functions)


def _count(nodes: Iterable[onnx.NodeProto]) -> int:
    return sum(1 for _ in all_nodes(nodes))


def _inlined(calls: Counter[_Name], sizes: dict[_Name, tuple[int, int]]) -> tuple[int, int]:
    """Nodes and bytes that come in the place of these calls."""
    return (sum(times * sizes[key][0] for key, times in calls.items()),
            sum(times * sizes[key][1] for key, times in calls.items()))


def _callees_first(calls: dict[_Name, Counter[_Name]]) -> list[_Name]:
    done: dict[_Name, None] = {}
    for first in calls:
        waiting, open_ = [first], dict.fromkeys([first])  # a chain may be longer than Python's stack
        while waiting:
            top = waiting[-1]
            unknown = [key for key in calls[top] if key not in done]
            cycle = next((key for key in unknown if key in open_), None)
            if cycle is not None:
                raise ModelError(f"the function {cycle[1]!r} of {cycle[0]!r} calls itself")
            if unknown:
                waiting.append(unknown[0])
                open_[unknown[0]] = None
            else:
                done[waiting.pop()] = None
                open_.pop(top, None)
    return list(done)


Source = str | os.PathLike[str] | bytes | onnx.ModelProto

OLDEST, NEWEST = 6, onnx.defs.onnx_opset_version()
"""The versions of the default operator set that are read as they are."""


@dataclass(frozen=True)
class Model:
    """`proto` has no functions of its own left; `opsets` are its versions by domain, the default domain being ''."""

    proto: onnx.ModelProto
    opsets: dict[str, int]
    folder: Path | None
    """The folder of the external data."""

    @property
    def name(self) -> str:
        return self.proto.graph.name or "main"

    def part(self, nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto],
             outputs: Sequence[onnx.ValueInfoProto], initializers: Sequence[onnx.TensorProto]) -> Model:
        """A model of these nodes, of the same versions and in the same folder."""
        proto = onnx.ModelProto(ir_version=self.proto.ir_version, opset_import=self.proto.opset_import)
        proto.graph.CopyFrom(helper.make_graph(nodes, self.name, inputs, outputs, initializers))
        return Model(proto, self.opsets, self.folder)

    def cut_behind(self, results: Sequence[str]) -> Model:
        """The part that computes these values, with the inputs that it reads. Raises ModelError: no node has such an
        output."""
        graph = self.proto.graph
        makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
        missing = [name for name in results if name not in makers]
        if missing:
            raise no_result(missing[0], makers)
        needed, waiting = set[int](), list(results)
        while waiting:
            place = makers.get(waiting.pop())
            if place is not None and place not in needed:
                needed.add(place)
                waiting += names_from_outside([graph.node[place]])
        nodes = [graph.node[place] for place in sorted(needed)]
        read, own = names_from_outside(nodes), {value.name: value for value in graph.output}
        return self.part(nodes, [value for value in graph.input if value.name in read],
                         [own.get(name) or onnx.ValueInfoProto(name=name) for name in results],
                         [tensor for tensor in graph.initializer if tensor.name in read])

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The graph's inputs without those that are initialisers (as files of before IR version 4 list them)."""
        held = {tensor.name for tensor in self.proto.graph.initializer}
        return [value for value in self.proto.graph.input if value.name not in held]


def read_model(source: Source) -> Model:
    """The model, its functions inlined.

    Raises:
        ModelError: there is no such file, it is no ONNX model, or it is damaged.
        UnsupportedError: it was made for operators that are too old or too new; its functions come to too many nodes.
    """
    folder, what = None, "the model"
    if isinstance(source, onnx.ModelProto):
        proto = source
    else:
        if not isinstance(source, bytes):
            path = Path(source)
            what, folder = str(path), path.parent
            try:
                source = path.read_bytes()
            except OSError as error:
                raise ModelError(f"{path}: {error.strerror or error}") from None
        try:
            proto = onnx.load_model_from_string(source)
        except DecodeError:
            raise ModelError(f"{what} is no ONNX model, or was cut off: its {len(source)} bytes can't be "
                             "parsed") from None
    if not proto.HasField("graph") or not proto.graph.output:
        raise ModelError(f"{what} has no graph with outputs: it was cut off, or is no ONNX model")
    _require_text(proto)
    require_inlinable(proto)
    proto = _converted(proto)
    opsets = _opsets(proto)
    if proto.functions:
        try:
            proto = inliner.inline_local_functions(proto)
        except Exception as error:  # the inliner raises what its C++ throws
            raise ModelError(f"the model's functions can't be inlined: {error}") from None
        opsets = _opsets(proto)
    return Model(proto, opsets, folder)


def _require_text(proto: onnx.ModelProto) -> None:
    """protobuf gives bytes for names that are no UTF-8, which nobody expects."""
    bodies = (name for function in proto.functions for name in (
        function.name, function.domain, *function.input, *function.output, *_node_names(function.node)))
    wrong = next((name for name in (*_names(proto.graph), *bodies) if not isinstance(name, str)), None)
    if wrong is not None:
        raise ModelError(f"the name {bytes(wrong)!r} is no UTF-8; the file is damaged")


def _names(graph: onnx.GraphProto) -> Iterator[object]:
    yield graph.name
    yield from (part.name for part in (*graph.input, *graph.output, *graph.initializer))
    yield from _node_names(graph.node)


def _node_names(nodes: Iterable[onnx.NodeProto]) -> Iterator[object]:
    """Yield all names in the nodes: of nodes, operators, domains, values and attributes, subgraphs included."""
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
        for graph in subgraphs(node):
            yield from _names(graph)


def _converted(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A model of older operators with those of `OLDEST`, as far as the installed onnx converts them."""
    versions = [entry.version for entry in proto.opset_import if not domain_of(entry)]
    if not versions or not 0 < versions[0] < OLDEST:
        return proto
    try:
        return version_converter.convert_version(proto, OLDEST)
    except Exception as error:  # its C++ throws what it likes
        raise UnsupportedError(f"operator set version {versions[0]}, expected {OLDEST} to {NEWEST}, and "
                               f"onnx.version_converter does not make it newer: {error}") from None


def _opsets(proto: onnx.ModelProto) -> dict[str, int]:
    opsets = {domain_of(entry): entry.version for entry in proto.opset_import}
    version = opsets.get("")
    if version is None:
        if not all(map(domain_of, proto.graph.node)):
            raise ModelError("the model does not say which version of the default operator set it uses")
        return opsets
    if not OLDEST <= version <= NEWEST:
        hint = "a newer onnx package may know it" if version > NEWEST else "there is none"
        raise UnsupportedError(f"operator set version {version}, expected {OLDEST} to {NEWEST}: {hint}")
    return opsets


@dataclass(frozen=True)
class Unfolded:
    """The nodes and initialisers that take the place of an If."""

    nodes: list[onnx.NodeProto]
    initializers: list[onnx.TensorProto]


def unfold(node: onnx.NodeProto, branch: onnx.GraphProto, around: Iterable[str]) -> Unfolded:
    """The branch's nodes and initialisers under names that nothing else has, then the If's outputs.

    Args:
        around: the names that are taken.

    Raises:
        ModelError: the branch has not as many outputs as the If.
    """
    if len(branch.output) < len(node.output):
        raise ModelError(f"its subgraph has {len(branch.output)} outputs, expected {len(node.output)}")
    own = _own(branch)
    prefix, taken = f"{next(filter(None, node.output), node.name)}/", set(around)
    while not taken.isdisjoint(prefix + name for name in own):
        prefix += "/"
    names = {name: prefix + name for name in own}
    ends = [helper.make_node("Identity", [names.get(inner.name, inner.name)], [outer])
            for inner, outer in zip(branch.output, node.output, strict=False) if outer]
    return Unfolded([*renamed(branch.node, names), *ends], [_tensor(held, names) for held in branch.initializer])


def _own(graph: onnx.GraphProto) -> set[str]:
    """The names that the graph gives, subgraphs aside."""
    made = (name for node in graph.node for name in node.output if name)
    return {*made, *(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)}


def renamed(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> list[onnx.NodeProto]:
    """Copies that read and give other names, in their subgraphs too, as far as these have none of their own."""
    copies = []
    for node in nodes:
        copy = copy_of(node)
        _rename_ends(copy, names)
        for graph in subgraphs(copy):
            own = _own(graph)
            outer = {name: other for name, other in names.items() if name not in own}
            inner = renamed(graph.node, outer)
            del graph.node[:]
            graph.node.extend(inner)
            for output in graph.output:
                output.name = outer.get(output.name, output.name)
        copies.append(copy)
    return copies


def _rename_ends(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """What the node reads and gives."""
    for ends in (node.input, node.output):
        ends[:] = [names.get(name, name) for name in ends]


def _tensor(tensor: onnx.TensorProto, names: Mapping[str, str]) -> onnx.TensorProto:
    copy = copy_of(tensor)
    copy.name = names[tensor.name]
    return copy


_ELEMENTS: dict[int, str] = {
    TensorProto.BOOL: "bool", TensorProto.FLOAT16: "f16", TensorProto.FLOAT: "f32", TensorProto.DOUBLE: "f64",
    TensorProto.INT8: "i8", TensorProto.INT16: "i16", TensorProto.INT32: "i32", TensorProto.INT64: "i64",
    TensorProto.UINT8: "u8", TensorProto.UINT16: "u16", TensorProto.UINT32: "u32", TensorProto.UINT64: "u64",
}
# The field that holds the elements when `raw_data` does not.
_FIELDS: dict[int, str] = {
    TensorProto.FLOAT: "float_data", TensorProto.DOUBLE: "double_data", TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data", TensorProto.UINT64: "uint64_data",
}


def element_of(data_type: int) -> ElementType:
    """The IR's element type of an ONNX one.

    Raises:
        UnsupportedError: the IR has none: strings, complex numbers, bfloat16 and what is narrower than a byte.
    """
    if data_type in _ELEMENTS:
        return element_type(_ELEMENTS[data_type])
    known = data_type in TensorProto.DataType.values()
    name = TensorProto.DataType.Name(data_type).lower() if known else str(data_type)
    raise UnsupportedError(f"element type {name}; supported: {', '.join(_ELEMENTS.values())}")


def to_array(tensor: TensorProto, folder: Path | None) -> np.ndarray:
    """The elements, read-only where they are the file's own.

    Args:
        folder: the model file's, in which external data must lie; None for a model that came as bytes.

    Raises:
        ModelError: the tensor is damaged, or its external data can't be read, or are outside `folder`.
        UnsupportedError: its element type, or its shape.
    """
    element = element_of(tensor.data_type)
    shape = tuple(tensor.dims)
    if any(size < 0 for size in shape):
        raise ModelError(f"tensor {tensor.name!r}: found shape {shape}, expected no negative dimension")
    require_type(TensorType(element, shape))
    count = math.prod(shape)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, element, shape, folder)
    if tensor.HasField("raw_data"):
        content = tensor.raw_data  # a copy, each time
        _require_size(tensor, len(content), count * element.size, "bytes")
        stored = np.frombuffer(content, element.numpy.newbyteorder("<"))
        return stored.astype(element.numpy, copy=False).reshape(shape)
    field = _FIELDS.get(tensor.data_type, "int32_data")
    _require_size(tensor, len(getattr(tensor, field)), count, "elements")
    return np.asarray(numpy_helper.to_array(tensor)).reshape(shape)


def _require_size(tensor: TensorProto, found: int, wanted: int, unit: str) -> None:
    if found != wanted:
        raise ModelError(f"tensor {tensor.name!r}: found {found} {unit}, expected {wanted} for shape "
                         f"{tuple(tensor.dims)}; the file is damaged")


def _external(tensor: TensorProto, element: ElementType, shape: tuple[int, ...], folder: Path | None) -> np.ndarray:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = _inside(tensor.name, entries.get("location", ""), folder)
    size = math.prod(shape) * element.size
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
    except ValueError:
        raise ModelError(f"tensor {tensor.name!r}: no numbers for offset and length: {entries}") from None
    if length != size:
        raise ModelError(f"tensor {tensor.name!r}: found {length} bytes of external data, expected {size} for shape "
                         f"{shape}")
    try:
        held = path.stat().st_size
        if offset < 0 or offset + length > held:
            raise ModelError(f"tensor {tensor.name!r}: bytes {offset} to {offset + length} of {path.name}, "
                             f"which has {held}")
        if not size:
            return np.zeros(shape, element.numpy)
        stored = np.memmap(path, element.numpy.newbyteorder("<"), "r", offset, (math.prod(shape),))
    except OSError as error:
        raise ModelError(f"tensor {tensor.name!r}: its external data can't be read, {path}: "
                         f"{error.strerror or error}") from None
    return np.asarray(stored).astype(element.numpy, copy=False).reshape(shape)


def _inside(name: str, location: str, folder: Path | None) -> Path:
    """The file, if it is in the model's folder when all links are followed."""
    if folder is None:
        raise ModelError(f"tensor {name!r} has external data in {location!r}, but the model was not read from a file: "
                         "give its path")
    if not location or "\0" in location or os.path.isabs(location):
        raise ModelError(f"tensor {name!r}: external data in {location!r}, expected a file in the model's folder")
    root = folder.resolve()
    path = (root / location).resolve()
    if not path.is_relative_to(root):
        raise ModelError(f"tensor {name!r}: external data in {location!r} are outside the model's folder; not opened")
    if not path.is_file():
        raise ModelError(f"tensor {name!r}: no file {location!r} in the model's folder for its external data")
    return path


def type_of(value: onnx.ValueInfoProto) -> tuple[str, onnx.TypeProto.Tensor | None]:
    """Return the kind of a graph input or output, and the type of its tensors; None if it holds no tensors. The kind is
    `tensor`, `sequence`, `optional` or another."""
    type_ = value.type
    kind = str(type_.WhichOneof("value") or "untyped").removesuffix("_type")
    if type_.HasField("optional_type"):
        type_ = type_.optional_type.elem_type
    if type_.HasField("sequence_type"):
        type_ = type_.sequence_type.elem_type
    return kind, type_.tensor_type if type_.HasField("tensor_type") else None


@dataclass(frozen=True)
class Function:
    """`opsets` are the versions that its nodes are of, by domain."""

    input: list[str]
    output: list[str]
    nodes: list[onnx.NodeProto]
    opsets: dict[str, int]


def function_of(node: onnx.NodeProto, domain: str, opset: int,
                types: Sequence[onnx.TypeProto | None]) -> Function | None:
    """The body of `node` with its attributes filled in, or None if ONNX defines it in words only. Its own names are
    none that the node's subgraphs read of what is around the node.

    Args:
        types: of the node's inputs, None for one that is left out.
    """
    if not onnx.defs.has(node.op_type, opset, domain):
        return None
    schema: Any = onnx.defs.get_schema(node.op_type, opset, domain)  # its stubs lack what functions need
    apart = _apart(node)
    node, = renamed([node], apart)
    body = _body(schema, node, opset, types)
    if body is None:
        return None
    proto = onnx.FunctionProto()
    proto.ParseFromString(body)
    given = {attribute.name: attribute for attribute in node.attribute}
    given = {**{name: attribute.default_value for name, attribute in schema.attributes.items()
                if attribute.default_value.type}, **given}
    opsets = {domain_of(entry): entry.version for entry in proto.opset_import}
    # A body is written in some version of the operators; the newest that it says is what it means.
    nodes = [_filled(part, given) for part in proto.node]
    _rename(nodes, apart)
    inputs, outputs = ([apart.get(name, name) for name in names] for names in (proto.input, proto.output))
    return Function(inputs, outputs, nodes, opsets or {domain: opset})


def _apart(node: onnx.NodeProto) -> dict[str, str]:
    """Other names for those that the node's subgraphs read, and these for the others: put in before the body is made,
    which may have such names, and again after, it leaves the other ones to the body's own."""
    prefix = "/"
    while any(name.startswith(prefix) for each in all_nodes([node]) for name in (*each.input, *each.output)):
        prefix += "/"
    others = {name: prefix + name for name in names_in_subgraphs(node)}
    return {**others, **{other: name for name, other in others.items()}}


def _rename(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    """Whatever is called so, in subgraphs too."""
    for node in nodes:
        _rename_ends(node, names)
        for graph in subgraphs(node):
            for part in (*graph.input, *graph.output, *graph.initializer):
                part.name = names.get(part.name, part.name)
            _rename(graph.node, names)


def _body(schema: Any, node: onnx.NodeProto, opset: int,
          types: Sequence[onnx.TypeProto | None]) -> bytes | None:
    if schema.has_context_dependent_function:
        written = [type_ if type_ is not None else onnx.TypeProto() for type_ in types]
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        if versions:
            try:
                found: bytes = schema.get_context_dependent_function_with_opset_version(
                    max(versions), node.SerializeToString(), [proto.SerializeToString() for proto in written])
            except RuntimeError as error:  # of onnx's builders of bodies
                raise UnsupportedError(f"onnx makes no body of it: {str(error).splitlines()[0]}") from None
            return found
    versions = [v for v in schema.function_opset_versions if v <= opset] if schema.has_function else []
    return bytes(schema.get_function_with_opset_version(max(versions))) if versions else None


def _filled(node: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A copy with the function's attributes in place of references to them."""
    copy = copy_of(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copy.attribute.append(attribute)
        elif attribute.ref_attr_name in given:
            filled = copy_of(given[attribute.ref_attr_name])
            filled.name = attribute.name
            copy.attribute.append(filled)
    return copy
