"""Numbers and texts, one after the other, as sections of a compiled model's file have them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

ALIGNMENT = 64
"""The alignment, in bytes, of sections and of constants in DATA."""


def text_field(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<I", len(encoded)) + encoded


class FieldReader:
    """Reads them; what is missing raises struct.error or ValueError."""

    def __init__(self, content: memoryview) -> None:
        self._content, self._position = content, 0

    def numbers(self, form: str) -> tuple[Any, ...]:
        size = struct.calcsize("<" + form)
        return struct.unpack("<" + form, self.bytes(size))

    def number(self, form: str = "I") -> int:
        (found,) = self.numbers(form)
        return int(found)

    def many(self, least: int) -> int:
        """How many of something follow that takes at least so many bytes each."""
        found = self.number()
        if found * least > len(self._content) - self._position:
            raise ValueError(f"{found} of {least} bytes or more at {self._position} of {len(self._content)}")
        return found

    def bytes(self, size: int) -> memoryview:
        if size > len(self._content) - self._position:
            raise ValueError(f"it ends at {len(self._content)}, {size} bytes at {self._position} are missing")
        self._position += size
        return self._content[self._position - size:self._position]

    def text(self) -> str:
        return str(self.bytes(self.number()), "utf-8")


def constant_at(offset: int, size: int, data: memoryview) -> np.ndarray:
    """The bytes of a constant in DATA; ValueError if it lies outside."""
    if offset % ALIGNMENT or size > len(data) or offset > len(data) - size:
        raise ValueError(f"a constant of {size} bytes at {offset} of {len(data)}")
    return np.frombuffer(data, np.uint8, size, offset) if size else np.empty(0, np.uint8)
