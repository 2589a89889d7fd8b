"""The gradients of every operator of the table against native MXNet's, on the interpreter.

Where MXNet says that it has none of an operator, or the operator is not trained here, a draw shows nothing; the last
test counts those that do show something.
"""

from __future__ import annotations

import os
from collections import Counter

import mxnet as mx
import numpy as np
import pytest
from families import RECORDS
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from records import Case, Record
from runs import Arrays, arrays_for, build

from ngraph_mxnet.autodiff import differentiate
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.ir import TensorType, element_type
from ngraph_mxnet.ir.types import RANDOM_STATE
from ngraph_mxnet.plugin.training.graph import import_training
from ngraph_mxnet.program.compile import compile as compile_graph

FEW, MANY = 2, int(os.environ.get("CONFORMANCE_DRAWS", "200"))
TOLERANCE, OF_HALF = 1e-3, 2e-2
NATIVE_ENDS = {
    "gather_nd": "MXNet's backward writes outside its arrays for negative indices",
    "LRN": "MXNet's backward ends the process for one channel",
    "sort": "MXNet's backward can't read its own attributes",
    "_npi_rot90": "MXNet's backward turns the wrong way",
}
"""Operators whose own backward ends the process, can't be called, or is wrong."""
ROUGH_IN_HALF = {"_hypot", "_npi_hypot", "_mod"}
"""MXNet computes these gradients in float16, whose squares underflow and whose quotients round over whole numbers."""
LEFT_OUT = {("act_type", "rrelu"): "it draws random numbers",
            ("mode", "like"): "MXNet's backward of BilinearResize2D writes outside its arrays"}
"""Attributes of draws that are left out."""

every_record = pytest.mark.parametrize("record", [record for record in RECORDS if record.op not in NATIVE_ENDS],
                                       ids=lambda record: record.name)

Native = tuple[list[np.ndarray], list[np.ndarray], Arrays, Arrays]
seen: Counter[str] = Counter()


def native_step(symbol: mx.sym.Symbol, arrays: Arrays, wanted: list[str], number: int, *, numpy: bool) -> Native | None:
    """Outputs, head gradients, gradients and states after a step; None where MXNet has no gradients."""
    states = set(symbol.list_auxiliary_states())
    rng = np.random.default_rng(number)
    with mx.util.np_shape(numpy):
        values = {name: mx.nd.array(array, dtype=array.dtype) for name, array in arrays.items()}
        grads = {name: mx.nd.zeros(arrays[name].shape, dtype=arrays[name].dtype) for name in wanted}
        requests = {name: "write" if name in wanted else "null" for name in symbol.list_arguments()}
        try:
            executor = symbol.bind(mx.cpu(), {n: v for n, v in values.items() if n not in states}, grads, requests,
                                   {n: v for n, v in values.items() if n in states})
            outputs = [output.asnumpy() for output in executor.forward(is_train=True)]
            given_heads = [rng.standard_normal(output.shape).astype(output.dtype) for output in outputs]
            executor.backward([mx.nd.array(head, dtype=head.dtype) for head in given_heads])
            return (outputs, given_heads, {name: grad.asnumpy() for name, grad in grads.items()},
                    {name: values[name].asnumpy() for name in states})
        except mx.MXNetError:
            return None


def left_out(record: Record, case: Case) -> bool:
    """Draws whose gradients are other ones by design, or wrong in MXNet."""
    if any(case.attrs.get(name) == value for name, value in LEFT_OUT):
        return True
    if str(case.attrs.get("dtype")).startswith(("int", "uint", "bool")):
        return True  # here nothing goes back from integers, in MXNet what came
    if record.op in ROUGH_IN_HALF and any(operand.dtype == "float16" for operand in case.operands):
        return True
    # MXNet sums the gradient of a broadcast operand of rank 4 and more along another axis.
    return record.op == "_npi_matmul" and max(len(operand.shape) for operand in case.operands) > 3


