"""The functional simulator: executes a Program's instructions in order, on NumPy arrays, in the device's formats.

Each memory is one array of bytes; a tile is a view of it. What an instruction computes is defined here and in
`arithmetic.py`, and no time passes: see `timing.py` for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.ir.op_table import get_op
from ngraph_mxnet.ir.types import TensorType, element_type
from ngraph_mxnet.targets.nnp.isa.formats import FORMATS, dequantized, quantized
from ngraph_mxnet.targets.nnp.isa.program import OPS, Buffer, Instruction, Program, Tile, whole
from ngraph_mxnet.targets.nnp.simulate import arithmetic, products

__all__ = ["FunctionalSimulator", "run"]

_UNWRITTEN = 0xFF
"""Each byte that no one has written in a call: NaN in every floating-point format, -1 in integers."""


class _Step(NamedTuple):
    """One instruction, ready to run: attributes complete, tiles as views, with the names of their elements."""

    attrs: Mapping[str, Any]
    writes: tuple[np.ndarray, ...]
    reads: tuple[np.ndarray, ...]
    written: tuple[str, ...]
    read: tuple[str, ...]


def run(program: Program, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Execute `program` once: see `FunctionalSimulator`."""
    return FunctionalSimulator(program).run(inputs)


class FunctionalSimulator:
    """Holds the memories of `program`, and executes it as often as wanted.

    Only `constants` are there before a call's first instruction. All else is spoilt, so that an instruction that reads
    what is not yet written in this call can't find the right bytes there, left by the call before.

    Raises:
        NGraphError: a buffer is not within its memory, or a tile not within its buffer.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._lock = ForkSafeLock()
        self._memories = {name: np.empty(size, np.uint8) for name, size in program.sizes.items()}
        self._buffers: dict[Buffer, np.ndarray] = {}
        self._inputs = [self._buffer(buffer, "an input") for buffer in program.inputs]
        self._outputs = [self._buffer(buffer, "an output") for buffer in program.outputs]
        self._constants = [
            (self._bytes(buffer, "a constant"), self._content(buffer, content))
            for buffer, content in program.constants.items()
        ]
        self._steps = [self._step(index, one) for index, one in enumerate(program.instructions)]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs' stored elements (bf16 as uint16), of the inputs' stored elements. Calls wait for each other.

        Raises:
            NGraphError: the inputs' number, shapes or dtypes are not those of the program.
        """
        with self._lock, np.errstate(all="ignore"):
            for memory in self._memories.values():
                memory.fill(_UNWRITTEN)
            for place, content in self._constants:
                place[...] = content
            if len(inputs) != len(self._inputs):
                raise NGraphError(
                    f"program {self.program.name}: found {len(inputs)} inputs, expected {len(self._inputs)}"
                )
            for buffer, place, array in zip(self.program.inputs, self._inputs, inputs, strict=True):
                if array.shape != place.shape or array.dtype != place.dtype:
                    raise NGraphError(
                        f"input {buffer.name} of program {self.program.name}: found {array.dtype}{list(array.shape)}, "
                        f"expected {place.dtype}{list(place.shape)}"
                    )
                place[...] = array
            for compute, step in self._steps:
                compute(step)
            return [place.copy() for place in self._outputs]

    def _step(self, index: int, instruction: Instruction) -> tuple[Callable[[_Step], None], _Step]:
        where = f"instruction {index}, {instruction.op} ({instruction.origin})"
        if instruction.op not in _COMPUTES:
            raise NGraphError(f"{where}: there is no such instruction; known: {', '.join(_COMPUTES)}")
        return _COMPUTES[instruction.op], _Step(
            {**_DEFAULTS[instruction.op], **instruction.attrs},
            tuple(self._tile(tile, where) for tile in instruction.writes),
            tuple(self._tile(tile, where) for tile in instruction.reads),
            tuple(tile.element for tile in instruction.writes),
            tuple(tile.element for tile in instruction.reads),
        )

    def _tile(self, tile: Tile, where: str) -> np.ndarray:
        buffer = self._buffer(tile.buffer, where)
        if tile == whole(tile.buffer):
            return buffer
        begin, shape = tile.begin, tile.shape
        if not (len(begin) == len(shape) == buffer.ndim) or not all(
            b >= 0 and n >= 0 and b + n <= size for b, n, size in zip(begin, shape, buffer.shape, strict=True)
        ):
            raise NGraphError(
                f"{where}: the tile from {list(begin)} of shape {list(shape)} is not within "
                f"buffer {tile.buffer.name} of shape {list(buffer.shape)}"
            )
        return buffer[tuple(slice(b, b + n) for b, n in zip(begin, shape, strict=True))]

    def _buffer(self, buffer: Buffer, where: str) -> np.ndarray:
        if buffer not in self._buffers:
            if buffer.element not in FORMATS:
                raise NGraphError(
                    f"{where}: buffer {buffer.name} has element {buffer.element}; known: {', '.join(FORMATS)}"
                )
            stored = self._bytes(buffer, where).view(FORMATS[buffer.element].storage)
            self._buffers[buffer] = stored.reshape(buffer.shape)
        return self._buffers[buffer]

    def _bytes(self, buffer: Buffer, where: str) -> np.ndarray:
        memory = self._memories.get(buffer.memory)
        if memory is None:
            raise NGraphError(f"{where}: buffer {buffer.name} is in {buffer.memory}, which has no size")
        end = buffer.offset + buffer.size * FORMATS[buffer.element].size
        if buffer.offset < 0 or end > len(memory):
            raise NGraphError(
                f"{where}: buffer {buffer.name} takes bytes {buffer.offset} to {end} of {buffer.memory}, "
                f"which has {len(memory)}"
            )
        return memory[buffer.offset : end]

    def _content(self, buffer: Buffer, content: bytes) -> np.ndarray:
        needed = buffer.size * FORMATS[buffer.element].size
        if len(content) != needed:
            raise NGraphError(f"constant {buffer.name}: found {len(content)} bytes, expected {needed}")
        return np.frombuffer(content, np.uint8)


