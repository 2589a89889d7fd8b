"""Every row of the operator table as ONNX: checked, read back, and with ONNX Runtime, against the definitions."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from families import RECORDS
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from records import Record
from runs import arrays_for, build, import_case

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.model import model_of
from ngraph_mxnet.frontends.onnx.model import read_model
from ngraph_mxnet.frontends.onnx.reference import runtime_results
from ngraph_mxnet.frontends.onnx.writer import OPSETS
from ngraph_mxnet.frontends.onnx.writer.model import written
from ngraph_mxnet.ir import Graph
from ngraph_mxnet.ir.module import result_names
from ngraph_mxnet.program.compile import compile as compile_graph

FEW, MANY = 2, 40

every_record = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)


def cases(record: Record, draws: int, opset: int, check) -> None:
    """Call `check` with the graph, its arrays, what the definitions make of them, and the ONNX model."""
    @seed(0)
    @settings(max_examples=draws)
    @given(st.data())
    def each(data: st.DataObject) -> None:
        import mxnet as mx

        case = record.case(data.draw)
        symbol = build(record.op, case, numpy=record.numpy)
        if record.outputs is not None:
            symbol = mx.sym.Group([symbol[place] for place in record.outputs])
        arrays = arrays_for(symbol, case, 0, numpy=record.numpy)
        graph = import_case(symbol, arrays)
        ops = {node.op.name for node in graph.nodes}
        if opset < 18 and any(op.startswith("bitwise") for op in ops):
            with pytest.raises(UnsupportedError, match="the model can't be written as ONNX"):
                written(graph, {}, opset)
            return
        proto = written(graph, {}, opset)
        onnx.checker.check_model(proto, full_check=True)
        with np.errstate(all="ignore"):
            expected = compile_graph(graph, "INTERPRETER")(*(arrays[value.name] for value in graph.parameters))
        check(graph, arrays, expected, proto)

    each()


def agree(found: np.ndarray, expected: np.ndarray) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected)
        return
    share = 2e-3 if expected.dtype == np.float16 else 1e-4
    wide = expected.astype(np.float64)
    scale = float(np.abs(wide[np.isfinite(wide)]).max(initial=1e-3))
    np.testing.assert_allclose(found.astype(np.float64), wide, share, share * scale)


def read(proto: onnx.ModelProto, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {value.name: np.asarray(arrays[value.name]) for value in proto.graph.input}


def read_back(graph: Graph, arrays: Mapping[str, np.ndarray], expected: list[np.ndarray],
              proto: onnx.ModelProto) -> None:
    inputs = read(proto, arrays)
    executable = model_of(proto).executable({name: array.shape for name, array in inputs.items()}, "INTERPRETER", {})
    with np.errstate(all="ignore"):
        results = executable(*(inputs[port.name] for port in executable.inputs))
    assert [port.name for port in executable.outputs] == list(result_names(graph))
    for found, right in zip(results, expected, strict=True):
        agree(np.asarray(found), np.asarray(right))


def by_runtime(graph: Graph, arrays: Mapping[str, np.ndarray], expected: list[np.ndarray],
               proto: onnx.ModelProto) -> None:
    try:
        results = runtime_results(read_model(proto), read(proto, arrays), result_names(graph))
    except ModelError as error:
        if "NOT_IMPLEMENTED" in str(error):  # of some element types
            return
        raise
    for found, right in zip(results, expected, strict=True):
        agree(np.asarray(found), np.asarray(right))


@every_record
def test_read_back(record: Record) -> None:
    cases(record, FEW, OPSETS[0], read_back)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [OPSETS[0], 18, 20, OPSETS[-1]])
@every_record
def test_many_draws(record: Record, opset: int) -> None:
    cases(record, MANY, opset, read_back)


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None,
                    reason="onnxruntime of the extra bench is not installed")
@every_record
def test_by_onnx_runtime(record: Record) -> None:
    cases(record, FEW, OPSETS[0], by_runtime)
