"""The functional simulator: executes a Program's instructions in order, on NumPy arrays, in the device's formats.

Each memory is one array of bytes; a tile is a view of it. No time passes: see `timing.py` for that.

The matrix grid's arithmetic:

* int8: products are added in int32, which wraps; so no order matters, and no tiling. They go through float32's matrix
  product in pieces of K whose sums float32 holds exactly, in whatever order they are added.
* f16 and bf16: each product is rounded to float32 (it is exact, but for what float32 can't represent), and the
  products of an output element are added to its float32 accumulator one after the other, in the order of k. A
  contraction cut along k into instructions that go on from each other's accumulators, in order, gives the same bits;
  no tiling of the other axes matters. A loop compiled by Numba walks along k, with many outputs at a time.
* The contraction axis of a convolution is (input channel of the group, *place in the kernel), row-major: the order of
  the weights' elements. So its input channels can be cut anywhere, its kernel can't. Places in the padding are zeros
  and are multiplied.
* `finish` makes a result of the accumulators.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.base.forks import ForkSafeLock
from ngraph_mxnet.ir.opdef import get_op
from ngraph_mxnet.ir.types import TensorType, element_type
from ngraph_mxnet.targets.nnp.program import OPS, Buffer, Instruction, Program, Tile, whole
from ngraph_mxnet.targets.nnp.quantization import FORMATS, dequantized, quantized

_UNWRITTEN = 0xFF
"""Each byte that no one has written in a call: NaN in every floating-point format, -1 in integers."""


class _Step(NamedTuple):
    """One instruction, ready to run: attributes complete, tiles as views, with the names of their elements."""

    attrs: Mapping[str, Any]
    writes: tuple[np.ndarray, ...]
    reads: tuple[np.ndarray, ...]
    written: tuple[str, ...]
    read: tuple[str, ...]


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
        self._constants = [(self._bytes(buffer, "a constant"), self._content(buffer, content))
                           for buffer, content in program.constants.items()]
        self._steps = [self._step(index, one) for index, one in enumerate(program.instructions)]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs' stored elements (bf16 as uint16), of the inputs' stored elements. Calls wait for each other.
        Raises NGraphError: the inputs' number, shapes or dtypes are not those of the program."""
        if len(inputs) != len(self._inputs):
            raise NGraphError(f"program {self.program.name}: found {len(inputs)} inputs, expected {len(self._inputs)}")
        with self._lock:
            self.begin()
            for part in range(len(self.program.begins) + 1):
                self.advance(part, dict(enumerate(inputs)) if part == 0 else {})
            return self.results(range(len(self._outputs)))

    def begin(self) -> None:
        """Begin a call: forget all but the constants. `run` does this by itself; a caller that goes on part by part
        makes sure that no other call is under way."""
        for memory in self._memories.values():
            memory.fill(_UNWRITTEN)
        for place, content in self._constants:
            place[...] = content

    def advance(self, part: int, inputs: Mapping[int, np.ndarray]) -> None:
        """Execute a part of the call that `begin` began, with these inputs by number, in stored elements. Raises
        NGraphError as `run`."""
        for number, array in inputs.items():
            buffer, place = self.program.inputs[number], self._inputs[number]
            if array.shape != place.shape or array.dtype != place.dtype:
                raise NGraphError(
                    f"input {buffer.name} of program {self.program.name}: found {array.dtype}{list(array.shape)}, "
                    f"expected {place.dtype}{list(place.shape)}"
                )
            place[...] = array
        with np.errstate(all="ignore"):
            for number in self.program.part(part):
                compute, step = self._steps[number]
                compute(step)

    def results(self, numbers: Iterable[int]) -> list[np.ndarray]:
        """The stored elements of these outputs, in arrays of their own."""
        return [self._outputs[number].copy() for number in numbers]

    def _step(self, index: int, instruction: Instruction) -> tuple[Callable[[_Step], None], _Step]:
        where = f"instruction {index}, {instruction.op} ({instruction.origin})"
        if instruction.op not in _COMPUTES:
            raise NGraphError(f"{where}: there is no such instruction; known: {', '.join(_COMPUTES)}")
        return _COMPUTES[instruction.op], _Step({**_DEFAULTS[instruction.op], **instruction.attrs},
                                                tuple(self._tile(tile, where) for tile in instruction.writes),
                                                tuple(self._tile(tile, where) for tile in instruction.reads),
                                                tuple(tile.element for tile in instruction.writes),
                                                tuple(tile.element for tile in instruction.reads))

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
                    f"{where}: buffer {buffer.name} has element {buffer.element}; known: {', '.join(FORMATS)}")
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


def _gather(step: _Step) -> None:
    (step.writes[0][...],) = evaluate(step.attrs["op"], step.reads, step.attrs["attrs"])


def _transpose(step: _Step) -> None:
    step.writes[0][...] = step.reads[0].transpose(step.attrs["order"])