# ---- instructions ---------------------------------------------------------------------------------------


def _barrier(step: _Step) -> None:
    """Nothing: it is for order only."""


def _copy(step: _Step) -> None:
    step.writes[0][...] = step.reads[0]


def _fill(step: _Step) -> None:
    """The value, as an element of the tile: for i8 and other integers the integer itself."""
    format = FORMATS[step.written[0]]
    value = np.asarray(step.attrs["value"], np.float32 if format.is_float else format.storage)
    step.writes[0][...] = format.round_to(value) if format.is_float else value


def _transpose(step: _Step) -> None:
    step.writes[0][...] = step.reads[0].transpose(step.attrs["order"])


def _convolution(step: _Step) -> None:
    data, weights, product = _operands(step)
    start = step.reads[-1] if step.attrs["accumulate"] else None
    sums = arithmetic.convolution(data, weights, step.attrs, product, start)
    result = step.writes[0]
    if not step.attrs["final"]:
        for place, image in zip(result, sums, strict=True):
            place[...] = image
        return
    options = _finishing(step, along=(-1, *(1,) * (result.ndim - 2)))
    residual = options.pop("residual")
    for index, image in enumerate(sums):
        beside = None if residual is None else residual[index]
        result[index] = arithmetic.finish(image, step.written[0], residual=beside, **options)


def _matmul(step: _Step) -> None:
    a, b, product = _operands(step)
    a = a.swapaxes(-1, -2) if step.attrs["transpose_a"] else a
    b = b.swapaxes(-1, -2) if step.attrs["transpose_b"] else b
    sums = product(a, b, step.reads[-1] if step.attrs["accumulate"] else None)
    if step.attrs["final"]:
        sums = arithmetic.finish(sums, step.written[0], **_finishing(step, along=(-1,)))
    step.writes[0][...] = sums


def _operands(step: _Step) -> tuple[np.ndarray, np.ndarray, arithmetic.Product]:
    """The first two tiles as float32 numbers, and the product for them."""
    a, b = (FORMATS[step.read[at]].to_float32(step.reads[at]) for at in (0, 1))
    return a, b, products.integer_product if step.read[0] == "i8" else products.float_product


def _finishing(step: _Step, along: tuple[int, ...]) -> dict[str, Any]:
    """The arguments of `finish`; bias and scale are shaped `along` the output channels."""
    attrs, rest = step.attrs, iter(range(2, len(step.reads)))
    bias = step.reads[next(rest)].reshape(along) if attrs["has_bias"] else None
    scale = step.reads[next(rest)].reshape(along) if attrs["has_scale"] else None
    at = next(rest) if attrs["has_residual"] else None
    return {
        "scale": scale,
        "bias": bias,
        "residual": None if at is None else FORMATS[step.read[at]].to_float32(step.reads[at]),
        **{name: attrs[name] for name in ("residual_scale", "lower", "upper", "out_scale")},
    }


def _vector(step: _Step) -> None:
    attrs = step.attrs
    scales = attrs["in_scales"] or (None,) * len(step.reads)
    operands = [widened(*operand) for operand in zip(step.reads, step.read, scales, strict=True)]
    results = evaluate(attrs["op"], operands, attrs["attrs"])
    scales = attrs["out_scales"] or (None,) * len(step.writes)
    for view, element, scale, result in zip(step.writes, step.written, scales, results, strict=True):
        view[...] = narrowed(result, element, scale)


def widened(stored: np.ndarray, element: str, scale: float | None) -> np.ndarray:
    """Return the contiguous array that the vector unit computes with.

    Floats other than f64, and i8 with a scale, become float32. Integers and f64 stay as they are.
    """
    if element == "i8" and scale is not None:
        return dequantized(stored, scale)
    format = FORMATS[element]
    array = format.to_float32(stored) if format.is_float and element != "f64" else stored
    return np.asarray(array, order="C")


def narrowed(array: np.ndarray, element: str, scale: float | None) -> np.ndarray:
    """A result as it is stored: reals are quantised to i8 and rounded to floats, integers stay as they are."""
    format = FORMATS[element]
    if array.dtype == format.storage:
        return array
    if array.dtype.kind == "f" and (element == "i8" or format.is_float):
        values = array.astype(np.float32, copy=False)
        return quantized(values, scale or 1.0) if element == "i8" else format.round_to(values)
    raise NGraphError(f"a vector instruction gave {array.dtype}, expected what {element} tiles hold")


def evaluate(op_name: str, operands: Sequence[np.ndarray], attrs: Mapping[str, Any]) -> list[np.ndarray]:
    """The reference of IR op `op_name`; missing attributes have their defaults."""
    op = get_op(op_name)
    if len(attrs) < len(op.schema):
        types = [TensorType(element_type(array.dtype), array.shape) for array in operands]
        attrs = op.complete(types, op.check_attrs(attrs))
    return op.evaluate(operands, attrs)


_COMPUTES: dict[str, Callable[[_Step], None]] = {
    "barrier": _barrier,
    "copy": _copy,
    "fill": _fill,
    "transpose": _transpose,
    "convolution": _convolution,
    "matmul": _matmul,
    "vector": _vector,
}
_DEFAULTS = {op.name: {name: kind.default for name, kind in op.schema.items()} for op in OPS.values()}
