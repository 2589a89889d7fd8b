"""Compiles a family of CPU kernels ahead of time for one ISA, on any x86-64 machine.

    python -m ngraph_mxnet.targets.cpu.aot --isa avx2 --family pooling --output pooling_avx2.o
    python -m ngraph_mxnet.targets.cpu.aot --list

One relocatable object with the Numba kernels of a module or with the microkernels, symbols
`ng_<name>__<isa>`, which needs nothing but libm and libc's memory functions. The same input gives the same
bytes. `--list` prints, for the build, a line for each family: its name and the files that it is made of.
"""

from __future__ import annotations

import argparse
import ast
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# Numba reads its settings at import: helpers must reach LLVM as written, not optimised for this machine. Numba makes
# machine code of each of them, which nobody runs, and which this machine may have no instructions for.
os.environ.update(NUMBA_OPT="0", NUMBA_CPU_NAME="x86-64-v4", NUMBA_CPU_FEATURES="+avx512bf16,+amx-tile,+amx-bf16")

from ngraph_mxnet.targets.cpu.kernels import ALL_KERNELS, symbol
from ngraph_mxnet.targets.cpu.kernels.compiler import kernel_module, new_module
from ngraph_mxnet.targets.cpu.microkernels.target import emit_object as emit_microkernels
from ngraph_mxnet.targets.cpu.microkernels.target import target_machine
from ngraph_mxnet.targets.cpu.microkernels.variants import ISAS, Isa
from ngraph_mxnet.targets.cpu.params import KERNELS

__all__ = ["FAMILIES", "CompileError", "emit_object", "main"]

MICROKERNELS = "microkernels"
FAMILIES = (*sorted({record.family for record in ALL_KERNELS.values()}), MICROKERNELS)
"""The values of the option `--family`."""

_ROOT = Path(__file__).parents[3]


def sources(family: str) -> list[str]:
    """The files of the package that decide about a family's objects: what its module and the compiler import, and what
    these import. Of `target` the instruction sets concern all."""
    target, compiler = "ngraph_mxnet/targets/cpu/microkernels/target.py", "ngraph_mxnet/targets/cpu/kernels/compiler.py"
    found = {"ngraph_mxnet/targets/cpu/aot.py", target}
    own = [f"ngraph_mxnet/targets/cpu/kernels/{family}.py", compiler]
    waiting = _imported(target) if family == MICROKERNELS else own
    while waiting:
        path = waiting.pop()
        waiting += _imported(path) if path not in found else []
        found.add(path)
    return sorted(found)


def _imported(path: str) -> list[str]:
    """The modules of the package that a module imports."""
    nodes = [n for n in ast.walk(ast.parse((_ROOT / path).read_text())) if isinstance(n, ast.ImportFrom)]
    names = [name for n in nodes for name in (f"{n.module}", *(f"{n.module}.{alias.name}" for alias in n.names))]
    paths = (f"{name.replace('.', '/')}.py" for name in names if name.startswith("ngraph_mxnet."))
    return [path for path in paths if (_ROOT / path).is_file()]


class CompileError(Exception):
    """A kernel does not compile; the message names it."""


def emit_object(isa: Isa, names: Sequence[str]) -> bytes:
    """The object file of the Numba kernels `names` for an ISA.

    Raises:
        CompileError: a kernel does not compile.
    """
    machine = target_machine(isa)
    whole = new_module("", machine)
    for name in names:
        try:
            whole.link_in(kernel_module(ALL_KERNELS[name], symbol(name, isa), machine))
        except Exception as error:
            raise CompileError(f"kernel {name} for {isa}: {error}") from error
    return machine.emit_object(whole)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m ngraph_mxnet.targets.cpu.aot", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--list", action="store_true", help="print the families and what they are made of")
    parser.add_argument("--isa", choices=ISAS)
    parser.add_argument("--family", choices=FAMILIES)
    parser.add_argument("--output", type=Path, help="the object file to write")
    options = parser.parse_args(arguments)
    if options.list:
        for family in FAMILIES:
            print(family, *sources(family))
        return 0
    if not (options.isa and options.family and options.output):
        parser.error("the object to make needs --isa, --family and --output")
    # A short-lived process: collecting the compiler's cycles would be an eighth of its time.
    gc.disable()
    try:
        if options.family == MICROKERNELS:
            content = emit_microkernels(options.isa)
        else:
            names = [name for name, record in ALL_KERNELS.items()
                     if record.family == options.family and KERNELS[name].is_for(options.isa)]
            content = emit_object(options.isa, names)
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    options.output.write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
