"""Typed reading of a node's attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
from onnx import AttributeProto

from ngraph_mxnet.errors import ModelError, UnsupportedError

_REQUIRED: Any = object()
_KINDS: dict[int, str] = {
    AttributeProto.FLOAT: "f", AttributeProto.INT: "i", AttributeProto.STRING: "s", AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g", AttributeProto.FLOATS: "floats", AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
}


class Attributes:
    """The attributes of a node. Each read is recorded, so that an attribute that no rule reads is reported instead of
    ignored."""

    def __init__(self, node: onnx.NodeProto) -> None:
        self._found = {attribute.name: attribute for attribute in node.attribute}
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def _get(self, name: str, kind: int, default: Any) -> Any:
        self._read.add(name)
        attribute = self._found.get(name)
        if attribute is None:
            if default is _REQUIRED:
                raise ModelError(f"attribute {name} is missing")
            return default
        if attribute.ref_attr_name:
            raise ModelError(f"attribute {name} refers to {attribute.ref_attr_name} of a function, but is in none")
        if attribute.type != kind:
            wanted = AttributeProto.AttributeType.Name(kind).lower()
            raise ModelError(f"attribute {name}: found type {attribute.type}, expected {wanted}")
        return getattr(attribute, _KINDS[kind])

    def int(self, name: str, default: Any = _REQUIRED) -> Any:
        return self._get(name, AttributeProto.INT, default)

    def float(self, name: str, default: Any = _REQUIRED) -> Any:
        return self._get(name, AttributeProto.FLOAT, default)

    def bool(self, name: str, default: bool = False) -> bool:
        return bool(self._get(name, AttributeProto.INT, default))

    def string(self, name: str, default: Any = _REQUIRED) -> Any:
        value = self._get(name, AttributeProto.STRING, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def choice(self, name: str, default: str, allowed: Iterable[str]) -> str:
        """One of `allowed`.

        Raises:
            UnsupportedError: another.
        """
        value, allowed = self.string(name, default), tuple(allowed)
        if value not in allowed:
            raise UnsupportedError(f"{name}={value!r}; supported: {', '.join(allowed)}")
        return value

    def ints(self, name: str, default: Any = _REQUIRED) -> Any:
        value = self._get(name, AttributeProto.INTS, default)
        return value if value is None else tuple(value)

    def floats(self, name: str, default: Any = _REQUIRED) -> Any:
        value = self._get(name, AttributeProto.FLOATS, default)
        return value if value is None else tuple(value)

    def strings(self, name: str, default: Any = _REQUIRED) -> Any:
        value = self._get(name, AttributeProto.STRINGS, default)
        return value if value is None else tuple(text.decode("utf-8", "replace") for text in value)

    def tensor(self, name: str, default: Any = _REQUIRED) -> Any:
        return self._get(name, AttributeProto.TENSOR, default)

    def graph(self, name: str) -> onnx.GraphProto:
        return self._get(name, AttributeProto.GRAPH, _REQUIRED)

    def ignore(self, *names: str) -> None:
        """Attributes that do not change what inference computes."""
        self._read.update(names)

    def require_all_read(self) -> None:
        """To be called when all that a node's attributes change is known.

        Raises:
            UnsupportedError: there are others.
        """
        unread = sorted(set(self._found) - self._read)
        if unread:
            raise UnsupportedError(f"no support for {', '.join(unread)}")
