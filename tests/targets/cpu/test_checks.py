"""What is told to the runtime library of the kernels' records: their conditions and what they reach, as steps.

That it says the same as the records is held against the library in tests/runtime_package/test_instruction_checks.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from ngraph_mxnet.targets.cpu.checks import Op, made
from ngraph_mxnet.targets.cpu.params import KERNELS, Kernels

_OPERANDS = {Op.END: 0, Op.NUMBER: 1, Op.TASKS: 1, Op.ALIGNED: 1, Op.REFUSE_IF: 1, Op.REFUSE_UNLESS: 1, Op.SPAN: 3,
             Op.EXTREMES: 3, Op.SKIP_UNLESS: 3, Op.TILES: 5}
"""How many bytes follow a step's own; those not named have two."""


def steps(content: bytes) -> list[Op]:
    found, at = [], 0
    while at < len(content):
        found.append(Op(content[at]))
        at += 1 + _OPERANDS.get(found[-1], 2)
    return found


def test_conditions_of_a_record_are_those_of_its_check() -> None:
    """One whose one side raises has no second half."""
    def reach(p: Any, size: int) -> list[Any]:
        if p.n > 5 or p.flag & 2:
            raise ValueError("no")
        spans = [("x", 0, size * p.n)]
        return [*spans, ("y", 0, 4)] if p.flag == 1 else spans

    record = Kernels("made_for_this_test", tensors="x >y?", ints="n flag", sizes=1, tasks=lambda p: p.n, reach=reach)
    try:
        found, numbers = made(["ng_made_for_this_test__avx2"])
    finally:
        del KERNELS["made_for_this_test"]
    assert record.tensors == ("x", "y") and numbers == {"made_for_this_test": [None, None, None, 0, None]}
    (row,) = found.rows
    assert (row.tensors, row.ints, row.sizes, row.floats, row.written, row.kept) == (2, 2, 1, 0, 2, 0)
    ops = steps(found.code)
    assert [ops.count(op) for op in (Op.REFUSE_IF, Op.SKIP_UNLESS, Op.SPAN, Op.END)] == [2, 1, 3, 2]


def test_contractions_have_tables() -> None:
    found, _ = made(["ng_contraction_k1_n8_rows__avx2", "ng_contraction_k16_n16__baseline"])
    ops = steps(found.code)
    assert {Op.TABLE, Op.TILES, Op.EXTREMES, Op.ALIGNED} <= set(ops)


def test_a_record_that_takes_nothing_is_an_error() -> None:
    def reach(p: Any, size: int) -> list[Any]:
        raise ValueError("never")

    Kernels("made_for_this_test", tensors=">x", ints="n", sizes=1, tasks=lambda p: p.n, reach=reach)
    try:
        with pytest.raises(ValueError, match="made_for_this_test refuses"):
            made(["ng_made_for_this_test__avx2"])
    finally:
        del KERNELS["made_for_this_test"]


def test_ints_are_no_keys() -> None:
    """What a record does with its ints must become steps: a table would be asked with a symbol, once."""
    def reach(p: Any, size: int) -> list[Any]:
        return [("x", 0, {1: 4}[p.n])]

    Kernels("made_for_this_test", tensors=">x", ints="n", sizes=1, tasks=lambda p: p.n, reach=reach)
    try:
        with pytest.raises(TypeError, match="unhashable"):
            made(["ng_made_for_this_test__avx2"])
    finally:
        del KERNELS["made_for_this_test"]
