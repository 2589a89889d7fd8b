"""The adapter to `onnx.backend.base`: `prepare(model).run(inputs)`, on the backend that the device names.

Its device `CPU` is our backend CPU; `INTERPRETER` is taken too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.frontends.onnx.executable import ModelExecutable
from ngraph_mxnet.frontends.onnx.model import NEWEST, read_model
from ngraph_mxnet.program.backend import canonical_name


class NGraphBackendRep(BackendRep):
    """A prepared model."""

    def __init__(self, executable: ModelExecutable) -> None:
        self.executable = executable

    def run(self, inputs: Any, **kwargs: Any) -> tuple[np.ndarray, ...]:
        """`inputs`: one array, a list of them, or a dict by name."""
        if isinstance(inputs, (list, tuple)):
            return tuple(self.executable(*inputs))
        return tuple(self.executable(inputs))


class NGraphBackend(Backend):
    """See `onnx.backend.base.Backend`."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> NGraphBackendRep:
        """Compile `model`.

        Raises:
            ModelError, UnsupportedError, ConfigError: as `ngraph_mxnet.compile`.
        """
        return NGraphBackendRep(ModelExecutable(read_model(model), device, None, kwargs))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU",
                 outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
                 **kwargs: Any) -> tuple[Any, ...]:
        """Run one node of the newest operator set, on arrays in the order of its inputs."""
        opset = kwargs.pop("opset", NEWEST)
        arrays = [np.asarray(array) for array in inputs]
        names = [name for name in node.input if name]
        values = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                  for name, array in zip(names, arrays, strict=True)]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        for value, info in zip(results, outputs_info or (), strict=False):
            value.CopyFrom(helper.make_tensor_value_info(value.name, helper.np_dtype_to_tensor_dtype(np.dtype(info[0])),
                                                         info[1]))
        model = helper.make_model(helper.make_graph([node], node.op_type, values, results),
                                  opset_imports=[helper.make_opsetid(node.domain, opset)])
        return cls.run_model(model, dict(zip(names, arrays, strict=True)), device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        try:
            canonical_name(device)
        except NGraphError:
            return False
        return True


prepare = NGraphBackend.prepare
run_model = NGraphBackend.run_model
run_node = NGraphBackend.run_node
supports_device = NGraphBackend.supports_device
