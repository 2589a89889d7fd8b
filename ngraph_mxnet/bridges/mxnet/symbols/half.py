"""float16: stored as MXNet has it, computed in float32.

MXNet rounds the result of each operator to float16. Here a value that was computed in float32 is read in float32 by all
that computes with it; only what someone reads as float16, such as a result of the graph, is rounded.
"""

from __future__ import annotations

from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import f16, f32


class Halves:
    """For float16 values that were rounded from a float32 value, or widened to one: that float32 value."""

    def __init__(self) -> None:
        self._wide: dict[Value, Value] = {}

    @property
    def used(self) -> bool:
        """Whether there are any. Then the graph may have conversions that no one reads."""
        return bool(self._wide)

    def has_wide(self, value: Value) -> bool:
        """Whether `value` exists in float32 already."""
        return value in self._wide

    def widened(self, b: Builder, value: Value) -> Value:
        """A float16 value in float32."""
        if value not in self._wide:
            self._wide[value] = b.convert(value, element=f32)
        return self._wide[value]

    def narrowed(self, b: Builder, value: Value) -> Value:
        """A float32 value rounded to float16, as MXNet stores it."""
        narrow = b.convert(value, element=f16)
        self._wide[narrow] = value
        return narrow
