"""Programs on the functional simulator: each instruction alone, tiles against the whole, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.ir.opdef import get_op
from ngraph_mxnet.targets.nnp.functional import FunctionalSimulator
from ngraph_mxnet.targets.nnp.program import Buffer, Instruction, Program, Tile, whole
from ngraph_mxnet.targets.nnp.quantization import FORMATS, dequantized, quantized

CONVOLUTION = {
    "strides": (1, 1),
    "dilations": (1, 1),
    "pads_begin": (1, 1),
    "pads_end": (1, 1),
    "groups": 1,
}
GRID = {
    "lower": -math.inf,
    "upper": math.inf,
    "accumulate": False,
    "final": True,
    "has_bias": False,
    "has_scale": False,
    "has_residual": False,
    "out_scale": 1.0,
    "residual_scale": 1.0,
}


def run(program: Program, inputs: list[np.ndarray]) -> list[np.ndarray]:
    return FunctionalSimulator(program).run(inputs)


class Memory:
    """Buffers one after the other in memory `m`."""

    def __init__(self) -> None:
        self.used = 0
        self.buffers = 0

    def add(self, element: str, *shape: int) -> Buffer:
        buffer = Buffer(f"b{self.buffers}", "m", self.used, element, shape)
        self.used += buffer.size * FORMATS[element].size
        self.buffers += 1
        return buffer

    def program(self, instructions, inputs, outputs, constants=None) -> Program:
        return Program("test", "none", list(instructions), inputs, outputs, constants or {}, {"m": self.used})


def random_stored(rng: np.random.Generator, element: str, shape: tuple[int, ...]) -> np.ndarray:
    if element in ("i8", "i32"):
        return rng.integers(-128, 128, shape).astype(FORMATS[element].storage)
    return FORMATS[element].round_to(rng.normal(size=shape).astype(np.float32))


def instruction(name: str, writes, reads, **attrs) -> Instruction:
    return Instruction("ice0.grid", name, tuple(writes), tuple(reads), attrs)


def test_copies_fills_and_transposes_move_boxes():
    memory = Memory()
    source, target, turned = memory.add("bf16", 4, 5), memory.add("bf16", 6, 6), memory.add("bf16", 6, 6)
    program = memory.program(
        [
            instruction("fill", [whole(target)], [], value=1.5),
            instruction("copy", [Tile(target, (2, 1), (3, 4))], [Tile(source, (1, 0), (3, 4))]),
            instruction("barrier", [], []),
            instruction("transpose", [whole(turned)], [whole(target)], order=(1, 0)),
        ],
        [source],
        [target, turned],
    )
    data = random_stored(np.random.default_rng(0), "bf16", (4, 5))
    expected = np.full((6, 6), FORMATS["bf16"].round_to(np.array(1.5, np.float32)), np.uint16)
    expected[2:5, 1:5] = data[1:4, :4]
    found = run(program, [data])
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], expected.T)


def test_constants_are_there_again_at_each_run():
    memory = Memory()
    constant, result = memory.add("i32", 3), memory.add("i32", 3)
    content = np.arange(3, dtype=np.int32)
    program = memory.program(
        [
            instruction("copy", [whole(result)], [whole(constant)]),
            instruction("fill", [whole(constant)], [], value=-7),
        ],
        [],
        [result],
        {constant: content.tobytes()},
    )
    simulator = FunctionalSimulator(program)
    for _ in range(2):
        np.testing.assert_array_equal(simulator.run([])[0], content)


@pytest.mark.parametrize(("element", "other"), [("i8", "i8"), ("f16", "f16"), ("bf16", "bf16"), ("i8", "f16")])
def test_vector_operations_are_references_between_roundings(element, other):
    memory, rng = Memory(), np.random.default_rng(0)
    a, b, out = memory.add(element, 3, 7), memory.add(other, 7), memory.add(other, 3, 7)
    scales = {"in_scales": (0.1, 0.2 if other == "i8" else 1.0), "out_scales": (0.3 if other == "i8" else 1.0,)}
    if element != "i8":
        scales = {}
    program = memory.program(
        [instruction("vector", [whole(out)], [whole(a), whole(b)], op="multiply", **scales)], [a, b], [out]
    )
    arrays = [random_stored(rng, buffer.element, buffer.shape) for buffer in (a, b)]
    wide = [
        dequantized(array, scale) if buffer.element == "i8" else FORMATS[buffer.element].to_float32(array)
        for array, buffer, scale in zip(arrays, (a, b), (0.1, 0.2), strict=True)
    ]
    product = wide[0] * wide[1]
    expected = quantized(product, 0.3) if other == "i8" else FORMATS[other].round_to(product)
    np.testing.assert_array_equal(run(program, arrays)[0], expected)


def test_vector_operations_take_integers_and_defaults():
    memory = Memory()
    data, indices, out = memory.add("f16", 5, 2), memory.add("i32", 3), memory.add("f16", 3, 2)
    program = memory.program(
        [instruction("vector", [whole(out)], [whole(data), whole(indices)], op="gather", attrs={"axis": 0})],
        [data, indices],
        [out],
    )
    array, places = np.arange(10, dtype=np.float16).reshape(5, 2), np.int32([4, 0, 2])
    np.testing.assert_array_equal(run(program, [array, places])[0], array[places])


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["i8", "f16", "bf16"]), st.data())
def test_tiles_of_a_convolution_give_the_bits_of_the_whole(element, data):
    """Outputs, rows and input channels are cut; the accumulators stay between the instructions of one output tile."""
    draw, rng = data.draw, np.random.default_rng(data.draw(st.integers(0, 99)))
    n, c, o, h, w = 2, draw(st.integers(2, 40)), draw(st.integers(2, 9)), 6, 5
    memory = Memory()
    x, weights, bias, scale = (
        memory.add(element, n, c, h, w),
        memory.add(element, o, c, 3, 3),
        memory.add("f32", o),
        memory.add("f32", o),
    )
    residual, one, tiled = (memory.add(element, n, o, h, w) for _ in range(3))
    sums = memory.add("i32" if element == "i8" else "f32", n, o, h, w)
    options = {
        **GRID,
        **CONVOLUTION,
        "lower": 0.0,
        "upper": 6.0,
        "has_bias": True,
        "has_scale": element == "i8",
        "has_residual": True,
        "residual_scale": 0.02 if element == "i8" else 1.0,
        "out_scale": 0.05 if element == "i8" else 1.0,
    }

    def others(outputs: slice, box) -> list[Tile]:
        count = outputs.stop - outputs.start
        scales = [Tile(scale, (outputs.start,), (count,))] if element == "i8" else []
        return [Tile(bias, (outputs.start,), (count,)), *scales, Tile(residual, *box)]

    steps = [
        instruction(
            "convolution",
            [whole(one)],
            [whole(x), whole(weights), *others(slice(0, o), (whole(one).begin, whole(one).shape))],
            **options,
        )
    ]
    cut_o, cut_c, cut_h = draw(st.integers(1, o - 1)), draw(st.integers(1, c - 1)), draw(st.integers(1, h - 1))
    for outputs in (slice(0, cut_o), slice(cut_o, o)):
        for rows in (slice(0, cut_h), slice(cut_h, h)):
            box = ((0, outputs.start, rows.start, 0), (n, outputs.stop - outputs.start, rows.stop - rows.start, w))
            top, bottom = max(rows.start - 1, 0), min(rows.stop + 1, h)
            pads = {
                "pads_begin": (1 if rows.start == 0 else 0, 1),
                "pads_end": (1 if rows.stop == h else 0, 1),
            }
            for channels in (slice(0, cut_c), slice(cut_c, c)):
                count, last = channels.stop - channels.start, channels.stop == c
                reads = [
                    Tile(x, (0, channels.start, top, 0), (n, count, bottom - top, w)),
                    Tile(weights, (outputs.start, channels.start, 0, 0), (box[1][1], count, 3, 3)),
                ]
                flags = {"accumulate": channels.start > 0, "final": last}
                if not last:
                    flags |= {"has_bias": False, "has_scale": False, "has_residual": False}
                if last:
                    reads += others(outputs, box)
                if channels.start > 0:
                    reads.append(Tile(sums, *box))
                steps.append(
                    instruction(
                        "convolution",
                        [Tile(tiled if last else sums, *box)],
                        reads,
                        **{**options, **pads, **flags},
                    )
                )
    program = memory.program(steps, [x, weights, bias, scale, residual], [one, tiled])
    arrays = [
        *(random_stored(rng, element, buffer.shape) for buffer in (x, weights)),
        rng.normal(size=o).astype(np.float32),
        rng.uniform(1e-4, 1e-3, o).astype(np.float32),
        random_stored(rng, element, residual.shape),
    ]
    found = run(program, arrays)
    np.testing.assert_array_equal(found[0], found[1])


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["i8", "f16", "bf16"]), st.booleans(), st.booleans(), st.integers(0, 99))
def test_products_are_near_those_of_real_numbers(element, transpose_a, transpose_b, seed):
    rng, memory = np.random.default_rng(seed), Memory()
    m, k, n = rng.integers(1, 40, 3)
    a = memory.add(element, 2, *((k, m) if transpose_a else (m, k)))
    b = memory.add(element, *((n, k) if transpose_b else (k, n)))
    bias, scale, out = memory.add("f32", n), memory.add("f32", n), memory.add("f32", 2, m, n)
    attrs = {**GRID, "transpose_a": transpose_a, "transpose_b": transpose_b, "has_bias": True, "has_scale": True}
    program = memory.program(
        [instruction("matmul", [whole(out)], [whole(a), whole(b), whole(bias), whole(scale)], **attrs)],
        [a, b, bias, scale],
        [out],
    )
    arrays = [
        random_stored(rng, element, a.shape),
        random_stored(rng, element, b.shape),
        rng.normal(size=n).astype(np.float32),
        rng.uniform(0.5, 2, n).astype(np.float32),
    ]
    wide = [FORMATS[element].to_float32(array).astype(np.float64) for array in arrays[:2]]
    op = get_op("matmul")
    attrs = op.check_attrs({"transpose_a": transpose_a, "transpose_b": transpose_b})
    expected = op.evaluate(wide, attrs)[0] * arrays[3] + arrays[2]
    np.testing.assert_allclose(run(program, arrays)[0], expected, rtol=1e-4, atol=1e-4)


def test_sums_wrap_as_int32_does():
    memory = Memory()
    a, b, sums = memory.add("i8", 1, 2), memory.add("i8", 2, 1), memory.add("i32", 1, 1)
    attrs = {**GRID, "transpose_a": False, "transpose_b": False, "accumulate": True, "final": False}
    program = memory.program(
        [
            instruction("fill", [whole(sums)], [], value=2**31 - 1),
            instruction("matmul", [whole(sums)], [whole(a), whole(b), whole(sums)], **attrs),
        ],
        [a, b],
        [sums],
    )
    assert run(program, [np.int8([[1, 0]]), np.int8([[1], [0]])])[0].item() == -(2**31)


def test_what_is_malformed_is_refused():
    memory = Memory()
    small = memory.add("i8", 2, 3)
    beyond = Buffer("beyond", "m", 4, "i8", (2, 3))
    elsewhere = Buffer("elsewhere", "n", 0, "i8", (1,))
    unknown = Buffer("unknown", "m", 0, "i7", (1,))
    fine = whole(small)

    def refused(text: str, *instructions: Instruction, **parts) -> None:
        with pytest.raises(NGraphError, match=text):
            FunctionalSimulator(memory.program(instructions, parts.get("inputs", []), [], parts.get("constants")))

    refused("tile from", instruction("fill", [Tile(small, (0, 1), (2, 3))], [], value=0))
    refused("tile from", instruction("fill", [Tile(small, (-1, 0), (1, 1))], [], value=0))
    refused("tile from", instruction("fill", [Tile(small, (0,), (1,))], [], value=0))
    refused("takes bytes 4 to 10", instruction("copy", [whole(beyond)], [fine]))
    refused("in n, which has no size", instruction("copy", [whole(elsewhere)], [fine]))
    refused("element i7", instruction("copy", [whole(unknown)], [fine]))
    refused("no such instruction", instruction("jump", [], []))
    refused("found 5 bytes, expected 6", constants={small: b"12345"})
    with pytest.raises(NGraphError, match="expected int8"):
        run(memory.program([], [small], []), [np.zeros((3, 2), np.int8)])
    with pytest.raises(NGraphError, match="found 0 inputs"):
        run(memory.program([], [small], []), [])
