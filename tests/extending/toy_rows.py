"""The toys' rows in the tables of `tests/backend`: pytest loads this as a plugin, in a process of its own."""

from __future__ import annotations

import toy_kernel  # noqa: F401  (registers the op, and how the CPU runs it)
from hypothesis import strategies as st
from op_records import RECORDS, Case, Draw, Record
from refusals import REFUSALS

from ngraph_mxnet.ir import TensorType, element_type
from ngraph_mxnet.program.backend import backends


def _images(draw: Draw) -> Case:
    shape = draw(st.lists(st.integers(1, 6), min_size=3, max_size=4))
    return [TensorType(element_type(draw(st.sampled_from(("u8", "f32")))), tuple(shape))], {"largest": 255.0}


RECORDS["image_to_tensor"] = Record("image_to_tensor", _images)
if "TOY" in backends():
    REFUSALS["TOY"] = {"the toy has no float64": REFUSALS["NNP"]["the device has no float64"] + " stop_gradient"}
