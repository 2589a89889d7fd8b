"""Kernel descriptions to LLVM IR: plain scalar loops with constant bounds and strides, which LLVM vectorises.

An expression is a call of `ng_expression_<op>`, which `build` defines and LLVM inlines.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import llvmlite.binding as llvm
from llvmlite import ir

from ngraph_mxnet.base.registry import is_outside
from ngraph_mxnet.targets.cpu.codegen.spec import REDUCTIONS, LoopKernel, Step, phases, saved
from ngraph_mxnet.targets.cpu.microkernels.target import target_machine
from ngraph_mxnet.targets.cpu.microkernels.variants import MICROKERNELS, Isa

__all__ = ["build_added", "build_object", "load_object"]


_I1, _I8, _I64 = ir.IntType(1), ir.IntType(8), ir.IntType(64)
_F32, _F64 = ir.FloatType(), ir.DoubleType()
_PTR = ir.PointerType()
_TYPES = {"f32": _F32, "bool": _I8}
_SCALARS = {**_TYPES, "f64": _F64}
_ALIGN = {"f32": 4, "bool": 1}
_LOOP = "ng_loop"


def expression_name(op: str) -> str:
    """The function that computes one element of `op`."""
    return f"ng_expression_{op}"


def module_text(kernels: dict[str, LoopKernel], vector_width: int) -> str:
    """IR of all kernels, by symbol. Loops with a reduction are vectorised by `vector_width` elements."""
    module = ir.Module(name="ng_generated")
    for name, kernel in kernels.items():
        _Kernel(module, name, kernel).emit()
    # A loop's metadata node refers to itself, which the builder can't say.
    width = f'!{{!"llvm.loop.vectorize.width", i32 {vector_width}}}'
    return re.sub(rf'(!\d+) = !{{ !"{_LOOP}\d+" }}', rf"\1 = distinct !{{ \1, {width} }}", str(module))


class _Kernel:
    def __init__(self, module: ir.Module, name: str, kernel: LoopKernel) -> None:
        kind = ir.FunctionType(ir.VoidType(), [_PTR, _PTR, _PTR, _I64, _I64])
        self.module, self.kernel = module, kernel
        self.function = ir.Function(module, kind, name=name)
        self.function.attributes.add("nounwind")
        self.entry = self.function.append_basic_block("entry")
        self.b = ir.IRBuilder(self.function.append_basic_block("start"))
        self.varies, self.phase = phases(kernel)
        self.saved = saved(kernel)
        self.values: dict[int, ir.Value] = {}
        """The steps that do not vary along the row, in the present row."""
        self.slots = {number: self._alloca(step.element, kernel.sizes[-1])
                      for number, step in enumerate(kernel.steps) if number in self.saved}
        self.totals = {number: self._alloca(REDUCTIONS[step.op][0], 1)
                       for number, step in enumerate(kernel.steps) if step.op in REDUCTIONS}
        self.scopes = self._alias_scopes()

    # ---- the frame --------------------------------------------------------------------------------------

    def emit(self) -> None:
        b, kernel = self.b, self.kernel
        start = b.block
        bases = [self._load_pointer(number) for number in range(len(kernel.tensors))]
        with self._loop(self.function.args[3], self.function.args[4]) as task:
            *outer, row, column = self._decode(task)
            rows = self._extent(row, kernel.tile[0], kernel.sizes[-2])
            columns = self._extent(column, kernel.tile[1], kernel.sizes[-1])
            indices = [*outer, row, column]
            tiles = [self._at(base, tensor.element, indices, tensor.strides)
                     for base, tensor in zip(bases, kernel.tensors, strict=True)]
            with self._loop(_I64(0), rows) as r:
                places = [self._at(tile, tensor.element, [r], tensor.strides[-2:-1])
                          for tile, tensor in zip(tiles, kernel.tensors, strict=True)]
                self._row(places, columns)
        b.ret_void()
        ir.IRBuilder(self.entry).branch(start)

    def _alloca(self, element: str, count: int) -> ir.Value:
        kind = _SCALARS[element]
        slot = ir.IRBuilder(self.entry).alloca(kind, size=_I64(count))
        slot.align = 64
        return slot

    def _load_pointer(self, number: int) -> ir.Value:
        slot = self.b.gep(self.function.args[0], [_I64(number)], source_etype=_PTR)
        return self.b.load(slot, typ=_PTR, align=8)

    def _decode(self, task: ir.Value) -> list[ir.Value]:
        """Index of the task's first element in every dimension; the last is the fastest."""
        *outer, rows, columns = self.kernel.sizes
        units = [1] * len(outer) + list(self.kernel.tile)
        digits: list[ir.Value] = []
        for size, unit in zip((columns, rows, *reversed(outer)), reversed(units), strict=True):
            count = -(-size // unit)
            digit = self.b.urem(task, _I64(count)) if count > 1 else _I64(0)
            digits.append(self.b.mul(digit, _I64(unit)))
            task = self.b.udiv(task, _I64(count)) if count > 1 else task
        return digits[::-1]

    def _extent(self, first: ir.Value, unit: int, size: int) -> ir.Value:
        """How many of `unit` there are from `first` on."""
        if size % unit == 0:
            return _I64(unit)
        left = self.b.sub(_I64(size), first)
        return self.b.select(self.b.icmp_unsigned("<", left, _I64(unit)), left, _I64(unit))

    def _at(self, base: ir.Value, element: str, indices: Sequence[ir.Value], strides: Sequence[int]) -> ir.Value:
        for index, stride in zip(indices, strides, strict=True):
            if stride:
                step = self.b.mul(index, _I64(stride))
                base = self.b.gep(base, [step], inbounds=True, source_etype=_TYPES[element])
        return base

    @contextmanager
    def _loop(self, first: ir.Value, last: ir.Value, *, mark: bool = False) -> Iterator[ir.Value]:
        """The index runs over [first, last)."""
        b = self.b
        head, body, done = (self.function.append_basic_block(n) for n in ("head", "body", "done"))
        before = b.block
        b.branch(head)
        b.position_at_end(head)
        index = b.phi(_I64)
        index.add_incoming(first, before)
        b.cbranch(b.icmp_signed("<", index, last), body, done)
        b.position_at_end(body)
        yield index
        index.add_incoming(b.add(index, _I64(1), flags=("nsw",)), b.block)
        back = b.branch(head)
        if mark:
            back.set_metadata("llvm.loop", self.module.add_metadata([f"{_LOOP}{len(self.module.metadata)}"]))
        b.position_at_end(done)

    # ---- memory -----------------------------------------------------------------------------------------

    def _alias_scopes(self) -> list[tuple[ir.Value, ir.Value]]:
        """For every tensor, its scope and those it does not overlap: outputs are apart from all others."""
        add, inputs = self.module.add_metadata, self.kernel.inputs
        domain = add([f"{self.function.name} tensors"])
        names = ["in", *(f"out{number}" for number in range(len(self.kernel.stores)))]
        scopes = [add([f"{self.function.name} {name}", domain]) for name in names]
        lists = [(add([scope]), add([other for other in scopes if other is not scope])) for scope in scopes]
        return [lists[max(0, number - inputs + 1)] for number in range(len(self.kernel.tensors))]

    def _mark(self, instruction: ir.Instruction, tensor: int) -> None:
        scope, others = self.scopes[tensor]
        instruction.set_metadata("alias.scope", scope)
        instruction.set_metadata("noalias", others)

    def _load(self, place: ir.Value, tensor: int, index: ir.Value) -> ir.Value:
        spec = self.kernel.tensors[tensor]
        source = self._at(place, spec.element, [index], spec.strides[-1:])
        value = self.b.load(source, typ=_TYPES[spec.element], align=_ALIGN[spec.element])
        self._mark(value, tensor)
        return value

    def _store(self, value: ir.Value, place: ir.Value, tensor: int, index: ir.Value) -> None:
        spec = self.kernel.tensors[tensor]
        target = self._at(place, spec.element, [index], spec.strides[-1:])
        self._mark(self.b.store(value, target, align=_ALIGN[spec.element]), tensor)

    # ---- a row ------------------------------------------------------------------------------------------

    def _row(self, places: list[ir.Value], columns: ir.Value) -> None:
        kernel, zero = self.kernel, _I64(0)
        self.values = {}
        for phase in range(max(self.phase, default=0) + 1):
            for number, step in enumerate(kernel.steps):
                if not self.varies[number] and self.phase[number] == phase:
                    self.values[number] = self._row_value(number, step, places)
            if any(self._in_loop(number, phase) for number in range(len(kernel.steps))):
                self._walk(phase, places, columns)
        for output, number in enumerate(kernel.stores):
            tensor = kernel.inputs + output
            if not self.varies[number] and not kernel.tensors[tensor].strides[-1]:
                self._store(self.values[number], places[tensor], tensor, zero)

    def _row_value(self, number: int, step: Step, places: list[ir.Value]) -> ir.Value:
        if step.op == "load":
            return self._load(places[step.args[0]], step.args[0], _I64(0))
        if step.op in REDUCTIONS:
            return self._total(number, step)
        return self._compute(step, [self.values[a] for a in step.args])

    def _in_loop(self, number: int, phase: int) -> bool:
        """True if the loop of the phase has work for the step: it stores, keeps or adds up the step's value."""
        if number in self.kernel.stores and self._stored_by_element(number) and self.phase[number] == phase:
            return True
        step = self.kernel.steps[number]
        if step.op in REDUCTIONS:
            return self.phase[number] == phase + 1
        return number in self.saved and self.phase[number] == phase

    def _stored_by_element(self, number: int) -> bool:
        return any(
            self.kernel.tensors[self.kernel.inputs + output].strides[-1]
            for output, stored in enumerate(self.kernel.stores) if stored == number
        )

    def _walk(self, phase: int, places: list[ir.Value], columns: ir.Value) -> None:
        """One loop along the row: everything of the phase that is stored, kept or reduced."""
        b, kernel = self.b, self.kernel
        totals = [n for n, step in enumerate(kernel.steps) if step.op in REDUCTIONS and self.phase[n] == phase + 1]
        for number in totals:
            element, start = REDUCTIONS[kernel.steps[number].op]
            b.store(_SCALARS[element](start), self.totals[number])
        with self._loop(_I64(0), columns, mark=bool(totals)) as j:
            made: dict[int, ir.Value] = {}

            def value(number: int) -> ir.Value:
                if not self.varies[number]:
                    return self.values[number]
                if number not in made:
                    step = kernel.steps[number]
                    if step.op == "load":
                        made[number] = self._load(places[step.args[0]], step.args[0], j)
                    elif self.phase[number] < phase:
                        made[number] = b.load(b.gep(self.slots[number], [j], inbounds=True))
                    else:
                        made[number] = self._compute(step, [value(a) for a in step.args])
                return made[number]

            for number in range(len(kernel.steps)):
                if not self._in_loop(number, phase):
                    continue
                if number in totals:
                    self._accumulate(number, value(kernel.steps[number].args[0]))
                    continue
                if number in self.saved:
                    b.store(value(number), b.gep(self.slots[number], [j], inbounds=True))
                for output, stored in enumerate(kernel.stores):
                    tensor = kernel.inputs + output
                    if stored == number and kernel.tensors[tensor].strides[-1]:
                        self._store(value(number), places[tensor], tensor, j)

    # ---- arithmetic -------------------------------------------------------------------------------------

    def _accumulate(self, number: int, value: ir.Value) -> None:
        b, slot = self.b, self.totals[number]
        if self.kernel.steps[number].op == "reduce_max":
            maximum = self._external("llvm.maximum.f32", _F32, [_F32, _F32])
            b.store(b.call(maximum, [b.load(slot), value], fastmath=("nsz",)), slot)
        else:
            # Lanes add up in an order of their own, the same in every call.
            b.store(b.fadd(b.load(slot), b.fpext(value, _F64), flags=("reassoc",)), slot)

    def _total(self, number: int, step: Step) -> ir.Value:
        b = self.b
        if step.op == "reduce_max":
            return b.load(self.totals[number])
        total = b.load(self.totals[number])
        if step.op == "reduce_mean":
            total = b.fdiv(total, _F64(float(self.kernel.sizes[-1])))
        return b.fptrunc(total, _F32)

    def _compute(self, step: Step, args: list[ir.Value]) -> ir.Value:
        b, kind = self.b, _TYPES[step.element]
        if step.op == "constant":
            return kind(step.parameters[0]) if kind is _F32 else kind(int(bool(step.parameters[0])))
        if step.op == "convert":
            return self._convert(args[0], kind)
        values = [*args, *(_F32(p) for p in step.parameters)]
        returned = _I1 if step.element == "bool" else kind  # the expression of a truth gives one bit
        function = self._external(expression_name(step.op), returned, [v.type for v in values])
        result = b.call(function, values)
        return b.zext(result, _I8) if returned is _I1 else result

    def _convert(self, value: ir.Value, kind: ir.Type) -> ir.Value:
        if value.type == kind:
            return value
        if kind is _F32:
            return self.b.uitofp(value, _F32)
        return self.b.zext(self.b.fcmp_unordered("!=", value, _F32(0.0)), _I8)

    def _external(self, name: str, returned: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
        found = self.module.globals.get(name)
        return found or ir.Function(self.module, ir.FunctionType(returned, list(arguments)), name=name)


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
