"""Changes to the text of graphs: numbers, words and lines of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from fuzzing.entries import mutate_bytes
from fuzzing.programs import GRAPHS
from ngraph_mxnet.ir import print_graph

_NUMBERS = ("0", "1", "-1", "2", "3", "64", "65536", "2147483648", "1099511627776", "9223372036854775808", "9" * 5000,
            "0.5", "1e400", "nan", "-inf", "(H + 1)//2", "H", "1//0", "(" * 300, "-" * 3000 + "1")
_WORDS = re.compile(r"-?\d+(?:\.\d+)?|\w+|\S")
_MOST_CHANGES = 4


def seeds() -> list[bytes]:
    return [print_graph(make()).encode() for make in GRAPHS]


def mutate(content: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """One change of a word or a line, or a few; some mutants are changed byte by byte."""
    text = content.decode("utf-8", "replace")
    for _ in range(random.choice((1, 1, 1, 2, _MOST_CHANGES))):
        text = random.choice((_number, _number, _word, _word, _line))(text, others, random)
    made = text.encode("utf-8", "replace")
    return mutate_bytes(made, others, random) if random.random() < 0.1 else made


def _number(text: str, others: Sequence[bytes], random: Random) -> str:
    found = [match for match in _WORDS.finditer(text) if match[0].lstrip("-")[:1].isdigit()]
    return _replaced(text, random.choice(found), random.choice(_NUMBERS)) if found else text


def _word(text: str, others: Sequence[bytes], random: Random) -> str:
    """A word becomes another of this text or of another one, or nothing."""
    found = list(_WORDS.finditer(text))
    words = _WORDS.findall(random.choice([text, random.choice(others).decode("utf-8", "replace")]))
    return _replaced(text, random.choice(found), random.choice([*words, ""])) if found else text


def _line(text: str, others: Sequence[bytes], random: Random) -> str:
    """A line goes, comes twice, or is one of another text."""
    lines = text.splitlines()
    place = random.randrange(len(lines) + 1)
    other = random.choice([lines, random.choice(others).decode("utf-8", "replace").splitlines()])
    if random.random() < 0.4:
        del lines[place:place + 1]
    elif other:
        lines.insert(place, random.choice(other))
    return "\n".join(lines)


def _replaced(text: str, match: re.Match[str], word: str) -> str:
    return text[:match.start()] + word + text[match.end():]
