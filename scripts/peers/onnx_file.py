"""Writes a copy of an ONNX file whose input has a fixed shape, and random inputs for it. A process of its own.

    python -m peers.onnx_file FILE.onnx[DIMSxDIMS] BATCH FOLDER

All peers read the copy, so that each may fold what depends on shapes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from peers.nets import save_inputs
from peers.spec import file_prefix, input_shape, onnx_file

SEED, INPUTS = 7, 8
#: Integers are taken for bytes.
BELOW = 256


def write_model(model: str, batch: int, folder: Path) -> None:
    """Write `PREFIX-bN.onnx` and `PREFIX-bN.npy`, the inputs last: where they exist, both do.

    Raises:
        ValueError: the model has several inputs, or another number of dimensions.
    """
    found = onnx_file(model)
    assert found is not None
    proto, shape = onnx.load(found[0]), input_shape(model, batch)
    held = {tensor.name for tensor in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in held]
    if len(inputs) != 1:
        raise ValueError(f"{found[0]} has {len(inputs)} inputs, expected one")
    tensor = inputs[0].type.tensor_type
    if len(tensor.shape.dim) != len(shape):
        raise ValueError(f"{found[0]} takes {len(tensor.shape.dim)} dimensions, found with the batch {shape}")
    for dim, size in zip(tensor.shape.dim, shape, strict=True):
        dim.dim_value = size
    for value in (*proto.graph.output, *proto.graph.value_info):  # what they say of the old shape
        value.type.tensor_type.ClearField("shape")
    prefix = folder / f"{file_prefix(model)}-b{batch}"
    onnx.save(proto, f"{prefix}.onnx")
    random, dtype = np.random.default_rng(SEED), helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    arrays = (random.standard_normal((INPUTS, *shape)) if dtype.kind == "f"
              else random.integers(0, BELOW, (INPUTS, *shape))).astype(dtype)
    save_inputs(prefix, arrays)


if __name__ == "__main__":
    write_model(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
