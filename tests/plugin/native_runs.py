"""Runs a symbol natively and through the IR, on the same random arrays."""

from __future__ import annotations

import json

import ngraph_mxnet  # noqa: F401  (makes mxnet importable on current NumPy)

# isort: split
import mxnet as mx
import numpy as np

from ngraph_mxnet.frontends.mxnet.importer import import_symbol
from ngraph_mxnet.ir import Graph, verify

Shapes = dict[str, tuple[int, ...]]


def all_shapes(symbol: mx.sym.Symbol, shapes: Shapes) -> Shapes:
    arguments, _, states = symbol.infer_shape(**shapes)
    return {**dict(zip(symbol.list_arguments(), arguments, strict=True)),
            **dict(zip(symbol.list_auxiliary_states(), states, strict=True))}


def import_mxnet(symbol: mx.sym.Symbol, **shapes: tuple[int, ...]) -> Graph:
    graph = import_symbol(symbol.tojson(), all_shapes(symbol, shapes))
    verify(graph)
    return graph


def random_arrays(shapes: Shapes, seed: int, low: float = -2.0, high: float = 2.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = {name: rng.uniform(low, high, shape).astype(np.float32) for name, shape in shapes.items()}
    for name in arrays:
        if name.endswith("var"):
            arrays[name] = np.abs(arrays[name]) + 0.1
    return arrays


def run_native(symbol: mx.sym.Symbol, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    states = set(symbol.list_auxiliary_states())
    values = {name: mx.nd.array(array, dtype=array.dtype) for name, array in arrays.items()}
    executor = symbol.bind(mx.cpu(), {n: v for n, v in values.items() if n not in states}, grad_req="null",
                           aux_states={n: v for n, v in values.items() if n in states})
    return [output.asnumpy() for output in executor.forward(is_train=False)]


def run_one_by_one(symbol: mx.sym.Symbol, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What MXNet's operators give, each bound alone.

    In one graph MKL-DNN overwrites values that are read later, such as x of x + BatchNorm(x) after a convolution.
    """
    graph = json.loads(symbol.tojson())
    results: list[list[np.ndarray]] = []
    for node in graph["nodes"]:
        if node["op"] == "null":
            results.append([arrays[node["name"]]])
            continue
        given = {f"x{i}": results[source][output] for i, (source, output, _) in enumerate(node["inputs"])}
        variables = [{"op": "null", "name": name, "inputs": []} for name in given]
        operator = {**node, "inputs": [[i, 0, 0] for i in range(len(given))]}
        alone = {"nodes": [*variables, operator], "arg_nodes": list(range(len(given))), "heads": [[len(given), 0, 0]],
                 "attrs": graph["attrs"]}
        outputs = list(mx.sym.load_json(json.dumps(alone)).get_internals())[len(given):]
        results.append(run_native(mx.sym.Group(outputs), given))
    return [results[source][output] for source, output, _ in graph["heads"]]


def evaluate(graph: Graph, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    values = {parameter: arrays[parameter.name] for parameter in graph.parameters}
    for node in graph.nodes:
        results = node.op.evaluate([values[operand] for operand in node.inputs], node.attrs)
        values.update(zip(node.outputs, results, strict=True))
    return [values[result] for result in graph.results]


def compare(symbol: mx.sym.Symbol, shapes: Shapes, *, seed: int = 0, rtol: float = 1e-4, atol: float = 1e-5,
            low: float = -2.0, high: float = 2.0) -> Graph:
    """Both runs agree, in shape too; returns the graph."""
    graph = import_mxnet(symbol, **shapes)
    arrays = random_arrays(all_shapes(symbol, shapes), seed, low, high)
    expected, found = run_native(symbol, arrays), evaluate(graph, arrays)
    assert [f.shape for f in found] == [e.shape for e in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
    return graph
