"""JSON files of the simulator, and the bounds of their numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from ngraph_mxnet.errors import NGraphError, listed

Made = TypeVar("Made")

_TYPES: Mapping[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}
"""What JSON gives for a field that is declared so."""


class SimulationError(NGraphError, ValueError):
    """A trace, a cluster or measured times can't be read, or don't fit each other."""


def require(holds: bool, name: str, found: object, expected: str) -> None:
    """Raises SimulationError unless it `holds`."""
    if not holds:
        raise SimulationError(f"{name}: found {found}, expected {expected}")


def read(path: str | Path) -> Any:
    """What the JSON file holds.

    Raises:
        SimulationError: it can't be read, or is no JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SimulationError(f"{path} can't be read: {error}") from None


def read_as(path: str | Path, kind: str, version: int, make: Callable[[Mapping[str, Any]], Made]) -> Made:
    """What `make` makes of the fields of a file that `write_as` wrote.

    Raises:
        SimulationError: it can't be read, is of another kind or version, or `make` refuses it; the text has the path.
    """
    found = read(path)
    header = (found.get("format"), found.get("version")) if isinstance(found, dict) else (type(found).__name__, None)
    require(header == (kind, version), str(path), f"format {header[0]!r}, version {header[1]!r}",
            f"{kind!r}, version {version}")
    try:
        return make({name: value for name, value in found.items() if name not in ("format", "version")})
    except SimulationError as error:
        raise SimulationError(f"{path}: {error}") from None


def write_as(path: str | Path, kind: str, version: int, content: Mapping[str, Any]) -> None:
    """One line for each field and each element of a list.

    Raises:
        OSError: it can't be written.
    """
    lines = [f'  "{name}": {_shown(value)}' for name, value in
             {"format": kind, "version": version, **content}.items()]
    Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def made(kind: type[Made], content: object, what: str) -> Made:
    """The dataclass whose fields these are: no other names, and none that lacks a default is missing. A number is taken
    for a field that is a float, and the other types must fit exactly.

    Raises:
        SimulationError: they are not; the text names the field.
    """
    assert is_dataclass(kind)
    require(isinstance(content, Mapping), what, type(content).__name__, "an object")
    assert isinstance(content, Mapping)
    known = {field.name: field for field in fields(kind)}
    unknown = [name for name in content if name not in known]
    require(not unknown, what, f"the fields {listed(map(str, unknown))}", f"among {listed(known, most=len(known))}")
    missing = [name for name, field in known.items()
               if name not in content and field.default is MISSING and field.default_factory is MISSING]
    require(not missing, what, f"no {listed(missing)}", "these fields")
    for name, value in content.items():
        wanted = str(known[name].type)
        if wanted in _TYPES:
            require(type(value) in _TYPES[wanted], f"{what}, {name}", repr(value), f"of type {wanted}")
    return kind(**content)


def _shown(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {json.dumps(each)}" for each in value) + "\n  ]"
    return json.dumps(value)
