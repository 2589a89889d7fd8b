"""A Program as plain data: `_core.Program` binds it, packages and compiled files hold it.

It names kernels of the kernel library; nothing in it is code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.ir.sizes import Guard


@dataclass(frozen=True)
class Program:
    """Instructions, and the memory that they work on. Sizes may depend on symbols; a fixed shape has none.

    Numbers of instructions, buffers and shapes are slots: those of the symbols come first, then one for each of
    `steps`, the code that computes sizes. csrc/core/program.h says what each field is for.
    """

    symbols: int
    steps: np.ndarray
    """i64[steps,5]: `SizeOp`, three operands, and the loop, counted from 1, in whose rounds it is computed."""
    bounds: list[tuple[int, int]]
    guards: list[tuple[int, int]]
    instructions: list[tuple[Any, ...]]
    """(kernel, operands, ints, floats, tasks, waits, carried, loop, node, origin, operations, bytes)"""
    zeroing: list[tuple[Any, ...]]
    loops: list[tuple[int, int]]
    buffers: list[tuple[int, int, int]]
    constants: list[Any]
    """Arrays, and tables that are made for the sizes: a kind and its numbers."""
    inputs: list[tuple[str, list[int]]]
    outputs: list[tuple[str, list[int]]]
    branches: int
    sharing_gain: int
    wave_bytes: int

    def native(self, address: Callable[[str], int], owner: Any = None) -> Any:
        """The `_core.Program`, which keeps `owner`, the owner of the kernels' code.

        Raises:
            KeyError: `address` does not know a kernel.
            ValueError, RuntimeError, TypeError: it refers to what does not exist.
        """
        import ngraph_mxnet._core as _core

        lists = {name: [(kernel, address(kernel), *rest) for kernel, *rest in getattr(self, name)]
                 for name in ("instructions", "zeroing")}
        return _core.Program({**vars(self), **lists}, owner)

    def plan(self, *, of_file: bool = False) -> dict[str, Any]:
        """How the executor places a Program without symbols; `_core.Program.plan` says what is told. What is `of_file`
        may ask for anything, and planning it ends.

        Raises:
            ValueError: the file's refers to what does not exist, or asks for too much.
        """
        nothing = np.empty(0, np.uint8)  # what constants hold does not matter, and they may be large
        constants = [nothing if isinstance(each, np.ndarray) else each for each in self.constants]
        native = replace(self, constants=constants).native(lambda kernel: 1)  # none is called
        found: dict[str, Any] = native.plan(of_file)
        return found

    @property
    def constant_bytes(self) -> int:
        """Those of the arrays; tables are made for the sizes."""
        return sum(each.nbytes for each in self.constants if isinstance(each, np.ndarray))

    def kernels(self) -> set[str]:
        """Their symbols."""
        return {each[0] for each in (*self.instructions, *self.zeroing)}

    @staticmethod
    def of(plain: Any) -> Program:
        """The Program that a package has as `vars(program)`. What its numbers refer to is checked by `native`.

        Raises:
            TypeError, ValueError: it is none.
        """
        found = Program(**plain)
        if not isinstance(found.steps, np.ndarray):
            raise TypeError("the steps of the sizes are no array")
        no_lists = [name for name in _LISTS if not isinstance(getattr(found, name), list)]
        if no_lists:
            raise TypeError(f"no lists: {', '.join(no_lists)}")
        return found


class IsaProgram(NamedTuple):
    """A Program for one instruction set, and the guards that say for which sizes it is; without symbols there are
    none."""

    isa: str
    guards: Sequence[Guard]
    program: Program


_LISTS = ("bounds", "guards", "instructions", "zeroing", "loops", "buffers", "constants", "inputs", "outputs")
