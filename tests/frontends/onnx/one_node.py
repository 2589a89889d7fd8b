"""Models of one operator, run by ONNX Runtime and by us."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import ngraph_mxnet

BACKENDS = ["CPU", "INTERPRETER"]
Arrays = Sequence["np.ndarray | None"]


def of_one_node(op: str, arrays: Arrays, outputs: Sequence[str] = ("y",), held: Sequence[int] = (), domain: str =
                "com.microsoft", opset: int = 17, is_open: bool = False,
                **attributes: Any) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model and its inputs: those of `arrays` that are not None and not `held`, which are initialisers.

    is_open: the model says no sizes.
    """
    names = ["" if array is None else f"i{place}" for place, array in enumerate(arrays)]
    given = {name: np.asarray(array) for name, array in zip(names, arrays, strict=True) if array is not None}
    tensors = [numpy_helper.from_array(given.pop(f"i{place}"), f"i{place}") for place in held if names[place]]
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype),
                                            [None] * array.ndim if is_open else array.shape)
              for name, array in given.items()]
    graph = helper.make_graph([helper.make_node(op, names, outputs, domain=domain, **attributes)], "g", inputs,
                              [onnx.ValueInfoProto(name=name) for name in outputs if name], tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), given


def theirs(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's results, of a model as it is written."""
    import onnxruntime  # those who test with it ask for it first

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # with more, each thread rounds the state of its own rows of a batch
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def assert_same(op: str, arrays: Arrays, *, rtol: float = 1e-4, atol: float = 1e-5, **more: Any) -> None:
    """Both backends give ONNX Runtime's types and values; integers exactly."""
    proto, feeds = of_one_node(op, arrays, **more)
    expected = theirs(proto, feeds)
    for backend in BACKENDS:
        for found, wanted in zip(ngraph_mxnet.compile(proto, backend)(feeds), expected, strict=True):
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            if wanted.dtype.kind == "f":
                np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)
            else:
                np.testing.assert_array_equal(found, wanted)
