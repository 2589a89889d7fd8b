"""Reads the text that `printer` writes."""

from __future__ import annotations

import re
from typing import Any

from ngraph_mxnet.base.errors import GraphError, TypeRuleError, listed
from ngraph_mxnet.ir.graph import Body, Graph, Value, make_node, verify
from ngraph_mxnet.ir.opdef import get_op
from ngraph_mxnet.ir.ranges import Guards, Symbols, assuming, parse_dims, parse_guard
from ngraph_mxnet.ir.sizes import MOST, Dim, symbol
from ngraph_mxnet.ir.types import ELEMENT_TYPES, Role, TensorType, parse_attribute

_NAME = r'(?:"[^"]*"|[\w.\-]+)'
_TYPE = r"\w+\[[^\]]*\]"
_HEADER = re.compile(rf"graph @({_NAME})(<[^>]*>)?\((.*)\) -> \(((?:{_TYPE}(?:, )?)*)\) \{{\Z")
_SYMBOL = re.compile(r"(\w+): (\d+)\.\.(\d*)(?:, |\Z)")
_PARAMETER = re.compile(rf"%({_NAME}): ({_TYPE})( weight)?(?:, |\Z)")
_OUTPUTS, _OPERANDS = rf"(?:%\d+: {_TYPE}(?:, )?)*", rf"(?:(?:\w+=)?%{_NAME}(?:, )?)*"
_NODE = re.compile(rf"({_OUTPUTS}) = (\w+)\(({_OPERANDS})\)(?: \{{([^}}]*)\}})?(?:\s+# (.*))?\Z")
_OUTPUT = re.compile(rf"%(\d+): ({_TYPE})")
_ATTR = re.compile(r'(\w+)=("[^"]*"|\[[^\]]*\]|dense<[^>]*>|[^,\s]+)(?:, |\Z)')
_RESULT = re.compile(rf"%({_NAME})(?:, |\Z)")
_OPERAND = re.compile(rf"(?:(\w+)=)?%({_NAME})(?:, |\Z)")
_BODY = re.compile(r"(\w+) (@.*\{)\Z")

Line = tuple[int, str]


