"""A cluster as one instruction, without a compiler: its steps are numbers, and each is a loop over a few elements.

Between the steps these stay in registers, arrays on the stack, so that a cluster of any number of ops reads and writes
the memory of its operands once.
"""

from __future__ import annotations

from collections.abc import Callable

from numba import float32

from ngraph_mxnet.ops.elementwise import SCALARS
from ngraph_mxnet.targets.cpu.kernels.elementwise import maths_f32
from ngraph_mxnet.targets.cpu.kernels.pointers import inline, pointer, reader, scratch, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
from ngraph_mxnet.targets.cpu.kernels.wide import among
from ngraph_mxnet.targets.cpu.params.strided import (
    CHAIN,
    CHAIN_CHUNK,
    CHAIN_INPUTS,
    CHAIN_MEMORY,
    CHAIN_OUTPUTS,
    CHAIN_REGISTERS,
    CHAIN_STEP_INTS,
    CHAIN_STEPS,
)

read_chain = reader(CHAIN)

_HEAD = len(CHAIN.ints)
_COUNTS = _HEAD - CHAIN_INPUTS
_ROOM = CHAIN_REGISTERS * CHAIN_CHUNK


def _unary(expression: Callable) -> Callable:
    @inline
    def run(operands, count):
        o, x, repeats, _, _ = operands
        if repeats:
            value = expression(x[0])
            for i in range(count):
                o[i] = value
        else:
            for i in range(count):
                o[i] = expression(x[i])

    return run


def _binary(expression: Callable) -> Callable:
    @inline
    def run(operands, count):
        o, x, x_repeats, y, y_repeats = operands
        if y_repeats:
            value = y[0]
            if x_repeats:
                both = expression(x[0], value)
                for i in range(count):
                    o[i] = both
            else:
                for i in range(count):
                    o[i] = expression(x[i], value)
        elif x_repeats:
            value = x[0]
            for i in range(count):
                o[i] = expression(value, y[i])
        else:
            for i in range(count):
                o[i] = expression(x[i], y[i])

    return run


_run = among([(_unary if SCALARS[name].least == 1 else _binary)(getattr(maths_f32, name)) for name in CHAIN_STEPS])


@inline
def _repeats(ints, source, size):
    """True if the operand is one element that stands for all."""
    return source & CHAIN_MEMORY != 0 and ints[_COUNTS + source % CHAIN_INPUTS] != size


@inline
def _source(tensors, registers, ints, source, size, at):
    """Return a pointer to the operand's elements from `at` on. Any number `source` leads to memory of the call's
    own."""
    if source & CHAIN_MEMORY == 0:
        return shift(registers, source % CHAIN_REGISTERS * CHAIN_CHUNK)
    number = source % CHAIN_INPUTS
    return shift(pointer(tensors, number, float32), at if ints[_COUNTS + number] == size else 0)


@inline
def _target(tensors, registers, target, outputs, at):
    if target & CHAIN_MEMORY == 0:
        return shift(registers, target % CHAIN_REGISTERS * CHAIN_CHUNK)
    number = target % CHAIN_MEMORY
    return shift(pointer(tensors, CHAIN_INPUTS + (number if number < outputs else 0), float32), at)


@kernel("chain")
def chain(tensors, ints, floats, begin, end):
    """The steps, one after the other, for CHAIN_CHUNK elements at a time; see the record.

    No step's target is one of its operands: the loops are vector code where these lie apart.
    An output may be exactly one of the inputs if each step that writes to it comes behind all that read that input.
    tensors: up to CHAIN_INPUTS inputs, up to CHAIN_OUTPUTS outputs. Tasks: `chunk` elements.
    """
    registers = scratch(_ROOM)
    p = read_chain(ints, floats)
    size, outputs, steps = p.size, min(p.outputs, CHAIN_OUTPUTS), p.steps
    last = min(end * p.chunk, size)
    for at in range(begin * p.chunk, last, CHAIN_CHUNK):
        count = min(CHAIN_CHUNK, last - at)
        for step in range(steps):
            numbers = shift(ints, _HEAD + CHAIN_STEP_INTS * step)
            op, first, second = numbers[0], numbers[1], numbers[2]
            x, x_repeats = _source(tensors, registers, ints, first, size, at), _repeats(ints, first, size)
            y, y_repeats = _source(tensors, registers, ints, second, size, at), _repeats(ints, second, size)
            o = _target(tensors, registers, numbers[3], outputs, at)
            _run(op, (o, x, x_repeats, y, y_repeats), count)
