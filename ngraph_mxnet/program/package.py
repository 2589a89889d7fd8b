"""A Package: what a target compiled, as plain data that outlives the process; and plain data and graphs as bytes.

Plain data are None, booleans, numbers, texts, lists, dicts with texts for keys, and arrays. Their bytes have three
parts: a line of JSON with the type, shape and place of each array; a line of JSON with the data, in which
`{"$array": n}` stands for array n; the elements of the arrays, one after the other. Nothing in it is code. Tuples
come back as lists. An array that occurs several times is there once, and one that whoever reads it has too by its name.

A package's file begins with a header of 64 bytes: what it is, the version of the format, the number of bytes that
follow, and their BLAKE2b. That tells damage, not intent: who may choose the bytes may choose their digest. So a target
checks what it is given before any of it runs (`Backend.load`), and the cache on disk authenticates its entries.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import GraphError, PackageError, TypeRuleError, listed
from ngraph_mxnet.base.files import write_file
from ngraph_mxnet.base.version import __version__
from ngraph_mxnet.ir.graph import Body, Graph, Value, make_node, verify
from ngraph_mxnet.ir.module import Flow, Module, Shared, Step
from ngraph_mxnet.ir.opdef import get_op
from ngraph_mxnet.ir.ranges import Guard, parse_dim, parse_guard
from ngraph_mxnet.ir.sizes import Atom, Dim, symbol
from ngraph_mxnet.ir.types import ELEMENT_TYPES, Array, Attribute, ElementType, Role, TensorType, element_type

LARGE = 1 << 12
"""Bytes of an array that is worth naming instead of holding."""
_ARRAY = "$array"
_ALIGNMENT = 16
"""Arrays begin at multiples of it, counted from the first line."""
_MOST_BYTES = 1 << 62


def pack(value: Any, external: Mapping[str, np.ndarray] | None = None,
         put: Callable[[np.ndarray], str] | None = None) -> list[bytes]:
    """Parts of the bytes of `value`.

    Args:
        external: large arrays, by name, of which there are the names only.
        put: keeps any other large array elsewhere, and returns its name.

    Raises:
        PackageError: it is no plain data.
    """
    arrays = _Arrays(external or {}, put)
    try:
        data = json.dumps(value, default=arrays.reference, separators=(",", ":"))
    except (TypeError, ValueError, KeyError) as error:
        raise PackageError(f"what is to be packed is no plain data: {error}") from error
    head = json.dumps(arrays.table).encode() + b"\n" + data.encode()
    parts = [head, b" " * (-(len(head) + 1) % _ALIGNMENT if arrays.own else 0) + b"\n"]
    for array in arrays.own:
        parts += [np.ascontiguousarray(array).tobytes(), b"\0" * (-array.nbytes % _ALIGNMENT)]
    return parts


def unpack(content: bytes, start: int = 0, external: Mapping[str, np.ndarray] | None = None,
           get: Callable[[str], bytes] | None = None) -> Any:
    """Unpack the data in `content[start:]`. Arrays are read-only views of `content`, or of the arrays in `external`.
    `get` returns the elements of an array that `put` of `pack` kept.

    Raises:
        PackageError: the bytes are no packed data, or an array is not in `external`.
    """
    try:
        end = content.index(b"\n", start)
        data_end = content.index(b"\n", end + 1)
        table = json.loads(content[start:end])
        arrays, position = [], data_end + 1
        for entry in table:
            array, size = _read(entry, content, position, external or {}, get)
            arrays.append(array)
            position += size + -size % _ALIGNMENT

        def rich(found: dict[str, Any]) -> Any:
            return arrays[count(found[_ARRAY])] if found.keys() == {_ARRAY} else found

        return json.loads(content[end + 1:data_end], object_hook=rich)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise PackageError(f"these are no packed data: {error!r}") from error


def _read(entry: Mapping[str, Any], content: bytes, position: int, external: Mapping[str, np.ndarray],
          get: Callable[[str], bytes] | None) -> tuple[np.ndarray, int]:
    """An array of the table, and the bytes that it takes in `content`."""
    dtype, shape = ELEMENT_TYPES[entry["element"]].numpy, tuple(map(count, entry["shape"]))
    elements = prod(shape)
    if "elsewhere" in entry and get is not None:
        return np.frombuffer(get(entry["elsewhere"]), dtype, elements).reshape(shape), 0
    if "external" not in entry:
        return np.frombuffer(content, dtype, elements, position).reshape(shape), elements * dtype.itemsize
    if entry["external"] not in external:
        raise PackageError(f"array {entry['external']!r} is to be given by whoever reads the package, and is not")
    array = np.ascontiguousarray(external[entry["external"]])
    if array.dtype != dtype:
        raise PackageError(f"array {entry['external']!r} is of {array.dtype}, expected {dtype}")
    return array.reshape(shape), 0


def count(value: Any) -> int:
    """The value, if it can be a number of bytes or elements, else ValueError."""
    if type(value) is not int or not 0 <= value <= _MOST_BYTES:
        raise ValueError(f"{value!r} can't be a number of bytes or elements")
    return value


def text(value: Any) -> str:
    """The value, if it is a text, else TypeError."""
    if type(value) is not str:
        raise TypeError(f"{value!r} is no text")
    return value


def content_key(array: np.ndarray, key: bytes | None = None) -> tuple[str, int, bytes]:
    """The identity of an array's content: dtype, bytes and a hash under `key`, whatever the shape. By default the key
    is this process's own. Nobody who does not know the key can make up other content with the same hash."""
    import ngraph_mxnet._core as _core

    memory = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return array.dtype.str, memory.nbytes, _core.content_hash128(memory, key or _secret())


