"""Compiles every CPU kernel ahead of time for one ISA, on any x86-64 machine.

    python -m ngraph_mxnet.cpu.aot --isa avx2 --output kernels_avx2.o

One relocatable object with the Numba kernels and the microkernels, symbols `ng_<name>__<isa>`, which needs
nothing but libm and libc's memory functions. The same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# Numba reads its settings at import: helpers must reach LLVM as written, not optimised for this machine.
os.environ["NUMBA_OPT"] = "0"

from ngraph_mxnet.cpu.kernels import ALL_KERNELS, symbol
from ngraph_mxnet.cpu.kernels.compiler import kernel_module, new_module
from ngraph_mxnet.cpu.microkernels import ISAS, Isa
from ngraph_mxnet.cpu.microkernels.contraction import build_module
from ngraph_mxnet.cpu.microkernels.target import target_machine

__all__ = ["CompileError", "emit_object", "main"]


class CompileError(Exception):
    """A kernel does not compile; the message names it."""


def emit_object(isa: Isa, names: Sequence[str] | None = None) -> bytes:
    """The object file of an ISA, with only the Numba kernels `names` if given.

    Raises:
        CompileError: a kernel does not compile.
    """
    machine = target_machine(isa)
    whole = new_module("", machine)
    for name in ALL_KERNELS if names is None else names:
        try:
            whole.link_in(kernel_module(ALL_KERNELS[name], symbol(name, isa), machine))
        except Exception as error:
            raise CompileError(f"kernel {name} for {isa}: {error}") from error
    if names is None:
        # Its instructions are in the order that they should have: no IR passes.
        whole.link_in(new_module(str(build_module(isa)), machine))
    return machine.emit_object(whole)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m ngraph_mxnet.cpu.aot", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--isa", choices=ISAS, required=True)
    parser.add_argument("--output", type=Path, required=True, help="the object file to write")
    options = parser.parse_args(arguments)
    # A short-lived process: collecting the compiler's cycles would be an eighth of its time.
    gc.disable()
    try:
        content = emit_object(options.isa)
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    options.output.write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