def _convolution(step: _Step) -> None:
    data, weights, product = _operands(step)
    start = step.reads[-1] if step.attrs["accumulate"] else None
    sums = convolution(data, weights, step.attrs, product, start)
    result = step.writes[0]
    if not step.attrs["final"]:
        for place, image in zip(result, sums, strict=True):
            place[...] = image
        return
    options = _finishing(step, along=(-1, *(1,) * (result.ndim - 2)))
    residual = options.pop("residual")
    for index, image in enumerate(sums):
        beside = None if residual is None else residual[index]
        result[index] = finish(image, step.written[0], residual=beside, **options)


def _matmul(step: _Step) -> None:
    a, b, product = _operands(step)
    a = a.swapaxes(-1, -2) if step.attrs["transpose_a"] else a
    b = b.swapaxes(-1, -2) if step.attrs["transpose_b"] else b
    sums = product(a, b, step.reads[-1] if step.attrs["accumulate"] else None)
    if step.attrs["final"]:
        sums = finish(sums, step.written[0], **_finishing(step, along=(-1,)))
    step.writes[0][...] = sums


def _operands(step: _Step) -> tuple[np.ndarray, np.ndarray, Product]:
    """The first two tiles as float32 numbers, and the product for them."""
    a, b = (FORMATS[step.read[at]].to_float32(step.reads[at]) for at in (0, 1))
    return a, b, {"i8": integer_product, "f32": real_product}.get(step.read[0], float_product)


def _finishing(step: _Step, along: tuple[int, ...]) -> dict[str, Any]:
    """The arguments of `finish`; bias and scale are shaped `along` the output channels."""
    attrs, rest = step.attrs, iter(range(2, len(step.reads)))
    bias = step.reads[next(rest)].reshape(along) if attrs["has_bias"] else None
    scale = step.reads[next(rest)].reshape(along) if attrs["has_scale"] else None
    at = next(rest) if attrs["has_residual"] else None
    return {"scale": scale, "bias": bias,
            "residual": None if at is None else FORMATS[step.read[at]].to_float32(step.reads[at]),
            **{name: attrs[name] for name in ("residual_scale", "lower", "upper", "out_scale")}}


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
    "gather": _gather,
    "transpose": _transpose,
    "convolution": _convolution,
    "matmul": _matmul,
    "vector": _vector,
}
_DEFAULTS = {op.name: {name: kind.default for name, kind in op.schema.items()} for op in OPS.values()}


def compute(op: str, attrs: Mapping[str, Any], write: tuple[np.ndarray, str],
            reads: Sequence[tuple[np.ndarray, str]]) -> None:
    """Run one instruction on whole tensors, given with the names of their elements; the result is written to one."""
    (result, written), (arrays, read) = write, zip(*reads, strict=True)
    _COMPUTES[op](_Step({**_DEFAULTS[op], **attrs}, (result,), arrays, (written,), read))


Product = Callable[[np.ndarray, np.ndarray, "np.ndarray | None"], np.ndarray]
"""(a [..., M, K], b [..., K, N], start [..., M, N] or None for zeros) to sums like start: see the two below."""


