"""Resize as the IR's op of images, which keeps their layout, where it means the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_models import model, value

from ngraph_mxnet.frontends.onnx.executable import ModelExecutable
from ngraph_mxnet.frontends.onnx.model import read_model
from ngraph_mxnet.ir import count_ops

MODES = {"coordinate_transformation_mode": ["asymmetric", "half_pixel", "align_corners"],
         "nearest_mode": ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]}


@given(st.tuples(st.integers(1, 5), st.integers(1, 5)), st.tuples(st.integers(1, 9), st.integers(1, 9)),
       st.fixed_dictionaries({name: st.sampled_from(values) for name, values in MODES.items()}))
def test_nearest(size: tuple[int, int], out: tuple[int, int], attrs: dict[str, str]) -> None:
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest", **attrs)
    proto = model([node], [value("x", [1, 2, *size])], [value("y", [1, 2, *out])],
                  {"sizes": np.array([1, 2, *out], np.int64)})
    x = np.arange(2 * size[0] * size[1], dtype=np.float32).reshape(1, 2, *size)
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_array_equal(ModelExecutable(read_model(proto), "CPU", None, {})(x)[0], wanted)


@pytest.mark.parametrize(("factor", "attrs", "op"), [
    (2.0, {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, "resize"),
    (2.0, {}, "resize"), (0.5, {}, "resize"), (2.0, {"nearest_mode": "ceil"}, "gather"),
])
def test_one_op_where_it_means_the_same(factor: float, attrs: dict[str, str], op: str) -> None:
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest", **attrs)
    proto = model([node], [value("x", [1, 2, 4, 6])], [value("y", None)],
                  {"scales": np.array([1, 1, factor, factor], np.float32)})
    graph = ModelExecutable(read_model(proto), "CPU", None, {}).import_for({"x": (1, 2, 4, 6)}).graph
    assert {"resize", "gather"} & set(count_ops(graph.nodes)) == {op}
