"""ONNX's own node cases, read, written anew and run: by this package, and by ONNX Runtime where it is installed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from suite import node_cases

from ngraph_mxnet.base.errors import ModelError, NGraphError, UnsupportedError
from ngraph_mxnet.frontends.model import model_of
from ngraph_mxnet.frontends.onnx.model import read_model
from ngraph_mxnet.frontends.onnx.reference import runtime_results, runtime_version
from ngraph_mxnet.frontends.onnx.writer.model import written
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.program.differences import Tolerance
from ngraph_mxnet.program.differences import compare as compared

LACKING = ("NOT_IMPLEMENTED", "Non per-tensor quantization is not supported")
"""What ONNX Runtime says of operators, or of element types of them, that it doesn't have."""


@pytest.mark.slow
@pytest.mark.parametrize("opset", [17, 20, 23])
def test_node_cases(opset: int) -> None:
    counts = dict.fromkeys(("right", "refused", "not run"), 0)
    for case in node_cases():
        inputs, names = case.sets[0][0], [value.name for value in case.model.graph.input]
        arrays = {name: array for name, array in zip(names, inputs, strict=False) if isinstance(array, np.ndarray)}
        try:
            graph, weights = model_of(case.model).graph({name: array.shape for name, array in arrays.items()})()
            given = [arrays[value.name] for value in graph.parameters if value.name not in weights]
        except (NGraphError, KeyError):
            continue  # what the importer refuses as a whole, which test_suite.py judges
        try:
            proto = written(graph, weights, opset)
        except UnsupportedError:
            counts["refused"] += 1
            continue
        onnx.checker.check_model(proto, full_check=True)
        with np.errstate(all="ignore"):
            expected = compile_graph(graph, "INTERPRETER", weights)(*given)
            read = {value.name: arrays[value.name] for value in proto.graph.input}
            shapes = {name: array.shape for name, array in read.items()}
            results = [model_of(proto).executable(shapes, "INTERPRETER", {})(**read)]
        if runtime_version() is not None:
            try:
                results.append(runtime_results(read_model(proto), read, [value.name for value in proto.graph.output]))
            except ModelError as error:
                if not any(text in str(error) for text in LACKING):
                    raise
                counts["not run"] += 1
        for found in results:
            for one, right in zip(map(np.asarray, found), map(np.asarray, expected), strict=True):
                assert (one.dtype, one.shape) == (right.dtype, right.shape), case.name
                assert compared(one, right, Tolerance(2e-3 if right.dtype == np.float16 else 1e-4)).agrees, case.name
        counts["right"] += 1
    assert counts["right"] > 1200 and counts["refused"] < 40 and counts["not run"] < 30, counts
