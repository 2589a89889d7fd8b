"""The runners of Loop and Scan nodes, and the axes that the attributes of a Scan give."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ngraph_mxnet.bridges.onnx.attributes import Attributes
from ngraph_mxnet.bridges.onnx.inputs import dimensions
from ngraph_mxnet.bridges.onnx.model import Model, element_of, names_around, type_of
from ngraph_mxnet.bridges.onnx.pieces import Make, Piece, Recomputed, Values
from ngraph_mxnet.bridges.onnx.rules.registry import normal_axis
from ngraph_mxnet.errors import ModelError, UnsupportedError


@dataclass(frozen=True)
class ScanAxes:
    """Along which axis each scanned input is read and each scanned output written, and where that is backwards.

    `is_batched`: opset 8, where all axes are those of one element of a batch.
    """

    in_axes: tuple[int, ...]
    in_back: tuple[int, ...]
    out_axes: tuple[int, ...]
    out_back: tuple[int, ...]
    is_batched: bool


def scan_axes(attrs: Attributes, scanned: int, outputs: int, opset: int) -> ScanAxes:
    """Read the axes of a Scan with `scanned` scanned inputs and `outputs` scan outputs.

    Raises:
        ModelError: an attribute has another number of entries.
    """
    def entries(name: str, count: int) -> tuple[int, ...]:
        found: tuple[int, ...] = attrs.ints(name, (0,) * count)
        if len(found) != count:
            raise ModelError(f"{name}={found}: expected {count} numbers")
        return found

    if opset < 9:
        return ScanAxes((0,) * scanned, entries("directions", scanned), (0,) * outputs, (0,) * outputs, is_batched=True)
    return ScanAxes(entries("scan_input_axes", scanned), entries("scan_input_directions", scanned),
                    entries("scan_output_axes", outputs), entries("scan_output_directions", outputs), is_batched=False)


class _Body:
    """A loop's subgraph: its program for what it is given, and what it says of its outputs."""

    def __init__(self, model: Model, body: onnx.GraphProto, given: int, recomputed: Recomputed, make: Make,
                 stable: Collection[str] | None) -> None:
        self.inputs = [value.name for value in body.input]
        if len(self.inputs) != given:
            raise ModelError(f"its subgraph has {len(self.inputs)} inputs, expected {given}")
        if body.sparse_initializer:
            raise UnsupportedError("sparse initialisers")
        self._outputs = list(body.output)
        around = names_around(body)
        kept = [name for name in around if stable is None or name in stable]
        self._piece = Piece(model, body.node, [value.name for value in self._outputs], recomputed, make,
                            inputs=self.inputs, initializers=body.initializer, stable=kept)

    def run(self, values: dict[str, Any], given: Sequence[Any], trip: int) -> list[Any]:
        """One trip. `values` are those around the body; they get its inputs, too."""
        values.update(zip(self.inputs, given, strict=True))
        try:
            return self._piece(values)
        except (ModelError, UnsupportedError) as error:
            raise type(error)(f"trip {trip}: {error}") from None

    def stacked(self, rows: list[np.ndarray], output: int, values: dict[str, Any], axis: int = 0) -> np.ndarray:
        """Stack the rows that the trips gave for a scan output along a new axis. Without trips, return an empty array
        of the shape that the body would give for `values`, as far as that shape is known. Else the shape is the
        declared one, with 0 where nothing is declared."""
        name = self._outputs[output].name
        for row in rows:
            if not isinstance(row, np.ndarray):
                raise ModelError(f"scan output {name!r} of its subgraph is a sequence or optional, expected a tensor")
            if row.shape != rows[0].shape or row.dtype != rows[0].dtype:
                raise ModelError(f"scan output {name!r} of its subgraph: found {row.dtype}{list(row.shape)} after "
                                 f"{rows[0].dtype}{list(rows[0].shape)}, expected one type in all trips")
        if rows:
            return np.stack(rows, normal_axis(axis, rows[0].ndim + 1))
        dtype, shape = self._type(output, values)
        place = normal_axis(axis, len(shape) + 1)
        return np.empty((*shape[:place], 0, *shape[place:]), dtype)

    def _type(self, output: int, values: dict[str, Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
        name = self._outputs[output].name
        found = self._piece.types(values).get(name)
        if found is not None:
            return found
        _, tensor = type_of(self._outputs[output])
        if tensor is None or not tensor.elem_type:
            raise UnsupportedError(f"no trip, and its subgraph does not say the type of its output {name!r}")
        dims = dimensions(tensor) or ()
        return element_of(tensor.elem_type).numpy, tuple(dim if isinstance(dim, int) else 0 for dim in dims)


class LoopRunner:
    """Runs a Loop.

    Raises:
        ModelError, UnsupportedError: its body does not fit it.
    """

    def __init__(self, model: Model, node: onnx.NodeProto, recomputed: Recomputed, make: Make,
                 stable: Collection[str] | None) -> None:
        attrs = Attributes(node)
        body = attrs.graph("body")
        attrs.require_all_read()
        self._trips, self._going, *self._state = [*node.input, "", ""][: max(2, len(node.input))]
        _require_names(self._state, 2)
        self._body = _Body(model, body, 2 + len(self._state), recomputed, make, stable)
        self._rows = range(1 + len(self._state), len(body.output))
        if len(body.output) < 1 + len(self._state):
            raise ModelError(f"its subgraph has {len(body.output)} outputs, expected {1 + len(self._state)} or more")
        self._shapes = [_declared_shape(value) for value in body.input[:2]]

    def __call__(self, values: Values) -> list[Any]:
        trips = None if not self._trips else int(_one(values[self._trips], "the trip count"))
        going = not self._going or bool(_one(values[self._going], "the condition"))
        state = [values[name] for name in self._state]
        rows: list[list[Any]] = [[] for _ in self._rows]
        local, trip, holds = dict(values), 0, np.full(self._shapes[1], True)
        while going and (trips is None or trip < trips):
            number = np.array(trip if not self._shapes[0] else [trip], np.int64)
            going_on, *results = self._body.run(local, [number, holds, *state], trip)
            going, state, trip = bool(_one(going_on, "the condition")), results[: len(state)], trip + 1
            for row, result in zip(rows, results[len(state) :], strict=True):
                row.append(result)
        if not trip:
            local.update(zip(self._body.inputs, [np.zeros(self._shapes[0], np.int64), holds, *state], strict=True))
        return [*state, *(self._body.stacked(row, output, local)
                          for row, output in zip(rows, self._rows, strict=True))]


def _require_names(names: Sequence[str], first: int) -> None:
    """Raises ModelError where one is left out. `first`: which input the first one is."""
    if "" in names:
        raise ModelError(f"input {first + names.index('')} is missing")


def _one(value: Any, what: str) -> Any:
    """The element of what must have one."""
    if not isinstance(value, np.ndarray) or value.size != 1:
        found = f"shape {value.shape}" if isinstance(value, np.ndarray) else "a sequence or optional"
        raise ModelError(f"{what}: found {found}, expected one element")
    return value.reshape(())[()]


def _declared_shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """How the body takes the number of the trip, or the condition: as a scalar, or as one element of rank 1."""
    _, tensor = type_of(value)
    return (1,) if tensor is not None and len(dimensions(tensor) or ()) == 1 else ()


def _tensor(value: Any, name: str) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise ModelError(f"input {name!r} is a sequence or optional, expected a tensor")
    return value


class ScanRunner:
    """Runs a Scan; in opset 8 once for each element of the batch.

    Raises:
        ModelError, UnsupportedError: its body or attributes do not fit it.
    """

    def __init__(self, model: Model, node: onnx.NodeProto, recomputed: Recomputed, make: Make,
                 stable: Collection[str] | None) -> None:
        attrs, opset = Attributes(node), model.opsets[""]
        body, scanned = attrs.graph("body"), attrs.int("num_scan_inputs")
        names = list(node.input)
        self._lengths = names.pop(0) if opset < 9 else ""
        _require_names(names, len(node.input) - len(names))
        if not 0 < scanned <= len(names):
            raise ModelError(f"num_scan_inputs={scanned} of {len(names)} inputs")
        self._state, self._scanned = names[: len(names) - scanned], names[len(names) - scanned :]
        self._outputs = range(len(self._state), len(body.output))
        if len(body.output) < len(self._state):
            raise ModelError(f"its subgraph has {len(body.output)} outputs, expected {len(self._state)} or more")
        self._axes = scan_axes(attrs, scanned, len(self._outputs), opset)
        attrs.require_all_read()
        self._body = _Body(model, body, len(names), recomputed, make, stable)

    def __call__(self, values: Values) -> list[Any]:
        state, scanned = ([_tensor(values[name], name) for name in names] for names in (self._state, self._scanned))
        return self._batch(values, state, scanned) if self._axes.is_batched else self._run(values, state, scanned)

    def _run(self, values: Values, state: list[Any], scanned: list[np.ndarray]) -> list[Any]:
        axes = self._axes
        sides = [normal_axis(axis, value.ndim) for axis, value in zip(axes.in_axes, scanned, strict=True)]
        # A copy: what a trip passes on is not the caller's.
        moved = [np.moveaxis(value, side, 0).copy(order="C") for value, side in zip(scanned, sides, strict=True)]
        lengths = {len(value) for value in moved}
        if len(lengths) > 1:
            raise ModelError(f"the scanned inputs have {sorted(lengths)} places, expected the same number")
        trips, local = lengths.pop(), dict(values)
        rows: list[list[Any]] = [[] for _ in self._outputs]
        for trip in range(trips):
            places = [trips - 1 - trip if back else trip for back in axes.in_back]
            slices = [value[place, ...] for value, place in zip(moved, places, strict=True)]
            results = self._body.run(local, [*state, *slices], trip)
            state = results[: len(state)]
            for row, result in zip(rows, results[len(state) :], strict=True):
                row.append(result)
        if not trips:
            slices = [np.zeros(value.shape[1:], value.dtype) for value in moved]
            local.update(zip(self._body.inputs, [*state, *slices], strict=True))
        ordered = [row[::-1] if back else row for row, back in zip(rows, axes.out_back, strict=True)]
        return [*state, *(self._body.stacked(row, output, local, axis)
                          for row, output, axis in zip(ordered, self._outputs, axes.out_axes, strict=True))]

    def _batch(self, values: Values, state: list[Any], scanned: list[np.ndarray]) -> list[Any]:
        """Each element by itself; what a shorter sequence leaves of the scan outputs is 0."""
        batch, most = (*scanned[0].shape, 0, 0)[:2]
        if any(value.shape[:2] != (batch, most) for value in scanned) or not batch:
            raise ModelError(f"scanned inputs of shapes {[value.shape for value in scanned]}, expected the same batch "
                             "and length")
        lengths = _tensor(values[self._lengths], self._lengths).reshape(-1) if self._lengths else np.full(batch, most)
        if len(lengths) != batch or (lengths < 0).any() or (lengths > most).any():
            raise ModelError(f"sequence_lens={lengths.tolist()}: expected {batch} numbers from 0 to {most}")
        elements = [self._run(values, [value[i, ...].copy() for value in state],
                              [value[i, :length] for value in scanned]) for i, length in enumerate(lengths)]
        for results in elements:
            for output in range(len(state), len(results)):
                row = results[output]
                results[output] = np.pad(row, [(0, most - len(row)), *[(0, 0)] * (row.ndim - 1)])
        return [np.stack(parts) for parts in zip(*elements, strict=True)]
