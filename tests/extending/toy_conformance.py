"""The toy rule's record in the table of `tests/conformance`: pytest loads this as a plugin, in a process of its own."""

from __future__ import annotations

import toy_mxnet_rule  # noqa: F401  (registers the rule)
from families import RECORDS
from hypothesis import strategies as st
from records import Case, Draw, Operand, Record, pick


def _images(draw: Draw) -> Case:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=2, max_size=3)))
    return Case([Operand((*shape, pick(draw, 3, 1)), "uint8", low=0, high=255)])


RECORDS.append(Record("_image_to_tensor", _images))
