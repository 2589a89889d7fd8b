"""Activations that are more than a few instructions, as functions of stored pixels: no register holds anything then.

`ng_activate_<lanes>(kind, base, offsets, count)` replaces the `lanes` floats at each of `count` pixels by the
activation of that number (`variants.ACTIVATIONS`). Pixel m lies `offsets[m]` bytes (int32) from `base`, or 64 m where
there are no offsets. The expressions are those of the elementwise kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

from ngraph_mxnet.targets.cpu.microkernels.emit import F32, I64, PTR, Emitter
from ngraph_mxnet.targets.cpu.microkernels.variants import ACTIVATIONS, FIRST_CALLED

if TYPE_CHECKING:
    import llvmlite.binding as llvm

__all__ = ["activate", "activation_module", "call_activation"]

_SIGNATURE = ir.FunctionType(ir.VoidType(), [I64, PTR, PTR, I64])
_LANES = (16, 8)
_CALLED = {name: number for name, number in ACTIVATIONS.items() if number >= FIRST_CALLED}


def activate(module: ir.Module, lanes: int) -> ir.Function:
    """The function for pixels of so many floats, declared in `module`."""
    name = f"ng_activate_{lanes}"
    return module.globals.get(name) or ir.Function(module, _SIGNATURE, name=name)


def call_activation(e: Emitter, lanes: int, kind: ir.Value, base: ir.Value, offsets: ir.Value | None,
                    count: ir.Value) -> None:
    """Emit a call of it."""
    table = offsets if offsets is not None else ir.Constant(PTR, None)
    e.builder.call(activate(e.function.module, lanes), [kind, base, table, count])


def activation_module(machine: llvm.TargetMachine, multiply_add: str) -> llvm.ModuleRef:
    """An optimised module that defines the functions and exports nothing else."""
    from ngraph_mxnet.targets.cpu.kernels import ALL_KERNELS
    from ngraph_mxnet.targets.cpu.kernels.compiler import expression_module, new_module, optimize

    text = ir.Module("activations")
    for lanes in _LANES:
        _define(text, lanes, multiply_add)
    module = new_module(str(text), machine)
    for name in _CALLED:
        module.link_in(expression_module(ALL_KERNELS[name], f"ng_expression_{name}", machine))
    exported = {f"ng_activate_{lanes}" for lanes in _LANES}
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name not in exported:
            value.linkage = "internal"
    optimize(module, machine, vectorize=True)
    return module


def _define(module: ir.Module, lanes: int, multiply_add: str) -> None:
    function = activate(module, lanes)
    function.attributes.add("nounwind")
    e = Emitter(function, multiply_add)
    b = e.builder
    kind, base, offsets, count = function.args
    done = e.block("done")
    cases = {number: e.block(name) for name, number in _CALLED.items()}
    switch = b.switch(kind, done)
    for name, number in _CALLED.items():
        switch.add_case(ir.Constant(I64, number), cases[number])
        b.position_at_end(cases[number])
        symbol = f"ng_expression_{name}"
        expression = module.globals.get(symbol) or ir.Function(module, ir.FunctionType(F32, [F32]), name=symbol)
        _pixels(e, expression, base, offsets, count, lanes)
        b.branch(done)
    b.position_at_end(done)
    b.ret_void()


def _pixels(e: Emitter, expression: ir.Function, base: ir.Value, offsets: ir.Value, count: ir.Value,
            lanes: int) -> None:
    """The expression of every float of every pixel."""
    b, zero = e.builder, ir.Constant(I64, 0)
    has_table = b.icmp_unsigned("!=", offsets, ir.Constant(PTR, None))

    def pixel(number: ir.Value) -> None:
        neighbour = b.mul(number, ir.Constant(I64, 64))
        (offset,) = e.when(has_table, [neighbour], lambda: [e.load_offset(offsets, number)])
        place = e.at(base, offset)

        def lane(at: ir.Value) -> None:
            element = e.at(place, b.mul(at, ir.Constant(I64, 4)))
            b.store(b.call(expression, [e.load(element, F32)]), element, align=4)

        e.loop(zero, ir.Constant(I64, lanes), lane)

    e.loop(zero, count, pixel)
