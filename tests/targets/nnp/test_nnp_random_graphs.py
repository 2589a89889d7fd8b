"""Any graph can be quantised: conversions where they are needed, results of the right types."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import graphs

from ngraph_mxnet.ir.graph import Graph, verify
from ngraph_mxnet.passes.pipelines import optimize
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.targets.nnp.quantization import on_grid, uniform
from ngraph_mxnet.targets.nnp.quantize import quantize, quantized_reference


def sample(graph: Graph, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=parameter.shape).astype(parameter.type.element.numpy) for parameter in graph.parameters]


@given(graphs(), st.integers(0, 99))
def test_all_in_float32_is_the_interpreter(graph, seed):
    arrays = sample(graph, seed)
    expected = compile(graph, "INTERPRETER")(*arrays)
    for found, exact in zip(quantized_reference(graph, uniform(graph, {}, "f32"), arrays), expected, strict=True):
        assert found.dtype == exact.dtype
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["i8", "f16", "bf16"])
@given(graphs(), st.integers(0, 99))
def test_elements_fit_what_reads_them(name, graph, seed):
    optimize(graph)
    arrays = sample(graph, seed)
    known = {p: array for p, array in zip(graph.parameters, arrays, strict=True) if p.is_weight}
    element = "f16" if name == "i8" else name
    q = quantize(graph, known, [arrays]) if name == "i8" else uniform(graph, known, name)
    verify(graph)
    assert set(q.elements) == set(graph.values())
    for node in graph.nodes:
        if on_grid(node):
            assert {q.elements[v] for v in node.inputs[:2]} == {"i8" if node in q.products else element}
    for value, stored in q.elements.items():
        assert (stored == "i8") == (value in q.scales or value in q.weights)
    found = quantized_reference(graph, q, arrays)
    assert [(a.shape, a.dtype) for a in found] == [(v.shape, v.type.element.numpy) for v in graph.results]