def hash_key_bytes() -> int:
    """The size of a key of `content_key`."""
    import ngraph_mxnet._core as _core

    return int(_core.hash_key_bytes)


@cache
def _secret() -> bytes:
    return os.urandom(hash_key_bytes())


class _Arrays:
    """The arrays that were met, by where their elements lie. Most external arrays are the very same objects, and
    comparing contents takes long for big models."""

    def __init__(self, external: Mapping[str, np.ndarray], put: Callable[[np.ndarray], str] | None) -> None:
        self._put = put
        self.table: list[dict[str, Any]] = []
        self.own: list[np.ndarray] = []
        self._places: dict[Any, int] = {}
        self._external = {name: array for name, array in external.items() if array.nbytes >= LARGE}
        self._names: dict[Any, str] = {_memory(array): name for name, array in self._external.items()}
        self._sizes = {(array.dtype.str, array.nbytes) for array in self._external.values()}

    def reference(self, value: Any) -> dict[str, int]:
        """Return the reference that stands for an array."""
        if not isinstance(value, np.ndarray):
            raise TypeError(f"found {type(value).__name__}")
        memory = _memory(value)
        if memory not in self._places:
            entry = {"element": element_type(value.dtype).name, "shape": value.shape}
            name = self._name(value)
            if name is not None:
                entry["external"] = name
            elif self._put is not None and value.nbytes >= LARGE:
                entry["elsewhere"] = self._put(value)
            else:
                self.own.append(value)
            self._places[memory] = len(self.table)
            self.table.append(entry)
        return {_ARRAY: self._places[memory]}

    def _name(self, value: np.ndarray) -> str | None:
        name = self._names.get(_memory(value))
        if name is None and (value.dtype.str, value.nbytes) in self._sizes:
            self._names.update({content_key(array): one for one, array in self._external.items()
                                if array.nbytes == value.nbytes})
            name = self._names.get(content_key(value))
        return name


def _memory(array: np.ndarray) -> tuple[int, str, tuple[int, ...], tuple[int, ...]]:
    """Return where the array's elements lie, and how: address, dtype, shape and strides."""
    return array.__array_interface__["data"][0], array.dtype.str, array.shape, array.strides


