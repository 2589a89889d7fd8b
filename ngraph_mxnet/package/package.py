"""A Package: what a target compiled, as plain data that outlives the process.

A file begins with a header of 64 bytes: what it is, the version of the format, the number of bytes that follow, and
their BLAKE2b. That tells damage, not intent: who may choose the bytes may choose their digest. So a target checks what
it is given before any of it runs (`Backend.load`), and the cache on disk authenticates its entries.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.errors import GraphError, PackageError, listed
from ngraph_mxnet.ir.dims import Atom, Dim
from ngraph_mxnet.ir.module import Flow, Shared, Step
from ngraph_mxnet.ir.sizes import Guard, parse_dim, parse_guard, symbol
from ngraph_mxnet.ir.types import Role, TensorType, element_type
from ngraph_mxnet.package.files import write_file
from ngraph_mxnet.package.pack import arrays_in, count, pack, text, unpack
from ngraph_mxnet.version import __version__

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

    def arrays(self) -> Iterator[np.ndarray]:
        """All that are in it, some perhaps several times."""
        yield from arrays_in(self.code)
        yield from arrays_in(self.settings)

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
