"""Samples as callers have them (loaders, iterators, arrays), as batches of a graph's shapes, with their labels; and
metrics of the outputs on them: a number for all samples, of which more is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.errors import ConfigError, ModelError, listed
from ngraph_mxnet.runtime.executable import InputError, as_array

Arrays = Mapping[str, np.ndarray]
LABELS = ("labels", "label")
"""How an item may call its labels, if no input of the model is called so."""


@dataclass(frozen=True)
class Item:
    """One item of an iterator: the inputs by name, and their labels."""

    arrays: Arrays
    labels: np.ndarray | None


@dataclass(frozen=True)
class Batches:
    """All samples.

    Attributes:
        arrays: of the inputs by name, of a graph's shapes, for each batch.
        size: rows of a batch; 0 where the first axis of inputs is no batch.
        missing: rows of the last batch that no sample has: they repeat the last one.
        labels: of all samples.
    """

    arrays: Sequence[Arrays]
    size: int
    missing: int
    labels: np.ndarray | None

    @property
    def count(self) -> int:
        """How many samples: batches count as one each where their first axis is none of samples."""
        return len(self.arrays) * max(self.size, 1) - self.missing

    def results(self, outputs: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """Each output for all samples, along its first axis, of the outputs for each batch.

        Raises:
            ConfigError: the last batch has rows that no sample has, and an output has no row for each.
        """
        rows = self.size - self.missing
        found = []
        for parts in map(list, zip(*outputs, strict=True)):
            if self.missing:
                if parts[-1].shape[:1] != (self.size,):
                    raise ConfigError(f"found an output of shape {list(parts[-1].shape)}, and {rows} samples in the "
                                      f"last batch of {self.size}: expected a number of samples that batches divide")
                parts[-1] = parts[-1][:rows]
            found.append(np.concatenate([np.atleast_1d(part) for part in parts]))
        return found


def holds_all(inputs: Any) -> bool:
    """True if the inputs are all samples at once, along the first axes of arrays, and no iterator of items."""
    return isinstance(inputs, (Mapping, tuple)) or _is_array(inputs)


def iterated(inputs: Any) -> Iterator[Any]:
    """Iterate over `inputs` from the beginning.

    Raises:
        ConfigError: it is nothing to iterate over.
    """
    if holds_all(inputs):
        return iter([inputs])
    if hasattr(inputs, "reset") and hasattr(inputs, "provide_data"):
        inputs.reset()  # MXNet's DataIter is at its end after a pass
    try:
        return iter(inputs)
    except TypeError:
        raise ConfigError(f"inputs: found {type(inputs).__name__}, expected arrays or an iterator of samples") from None


def items(given: Iterable[Any], names: Sequence[str]) -> Iterator[Item]:
    """The items of a model with inputs of these names: copies, for iterators may write the next item over one.

    Raises:
        InputError: an item has more or fewer arrays, or other names.
    """
    for number, one in enumerate(given):
        yield _item(one, names, f"sample {number}")


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(type(value), "asnumpy") or hasattr(type(value), "__dlpack__")


def _item(one: Any, names: Sequence[str], what: str) -> Item:
    if isinstance(one, Mapping):
        return _by_name(one, names, what)
    if hasattr(one, "data") and hasattr(one, "pad") and hasattr(one, "label"):  # MXNet's DataBatch
        whole = _in_order([*one.data, *(one.label or [])[:1]], names, what)
        rows = -one.pad if one.pad else None
        return Item({name: array[:rows] for name, array in whole.arrays.items()},
                    None if whole.labels is None else whole.labels[:rows])
    return _in_order(one if isinstance(one, (tuple, list)) else [one], names, what)


def _by_name(one: Mapping[str, Any], names: Sequence[str], what: str) -> Item:
    called = [name for name in LABELS if name in one and name not in names]
    unknown = sorted(set(one) - set(names) - set(called[:1]))
    missing = [name for name in names if name not in one]
    if unknown or missing:
        raise InputError(f"{what}: unknown {listed(unknown) or 'none'}, missing {listed(missing) or 'none'}; expected "
                         f"the inputs {listed(names)}, and labels")
    return Item({name: _copied(one[name], f"{what}, {name}") for name in names},
                _labels(one[called[0]]) if called else None)


def _in_order(one: Sequence[Any], names: Sequence[str], what: str) -> Item:
    if not len(names) <= len(one) <= len(names) + 1:
        raise InputError(f"{what}: found {len(one)} arrays, expected {len(names)}, for {listed(names)}, and labels")
    arrays = {name: _copied(array, f"{what}, {name}") for name, array in zip(names, one, strict=False)}
    return Item(arrays, _labels(one[-1]) if len(one) > len(names) else None)


def _copied(value: Any, what: str) -> np.ndarray:
    return np.array(as_array(value, what))


def _labels(value: Any) -> np.ndarray:
    """Labels may be numbers and lists, too: nothing is computed with them."""
    return _copied(value, "labels") if _is_array(value) else np.asarray(value)


def in_batches(found: Sequence[Item], shapes: Mapping[str, tuple[int, ...]],
               dtypes: Mapping[str, np.dtype]) -> Batches:
    """The items' rows in batches of these shapes.

    Raises:
        InputError: an item does not fit them, or has a dtype that can't become the input's without loss of kind.
        ConfigError: there are none, or only some have labels.
    """
    if not found:
        raise ConfigError("inputs: found no samples, expected at least one")
    with_labels = sum(item.labels is not None for item in found)
    if with_labels not in (0, len(found)):
        raise ConfigError(f"labels: found {with_labels} samples of {len(found)} that have them, expected all or "
                          "none")
    parts = [np.atleast_1d(item.labels) for item in found if item.labels is not None]
    labels = np.concatenate(parts) if parts else None
    whole = [{name: _typed(name, item.arrays[name], dtypes[name]) for name in shapes} for item in found]
    if all(item[name].shape == shape for item in whole for name, shape in shapes.items()):
        sizes = {shape[:1] for shape in shapes.values()}
        (size,) = sizes.pop() if len(sizes) == 1 and () not in sizes else (0,)
        return Batches(whole, size, 0, labels)
    return _cut([_rows(item, shapes) for item in whole], shapes, labels)


def _typed(name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if array.dtype != dtype and not (np.can_cast(array.dtype, dtype, "same_kind") or array.dtype.kind in "iu"):
        raise InputError(f"input {name!r}: found dtype {array.dtype}, expected {dtype}")
    return np.ascontiguousarray(array, dtype)


def _rows(item: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """With an axis for samples, which that of a single one may lack."""
    if all(item[name].shape == shape[1:] for name, shape in shapes.items()):
        return {name: array[None] for name, array in item.items()}
    for name, shape in shapes.items():
        if item[name].shape[1:] != shape[1:] or item[name].ndim != len(shape):
            raise InputError(f"input {name!r}: found shape {list(item[name].shape)}, expected {list(shape)}, or any "
                             "number of samples along the first axis")
    counts = {name: len(array) for name, array in item.items()}
    if len(set(counts.values())) > 1:
        raise InputError(f"found {counts} samples along the first axes of inputs, expected the same number")
    return dict(item)


def _cut(rows: Sequence[Arrays], shapes: Mapping[str, tuple[int, ...]], labels: np.ndarray | None) -> Batches:
    sizes = {name: shape[0] for name, shape in shapes.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"found inputs of {sizes} rows, which samples can't be cut into: expected samples of the "
                         f"shapes { {name: list(shape) for name, shape in shapes.items()} }")
    (size,) = set(sizes.values())
    whole = {name: np.concatenate([item[name] for item in rows]) for name in shapes}
    (count,) = {len(array) for array in whole.values()}
    if not count or not size:
        raise ConfigError("inputs: found no samples, expected at least one")
    if labels is not None and len(labels) != count:
        raise ConfigError(f"labels: found {len(labels)}, expected one for each of {count} samples")
    missing = -count % size
    padded = {name: np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]) if missing else array
              for name, array in whole.items()}
    batches = [{name: array[first:first + size] for name, array in padded.items()} for first in range(0, count, size)]
    return Batches(batches, size, missing, labels)


def shapes_at_hand(item: Item, given: Mapping[str, Sequence[int | str]], fixed: Mapping[str, Sequence[Any]],
                   one_sample: bool) -> dict[str, tuple[int, ...]]:
    """The shapes to compile for: what is given or `fixed` by the model as numbers, else the item's; of arrays that hold
    all samples, one of them.

    Raises:
        ModelError: a given shape names no input.
    """
    unknown = sorted(set(given) - set(item.arrays))
    if unknown:
        raise ModelError(f"shapes: found {listed(unknown)}, expected the inputs: {listed(item.arrays, unknown[0])}")
    found = {}
    for name, array in item.arrays.items():
        own = (1, *array.shape[1:]) if one_sample else array.shape
        wanted = given.get(name) or fixed.get(name) or own
        if len(wanted) == array.ndim + 1:
            own = (1, *array.shape)
        if len(wanted) != len(own):
            raise InputError(f"input {name!r}: found a sample of shape {list(array.shape)}, expected {list(wanted)}")
        found[name] = tuple(size if isinstance(size, int) else here for size, here in zip(wanted, own, strict=True))
    return found


_MOST_ERROR = 1e30
"""The error of outputs that are not finite where those wanted are."""
Outputs = Sequence[np.ndarray]
Metric = Callable[[list[np.ndarray], Any], float]
"""From the outputs, each for all samples along its first axis, and the labels, or None."""


@dataclass(frozen=True)
class Measure:
    """A metric with its labels."""

    name: str
    of: Callable[[list[np.ndarray]], float]


def measure_of(metric: str | Metric | None, labels: np.ndarray | None, wanted: list[np.ndarray],
               samples: int) -> Measure:
    """Return the measure of outputs; `wanted` are the outputs in float, of so many samples.

    Where nobody says, and there are no labels: the class of each sample where the one output has scores of classes for
    each, else how near all outputs are. Of boxes or images there is no class that argmax would tell.

    Raises:
        ConfigError: there is no such metric, or the labels or outputs are not such as it needs.
    """
    if callable(metric):
        return Measure(getattr(metric, "__name__", "metric"), lambda outputs: _number(metric(outputs, labels)))
    if metric not in (None, "top1"):
        raise ConfigError(f"metric: found {metric!r}, expected top1, or a function of outputs and labels")
    if labels is not None:
        return Measure("top1", lambda outputs: _share(classes(outputs), labels))
    if metric == "top1":
        raise ConfigError("metric: found top1 without labels, expected samples with labels")
    if len(wanted) == 1 and wanted[0].ndim == 2 and wanted[0].shape[0] == samples and wanted[0].shape[1] > 1:
        chosen = classes(wanted)
        return Measure("agreement with float", lambda outputs: _share(classes(outputs), chosen))
    return Measure("closeness to float", lambda outputs: closeness(outputs, wanted))


def closeness(outputs: Outputs, wanted: Outputs) -> float:
    """1 less the length of the difference as a part of that of the outputs wanted; if there are no floats among them,
    the share of elements that are the same."""
    if any(array.dtype.kind == "f" for array in wanted):
        return 1 - min(math.sqrt(relative_error([outputs], [wanted])), _MOST_ERROR)
    return float(np.mean([np.mean(one == other) for one, other in zip(outputs, wanted, strict=True)]))


def classes(outputs: Outputs) -> np.ndarray:
    """The index of the largest along axis 1 of the first output.

    Raises:
        ConfigError: there are no two classes along it.
    """
    first = outputs[0]
    if first.ndim < 2 or first.shape[1] < 2:
        raise ConfigError(f"metric: found a first output of shape {list(first.shape)}, expected scores of classes "
                          "along its second axis: give a function of outputs and labels")
    found: np.ndarray = first.argmax(axis=1)
    return found


def _share(found: np.ndarray, labels: np.ndarray) -> float:
    flat = labels.reshape(found.shape) if labels.size == found.size else labels
    if flat.shape != found.shape:
        raise ConfigError(f"labels: found shape {list(labels.shape)}, expected one class for each of "
                          f"{list(found.shape)}")
    return float(np.mean(found == flat))


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"metric: found {type(value).__name__} returned, expected a number") from None


def relative_error(outputs: Sequence[Outputs], wanted: Sequence[Outputs]) -> float:
    """The squared difference of all floats, as a part of the squares of those wanted: 0 where there is none, infinite
    where one is not finite that should be."""
    difference = total = 0.0
    for found, expected in zip(outputs, wanted, strict=True):
        for one, other in zip(found, expected, strict=True):
            if other.dtype.kind != "f":
                continue
            finite = np.isfinite(other)
            difference += float(np.sum((one[finite].astype(np.float64) - other[finite]) ** 2))
            total += float(np.sum(other[finite].astype(np.float64) ** 2))
    if not math.isfinite(difference):
        return math.inf
    return difference / total if total else difference