FORMAT = 2
"""The number of the files' format; a package of another one is refused."""
_MAGIC = b"ngraph_mxnet pkg"
_HEADER = struct.Struct("<16sQQ32s")
HEADER_BYTES = _HEADER.size
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class Package:
    """`code` is what `target`, a backend's name, made of each graph that a step of `flow` calls, `settings` what else
    it must know. Both are the target's own affair, and plain data (see `pack`).

    Sizes of the flow's values may depend on `symbols`. The package is then for those sizes for which the guards hold.
    """

    target: str
    name: str
    flow: Flow
    code: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    symbols: Sequence[Atom] = ()
    guards: Sequence[Guard] = ()

    def holds(self, binding: Mapping[str, int]) -> bool:
        """True if the package is for these sizes."""
        return (all(atom.low <= binding[atom.text] <= atom.high for atom in self.symbols)
                and all(guard.holds(binding) for guard in self.guards))

    def to_bytes(self, external: Mapping[str, np.ndarray] | None = None) -> bytes:
        """Return the bytes that `from_bytes` reads with the same `external`, whose arrays the bytes only name.

        Raises:
            PackageError: the package holds something that is no plain data.
        """
        return seal(b"".join(pack({**self.plain(), "version": __version__}, external)))

    @staticmethod
    def from_bytes(content: bytes, external: Mapping[str, np.ndarray] | None = None) -> Package:
        """
        Raises:
            PackageError: it is no package, damaged, cut off, of another version, or `external` lacks an array.
        """
        return Package.from_plain(unsealed(content, external))

    def save(self, path: str | Path) -> None:
        """Write a file, which appears whole or not at all.

        Raises:
            PackageError: as for `to_bytes`.
            OSError: it can't be written.
        """
        write_file(path, [self.to_bytes()])

    @staticmethod
    def load(path: str | Path) -> Package:
        """Read a file.

        Raises:
            PackageError: as for `from_bytes`.
            OSError: it can't be read.
        """
        try:
            return Package.from_bytes(Path(path).read_bytes())
        except PackageError as error:
            raise PackageError(f"{path}: {error}") from error

    def plain(self) -> dict[str, Any]:
        """Return the package as plain data, which may be part of another package's data."""
        places: dict[Shared, int] = {}
        for value in self.flow.values():
            places.setdefault(value, len(places))
        return {
            "target": self.target,
            "name": self.name,
            "symbols": [[atom.text, atom.low, atom.high] for atom in self.symbols],
            "guards": [[str(guard), guard.why] for guard in self.guards],
            "values": [[value.name, value.type.element.name, list(map(_plain, value.type.shape)), value.role.value]
                       for value in places],
            "inputs": len(self.flow.inputs),
            "steps": [[step.graph, [places[value] for value in step.inputs], [places[value] for value in step.outputs]]
                      for step in self.flow.steps],
            "results": [[name, places[value]]
                        for name, value in zip(self.flow.names, self.flow.results, strict=True)],
            "code": dict(self.code),
            "settings": dict(self.settings),
        }

    @staticmethod
    def from_plain(found: Any) -> Package:
        """Make the package from the data that `plain` gave.

        Raises:
            PackageError: the data are something else, or the steps don't fit each other.
        """
        try:
            symbols = {name: symbol(text(name), count(low), count(high)) for name, low, high in found["symbols"]}
            guards = [_guard(told, why, symbols) for told, why in found["guards"]]
            values = [Shared(text(name), TensorType(element_type(text(element)),
                                                    tuple(_size(size, symbols) for size in shape)), Role(role))
                      for name, element, shape, role in found["values"]]
            steps = tuple(Step(text(graph), *(tuple(values[count(place)] for place in places) for places in both))
                          for graph, *both in found["steps"])
            results = [(text(name), values[count(place)]) for name, place in found["results"]]
            flow = Flow(tuple(values[:count(found["inputs"])]), steps, tuple(value for _, value in results),
                        tuple(name for name, _ in results))
            flow.verify()
            package = Package(text(found["target"]), text(found["name"]), flow, dict(found["code"]),
                              dict(found["settings"]), [atom for size in symbols.values() for atom in size.symbols],
                              [guard for guard in guards if guard is not None])
        except (ArithmeticError, AttributeError, GraphError, LookupError, TypeError, ValueError) as error:
            raise PackageError(f"this is no package: {error!r}") from error
        missing = {step.graph for step in steps} - package.code.keys()
        if missing:
            raise PackageError(f"package {package.name}: no code of {listed(sorted(missing))}, which steps call")
        return package


def _plain(size: int) -> int | str:
    return str(size) if isinstance(size, Dim) else size


def _size(found: Any, symbols: Mapping[str, Dim]) -> int:
    return parse_dim(found, symbols) if isinstance(found, str) else count(found)


def _guard(told: Any, why: Any, symbols: Mapping[str, Dim]) -> Guard | None:
    found = parse_guard(text(told), symbols)
    return None if found is None else Guard(found.condition, found.value, text(why))


def is_package(path: str | Path) -> bool:
    """True if the file begins as a package. Raises OSError where the file can't be read."""
    with Path(path).open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def seal(body: bytes) -> bytes:
    """`body` behind a header."""
    return _HEADER.pack(_MAGIC, FORMAT, len(body), _digest(body)) + body


