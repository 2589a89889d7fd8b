"""Microkernels of other distributions: IR that is compiled when a program first calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ngraph_mxnet import outside
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa

if TYPE_CHECKING:
    from llvmlite import ir

Build = Callable[["ir.Module", str, Isa], None]
"""Adds a kernel, as a C function of this name, to the module for an instruction set."""

MICROKERNELS: dict[str, Build] = {}
"""By the kernel's name. This package's own are made by `contraction.build_module` and stand in the kernel library."""


def microkernel(name: str) -> Callable[[Build], Build]:
    """Decorator: what builds kernel `name`, whose record says what it takes. Two of a name are an error."""

    def declare(build: Build) -> Build:
        if name in MICROKERNELS:
            raise ValueError(f"the microkernel {name!r} is registered twice")
        MICROKERNELS[name] = build
        outside.note(build)
        return build

    return declare
