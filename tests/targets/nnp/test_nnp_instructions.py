"""What the instruction set takes and refuses."""

from __future__ import annotations

import pytest

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.targets.nnp.device import load_device
from ngraph_mxnet.targets.nnp.program import OPS, Buffer, Instruction, Tile, attributes, check, operands, whole

DEVICE = load_device("nnp-i-1100")
WINDOW = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1)}


def tile(memory: str, element: str, *shape: int) -> Tile:
    return whole(Buffer(f"{memory}:{shape}", memory, 0, element, shape))


def sram(element: str, *shape: int) -> Tile:
    return tile("ice0.sram", element, *shape)


def convolution(**changes) -> Instruction:
    reads = (sram("i8", 1, 8, 7, 7), sram("i8", 16, 8, 3, 3), sram("f32", 16), sram("f32", 16), sram("i8", 1, 16, 7, 7))
    attrs = {**WINDOW, "has_bias": True, "has_scale": True, "has_residual": True}
    writes = (sram("i8", 1, 16, 7, 7),)
    fields = {"unit": "ice0.grid", "op": "convolution", "writes": writes, "reads": reads, "attrs": attrs}
    return Instruction(**(fields | changes))


GOOD = [
    convolution(),
    convolution(attrs={**WINDOW, "final": False, "accumulate": True}, writes=(sram("i32", 1, 16, 7, 7),),
                reads=(*convolution().reads[:2], sram("i32", 1, 16, 7, 7))),
    Instruction("ice1.grid", "matmul", (tile("ice1.tcm", "f32", 4, 5),),
                (tile("ice1.sram", "f16", 4, 3), tile("ice1.sram", "f16", 5, 3)), {"transpose_b": True}),
    Instruction("ice0.dma0", "copy", (sram("f32", 2, 3),), (tile("dram", "f32", 2, 3),)),
    Instruction("host.dma0", "copy", (tile("dram", "f32", 2, 3),), (tile("host", "f32", 2, 3),)),
    Instruction("ice0.vector", "transpose", (sram("f32", 3, 2),), (sram("f32", 2, 3),), {"order": (1, 0)}),
    Instruction("ice0.dma1", "fill", (sram("i8", 3, 2),), (), {"value": 1}),
    Instruction("ice0.vector", "vector", (sram("i8", 2, 3),), (sram("i8", 2, 3), sram("f16", 1, 3)),
                {"op": "add", "in_scales": (0.5, 1.0), "out_scales": (0.25,)}),
    Instruction("ice0.vector", "vector", (sram("f16", 4, 3),), (sram("f16", 9, 3), sram("i64", 4)),
                {"op": "gather", "attrs": {"axis": 0}}),
    Instruction("ice0.vector", "vector", (sram("i8", 4),), (sram("i8", 4), sram("i8", 4)), {"op": "bitwise_and"}),
    Instruction("ice0.dma0", "gather", (sram("i8", 4, 3),), (tile("dram", "i8", 9, 3), sram("i64", 4)),
                {"op": "gather", "attrs": {"axis": 0}}),
    Instruction("ice0.grid", "barrier", (), (), after=(0,)),
]


@pytest.mark.parametrize("instruction", GOOD, ids=lambda i: i.op)
def test_taken(instruction: Instruction):
    check(instruction, DEVICE)


BAD = [
    (convolution(unit="ice0.vector"), "unit: found ice0.vector, expected one of kind grid"),
    (convolution(unit="ice1.grid"), "found ice0.sram, expected a memory of ice1"),
    (convolution(op="conv"), "no op 'conv'"),
    (convolution(reads=convolution().reads[:4]), "found 4 tiles, expected 5: data, weights, bias, scale, residual"),
    (convolution(writes=(sram("i8", 1, 16, 7, 6),)), r"written shape: found \[1, 16, 7, 6\], expected \[1, 16, 7, 7\]"),
    (convolution(writes=(sram("i32", 1, 16, 7, 7),)), "written element: found i32"),
    (convolution(attrs={"has_bias": True}), "strides"),
    (convolution(attrs={**WINDOW, "stride": 1}), r"no attribute \['stride'\]"),
    (Instruction("ice0.grid", "matmul", (sram("f32", 4, 5),), (sram("bf16", 4, 3), sram("bf16", 3, 5))),
     r"found bf16, expected one of \['i8', 'f16'\]"),
    (Instruction("ice0.dma0", "copy", (sram("f32", 2),), (tile("host", "f32", 2),)), "only host.dma reaches it"),
    (Instruction("host.dma0", "copy", (sram("f32", 2),), (tile("dram", "f32", 2),)), "host.dma moves from or to it"),
    (Instruction("ice0.dma0", "copy", (sram("f16", 2),), (sram("f32", 2),)), "element: found f16, expected f32"),
    (Instruction("ice0.dma0", "copy", (Tile(sram("f32", 2).buffer, (1,), (2,)),), (sram("f32", 2),)), r"within \[2\]"),
    (Instruction("ice0.vector", "vector", (sram("f32", 2),), (sram("f32", 3),), {"op": "relu"}), "shapes of relu"),
    (Instruction("ice0.vector", "vector", (sram("f32", 2),), (sram("f32", 2),), {"op": "reluu"}), "no op 'reluu'"),
    (Instruction("ice0.dma0", "gather", (sram("f32", 2),), (sram("f16", 9), sram("i64", 2)), {"op": "gather"}),
     "element: found f32, expected f16"),
    (Instruction("ice0.dma0", "gather", (sram("f32", 2),), (sram("f32", 2), sram("f32", 2)), {"op": "add"}),
     r"op: found add, expected one of \['gather', 'gather_elements', 'gather_nd'\]"),
    (Instruction("ice0.dma0", "barrier", (sram("f32", 2),), ()), "writes: found 1"),
]


@pytest.mark.parametrize(("instruction", "says"), BAD)
def test_refused(instruction: Instruction, says: str):
    with pytest.raises(NGraphError, match=says) as caught:
        check(instruction, DEVICE, 7)
    assert str(caught.value).startswith(f"instruction 7, {instruction.op} on {instruction.unit}")


def test_operands_by_name():
    assert list(operands(convolution())) == ["data", "weights", "bias", "scale", "residual"]
    assert list(operands(GOOD[1])) == ["data", "weights", "accumulators"]
    assert attributes(GOOD[1])["out_scale"] == 1.0


def test_every_op_says_what_it_does():
    assert all(op.doc and op.units for op in OPS.values())