def compare(record: Record, case: Case, number: int) -> None:
    symbol = build(record.op, case, numpy=record.numpy)
    if record.outputs is not None:
        symbol = mx.sym.Group([symbol[i] for i in record.outputs])
    arrays = arrays_for(symbol, case, number, numpy=record.numpy)
    floats = [name for name in symbol.list_arguments() if arrays[name].dtype.kind == "f"]
    for wanted in (floats, *([name] for name in floats if len(floats) > 1)):
        native = native_step(symbol, arrays, wanted, number, numpy=record.numpy) if wanted else None
        if native is not None:
            compare_with(native, symbol, arrays, wanted, record, case)
            return
    seen["MXNet has none"] += 1


def compare_with(native: Native, symbol: mx.sym.Symbol, arrays: Arrays, wanted: list[str], record: Record,
                 case: Case) -> None:
    outputs, heads, gradients, states = native
    types = {name: TensorType(element_type(array.dtype), array.shape) for name, array in arrays.items()}
    try:
        training = import_training(symbol.tojson(), types, wanted)
        numbers = [i for i in range(training.outputs) if training.graph.results[i].type.element.is_float]
        joint = differentiate(training.graph, wanted, heads=numbers)
    except UnsupportedError:
        seen["not trained"] += 1
        return
    if any(p.name == RANDOM_STATE for p in joint.graph.parameters):
        seen["draws random numbers"] += 1
        return
    given_arrays = [arrays[p.name] if p.name in arrays else heads[int(p.name.removeprefix("head."))]
                    for p in joint.graph.parameters]
    found = compile_graph(joint.graph, "INTERPRETER")(*given_arrays)
    half = any(array.dtype == np.float16 for array in [*arrays.values(), *outputs])
    tolerance = OF_HALF if half else max(TOLERANCE, record.tolerance)
    for number, one in enumerate(training.statistics, training.outputs):
        found[number] = found[number] * np.float32(1 - one.momentum) + arrays[one.name] * np.float32(one.momentum)
    moved, ones = [one.name for one in training.statistics], [gamma.name for gamma in training.gammas]
    expected = [*outputs, *(states[name] for name in moved), *(np.ones_like(arrays[name]) for name in ones),
                *(gradients[name] for name in wanted)]
    names = [*symbol.list_outputs(), *moved, *ones, *(f"the gradient of {name}" for name in wanted)]
    for name, ours, theirs in zip(names, found, expected, strict=True):
        assert ours.shape == theirs.shape, f"{case}: {name}"
        wide, own = theirs.astype(np.float64), ours.astype(np.float64)
        if name.startswith("the gradient"):  # beyond float32 it is infinite or NaN by what is computed first
            beyond = ~np.isfinite(wide)
            assert not np.isfinite(own[beyond]).any(), f"{case}: {name}"
            wide, own = wide[~beyond], own[~beyond]
        largest = min(1.0, np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
        np.testing.assert_allclose(own, wide, rtol=tolerance, atol=tolerance * largest + (1e-3 if half else 1e-6),
                                   err_msg=f"{case}: {name}")
    seen["the same"] += 1


def _check(record: Record, draws: int) -> None:
    @seed(0)
    @settings(max_examples=draws, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        case = record.case(data.draw)
        if not left_out(record, case):
            compare(record, case, data.draw(st.integers(0, 2**16)))

    check()


@every_record
def test_gradients_agree(record: Record) -> None:
    _check(record, FEW)


@pytest.mark.slow
@every_record
def test_many_gradients_agree(record: Record) -> None:
    _check(record, MANY)


def test_gradients_of_layers_agree() -> None:
    """What must not be left out without notice."""
    for op in ("FullyConnected", "Convolution", "BatchNorm", "Pooling", "SoftmaxOutput", "softmax", "Embedding",
               "elemwise_add", "broadcast_mul", "dot", "LayerNorm", "Activation", "Concat", "Deconvolution"):
        before = seen["the same"]
        _check(next(record for record in RECORDS if record.op == op), 8)
        assert seen["the same"] > before, op
