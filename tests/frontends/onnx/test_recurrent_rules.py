"""RNN, LSTM and GRU: the IR's own recurrence and the steps one by one agree. (ONNX's cases: test_suite.py.)"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_models import model, value

import ngraph_mxnet
from ngraph_mxnet.frontends.onnx.importer import import_model
from ngraph_mxnet.frontends.onnx.model import read_model

GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}


@pytest.mark.parametrize("backend", ["CPU", "INTERPRETER"])
@settings(max_examples=12, deadline=None)
@given(op=st.sampled_from(sorted(GATES)), steps=st.integers(1, 5), batch=st.integers(1, 3), size=st.integers(1, 6),
       units=st.integers(1, 20), direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
       bias=st.booleans(), before_reset=st.booleans(), seed=st.integers(0, 99))
def test_steps_and_the_fused_op_agree(backend: str, op: str, steps: int, batch: int, size: int, units: int,
                                      direction: str, bias: bool, before_reset: bool, seed: int) -> None:
    random, count = np.random.default_rng(seed), 2 if direction == "bidirectional" else 1
    gates = GATES[op] * units
    shapes = {"W": (count, gates, size), "R": (count, gates, units), **({"B": (count, 2 * gates)} if bias else {}),
              "h": (count, batch, units), **({"c": (count, batch, units)} if op == "LSTM" else {})}
    arrays = {name: random.uniform(-0.7, 0.7, shape).astype(np.float32) for name, shape in shapes.items()}
    outputs = ["Y", "Yh", *(["Yc"] if op == "LSTM" else [])]
    results = []
    for lengths in ("", "lengths"):
        names = ["X", "W", "R", "B" if bias else "", lengths, "h", *(["c"] if op == "LSTM" else [])]
        node = helper.make_node(op, names, outputs, direction=direction, hidden_size=units,
                                **({"linear_before_reset": int(before_reset)} if op == "GRU" else {}))
        inputs = [value("X", [steps, batch, size])]
        if lengths:
            inputs.append(value("lengths", [batch], TensorProto.INT32))
        proto = model([node], inputs, [value(name, None) for name in outputs], arrays)
        ops = [n.op.name for n in import_model(read_model(proto)).graph.nodes]
        assert ("rnn" in ops or "gru_reset_first" in ops) == (not lengths)
        feeds = [np.random.default_rng(seed + 1).standard_normal((steps, batch, size), dtype=np.float32)]
        if lengths:
            feeds.append(np.full(batch, steps, np.int32))
        results.append(ngraph_mxnet.compile(proto, backend)(*feeds))
    for fused, unrolled in zip(*results, strict=True):
        np.testing.assert_allclose(fused, unrolled, rtol=1e-4, atol=1e-5)
