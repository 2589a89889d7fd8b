"""One application of an operator: natively in MXNet, and through the IR on a backend."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import ngraph_mxnet  # noqa: F401  (makes mxnet importable on current NumPy)

# isort: split
import mxnet as mx
import numpy as np
from mxnet.symbol._internal import _symbol_creator
from mxnet_registry import operator
from records import Case, Operand, Record

from ngraph_mxnet.frontends.mxnet.importer import import_symbol
from ngraph_mxnet.ir import Graph
from ngraph_mxnet.program.compile import compile as compile_graph

Arrays = dict[str, np.ndarray]


def build(op: str, case: Case, *, numpy: bool = False) -> mx.sym.Symbol:
    """The symbol, its operands named x0, x1, ...; `numpy` as `Record.numpy`."""
    if case.symbol is not None:
        return case.symbol(*(mx.sym.var(f"x{i}") for i in range(len(case.operands))))
    if case.body:
        return mx.sym.load_json(json.dumps(_with_body(op, case)))
    known = operator(op)
    variables = [mx.sym.var(f"x{i}") for i in range(len(case.operands))]
    attrs = {key: str(value) for key, value in case.attrs.items()}
    if known.counted:
        attrs.setdefault(known.counted, str(len(variables)))
    with mx.util.np_shape(numpy):
        return _symbol_creator(known.handle, variables, None, list(attrs), list(attrs.values()), "op", False, False)


def _with_body(op: str, case: Case) -> dict[str, Any]:
    """The JSON of a symbol whose operator carries a graph."""
    count = len(case.operands)
    nodes = [_variable(f"x{i}") for i in range(count)]
    nodes.append({**_node(op, "op", case.attrs, range(count)), "subgraphs": [_chain(case)]})
    return _graph(nodes, [[count, i, 0] for i in range(case.outputs)])


def _chain(case: Case) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = [_variable("y0")]
    last = 0
    for op, attrs, more in case.body:
        first = len(nodes)
        nodes += [_variable(f"y{first + i}") for i in range(more)]
        nodes.append(_node(op, f"inner{first}", attrs, [last, *range(first, first + more)]))
        last = len(nodes) - 1
    return _graph(nodes, [[last, 0, 0]])


def _variable(name: str) -> dict[str, Any]:
    return {"op": "null", "name": name, "inputs": []}


def _node(op: str, name: str, attrs: dict[str, Any], inputs: Iterable[int]) -> dict[str, Any]:
    return {"op": op, "name": name, "attrs": {key: str(value) for key, value in attrs.items()},
            "inputs": [[i, 0, 0] for i in inputs]}


def _graph(nodes: list[dict[str, Any]], heads: list[list[int]]) -> dict[str, Any]:
    version = {"mxnet_version": ["int", 10901]}  # without one MXNet takes it for an old file
    return {"nodes": nodes, "arg_nodes": [i for i, node in enumerate(nodes) if node["op"] == "null"], "heads": heads,
            "attrs": version}


def arrays_for(symbol: mx.sym.Symbol, case: Case, seed: int, *, numpy: bool = False) -> Arrays:
    """Data for every input of the symbol."""
    rng = np.random.default_rng(seed)
    given = {f"x{i}": operand for i, operand in enumerate(case.operands)}
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    if {*names} <= {*given}:
        return {name: operand.array(rng) for name, operand in given.items()}
    with mx.util.np_shape(numpy):
        shapes, _, states = symbol.infer_shape(**{name: operand.shape for name, operand in given.items()})
    types, _, state_types = symbol.infer_type(**{name: np.dtype(operand.dtype) for name, operand in given.items()})
    drawn = {}
    for name, shape, dtype in zip(names, [*shapes, *states], [*types, *state_types], strict=True):
        operand = given.get(name) or _parameter(case, name, shape, np.dtype(dtype).name)
        drawn[name] = operand.array(rng)
    return drawn


def _parameter(case: Case, name: str, shape: tuple[int, ...], dtype: str) -> Operand:
    for end, operand in case.parameters.items():
        if name.endswith(end):
            return Operand(shape, dtype, operand.low, operand.high, operand.values)
    positive = name.endswith("var")
    return Operand(shape, dtype, low=0.1 if positive else -2.0)


def run_native(symbol: mx.sym.Symbol, arrays: Arrays, *, numpy: bool = False) -> list[np.ndarray]:
    """MXNet's own outputs."""
    with mx.util.np_shape(numpy):
        states = set(symbol.list_auxiliary_states())
        values = {name: mx.nd.array(array, dtype=array.dtype) for name, array in arrays.items()}
        executor = symbol.bind(mx.cpu(), {n: v for n, v in values.items() if n not in states}, grad_req="null",
                               aux_states={n: v for n, v in values.items() if n in states})
        return [output.asnumpy() for output in executor.forward(is_train=False)]


def import_case(symbol: mx.sym.Symbol, arrays: Arrays) -> Graph:
    return import_symbol(symbol.tojson(), {name: array.shape for name, array in arrays.items()},
                         {name: array.dtype.name for name, array in arrays.items()})


def run_ours(graph: Graph, arrays: Arrays, backend: str) -> list[np.ndarray]:
    return list(compile_graph(graph, backend)(*(arrays[parameter.name] for parameter in graph.parameters)))


def compare(record: Record, case: Case, backend: str, seed: int) -> None:
    """Shapes and dtypes are equal, values agree as the record says."""
    symbol = build(record.op, case, numpy=record.numpy)
    if record.outputs is not None:
        symbol = mx.sym.Group([symbol[i] for i in record.outputs])
    arrays = arrays_for(symbol, case, seed, numpy=record.numpy)
    expected = run_native(symbol, arrays, numpy=record.numpy)
    found = run_ours(import_case(symbol, arrays), arrays, backend)
    tolerance = record.tolerance
    if any(array.dtype == np.float16 for array in arrays.values()):
        tolerance = max(tolerance, 1e-2)
    for index in range(len(expected)):
        _agree(found[index], expected[index], tolerance, record.steps, f"{case}: output {index}")


def _agree(found: np.ndarray, expected: np.ndarray, tolerance: float, steps: int, what: str) -> None:
    kinds = [f"{array.dtype}{list(array.shape)}" for array in (found, expected)]
    assert kinds[0] == kinds[1], f"{what}: found {kinds[0]}, expected {kinds[1]}"
    if expected.dtype.kind != "f":
        if not steps:
            np.testing.assert_array_equal(found, expected, err_msg=what)
            return
        whole = [array.astype(np.int64) for array in (found, expected)]
        np.testing.assert_allclose(*whole, rtol=0, atol=steps + 1e-6 * np.abs(whole[1]).max(initial=0), err_msg=what)
        return
    if expected.dtype == np.float16:
        tolerance = max(tolerance, 1e-2)
    wide, theirs = found.astype(np.float64), expected.astype(np.float64)
    finite = np.abs(theirs[np.isfinite(theirs)])
    largest = finite.max() if finite.size else 0.0
    np.testing.assert_allclose(wide, theirs, rtol=tolerance, atol=tolerance * min(largest, 1.0) + 1e-30, err_msg=what)