def convolution(data: np.ndarray, weights: np.ndarray, attrs: Mapping[str, Any], product: Product,
                start: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Sums [O, *R] for each image of data [N, C, *S], with weights [O, C/groups, *K], as a matrix `product`."""
    groups, outputs, kernel = attrs["groups"], weights.shape[0], weights.shape[2:]
    sizes = convolved_sizes(data.shape[2:], kernel, attrs)
    matrix = weights.reshape(groups, outputs // groups, -1)
    for index, image in enumerate(data):
        begin = None if start is None else start[index].reshape(groups, outputs // groups, -1)
        yield product(matrix, columns(image, kernel, attrs), begin).reshape(outputs, *sizes)


def columns(image: np.ndarray, kernel: Sequence[int], attrs: Mapping[str, Any]) -> np.ndarray:
    """image [C, *S] as [groups, C/groups * kernel places, places of the result], zeros outside the image."""
    begins, ends, strides = attrs["pads_begin"], attrs["pads_end"], attrs["strides"]
    dilations, groups = attrs["dilations"], attrs["groups"]
    sizes, image = convolved_sizes(image.shape[1:], kernel, attrs), np.ascontiguousarray(image)
    if any(begins) or any(ends):
        image = np.pad(image, [(0, 0), *zip(begins, ends, strict=True)])
    elif math.prod(kernel) == 1 and all(step == 1 for step in strides):
        return image.reshape(groups, -1, math.prod(sizes))
    steps = image.strides[1:]
    windows: np.ndarray = np.ndarray(
        (image.shape[0], *kernel, *sizes),
        image.dtype,
        image,
        strides=(image.strides[0], *(step * dilation for step, dilation in zip(steps, dilations, strict=True)),
                 *(step * stride for step, stride in zip(steps, strides, strict=True))),
    )
    return np.ascontiguousarray(windows).reshape(groups, -1, math.prod(sizes))


def convolved_sizes(sizes: Sequence[int], kernel: Sequence[int], attrs: Mapping[str, Any]) -> tuple[int, ...]:
    rows = zip(sizes, kernel, attrs["strides"], attrs["dilations"], attrs["pads_begin"], attrs["pads_end"], strict=True)
    return tuple((size + begin + end - dilation * (taps - 1) - 1) // stride + 1
                 for size, taps, stride, dilation, begin, end in rows)


def finish(sums: np.ndarray, element: str, *, scale: np.ndarray | None = None, bias: np.ndarray | None = None,
           residual: np.ndarray | None = None, residual_scale: float = 1.0, lower: float = -math.inf,
           upper: float = math.inf, out_scale: float = 1.0) -> np.ndarray:
    """Accumulators as stored elements, each operation rounded to float32, in this order.

    clamp(sums * scale + bias + residual * residual_scale, lower, upper); what is missing is left out, and so is
    residual_scale where it is 1. A bound of 0 gives +0. An i8 result is divided by `out_scale` first.

    Args:
        sums: int32 or float32, or float32 that hold what int32 would; may be overwritten if float32.
        element: a name of FORMATS; `scale` and `bias` broadcast with `sums`, `residual` is float32.
    """
    values = sums.astype(np.float32, copy=False)
    if scale is not None:
        values *= scale
    if bias is not None:
        values += bias
    if residual is not None:
        values += residual if residual_scale == 1.0 else residual * np.float32(residual_scale)
    if lower != -math.inf:
        np.maximum(values, np.float32(lower), out=values)
    if upper != math.inf:
        np.minimum(values, np.float32(upper), out=values)
    if 0.0 in (lower, upper):
        values += np.float32(0)  # of -0 and +0 the maximum may be either
    if element == "i8":
        return quantized(values, out_scale)
    return FORMATS[element].round_to(values)


EXACT = 1024
"""Products of i8 numbers, at most 2**14 each, whose sum float32 holds: 2**24 in all."""
_NARROW = 16
"""Results with fewer columns are computed transposed: the loops run along columns."""


def integer_product(a: np.ndarray, b: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """start + a b of i8 numbers held in float32. Without `start` and with few k the int32 sums come in float32."""
    inner = a.shape[-1]
    if start is None and inner <= EXACT:
        return np.matmul(a, b)
    total = None if start is None else start.copy()
    for k in range(0, inner, EXACT):
        piece = np.matmul(a[..., k : k + EXACT], b[..., k : k + EXACT, :]).astype(np.int32)
        total = piece if total is None else np.add(total, piece, out=total)
    assert total is not None
    return total


def real_product(a: np.ndarray, b: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """start + a b of float32 numbers, which no grid has, as NumPy multiplies them."""
    return np.matmul(a, b) if start is None else start + np.matmul(a, b)


def float_product(a: np.ndarray, b: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """start + a b of float32 numbers, added in the order of k."""
    rows, columns = a.shape[-2], b.shape[-1]
    if columns < _NARROW and columns < rows:
        turned = None if start is None else start.swapaxes(-1, -2)
        return float_product(b.swapaxes(-1, -2), a.swapaxes(-1, -2), turned).swapaxes(-1, -2)
    leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*leading, rows, columns), np.float32)
    if start is not None:
        total[...] = start
    places = [np.broadcast_to(np.arange(_matrices_of(x)).reshape(x.shape[:-2]), leading).reshape(-1) for x in (a, b)]
    matrices = [np.ascontiguousarray(x).reshape(_matrices_of(x), *x.shape[-2:]) for x in (a, b)]
    _ordered()(total.reshape(_matrices_of(total), rows, columns), matrices[0], places[0], matrices[1], places[1])
    return total


def _matrices_of(array: np.ndarray) -> int:
    return int(np.prod(array.shape[:-2], dtype=np.int64))


@functools.cache
def _ordered() -> Callable[..., None]:
    """The compiled loop; imported and compiled when first needed. No fast-math: the sums keep order and rounding."""
    import numba

    return numba.njit(nogil=True, error_model="numpy")(_add_products)


def _add_products(total, a, a_places, b, b_places):
    """total[n] += a[a_places[n]] b[b_places[n]], in the order of k. All arrays are C-contiguous."""
    rows, inner, columns = a.shape[1], a.shape[2], b.shape[2]
    width = 256  # four rows of sums and a line of b stay in the first cache
    fours = rows - rows % 4
    for n in range(total.shape[0]):
        left, right, sums = a[a_places[n]], b[b_places[n]], total[n]
        for begin in range(0, columns, width):
            end = min(columns, begin + width)
            for i in range(0, fours, 4):
                s0, s1 = sums[i, begin:end], sums[i + 1, begin:end]
                s2, s3 = sums[i + 2, begin:end], sums[i + 3, begin:end]
                for k in range(inner):
                    x0, x1, x2, x3 = left[i, k], left[i + 1, k], left[i + 2, k], left[i + 3, k]
                    line = right[k, begin:end]
                    for j in range(end - begin):
                        value = line[j]
                        s0[j] += x0 * value
                        s1[j] += x1 * value
                        s2[j] += x2 * value
                        s3[j] += x3 * value
            for i in range(fours, rows):
                s0 = sums[i, begin:end]
                for k in range(inner):
                    x0 = left[i, k]
                    line = right[k, begin:end]
                    for j in range(end - begin):
                        s0[j] += x0 * line[j]
