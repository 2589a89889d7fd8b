"""What a target compiled for a range of sizes, as plain data that outlives the process: a `Package` with symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.errors import GraphError, PackageError
from ngraph_mxnet.ir.dims import Atom, Dim
from ngraph_mxnet.ir.sizes import Guard, parse_dim, parse_guard, symbol
from ngraph_mxnet.ir.types import TensorType, element_type
from ngraph_mxnet.package.pack import arrays_in, count, pack, text
from ngraph_mxnet.package.package import seal, unsealed
from ngraph_mxnet.version import __version__

NamedType = tuple[str, TensorType]


@dataclass(frozen=True)
class TemplatePackage:
    """`code` and `settings` are the target's own affair, and plain data, as those of a `Package`. The types of the
    inputs and outputs are of the symbols, and so are the guards, which say for which sizes the code is."""

    target: str
    name: str
    symbols: Sequence[Atom]
    inputs: Sequence[NamedType]
    outputs: Sequence[NamedType]
    guards: Sequence[Guard]
    code: Mapping[str, Any]
    settings: Mapping[str, Any]

    def holds(self, binding: Mapping[str, int]) -> bool:
        """Whether it is for these sizes."""
        return (all(atom.low <= binding[atom.text] <= atom.high for atom in self.symbols)
                and all(guard.holds(binding) for guard in self.guards))

    def arrays(self) -> Iterator[np.ndarray]:
        """All that are in it, some perhaps several times."""
        yield from arrays_in(self.code)
        yield from arrays_in(self.settings)

    def to_bytes(self, external: Mapping[str, np.ndarray] | None = None) -> bytes:
        """What `from_bytes` reads with the same `external`: arrays that are only named in it.

        Raises:
            PackageError: there is something in it that is no plain data.
        """
        plain = {
            "version": __version__, "target": self.target, "name": self.name,
            "symbols": [[atom.text, atom.low, atom.high] for atom in self.symbols],
            "inputs": list(map(_plain_type, self.inputs)), "outputs": list(map(_plain_type, self.outputs)),
            "guards": [[str(guard), guard.why] for guard in self.guards],
            "code": dict(self.code), "settings": dict(self.settings),
        }
        return seal(b"".join(pack(plain, external)))

    @staticmethod
    def from_bytes(content: bytes, external: Mapping[str, np.ndarray] | None = None) -> TemplatePackage:
        """
        Raises:
            PackageError: it is no such package, damaged, cut off, of another version, or `external` lacks an array.
        """
        found = unsealed(content, external)
        try:
            symbols = {name: symbol(text(name), count(low), count(high)) for name, low, high in found["symbols"]}
            guards = (_guard(told, why, symbols) for told, why in found["guards"])
            return TemplatePackage(
                text(found["target"]), text(found["name"]),
                [atom for size in symbols.values() for atom in size.symbols],
                [_type(one, symbols) for one in found["inputs"]], [_type(one, symbols) for one in found["outputs"]],
                [guard for guard in guards if guard is not None], dict(found["code"]), dict(found["settings"]))
        except (ArithmeticError, AttributeError, GraphError, LookupError, TypeError, ValueError) as error:
            raise PackageError(f"this is no package for a range of sizes: {error!r}") from error


def _plain_type(of: NamedType) -> list[Any]:
    name, type_ = of
    return [name, type_.element.name, list(map(str, type_.shape))]


def _type(of: Any, symbols: Mapping[str, Dim]) -> NamedType:
    name, element, sizes = of
    return text(name), TensorType(element_type(text(element)), tuple(parse_dim(text(size), symbols) for size in sizes))


def _guard(told: Any, why: Any, symbols: Mapping[str, Dim]) -> Guard | None:
    found = parse_guard(text(told), symbols)
    return None if found is None else Guard(found.condition, found.value, text(why))