def unsealed(content: bytes, external: Mapping[str, np.ndarray] | None) -> dict[str, Any]:
    """Check and unpack the content that this version packed and sealed.

    Raises:
        PackageError: the content is no package, damaged, cut off, of another version, or `external` lacks an array.
    """
    check_seal(content)
    found: Any = unpack(content, HEADER_BYTES, external)
    version = found.get("version") if isinstance(found, dict) else None
    if version != __version__:
        raise PackageError(f"the package was made by ngraph_mxnet {version}, and this is {__version__}: compile "
                           "the model again")
    plain: dict[str, Any] = found
    return plain


def check_seal(content: bytes) -> None:
    """
    Raises:
        PackageError: this is no package, of another format, cut off, or damaged.
    """
    if not content.startswith(_MAGIC[:len(content)]) or not content:
        raise PackageError(f"this is no package of ngraph_mxnet: it begins with {content[:len(_MAGIC)]!r}")
    if len(content) < HEADER_BYTES:
        raise PackageError(f"the package is cut off: found {len(content)} bytes, its header has {HEADER_BYTES}")
    _, version, size, digest = _HEADER.unpack_from(content)
    if version > FORMAT:
        raise PackageError(f"the package is of format {version}, and this ngraph_mxnet reads up to {FORMAT}: update "
                           "it, or compile the model again")
    if version < FORMAT:
        raise PackageError(f"the package is of format {version}, and this ngraph_mxnet reads {FORMAT}: compile the "
                           "model again")
    if size != len(content) - HEADER_BYTES:
        raise PackageError(f"the package is cut off, or there is more behind it: found {len(content) - HEADER_BYTES} "
                           f"bytes, expected {size}")
    if digest != _digest(memoryview(content)[HEADER_BYTES:]):
        raise PackageError("the package is damaged: its content is not what was written")


def _digest(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


def encode_graph(graph: Graph) -> dict[str, Any]:
    """Plain data (see `pack`)."""
    numbers = {value: number for number, value in enumerate(graph.values())}
    return {
        "name": graph.name,
        "parameters": [[p.name, p.type.element.name, p.type.shape, p.role.value, p.origin] for p in graph.parameters],
        "nodes": [[node.op.name, [numbers[value] for value in node.inputs],
                   {name: _encoded(value) for name, value in node.attrs.items()}, node.origin,
                   [value.name for value in node.outputs]] for node in graph.nodes],
        "results": [numbers[value] for value in graph.results],
        "names": list(graph.names),
    }


def _encoded(value: Any) -> Any:
    if isinstance(value, Graph):
        return encode_graph(value)
    return value.name if isinstance(value, ElementType) else value


def decode_graph(found: Any) -> Graph:
    """The graph of which these are the data, verified.

    Raises:
        PackageError: there is no such graph.
    """
    try:
        graph = _decoded(found)
        verify(graph)
    except (ArithmeticError, AttributeError, GraphError, LookupError, RecursionError, TypeError, TypeRuleError,
            ValueError) as error:
        raise PackageError(f"these are no data of a graph: {error}") from error
    return graph


def decode_module(package: Package) -> Module:
    """The module whose graphs are the package's code, verified.

    Raises:
        PackageError: they are no graphs, or do not fit the package's steps.
    """
    module = Module(package.name, {name: decode_graph(found) for name, found in package.code.items()}, package.flow)
    try:
        module.verify()
    except GraphError as error:
        raise PackageError(f"package {package.name}: {error}") from error
    return module


def _decoded(found: Mapping[str, Any]) -> Graph:
    graph = Graph(text(found["name"]))
    for name, element, shape, role, origin in found["parameters"]:
        type_ = TensorType(element_type(text(element)), tuple(map(count, shape)))
        graph.add_parameter(type_, text(name), Role(role), origin=text(origin))
    values: list[Value] = list(graph.parameters)
    for op, inputs, attrs, origin, names in found["nodes"]:
        schema = get_op(op).schema
        own = {name: _attribute(schema.get(name), value) for name, value in attrs.items()}
        node = make_node(op, [values[count(number)] for number in inputs], own, text(origin))
        for value, name in zip(node.outputs, names, strict=True):
            value.name = text(name)
        graph.nodes.append(node)
        values += node.outputs
    graph.results = [values[count(number)] for number in found["results"]]
    graph.names = [text(name) for name in found["names"]]
    return graph


def _attribute(kind: Attribute | None, value: Any) -> Any:
    """Return the value as the node has it. The op refuses values of the wrong kind."""
    if isinstance(kind, Body):
        return _decoded(value)
    if isinstance(kind, Array) and not isinstance(value, np.ndarray):
        raise TypeError(f"{value!r} is no array")
    return value
