"""A loaded model that takes any number of rows."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np

from ngraph_runtime.errors import InputError
from ngraph_runtime.model import Array, Model
from ngraph_runtime.ports import Port


class _Rows(NamedTuple):
    """How many rows one call takes, and the other sizes of each input: numbers, or texts of a range."""

    low: int
    high: int
    others: tuple[tuple[Any, ...], ...]

    def fit(self, arrays: Sequence[Array[Any, Any]]) -> bool:
        """True if all sizes but the first are those of the set, or may be in the range."""
        return all(len(sizes) == array.ndim - 1 and all(size == expected or isinstance(expected, str)
                                                        for size, expected in zip(array.shape[1:], sizes))
                   for array, sizes in zip(arrays, self.others))


class ServedModel:
    """A model as a server calls it: by requests that know nothing of the shapes that it was compiled for.

    Attributes:
        model: the `ngraph_runtime.Model`.
        most_rows: the largest number of rows of one call; 0 if calls are not cut into rows.
    """

    def __init__(self, model: Model, rows: bool) -> None:
        """With `rows` the first axis of every input and output holds rows that are independent of each other. Calls
        may then have any number of them: too many are cut into several calls, and too few get rows of zeros, whose
        results are dropped."""
        self.model = model
        self._rows = list(_rows_of(model)) if rows else []
        self.most_rows = max((one.high for one in self._rows), default=0)

    @property
    def inputs(self) -> tuple[Port, ...]:
        return self.model.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        return self.model.outputs

    def shape(self, port: Port) -> tuple[int, ...]:
        """The port's shape for people and clients: -1 where sizes differ between calls, and for rows."""
        shapes = (*port.shapes, *port.ranges)
        if len({len(shape) for shape in shapes}) != 1:
            return (-1,) * len(shapes[0])
        found = [sizes[0] if len(set(sizes)) == 1 and isinstance(sizes[0], int) else -1 for sizes in zip(*shapes)]
        if found and self.most_rows:
            found[0] = -1
        return tuple(found)

    def run(self, arrays: Sequence[Array[Any, Any]]) -> list[Array[Any, Any]]:
        """The outputs, in the order of `outputs`.

        Args:
            arrays: one for each input, in the order of `inputs`, of its dtype.

        Raises:
            InputError: an input is missing, or its dtype or its other sizes fit nothing that the model was compiled
                for.
        """
        counts = {array.shape[:1] for array in arrays}
        options = [one for one in self._rows if one.fit(arrays)] if len(counts) == 1 else []
        if not options or len(arrays) != len(self.inputs) or not (count := len(arrays[0])):
            return self.model.run(list(arrays))  # which tells what is wrong
        parts: list[list[Array[Any, Any]]] = []
        begin = 0
        while begin < count:
            left = count - begin
            fitting = [min(one.high, left) for one in options if one.low <= left]
            size = max(fitting) if fitting else min(one.low for one in options)
            parts.append(self._call([array[begin:begin + size] for array in arrays], size))
            begin += size
        return parts[0] if len(parts) == 1 else [np.concatenate(outputs) for outputs in zip(*parts)]

    def _call(self, arrays: Sequence[Array[Any, Any]], size: int) -> list[Array[Any, Any]]:
        count = len(arrays[0])
        if count == size:
            return self.model.run(list(arrays))
        padded = [np.concatenate([array, np.zeros((size - count, *array.shape[1:]), array.dtype)]) for array in arrays]
        return [output[:count] for output in self.model.run(padded)]


def converted(value: Any, port: Port) -> Array[Any, Any]:
    """Numbers of JSON or CSV, or another array, as an array of the port's dtype.

    Raises:
        InputError: it is no array of numbers.
    """
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise ValueError(f"its elements are {array.dtype}")
        return np.ascontiguousarray(array, port.dtype).reshape(array.shape)
    except ValueError as error:
        raise InputError(f"input {port.name}: found no array of numbers, expected {port.dtype}: {error}") from error


def _rows_of(model: Model) -> Iterator[_Rows]:
    """Of the sets of shapes and the ranges in which all inputs and outputs have the same first size."""
    every: list[Any] = [*model.shape_sets, *model.ranges]
    for sizes in every:
        first = {shape[:1] for shape in (*sizes.inputs.values(), *sizes.outputs.values())}
        if len(first) != 1 or first == {()}:
            continue
        ((size,),) = first
        low, high = (size, size) if isinstance(size, int) else getattr(sizes, "symbols", {}).get(size, (0, 0))
        if high:
            yield _Rows(max(low, 1), high, tuple(shape[1:] for shape in sizes.inputs.values()))
