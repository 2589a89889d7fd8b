"""Kernel records to LLVM modules, through Numba's front end only.

Numba's own optimiser and code generator target the host; here they stay out of the way (`NUMBA_OPT=0`), so
that the IR suits every ISA. An elementwise kernel's loops are compiled once for all expressions of the same
types, with a call to `ng_expression` in place of the expression, and LLVM inlines each expression into them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import compiler, cpu
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from ngraph_mxnet.targets.cpu.kernels.elementwise import ELEMENTS, strided_function, with_floats
from ngraph_mxnet.targets.cpu.kernels.pointers import FLOATS, INTS, TENSORS
from ngraph_mxnet.targets.cpu.kernels.record import KernelRecord

__all__ = ["expression_module", "kernel_module", "new_module", "optimize"]

_KERNEL_ARGUMENTS = (TENSORS, INTS, FLOATS, types.int64, types.int64)


@dataclass(frozen=True)
class _Compiled:
    """LLVM IR texts to link, one of which defines C function `name`, and the type that it returns."""

    texts: tuple[str, ...]
    result: types.Type


def _flags() -> compiler.Flags:
    flags = compiler.Flags()
    flags.no_compile = True
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    flags.nrt = False
    # `contract` allows fused multiply-add; nothing here may change what NaN and infinities do.
    flags.fastmath = cpu.FastMathOptions({"contract"})
    return flags


def _compile(function: Callable, arguments: tuple[types.Type, ...], name: str) -> _Compiled:
    """`function` as C function `name` that takes and returns plain values."""
    typing, target = cpu_target.typing_context, cpu_target.target_context
    typing.refresh()
    target.refresh()
    with global_compiler_lock:
        result_type = types.none if arguments == _KERNEL_ARGUMENTS else None
        unit = compiler.compile_extra(typing, target, function, arguments, result_type, _flags(), {})
    texts = [str(unit.library._final_module)]
    for library in dict.fromkeys(unit.library._linking_libraries):
        if library.name != "nrt":
            texts.append(str(library._get_module_for_linking()))
    result = unit.signature.return_type
    wrapper = target.codegen()._create_empty_module(name)
    values = [target.get_value_type(a) for a in arguments]
    returned = ir.VoidType() if result == types.none else target.get_value_type(result)
    entry = ir.Function(wrapper, ir.FunctionType(returned, values), name)
    builder = ir.IRBuilder(entry.append_basic_block())
    callee = target.declare_function(wrapper, unit.fndesc)
    _, value = target.call_conv.call_function(builder, callee, result, arguments, entry.args)
    if result == types.none:
        builder.ret_void()
    else:
        builder.ret(value)
    return _Compiled((*texts, str(wrapper)), result)


def _placeholder(arguments: tuple[types.Type, ...], result: types.Type) -> Callable:
    """Stands for an expression: a call of the external function `ng_expression`."""

    def generate(context, builder, signature, values):
        kind = ir.FunctionType(context.get_value_type(result), [v.type for v in values])
        name = "ng_expression"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        return builder.call(function, values)

    if len(arguments) == 1:
        return intrinsic(lambda typingctx, x: (result(*arguments), generate))
    if len(arguments) == 2:
        return intrinsic(lambda typingctx, x, y: (result(*arguments), generate))
    return intrinsic(lambda typingctx, x, y, z: (result(*arguments), generate))


@functools.cache
def _loops(
    inputs: tuple[types.Type, ...],
    output: types.Type,
    result: types.Type,
    loops: str,
    machine: llvm.TargetMachine,
) -> str:
    """The loops of every elementwise kernel of these types, simplified but not yet vectorised."""
    arguments = inputs if len(inputs) > 1 else (*inputs, FLOATS)
    function = strided_function(_placeholder(arguments, result), inputs, output, loops)
    module = _link(_compile(function, _KERNEL_ARGUMENTS, "ng_kernel").texts, "ng_kernel", machine)
    optimize(module, machine, vectorize=False)
    return str(module)


def _texts(record: KernelRecord, machine: llvm.TargetMachine) -> tuple[str, ...]:
    """IR texts that together define `ng_kernel`."""
    if record.expression is None:
        return _compile(record.function, _KERNEL_ARGUMENTS, "ng_kernel").texts
    inputs = tuple(ELEMENTS[i] for i in record.inputs)
    arguments = inputs if len(inputs) > 1 else (*inputs, FLOATS)
    bound = with_floats(record.expression, len(inputs), record.parameters)
    expression = _compile(bound.py_func, arguments, "ng_expression")
    loops = _loops(inputs, ELEMENTS[record.output], expression.result, record.loops, machine)
    return (loops, *expression.texts)


def new_module(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """LLVM IR text as a module for `machine`; names nothing that differs from build to build."""
    module = llvm.parse_assembly(text)
    module.name = "ngraph_kernels"
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    return module


def _link(texts: tuple[str, ...], export: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """One module of all texts, in which only `export` is visible."""
    module = new_module("", machine)
    for text in texts:
        module.link_in(new_module(text, machine))
    for value in (*module.functions, *module.global_variables):
        if value.name != export and not value.is_declaration:
            value.linkage = "internal"
    return module


def optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine, *, vectorize: bool) -> None:
    """LLVM's pipeline: all of it, or without vectorising what others will inline."""
    options = llvm.create_pipeline_tuning_options(speed_level=3 if vectorize else 1)
    options.loop_vectorization = vectorize
    options.slp_vectorization = vectorize
    # Vector loops are interleaved; unrolling on top triples the code and gains nothing.
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def kernel_module(record: KernelRecord, name: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """An optimised module that defines the kernel as C function `name` and exports nothing else."""
    module = _link(_texts(record, machine), "ng_kernel", machine)
    module.get_function("ng_kernel").name = name
    optimize(module, machine, vectorize=True)
    module.verify()
    return module


_WRAPPED: dict[int, Callable] = {
    1: lambda expression: lambda a: expression(a),
    2: lambda expression: lambda a, b: expression(a, b),
    3: lambda expression: lambda a, b, c: expression(a, b, c),
    4: lambda expression: lambda a, b, c, d: expression(a, b, c, d),
    5: lambda expression: lambda a, b, c, d, e: expression(a, b, c, d, e),
}
"""By the number of arguments, elements and parameters: a function of so many, for an expression that is inlined has no
code of its own."""


def expression_module(record: KernelRecord, name: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """A module that defines an elementwise kernel's expression as C function `name`.

    It takes the inputs' elements, then the parameters as float32, and returns what the expression gives.
    """
    expression = record.expression
    assert expression is not None
    arguments = (*(ELEMENTS[i] for i in record.inputs), *(types.float32,) * record.parameters)
    module = _link(_compile(_WRAPPED[len(arguments)](expression), arguments, name).texts, name, machine)
    optimize(module, machine, vectorize=False)
    return module
