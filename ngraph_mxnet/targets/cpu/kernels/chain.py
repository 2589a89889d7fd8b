"""A cluster as one instruction, without a compiler: its steps are numbers, and each is a loop over a few elements.

Between the steps these stay in registers, arrays on the stack, so that a cluster of any number of ops reads and writes
the memory of its operands once.
"""

from __future__ import annotations

from collections.abc import Callable

from numba import float32

from ngraph_mxnet.targets.cpu.kernels.elementwise import BINARY, UNARY
from ngraph_mxnet.targets.cpu.kernels.pointers import inline, pointer, reader, scratch, shift
from ngraph_mxnet.targets.cpu.kernels.record import kernel
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

def _unary(name: str) -> Callable:
    expression = UNARY[name][0]

    @inline
    def run(o, x, repeats, count):
        if repeats:
            value = expression(x[0])
            for i in range(count):
                o[i] = value
        else:
            for i in range(count):
                o[i] = expression(x[i])

    return run


def _binary(name: str) -> Callable:
    expression = BINARY[name]

    @inline
    def run(o, x, x_repeats, y, y_repeats, count):
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


_IDENTITY, _identity = CHAIN_STEPS["identity"], _unary("identity")
_ABS, _abs = CHAIN_STEPS["abs"], _unary("abs")
_NEGATIVE, _negative = CHAIN_STEPS["negative"], _unary("negative")
_SIGN, _sign = CHAIN_STEPS["sign"], _unary("sign")
_SQRT, _sqrt = CHAIN_STEPS["sqrt"], _unary("sqrt")
_SQUARE, _square = CHAIN_STEPS["square"], _unary("square")
_RELU, _relu = CHAIN_STEPS["relu"], _unary("relu")
_EXP, _exp = CHAIN_STEPS["exp"], _unary("exp")
_LOG, _log = CHAIN_STEPS["log"], _unary("log")
_SIGMOID, _sigmoid = CHAIN_STEPS["sigmoid"], _unary("sigmoid")
_TANH, _tanh = CHAIN_STEPS["tanh"], _unary("tanh")
_SILU, _silu = CHAIN_STEPS["silu"], _unary("silu")
_GELU, _gelu = CHAIN_STEPS["gelu"], _unary("gelu")
_ERF, _erf = CHAIN_STEPS["erf"], _unary("erf")
_SOFTPLUS, _softplus = CHAIN_STEPS["softplus"], _unary("softplus")
_RSQRT, _rsqrt = CHAIN_STEPS["rsqrt"], _unary("rsqrt")
_RECIPROCAL, _reciprocal = CHAIN_STEPS["reciprocal"], _unary("reciprocal")
_ADD, _add = CHAIN_STEPS["add"], _binary("add")
_SUBTRACT, _subtract = CHAIN_STEPS["subtract"], _binary("subtract")
_MULTIPLY, _multiply = CHAIN_STEPS["multiply"], _binary("multiply")
_DIVIDE, _divide = CHAIN_STEPS["divide"], _binary("divide")
_MAXIMUM, _maximum = CHAIN_STEPS["maximum"], _binary("maximum")
_MINIMUM, _minimum = CHAIN_STEPS["minimum"], _binary("minimum")


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
            if op == _MULTIPLY:
                _multiply(o, x, x_repeats, y, y_repeats, count)
            elif op == _ADD:
                _add(o, x, x_repeats, y, y_repeats, count)
            elif op == _SUBTRACT:
                _subtract(o, x, x_repeats, y, y_repeats, count)
            elif op == _IDENTITY:
                _identity(o, x, x_repeats, count)
            elif op == _DIVIDE:
                _divide(o, x, x_repeats, y, y_repeats, count)
            elif op == _MAXIMUM:
                _maximum(o, x, x_repeats, y, y_repeats, count)
            elif op == _MINIMUM:
                _minimum(o, x, x_repeats, y, y_repeats, count)
            elif op == _SIGMOID:
                _sigmoid(o, x, x_repeats, count)
            elif op == _TANH:
                _tanh(o, x, x_repeats, count)
            elif op == _EXP:
                _exp(o, x, x_repeats, count)
            elif op == _LOG:
                _log(o, x, x_repeats, count)
            elif op == _RELU:
                _relu(o, x, x_repeats, count)
            elif op == _SILU:
                _silu(o, x, x_repeats, count)
            elif op == _GELU:
                _gelu(o, x, x_repeats, count)
            elif op == _ERF:
                _erf(o, x, x_repeats, count)
            elif op == _SOFTPLUS:
                _softplus(o, x, x_repeats, count)
            elif op == _RSQRT:
                _rsqrt(o, x, x_repeats, count)
            elif op == _RECIPROCAL:
                _reciprocal(o, x, x_repeats, count)
            elif op == _SQRT:
                _sqrt(o, x, x_repeats, count)
            elif op == _SQUARE:
                _square(o, x, x_repeats, count)
            elif op == _ABS:
                _abs(o, x, x_repeats, count)
            elif op == _NEGATIVE:
                _negative(o, x, x_repeats, count)
            elif op == _SIGN:
                _sign(o, x, x_repeats, count)
