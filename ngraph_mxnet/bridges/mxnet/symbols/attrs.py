"""MXNet's attributes are text; here they get types, and each read is noted.

A rule reads what it understands. An attribute that is set and that no one read would silently change
nothing: `unread` finds it, and the importer turns the node down for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import numpy as np

from ngraph_mxnet.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir.types import ElementType, element_type

Dims = tuple[int, ...]
Floats = tuple[float, ...]
OptionalDims = tuple[int | None, ...]  # named here: in the class `int` is a method
Pairs = tuple[tuple[int, int], ...]
T = TypeVar("T")

REQUIRED: Any = object()

# Attributes that a user or a training loop hangs on any node; none changes a result of inference.
_FOREIGN = frozenset({"ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage", "weight_lr_mult"})

_BOOLS = {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}
_INT = re.compile(r"[+-]?\d+L?\Z")  # Python 2 wrote longs as 3L


class Attrs:
    """The attributes of one node.

    Each reader takes a name and a default, REQUIRED unless given. All raise ModelError when the attribute
    is missing without a default or does not parse.
    """

    def __init__(self, raw: Mapping[str, str], where: str) -> None:
        self._raw = {k: v for k, v in raw.items() if not k.startswith("__") and k not in _FOREIGN}
        self._read: set[str] = set()
        self._where = where

    def unread(self) -> dict[str, str]:
        """What is set and was never read."""
        return {key: value for key, value in self._raw.items() if key not in self._read}

    def ignore(self, *names: str) -> None:
        """Mark attributes that do not change what inference computes."""
        self._read.update(names)

    def has(self, name: str) -> bool:
        """Whether it is set, to other than None."""
        return self._raw.get(name, "None") != "None"

    def is_none(self, name: str) -> bool:
        """Whether it is written as None, where that is not its default."""
        self._read.add(name)
        return self._raw.get(name) == "None"

    def int(self, name: str, default: T = REQUIRED) -> int | T:
        """`3`, or `3L` of old files."""
        return self._get(name, default, _to_int, "an integer")

    def float(self, name: str, default: T = REQUIRED) -> float | T:
        return self._get(name, default, float, "a number")

    def bool(self, name: str, default: T = REQUIRED) -> bool | T:
        """`True`, `true`, `1` and their opposites."""
        return self._get(name, default, _BOOLS.__getitem__, "True or False")

    def ints(self, name: str, default: T = REQUIRED) -> Dims | T:
        """`(3, 3)`, `[3, 3]`, `()`, or a bare `3`."""
        return self._get(name, default, lambda t: tuple(map(_to_int, _split(t))), "a tuple of integers")

    def floats(self, name: str, default: T = REQUIRED) -> Floats | T:
        """`(0.5, 1)` or a bare `0.5`."""
        return self._get(name, default, lambda t: tuple(map(float, _split(t))), "a tuple of numbers")

    def optional_ints(self, name: str, default: T = REQUIRED) -> OptionalDims | T:
        """A tuple in which `None` may stand for an integer."""
        return self._get(name, default, _to_optional_ints, "a tuple of integers and None")

    def pairs(self, name: str, default: T = REQUIRED) -> Pairs | T:
        """`((1, 2), (0, 0))`: a tuple of pairs of integers."""
        return self._get(name, default, _to_pairs, "a tuple of pairs of integers")

    def text(self, name: str, default: T = REQUIRED) -> str | T:
        """The text itself."""
        return self._get(name, default, str, "text")

    def choice(self, name: str, default: T, supported: Collection[str]) -> str | T:
        """One of `supported`.

        Raises:
            UnsupportedError: another word.
        """
        value = self._get(name, default, str, "a word")
        if value is not default and value not in supported:
            raise UnsupportedError(f"{name}={value} is not supported; supported: {', '.join(supported)}")
        return value

    def element(self, name: str, default: T = REQUIRED) -> ElementType | T:
        """A dtype by NumPy's name."""
        return self._get(name, default, lambda t: element_type(np.dtype(t)), "a dtype")

    def _get(self, name: str, default: T, convert: Callable[[str], Any], expects: str) -> Any:
        self._read.add(name)
        text = self._raw.get(name, "None")
        if text == "None":  # how MXNet writes an unset optional
            if default is REQUIRED:
                raise ModelError(f"{self._where}: attribute {name} is missing, expected {expects}")
            return default
        try:
            return convert(text.strip())
        except (ValueError, KeyError, TypeError):
            raise ModelError(f"{self._where}: attribute {name} is {text!r}, expected {expects}") from None


def _to_int(text: str) -> int:
    if not _INT.match(text):
        raise ValueError(text)
    return int(text.rstrip("L"))


def _to_pairs(text: str) -> tuple[tuple[int, int], ...]:
    numbers = [_to_int(part) for part in re.sub(r"[()\[\] ]", "", text).split(",") if part]
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _to_optional_ints(text: str) -> tuple[int | None, ...]:
    return tuple(None if part == "None" else _to_int(part) for part in _split(text))


def _split(text: str) -> list[str]:
    if text[:1] in "([" and text[-1:] in ")]":
        text = text[1:-1]
    return [part.strip() for part in text.split(",") if part.strip()]
