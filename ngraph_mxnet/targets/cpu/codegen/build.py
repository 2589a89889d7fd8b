"""Machine code of kernel descriptions: expressions from Numba, loops from `emit`, compiled by LLVM for an ISA."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import llvmlite.binding as llvm
from llvmlite import ir

from ngraph_mxnet.outside import is_outside
from ngraph_mxnet.targets.cpu.codegen.emit import expression_name, module_text
from ngraph_mxnet.targets.cpu.codegen.spec import REDUCTIONS, LoopKernel
from ngraph_mxnet.targets.cpu.machine.isa import Isa
from ngraph_mxnet.targets.cpu.microkernels.added import MICROKERNELS
from ngraph_mxnet.targets.cpu.microkernels.target import target_machine

__all__ = ["build_added", "build_object", "load_object"]

_VECTOR_WIDTH: dict[Isa, int] = {"avx512": 16, "avx2": 8, "baseline": 4}
_NO_EXPRESSION = {"load", "constant", "convert", *REDUCTIONS}


def build_object(kernels: dict[str, LoopKernel], isa: Isa) -> bytes:
    """A relocatable object with the kernels as C functions of these names; it needs libm at most."""
    from ngraph_mxnet.targets.cpu.kernels.compiler import new_module, optimize

    machine = target_machine(isa, jit=True)
    module = new_module(module_text(kernels, _VECTOR_WIDTH[isa]), machine)
    for op in expressions(kernels.values()):
        module.link_in(new_module(_expression_text(op, isa), machine))
    for function in module.functions:
        if not function.is_declaration and function.name not in kernels:
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    optimize(module, machine, vectorize=True)
    module.verify()
    return machine.emit_object(module)


def build_added(names: Iterable[str], isa: Isa) -> bytes:
    """A relocatable object with kernels that other distributions added, under the symbols of the kernel library.

    Raises:
        KeyError: nobody added such a kernel.
    """
    from ngraph_mxnet.targets.cpu.kernels import ALL_KERNELS, symbol
    from ngraph_mxnet.targets.cpu.kernels.compiler import kernel_module, new_module

    machine = target_machine(isa, jit=True)
    whole = new_module("", machine)
    for name in names:
        record = ALL_KERNELS.get(name)
        if name in MICROKERNELS:
            part = ir.Module(name)
            MICROKERNELS[name](part, symbol(name, isa), isa)
            whole.link_in(new_module(str(part), machine))
        elif record is not None and is_outside(record.function):
            whole.link_in(kernel_module(record, symbol(name, isa), machine))
        else:
            raise KeyError(f"no kernel {name!r} in the kernel library, and no other distribution added it")
    whole.verify()
    return machine.emit_object(whole)


def expressions(kernels: Iterable[LoopKernel]) -> list[str]:
    """The ops whose expressions the kernels need."""
    return sorted({step.op for kernel in kernels for step in kernel.steps} - _NO_EXPRESSION)


@functools.cache
def _expression_text(op: str, isa: Isa) -> str:
    """IR that defines an op's expression and nothing else that is visible."""
    from ngraph_mxnet.targets.cpu.kernels import ALL_KERNELS
    from ngraph_mxnet.targets.cpu.kernels.compiler import expression_module

    return str(expression_module(ALL_KERNELS[op], expression_name(op), target_machine(isa, jit=True)))


def load_object(code: bytes, names: Iterable[str], isa: Isa) -> tuple[llvm.ExecutionEngine, dict[str, int]]:
    """Puts an object into this process: what owns it, and the functions' addresses.

    Raises:
        KeyError: a function is missing.
    """
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine(isa, jit=True))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    addresses = {name: engine.get_function_address(name) for name in names}
    missing = [name for name, address in addresses.items() if not address]
    if missing:
        raise KeyError(f"the object has no function {', '.join(missing)}")
    return engine, addresses
