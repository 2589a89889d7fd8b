"""The text of a program parses back to the program."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nnp_programs import programs

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.ir.graph import Builder, print_graph
from ngraph_mxnet.ir.types import f16
from ngraph_mxnet.targets.nnp.hazards import order
from ngraph_mxnet.targets.nnp.program import Buffer, Instruction, Program, parse_program, print_program, whole

_LEAVES = st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.tuples(inner, inner) | st.dictionaries(st.text("abc", min_size=1), inner), max_leaves=6)
_ATTRS = st.dictionaries(st.text("xyz", min_size=1), _VALUES, max_size=3)


@settings(max_examples=40, deadline=None)
@given(programs(most=10), _ATTRS, st.text(max_size=8), st.data())
def test_round_trip(program: Program, attrs: dict, name: str, data: st.DataObject):
    order(program)
    program.name = name
    used = list({tile.buffer: None for i in program.instructions for tile in i.writes})
    program.instructions = [replace(i, attrs={**i.attrs, **attrs}, origin=name) for i in program.instructions]
    program.sizes = {"dram": 512}
    if used:
        program.inputs, program.outputs = used[:1], used[-1:]
        program.constants = {b: data.draw(st.binary(min_size=b.bytes, max_size=b.bytes)) for b in used}
    text = print_program(program)
    assert parse_program(text) == program
    assert print_program(parse_program(text)) == text


def test_attributes_of_ir_ops():
    b = Builder(name="body")
    body = b.results(b.relu(b.parameter("x", (4,))))
    tile = whole(Buffer('a "quoted" \\ name\n', "ice0.sram", 0, "f32", (4,)))
    value = np.arange(6, dtype=np.int16).reshape(2, 3)
    attrs = {"op": "fused", "attrs": {"body": body, "element": f16, "value": value, "axes": (), "upper": inf,
                                      "whole": np.float32(0.5)}}
    instruction = Instruction("ice0.vector", "vector", (tile,), (tile,), attrs, origin="a # b")
    program = Program("p", "nnp-i-1100", [instruction])
    text = print_program(program)
    (parsed,) = parse_program(text).instructions
    found = parsed.attrs["attrs"]
    assert print_graph(found["body"]) == print_graph(body)
    assert found["element"] is f16 and found["axes"] == () and found["upper"] == inf and found["whole"] == 0.5
    np.testing.assert_array_equal(found["value"], value)
    assert parsed.writes == (tile,) and parsed.origin == "a # b"
    assert print_program(parse_program(text)) == text


def test_the_text():
    x, y = Buffer("x", "dram", 0, "f32", (2, 8)), Buffer("y", "ice0.sram", 64, "f32", (2, 4))
    part = replace(whole(x), begin=(0, 4), shape=(2, 4))
    program = Program("p", "nnp-i-1100", [Instruction("ice0.dma0", "copy", (whole(y),), (part,)),
                                          Instruction("ice0.grid", "barrier", (), (), after=(0,), origin="mx:a")],
                      constants={x: bytes(64)}, sizes={"dram": 64})
    assert print_program(program, elide=True).splitlines() == [
        'program "p" for "nnp-i-1100"', "memory dram 64", 'buffer %0 "x" dram 0 f32[2,8]',
        'buffer %1 "y" ice0.sram 64 f32[2,4]', "constant %0 ...", "0: ice0.dma0 copy %1 <- %0[0:2,4:8]",
        '1: ice0.grid barrier - <- - after 0 # "mx:a"']


@pytest.mark.parametrize(("lines", "says"), [
    ([], "line 1: expected 'program"),
    (['program "p" for "d"', "0: ice0.dma0 copy %1 <- %0"], "line 2: can't read .*no buffer %1"),
    (['program "p" for "d"', "", "1: ice0.grid barrier - <- -"], "line 3: .*found number 1, expected 0"),
    (['program "p" for "d"', "buffer %0 x dram 0 f32[2]"], "line 2: .*expected a buffer as"),
    (['program "p" for "d"', "nonsense"], "line 2: .*expected an instruction as"),
    (['program "p" for "d"', '0: ice0.grid barrier - <- - {"a": }'], "line 2"),
    (['program "p" for "d"', "0: ice0.grid barrier - <- - since 3"], "line 2: .*after 1,2"),
    (['program "p" for "d"', 'buffer %0 "x" dram 0 f32[2]', 'buffer %0 "x" dram 0 f32[2]'], "line 3: .*defined twice"),
])
def test_what_does_not_parse(lines: list[str], says: str):
    with pytest.raises(NGraphError, match=says):
        parse_program("\n".join(lines))
