"""What `_core.Program` is made of, as plain data that can be kept on disk; see `programs`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ProgramCode:
    """A Program: its levels of instructions as `_core.Program` takes them, but without the kernels' addresses."""

    levels: list[list[tuple[Any, ...]]]
    arena_bytes: int
    constants: list[np.ndarray]

    def bind(self, address: Callable[[str], int], owner: Any) -> Any:
        """The `_core.Program`; KeyError when `address` does not know a kernel."""
        from ngraph_mxnet import _core

        levels = [[(name, address(name), *rest) for name, *rest in level] for level in self.levels]
        return _core.Program(levels, self.arena_bytes, self.constants, owner)
