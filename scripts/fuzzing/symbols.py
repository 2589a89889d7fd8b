"""Changes to MXNet's symbol JSON: operators, attributes, edges, graphs within graphs, versions, any word of it.

Seeds carry the types of their variables (`__shape__`, `__dtype__`), so a mutant needs nothing beside it to be lowered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from fuzzing.entries import change, mutate_bytes, places

_MOST_CHANGES = 4
MOST_BYTES = 1 << 18
_LONGEST_CHAIN = 3000
_VERSIONS = (0, 700, 800, 904, 905, 10000, 10300, 10901, 1 << 40, -1)
_TEXTS = (
    "", "None", "True", "False", "0", "1", "-1", "2", "3L", "1e400", "nan", "-inf", "0.5", "(1, 1)", "(0, 0)", "()",
    "(", "[2, 2]", "(-1, -2)", "(2, 3, 4, 5, 6, 7)", "(None, 2)", "1048576", "2147483647", "2147483648", "4294967296",
    "1099511627776", "9223372036854775807", "9223372036854775808", "(1099511627776, 1099511627776)", "(65536, 65536)",
    "9" * 5000, "float16", "float64", "int8", "bool", "bfloat16", "complex64", "object", "relu", "max", "avg",
    "valid", "same", "NHWC", "ijk,ikl->ijl", "x" * 300, "\0", "\udc80", "\N{GREEK SMALL LETTER ALPHA}",
)
_KEYS = ("attrs", "attr", "param")


def seeds() -> list[bytes]:
    """Each operator with two sets of its attributes, as the conformance tests draw them; random models; and, for what
    old files say, some of these as versions before wrote them. Needs MXNet."""
    from fuzzing.values import test_helpers  # noqa: F401  (before what it makes importable)

    # isort: split
    from families import RECORDS

    return [text for record in RECORDS for text in of_operator(record)]


def of_operator(record: Any) -> Iterator[bytes]:
    """Symbols of a record of `tests/conformance`, with the types of their variables."""
    from fuzzing.values import test_helpers  # noqa: F401

    # isort: split
    from option_pairs import drawn
    from runs import arrays_for, build

    for number, case in enumerate(drawn(record, 2)):
        symbol = build(record.op, case, numpy=record.numpy)
        root = json.loads(symbol.tojson())
        arrays = arrays_for(symbol, case, 0, numpy=record.numpy)
        for node in root["nodes"]:
            if node["op"] == "null":
                array = arrays[node["name"]]
                node["attrs"] = {"__shape__": str(array.shape), "__dtype__": str(_NUMBER[array.dtype.name])}
        if number:
            _as_of_old(root)
        content = json.dumps(root).encode()
        if len(content) <= MOST_BYTES:
            yield content


_NUMBER = {name: number for number, name in enumerate(
    ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool"))}


def _as_of_old(root: Any) -> None:
    """As MXNet 0.8 wrote it: attributes under `param`, edges of two numbers, no version."""
    root.pop("attrs", None)
    for node in root["nodes"]:
        if "attrs" in node:
            node["param"] = node.pop("attrs")
        node["inputs"] = [edge[:2] for edge in node["inputs"]]
        node["backward_source_id"] = -1


def mutate(content: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """One to four changes; text that is no symbol becomes one of `others` first. A few are changed byte by byte."""
    root = _parsed(content) or _parsed(random.choice(others))
    if root is None:
        return mutate_bytes(content, others, random)
    for _ in range(random.randint(1, _MOST_CHANGES)):
        if _nodes(root):  # what an earlier change has left
            random.choice(_CHANGES)(root, others, random)
    try:
        made = json.dumps(root).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        made = content
    if random.random() < 0.05:
        made = mutate_bytes(made, others, random)
    return made if len(made) <= MOST_BYTES else content


def _parsed(content: bytes) -> Any:
    """The object with its nodes, or None."""
    try:
        root = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return root if isinstance(root, dict) and _nodes(root) else None


def _nodes(root: Any) -> list[Any]:
    nodes = root.get("nodes")
    return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []


def _attrs(node: Any) -> dict[str, Any]:
    found = next((node[key] for key in _KEYS if isinstance(node.get(key), dict)), None)
    if found is None:
        found = node["attrs"] = {}
    return found  # type: ignore[no-any-return]  # it is JSON


def _word(root: Any, others: Sequence[bytes], random: Random) -> None:
    """Any number, text, list or object: another value, a copy of another, or away."""
    found = list(places(root))
    if found:
        change(*random.choice(found), found, random)


def _attribute(root: Any, others: Sequence[bytes], random: Random) -> None:
    """An attribute of a node: another text, one number of it another, away, or one that another operator has."""
    nodes = [node for node in _nodes(root) if node.get("op") != "null"]
    if not nodes:
        return
    attrs = _attrs(random.choice(nodes))
    kind = random.random()
    if attrs and kind < 0.5:
        attrs[random.choice(list(attrs))] = random.choice(_TEXTS)
    elif attrs and kind < 0.7:
        key = random.choice(list(attrs))
        digits = [place for place, letter in enumerate(str(attrs[key])) if letter.isdigit()]
        if digits:
            place = random.choice(digits)
            number = random.choice(("0", "1", "-1", "2", "7", "64", "100000", "4294967296"))
            attrs[key] = str(attrs[key])[:place] + number + str(attrs[key])[place + 1:]
    elif attrs and kind < 0.8:
        del attrs[random.choice(list(attrs))]
    else:
        other = _parsed(random.choice(others))
        known = [(key, value) for node in _nodes(other or {}) for key, value in _attrs(node).items()]
        if known:
            key, value = random.choice(known)
            attrs[key] = value if random.random() < 0.5 else random.choice(_TEXTS)


def _type(root: Any, others: Sequence[bytes], random: Random) -> None:
    """The shape or the element type of a variable."""
    nodes = [node for node in _nodes(root) if node.get("op") == "null"]
    if nodes:
        attrs = _attrs(random.choice(nodes))
        if random.random() < 0.4:
            attrs["__dtype__"] = str(random.randrange(-1, 14))
        else:
            sizes = [random.choice((0, 1, 1, 2, 3, 4, 7, 8, 17, -1, 1 << 16, 1 << 31, 1 << 40))
                     for _ in range(random.choice((0, 1, 1, 2, 2, 3, 4, 4, 5, 33)))]
            attrs["__shape__"] = str(tuple(sizes))


def _operator(root: Any, others: Sequence[bytes], random: Random) -> None:
    """A node becomes another operator, with the attributes that it has."""
    names = [node.get("op") for node in _nodes(_parsed(random.choice(others)) or {})]
    if names:
        random.choice(_nodes(root))["op"] = random.choice(names)


def _edge(root: Any, others: Sequence[bytes], random: Random) -> None:
    """A node, or the graph, reads another value, one more or one less."""
    nodes = _nodes(root)
    place = random.randrange(len(nodes))
    held = nodes[place].get("inputs") if random.random() < 0.8 else root.get("heads")
    if not isinstance(held, list):
        return
    edge = [random.randrange(max(place, 1)), random.choice((0, 0, 0, 1, 2, 1 << 19)), 0]
    if held and random.random() < 0.7:
        held[random.randrange(len(held))] = edge
    elif held and random.random() < 0.5:
        del held[random.randrange(len(held))]
    else:
        held.append(edge)


def _splice(root: Any, others: Sequence[bytes], random: Random) -> None:
    """A node of another symbol at the end, which reads what this one has."""
    nodes = root["nodes"]
    other = _parsed(random.choice(others))
    found = [node for node in _nodes(other or {}) if node.get("op") != "null"]
    if found and nodes:
        node = json.loads(json.dumps(random.choice(found)))
        inputs = node.get("inputs")
        count = len(inputs) if isinstance(inputs, list) else 1
        node["inputs"] = [[random.randrange(len(nodes)), 0, 0] for _ in range(min(count, 64))]
        node["name"] = f"spliced{len(nodes)}"
        _end(root, node)


def _end(root: Any, node: Any) -> None:
    """`node` is the last one, and the output."""
    root["nodes"].append(node)
    root["heads"] = [[len(root["nodes"]) - 1, 0, 0]]


def _version(root: Any, others: Sequence[bytes], random: Random) -> None:
    """It was written by another version; its attributes may stand elsewhere."""
    if random.random() < 0.5:
        root["attrs"] = {"mxnet_version": ["int", random.choice(_VERSIONS)]}
    else:
        old, new = random.choice(_KEYS), random.choice(_KEYS)
        for node in _nodes(root):
            if old in node:
                node[new] = node.pop(old)


def _nest(root: Any, others: Sequence[bytes], random: Random) -> None:
    """Operators with bodies, the bodies of which have such an operator again."""
    other = _parsed(random.choice(others))
    for _ in range(random.randint(1, 6)):
        node = {"op": random.choice(("_foreach", "_while_loop", "_cond", "_subgraph_op")), "name": "nest",
                "attrs": {"num_args": "2", "num_outputs": "1", "num_out_data": "1", "max_iterations": "100000",
                          "in_data_locs": "(0,)", "in_state_locs": "()", "remain_locs": "()"},
                "inputs": [[0, 0, 0]], "subgraphs": [other] * random.randint(0, 3)}
        other = {"nodes": [{"op": "null", "name": "x", "inputs": []}, node], "arg_nodes": [0], "heads": [[1, 0, 0]]}
    if isinstance(other, dict) and root["nodes"]:
        _end(root, other["nodes"][-1])


def _chain(root: Any, others: Sequence[bytes], random: Random) -> None:
    """A long chain, or one in which each node reads the one before twice."""
    nodes = root["nodes"]
    op, count = random.choice((("relu", 1), ("elemwise_add", 2), ("broadcast_mul", 2), ("Concat", 2), ("Flatten", 1)))
    length = random.choice((10, 40, 100, _LONGEST_CHAIN))
    if nodes:
        for _ in range(length):
            last = len(nodes) - 1
            attrs = {"num_args": "2", "dim": "0"} if op == "Concat" else {}
            _end(root, {"op": op, "name": f"chain{last}", "attrs": attrs, "inputs": [[last, 0, 0]] * count})


_Change = Callable[[Any, Sequence[bytes], Random], None]
_CHANGES: tuple[_Change, ...] = (
    *[_word] * 16, *[_attribute] * 40, *[_type] * 16, *[_operator] * 8, *[_edge] * 12, *[_splice] * 20, *[_version] * 4,
    _nest, _chain,
)
"""As often as they lead somewhere; the last two take long."""
