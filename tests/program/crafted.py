"""Files whose programs are given as levels of instructions, which no compiler would make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.ir.types import TensorType
from ngraph_mxnet.program.artefact import Artefact, Meta, Reference, to_bytes
from ngraph_mxnet.program.program import ProgramSet, program_of_levels


@dataclass(frozen=True)
class Crafted:
    """One set of shapes. An instruction is (kernel, [(space, index, offset)], ints, floats, tasks, origin, operations,
    bytes). The arena's size is rounded up to 64 bytes."""

    isa: str
    inputs: Sequence[tuple[str, TensorType]]
    outputs: Sequence[tuple[str, TensorType]]
    arena_bytes: int
    constants: Sequence[np.ndarray]
    levels: Sequence[Sequence[Any]]

    def content(self, *references: Reference) -> bytes:
        """The content of its file."""
        program = program_of_levels(self.inputs, self.outputs, self.arena_bytes, self.constants, self.levels)
        sets = [ProgramSet(self.isa, 0, self.inputs, self.outputs, (), [(program, ())])]
        return to_bytes(Artefact(Meta("m"), sets, references))
