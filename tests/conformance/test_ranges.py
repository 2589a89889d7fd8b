"""Every record with symbols for sizes of its operands, against MXNet: compiled for a range, called with other sizes.

Whatever guards hold, and whether there is a template at all, the results are MXNet's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import mxnet as mx
import numpy as np
import pytest
from families import RECORDS
from hypothesis import given
from hypothesis import strategies as st
from records import Case, Operand, Record
from runs import Arrays, _agree, arrays_for, build, run_native

from ngraph_mxnet.base.errors import NGraphError, UnsupportedError
from ngraph_mxnet.frontends.mxnet.importer import import_symbol
from ngraph_mxnet.ir import Graph
from ngraph_mxnet.ir.ranges import Guards, assuming
from ngraph_mxnet.ir.sizes import symbol as size_symbol
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.program.ranges import RangeExecutable, Template

Draw = Callable
_UNCHECKED = ("_sg_", "_contrib_quantized", "Convolution_v1", "Reshape", "_np_reshape", "_npx_reshape")
"""How operators begin of which MXNet does not check that sizes fit: it crashes."""
_PLACES = ("softmax_cross_entropy",)
"""Records of which an operand of floats holds places."""


def _symbolic(case: Case, draw: Draw) -> tuple[dict[int, str], dict[str, int]]:
    """Which sizes of the operands become symbols, all that are equal together, and their values."""
    sizes = sorted({size for operand in case.operands for size in operand.shape if size > 0})
    chosen = {size: f"S{size}" for size in sizes if draw(st.booleans())}
    return chosen, {name: size for size, name in chosen.items()}


def _graph(record: Record, case: Case, arrays: Arrays, symbols: dict[int, str]) -> Graph:
    symbol = build(record.op, case, numpy=record.numpy)
    if record.outputs is not None:
        symbol = mx.sym.Group([symbol[i] for i in record.outputs])
    dims = {size: size_symbol(name) for size, name in symbols.items()}
    operands = {f"x{i}" for i in range(len(case.operands))}
    shapes = {name: tuple(dims.get(size, size) for size in array.shape) if name in operands else array.shape
              for name, array in arrays.items()}
    return import_symbol(symbol.tojson(), shapes, {name: array.dtype.name for name, array in arrays.items()})


def _resized(case: Case, symbols: dict[int, str], values: dict[str, int]) -> Case | None:
    """The case with other sizes; None where its data are given."""
    operands = []
    for operand in case.operands:
        shape = tuple(values[symbols[size]] if size in symbols else size for size in operand.shape)
        if operand.values is not None and shape != operand.shape:
            return None
        operands.append(Operand(shape, operand.dtype, operand.low, operand.high, operand.values))
    return replace(case, operands=operands)


def _native(record: Record, case: Case, seed: int, parameters: Arrays) -> tuple[Arrays, list[np.ndarray]] | None:
    """Arrays, the parameters as they were, and MXNet's results; None where it refuses these sizes."""
    symbol = build(record.op, case, numpy=record.numpy)
    if record.outputs is not None:
        symbol = mx.sym.Group([symbol[i] for i in record.outputs])
    try:
        arrays = arrays_for(symbol, case, seed, numpy=record.numpy)
        if any(arrays[name].shape != array.shape for name, array in parameters.items()):
            return None
        arrays.update(parameters)
        return arrays, run_native(symbol, arrays, numpy=record.numpy)
    except (mx.MXNetError, ValueError, AssertionError, IndexError, TypeError):
        return None


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
@given(st.data(), st.integers(0, 2**32 - 1))
def test_other_sizes_agree_with_mxnet(record: Record, data: st.DataObject, seed: int) -> None:
    case = record.case(data.draw)
    symbols, hint = _symbolic(case, data.draw)
    first = _native(record, case, seed, {})
    if not symbols or first is None:
        return
    arrays = first[0]
    parameters = {name: array for name, array in arrays.items() if not name.removeprefix("x").isdigit()}

    def make() -> Graph:
        return _graph(record, case, arrays, symbols)

    cpu = get_backend("CPU")
    try:
        with assuming(Guards(hint)):
            graph = make()
    except UnsupportedError:
        return  # as with numbers, which `test_conformance` shows

    def template(made: Graph) -> Template | None:
        try:
            return cpu.template(made, {})
        except Exception as error:  # which is to fall back, and here to be seen
            raised.append(error)
            raise

    raised: list[Exception] = []
    run = RangeExecutable(graph, make, template, lambda made: compile_graph(made, "CPU"))
    _check(run, graph, record, case, first)
    assert not raised
    if record.op.startswith(_UNCHECKED):
        return
    for _ in range(2):
        # Integers may be places, which have to stay within.
        places = record.name in _PLACES or any(
            np.dtype(operand.dtype).kind in "iu" or operand.low >= 0 or operand.values is not None
            for operand in case.operands)
        least = {name: size if places else 1 for name, size in hint.items()}
        values = {name: data.draw(st.one_of(st.just(size), st.integers(least[name], least[name] + 11)))
                  for name, size in hint.items()}
        other = _resized(case, symbols, values)
        expected = _native(record, other, seed, parameters) if other is not None else None
        if other is not None and expected is not None:
            with contextlib.suppress(NGraphError):  # what MXNet takes and we do not
                _check(run, graph, record, other, expected)
    assert all(isinstance(error, NGraphError) for error in raised)


def _check(run: RangeExecutable, graph: Graph, record: Record, case: Case,
           native: tuple[Arrays, list[np.ndarray]]) -> None:
    arrays, expected = native
    found = run(*(arrays[parameter.name] for parameter in graph.parameters))
    tolerance = record.tolerance
    if any(array.dtype == np.float16 for array in arrays.values()):
        tolerance = max(tolerance, 1e-2)
    for index in range(len(expected)):
        _agree(found[index], expected[index], tolerance, record.steps, f"{case}: output {index}")


@pytest.mark.parametrize(("begin", "end"), [(1, None), (None, -2), (-3, None), (2, 5), (-4, -1), (0, 100)])
def test_a_slice_of_a_range_is_one(begin: int | None, end: int | None) -> None:
    """Bounds count from either end of sizes that are symbols: nothing is assumed but that something is left."""
    data = mx.sym.var("x0")
    both = mx.sym.Group([mx.sym.slice_axis(data, axis=1, begin=begin or 0, end=end),
                         mx.sym.slice(data, begin=(None, begin), end=(None, end))])
    length = size_symbol("L", 4, 50)
    with assuming(Guards({"L": 9})) as guards:
        graph = import_symbol(both.tojson(), {"x0": (2, length, 3)}, {"x0": "float32"})
    assert not [str(guard) for guard in guards.found.values() if guard.is_narrow]
    for size in (7, 9, 23):
        x = np.random.default_rng(size).standard_normal((2, size, 3)).astype(np.float32)
        found = compile_graph(graph.at({"L": size}), "INTERPRETER")(x)
        for result in found:
            np.testing.assert_array_equal(result, x[:, begin:end])
