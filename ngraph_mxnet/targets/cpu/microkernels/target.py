"""LLVM targets of the three ISAs; object code and in-process loading."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

from ngraph_mxnet.targets.cpu.microkernels.contraction import MULTIPLY_ADD, build_module
from ngraph_mxnet.targets.cpu.microkernels.emit import activation_module
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa, symbol, variants

__all__ = ["emit_assembly", "emit_object", "load", "target_machine"]

_TRIPLE = "x86_64-unknown-linux-gnu"

# Generic CPU names keep LLVM's scheduling models of single products out: the one of znver4 hoists
# broadcasts until accumulators spill. Of AVX512_BF16 and AMX, which not all CPUs with AVX-512 have, LLVM uses nothing
# but what the kernels named for them ask for.
_CPU: dict[Isa, tuple[str, str]] = {
    "avx512": ("x86-64-v4", "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512bf16,+amx-tile,+amx-bf16,+avx2,+fma,"
               "-prefer-256-bit"),
    "avx2": ("x86-64-v3", "+avx2,+fma,-avx512f"),
    "baseline": ("x86-64", "+sse2,-sse3,-avx"),
}


@functools.cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def target_machine(isa: Isa, *, jit: bool = False) -> llvm.TargetMachine:
    """The code generator of an ISA, whatever the host is; `jit` is for code that this process loads.

    LLVM's loader takes a piece of memory for each kind of section. In a large process these can lie too far apart for
    addresses of 32 bits, and LLVM ends the process: such code has addresses of 64 bits.
    """
    _initialize()
    cpu, features = _CPU[isa]
    target = llvm.Target.from_triple(_TRIPLE)
    reloc, model = ("static", "large") if jit else ("pic", "default")
    return target.create_target_machine(cpu=cpu, features=features, opt=3, reloc=reloc, codemodel=model, jit=jit)


@functools.cache
def _module_text(isa: Isa, compiled_for: Isa) -> str:
    return str(build_module(isa, compiled_for, _CPU[isa][1]))


def _module(isa: Isa, compiled_for: Isa) -> llvm.ModuleRef:
    _initialize()
    machine = target_machine(compiled_for)
    module = llvm.parse_assembly(_module_text(isa, compiled_for))
    module.triple = _TRIPLE
    module.data_layout = str(machine.target_data)
    activations = activation_module(machine, MULTIPLY_ADD[compiled_for])
    own = [function.name for function in activations.functions if not function.is_declaration]
    module.link_in(activations)
    for name in own:
        module.get_function(name).linkage = "internal"
    module.verify()
    return module


def emit_object(isa: Isa, *, compiled_for: Isa | None = None) -> bytes:
    """One relocatable ELF object with all kernels of an ISA; it needs no other symbol.

    `compiled_for` compiles them for another instruction set, which the 16-wide IR allows: AVX-512's
    tiles can be checked on a machine without it.
    """
    other = compiled_for or isa
    return target_machine(other).emit_object(_module(isa, other))


def emit_assembly(isa: Isa) -> str:
    """The same as text, for reading."""
    return target_machine(isa).emit_assembly(_module(isa, isa))


@functools.cache
def _engine(isa: Isa) -> llvm.ExecutionEngine:
    engine = llvm.create_mcjit_compiler(_module(isa, isa), target_machine(isa, jit=True))
    engine.finalize_object()
    return engine


def load(isa: Isa) -> dict[str, int]:
    """Compiles an ISA's kernels into this process: symbol to address. The code lives as long as the process."""
    engine = _engine(isa)
    return {name: engine.get_function_address(name) for name in (symbol(v, isa) for v in variants(isa))}
