"""A symbol's graph with places for names, so that all that is found out serves every graph that differs in names only:
a model's second instance."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Any

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Graph

#: On both sides of a node's place. It stands for itself in JSON.
_MARK = "\x7f"
_NAME_OF_BODY = "__subgraph_name__"
"""An attribute that tells MXNet's Python, when it makes control flow, which nodes belong into a body."""
_PLACE = re.compile(f"{_MARK}([0-9]+){_MARK}")


class NamelessGraph:
    """`root` is the graph's JSON in which a node's name is its place between marks; `text` is `root` as text.

    `names`: of each place. Of operators that share a name, as those of a Gluon block that is called twice do, all but
    the first get another. The nodes of graphs within nodes have the places behind.
    """

    def __init__(self, text: str) -> None:
        """
        Args:
            text: the symbol's JSON.

        Raises:
            UnsupportedError: it holds a mark.
        """
        if _MARK in text:
            raise UnsupportedError("a name or an attribute of the symbol holds the character DEL")
        self.root: dict[str, Any] = json.loads(text)
        self.root.pop("node_row_ptr", None)
        nodes = self.root["nodes"]
        self.variables = [place for place, node in enumerate(nodes) if node["op"] == "null"]
        self.names = _distinct([node["name"] for node in nodes], self.variables)
        for place, node in enumerate(nodes):
            _rename(node, place)
        self._take_names_within(nodes)
        self.text = dump(self.root)

    def _take_names_within(self, nodes: list[dict[str, Any]]) -> None:
        for node in nodes:
            for body in node.get("subgraphs", ()):
                for inner in body["nodes"]:
                    self.names.append(inner["name"])
                    _rename(inner, len(self.names) - 1)
                self._take_names_within(body["nodes"])

    def with_names(self, text: str) -> str:
        """A JSON text with this graph's names put in."""
        names = [encode_basestring(name)[1:-1] for name in self.names]
        return _PLACE.sub(lambda found: names[int(found[1])], text)

    def named(self, text: str) -> str:
        """A plain text with this graph's names put in."""
        return with_places_as(text, self.names)

    def named_bodies(self, bodies: Sequence[Any]) -> tuple[Any, ...]:
        """The JSON of graphs within a node with this graph's names put in."""
        return tuple(json.loads(self.with_names(dump(bodies)))) if bodies else ()

    def put_names(self, graph: Graph) -> None:
        """Name all in IR that was lowered from the nameless graph."""
        graph.name = self.named(graph.name)
        for parameter in graph.parameters:
            parameter.name = self.named(parameter.name)
        for node in graph.nodes:
            node.origin = self.named(node.origin)
            for value in node.attrs.values():
                if isinstance(value, Graph):
                    self.put_names(value)


def _rename(node: dict[str, Any], place: int) -> None:
    node["name"] = name_of(place)
    node.get("attrs", {}).pop(_NAME_OF_BODY, None)


def _distinct(names: list[str], variables: list[int]) -> list[str]:
    taken = set(names)
    if len(taken) == len(names):
        return names
    found, seen = names.copy(), {names[place] for place in variables}
    for place in sorted(set(range(len(names))).difference(variables)):
        name, number = names[place], 1
        if name in seen:
            while f"{name}_again{number}" in taken:
                number += 1
            found[place] = f"{name}_again{number}"
            taken.add(found[place])
        seen.add(name)
    return found


def name_of(place: int) -> str:
    """Return the text that stands for the name of the node at this place."""
    return f"{_MARK}{place}{_MARK}"


def with_places_as(text: str, names: Sequence[str]) -> str:
    """A plain text with the name of each place put in."""
    return _PLACE.sub(lambda found: names[int(found[1])], text)


def place_in(text: str) -> int:
    """The place of the node whose name `text`, MXNet's name of an output, begins with."""
    found = _PLACE.match(text)
    assert found is not None, text
    return int(found[1])


def dump(value: Any) -> str:
    """Its JSON, the shortest."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