def parse_graph(text: str) -> Graph:
    """The graph that `text` describes, verified. Raises GraphError: a line does not parse, or the graph is malformed;
    the text names the line."""
    graph = _parse([(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()])
    verify(graph)
    return graph


def _parse(lines: list[Line]) -> Graph:
    if not lines:
        raise GraphError("empty text: expected 'graph @name(...) -> (...) {'")
    lines, bodies = _take_bodies(lines)
    header = _HEADER.match(lines[0][1])
    if header is None:
        number, line = lines[0]
        raise GraphError(f"line {number}: expected 'graph @name(...) -> (...) {{', found {line[:80]!r}")
    graph, values, symbols = Graph(), dict[str, Value](), _declared(header[2] or "", lines[0][0])
    guards = Guards()
    returned = False
    for number, line in lines:
        try:
            if line.startswith("guard "):
                found = parse_guard(line[6:], symbols)
                if found is not None:
                    graph.guards.append(found)
                    guards.found[found.condition] = found
            elif returned:
                if line != "}" or (number, line) != lines[-1]:
                    raise GraphError(f"line {number}: expected '}}' and the end, found {line[:80]!r}")
            elif number == lines[0][0]:
                _parse_header(graph, values, header, symbols, number)
            elif line == "return" or line.startswith("return "):
                graph.results = [_value(values, name) for (name,) in _all(_RESULT, line[6:].strip(), number)]
                returned = True
            else:
                own = {key: _parse(body) for key, body in bodies.get(number, {}).items()}
                with assuming(guards):
                    _parse_node(graph, values, line, number, own, symbols)
        except (KeyError, ValueError, TypeRuleError) as error:
            # A KeyError's own text would be quoted.
            raise GraphError(f"line {number}: {error.args[0] if error.args else error}") from None
    if not returned or lines[-1][1] != "}":
        raise GraphError(f"line {lines[-1][0]}: the text ends without 'return' and '}}'")
    results = ", ".join(str(r.type) for r in graph.results)
    if results != header[4]:
        raise GraphError(f"line {lines[0][0]}: the header says results ({header[4]}), returned are ({results})")
    return graph


def _take_bodies(lines: list[Line]) -> tuple[list[Line], dict[int, dict[str, list[Line]]]]:
    """The lines outside the graphs in attributes, and these graphs' lines by their node's line and attribute."""
    kept, bodies = lines[:1], dict[int, dict[str, list[Line]]]()
    rest = iter(lines[1:])
    for number, line in rest:
        start = _BODY.match(line)
        if start is None:
            kept.append((number, line))
            continue
        body, depth = [(number, f"graph {start[2]}")], 1
        while depth:
            found = next(rest, None)
            if found is None:
                raise GraphError(f"line {number}: the text ends before the graph {start[1]!r} does")
            body.append(found)
            depth += bool(_BODY.match(found[1])) - (found[1] == "}")
        own = bodies.setdefault(kept[-1][0], {})
        if start[1] in own:
            raise GraphError(f"line {number}: attribute {start[1]!r} is given twice")
        own[start[1]] = body
    return kept, bodies


def _declared(text: str, number: int) -> dict[str, Dim]:
    """The symbols that the header declares, in angle brackets."""
    try:
        return {name: symbol(name, int(low), int(high) if high else MOST)
                for name, low, high in _all(_SYMBOL, text[1:-1], number)}
    except ValueError as error:
        raise GraphError(f"line {number}: {error}") from None


def _parse_header(graph: Graph, values: dict[str, Value], header: re.Match[str], symbols: Symbols, number: int) -> None:
    graph.name = _unquote(header[1])
    for name, type_text, weight in _all(_PARAMETER, header[3], number):
        type_ = _type(type_text, symbols)
        values[name] = graph.add_parameter(type_, _unquote(name), Role.WEIGHT if weight else Role.INPUT)


def _value(values: dict[str, Value], name: str) -> Value:
    if name not in values:
        raise KeyError(f"%{name} is not defined before it is used")
    return values[name]


def _parse_node(graph: Graph, values: dict[str, Value], line: str, number: int, bodies: dict[str, Graph],
                symbols: Symbols) -> None:
    match = _NODE.match(line)
    if match is None:
        raise GraphError(f"line {number}: not a node: {line[:80]!r}")
    outputs = _OUTPUT.findall(match[1])
    op = get_op(match[2])
    element = ELEMENT_TYPES[outputs[0][1].split("[")[0]] if outputs else None
    attrs: dict[str, Any] = {}
    for key, text in _all(_ATTR, match[4] or "", number):
        if key not in op.schema:
            raise GraphError(f"line {number}: {op.name} has no attribute {key!r}")
        if key in attrs:
            raise GraphError(f"line {number}: attribute {key!r} is given twice")
        attrs[key] = parse_attribute(op.schema[key], text, element, symbols)
    for key, body in bodies.items():
        if not isinstance(op.schema.get(key), Body):
            raise GraphError(f"line {number}: {op.name} has no graph {key!r}")
        attrs[key] = body
    inputs = []
    for position, (label, name) in enumerate(_all(_OPERAND, match[3], number)):
        if label and label != op.operand_name(position):
            raise GraphError(f"line {number}: operand {position} of {op.name} is not called {label!r}")
        inputs.append(_value(values, name))
    node = make_node(op.name, inputs, attrs, _unescape(match[5] or ""))
    if [(str(v.type)) for v in node.outputs] != [type_text for _, type_text in outputs]:
        found = ", ".join(str(v.type) for v in node.outputs)
        raise GraphError(f"line {number}: {op.name} gives {found}, the text says {match[1]}")
    graph.nodes.append(node)
    again = [name for name, _ in outputs if name in values]
    if again:
        raise GraphError(f"line {number}: %{again[0]} is defined twice")
    values.update((name, value) for (name, _), value in zip(outputs, node.outputs, strict=True))


def _all(pattern: re.Pattern[str], text: str, number: int) -> list[tuple[str, ...]]:
    found, position = [], 0
    while position < len(text):
        match = pattern.match(text, position)
        if match is None or match.end() == position:
            raise GraphError(f"line {number}: can't read {text[position:position + 60]!r}")
        found.append(tuple(group or "" for group in match.groups()))
        position = match.end()
    return found


def _type(text: str, symbols: Symbols) -> TensorType:
    element, dims = text.removesuffix("]").split("[")
    if element not in ELEMENT_TYPES:
        raise GraphError(f"no element type {element!r}; known: {listed(ELEMENT_TYPES, element)}")
    return TensorType(ELEMENT_TYPES[element], parse_dims(dims, symbols))


def _unquote(name: str) -> str:
    return _unescape(name[1:-1]) if name.startswith('"') else name


def _unescape(text: str) -> str:
    return text.encode("ascii").decode("unicode_escape")
