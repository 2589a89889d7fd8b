"""The values that ONNX Runtime computes for a model, intermediate values included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from ngraph_mxnet.base.errors import ConfigError, ModelError, listed
from ngraph_mxnet.frontends.onnx.importer import Imported, import_model
from ngraph_mxnet.frontends.onnx.inputs import Shapes
from ngraph_mxnet.frontends.onnx.model import Model, copy_of


def with_all_outputs(model: Model) -> Model:
    """The model, all values that the nodes of its graph compute being outputs behind its own."""
    proto = copy_of(model.proto)
    known = {value.name for value in proto.graph.output}
    for node in proto.graph.node:
        for name in node.output:
            if name and name not in known:
                known.add(name)
                proto.graph.output.append(onnx.ValueInfoProto(name=name))
    return replace(model, proto=proto)


def with_weights_of(model: Model, other: Model) -> Model:
    """The model with the initialisers of another one, by name. Raises ModelError: the other one lacks one, or has it in
    another shape or type."""
    theirs = {tensor.name: tensor for tensor in other.proto.graph.initializer}
    proto = copy_of(model.proto)
    for tensor in proto.graph.initializer:
        found = theirs.get(tensor.name)
        if found is None:
            raise ModelError(f"the model of the reference's weights has no initialiser {tensor.name!r}; it has "
                             f"{listed(theirs, tensor.name) or 'none'}")
        if (found.data_type, list(found.dims)) != (tensor.data_type, list(tensor.dims)):
            raise ModelError(f"initialiser {tensor.name!r} of the reference's weights: found {_type(found)}, expected "
                             f"{_type(tensor)}")
        tensor.CopyFrom(found)
    return replace(model, proto=proto, folder=other.folder)


def _type(tensor: onnx.TensorProto) -> str:
    return f"{onnx.TensorProto.DataType.Name(tensor.data_type).lower()}{list(tensor.dims)}"


def import_for_inputs(model: Model, inputs: Mapping[str, np.ndarray]) -> Imported:
    """The model's graph as a whole, for these inputs: their elements may decide about shapes. Raises ModelError or
    UnsupportedError: as `import_model`."""
    shapes: Shapes = {name: array.shape for name, array in inputs.items()}
    return import_model(model, shapes, inputs)


def runtime_version() -> str | None:
    """ONNX Runtime's; None where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    return str(onnxruntime.__version__)


def runtime_results(model: Model, inputs: Mapping[str, np.ndarray], names: Sequence[str]) -> list[Any]:
    """The outputs of these names, as ONNX Runtime computes them with no optimisation of its own.

    Raises:
        ConfigError: it is not installed.
        ModelError: it refuses the model, or fails.
    """
    try:
        import onnxruntime
    except ImportError:
        raise ConfigError("ONNX Runtime is not installed: pip install onnxruntime, or compare with the definitions of "
                          "this package: --against interpreter") from None
    proto = model.proto
    if model.folder is not None and any(onnx.external_data_helper.uses_external_data(tensor)
                                        for tensor in proto.graph.initializer):
        proto = copy_of(proto)
        onnx.load_external_data_for_model(proto, str(model.folder))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results: list[Any] = session.run(list(names), dict(inputs))
    except Exception as error:  # its C++ throws what it likes
        raise ModelError(f"ONNX Runtime can't run the model: {error}") from None
    return results
