"""What is quantised, and on which samples.

Samples come as callers have them (loaders, iterators, arrays), and become batches of a graph's shapes, with their
labels. A metric of the outputs is a number for all samples, of which more is better. The subject is a model: its
inputs, its graph with the weights as constants, what is compiled of it, and how long calls of that take, by turns, so
that what else the machine does is in all of them.
"""

from __future__ import annotations

import math
import operator
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import ConfigError, ModelError, UnsupportedError, listed
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.compile import bind_weights, compile
from ngraph_mxnet.program.executable import Executable, InputError, Usage, as_array
from ngraph_mxnet.quantisation.apply import Numbers, Recipe, observed, outline_of, products
from ngraph_mxnet.quantisation.calibration import Channels
from ngraph_mxnet.quantisation.division import DivideData, factors_of
from ngraph_mxnet.quantisation.layers import Outline, data_axis

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
        """Each output for all samples, along its first axis, of the outputs for each batch. Raises ConfigError: the
        last batch has rows that no sample has, and an output has no row for each."""
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
    """Iterate over `inputs` from the beginning. Raises ConfigError: it is nothing to iterate over."""
    if holds_all(inputs):
        return iter([inputs])
    if hasattr(inputs, "reset") and hasattr(inputs, "provide_data"):
        inputs.reset()  # MXNet's DataIter is at its end after a pass
    try:
        return iter(inputs)
    except TypeError:
        raise ConfigError(f"inputs: found {type(inputs).__name__}, expected arrays or an iterator of samples") from None


def items(given: Iterable[Any], names: Sequence[str]) -> Iterator[Item]:
    """The items of a model with inputs of these names: copies, for iterators may write the next item over one. Raises
    InputError: an item has more or fewer arrays, or other names."""
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


def in_batches(found: Sequence[Item], shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, np.dtype]) -> Batches:
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
    all samples, one of them. Raises ModelError: a given shape names no input."""
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
    """The index of the largest along axis 1 of the first output. Raises ConfigError: there are no two classes along
    it."""
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


BACKEND = "CPU"


def names_of(example: Any) -> list[str]:
    """Return the names of a block's inputs: those of a mapping, or Gluon's names. The last of several arrays is
    labels."""
    if isinstance(example, Mapping):
        return [name for name in example if name not in ("labels", "label")]
    if hasattr(example, "data") and hasattr(example, "pad"):
        count = len(example.data)
    else:
        count = max(len(example) - 1, 1) if isinstance(example, (tuple, list)) else 1
    return ["data"] if count == 1 else [f"data{number}" for number in range(count)]


class Subject:
    """A graph whose weights are constants, and what is compiled of it for the CPU."""

    def __init__(self, graph: Graph, weights: Mapping[str, Any], threads: int) -> None:
        """Raises UnsupportedError: the CPU does not run a node, or nothing can be in 8 bits."""
        backend = get_backend(BACKEND)
        self.graph, self.threads = bind_weights(graph, weights), threads
        backend.require_support(self.graph)
        self._optimised = self.graph.clone()
        PassManager(backend.pipeline()).run(self._optimised)
        self.layers = {name: node.origin for name, node in products(self._optimised).items()}
        """The names of the products that can be in 8 bits, and the origins of their nodes."""
        if not self.layers:
            raise UnsupportedError(f"graph {graph.name}: no convolution or matrix product of it, with weights that do "
                                   "not depend on inputs, can be in 8 bits: there is nothing to quantise")
        self.inputs = {one.name: one.type for one in self.graph.parameters}

    def compiled(self, recipe: Recipe | None = None) -> Executable:
        """In float32, or as the recipe says."""
        return self._compile(self.graph, recipe)

    def roughly(self, recipe: Recipe) -> Executable:
        """Compile the optimised graph with the recipe: sooner than `compiled`."""
        return self._compile(self._optimised, recipe)

    def outline(self) -> Outline:
        """Return the outline of the graph, with the layers' names."""
        return outline_of(self._optimised)

    def observed(self, factors: Mapping[str, Numbers] | None = None) -> tuple[Executable, list[list[str]]]:
        """Return an executable that gives the data of all products, and the names of these products
        (`apply.observed`). Some data is divided by these factors."""
        divided = self._optimised.clone()
        DivideData(factors or {}, {}).run(divided)
        graph, names = observed(divided)
        return self._compile(graph, None), names

    def channels(self) -> Channels:
        """For the channels of all products' data, of which nothing was seen yet."""
        return Channels({name: data_axis(node) for name, node in products(self._optimised).items()})

    def factors(self, channels: Channels) -> dict[str, dict[str, Numbers]]:
        """By which data may be divided (`division.factors_of`)."""
        return factors_of(self._optimised, channels)

    def _compile(self, graph: Graph, recipe: Recipe | None) -> Executable:
        how: dict[str, Any] = {"precision": "f32"} if recipe is None else {"precision": "int8", "recipe": recipe}
        return compile(graph, BACKEND, threads=self.threads, **how)

    def require_layers(self, names: Sequence[str]) -> None:
        """Raises ConfigError: one is no product that can be in 8 bits."""
        unknown = [name for name in names if name not in self.layers]
        if unknown:
            raise ConfigError(f"keep: found {listed(unknown)}, expected some of the layers that can be in 8 bits: "
                              f"{listed(self.layers, unknown[0])}")

    def by_layer(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds of each layer, from seconds by origin. Layers of one origin share them evenly."""
        origins = list(self.layers.values())
        return {name: seconds.get(origin, 0.0) / origins.count(origin) for name, origin in self.layers.items()}


_TURN_SECONDS = 0.005
"""The least seconds of a turn."""
_FEWEST_ROUNDS, _MOST_ROUNDS, _SECONDS = 5, 25, 8.0
"""How often each has its turn: of large models less often, so that all take about so long."""
_BUSY_ALONE, _BUSY_BESIDE = 2.0, 1.25
"""How many times as long as its thread works a call may take: of calls on one thread, whose CPU time counts, and of
others."""
_PROFILED, _TURNS = 10, 3
"""Calls of a turn whose kernels are timed, and turns."""


class Stopwatch:
    """Times calls that run on so many threads, and notices whether others had the cores meanwhile.

    What runs on one thread is timed by that thread's CPU time, which does not count what others take. On several
    threads it is the wall clock: then what else the machine does shows in how much longer a call takes than its thread
    works.
    """

    def __init__(self, threads: int) -> None:
        self._clock = time.thread_time if threads == 1 else time.perf_counter
        self._most_busy = _BUSY_ALONE if threads == 1 else _BUSY_BESIDE
        self._busy: list[float] = []

    @property
    def doubt(self) -> str | None:
        """Why times are not to be believed, as a sentence; None if they are."""
        busy = statistics.median(self._busy) if self._busy else 1.0
        if busy <= self._most_busy:
            return None
        return (f"The machine was too busy for these times to be believed: calls took {busy:.1f} times as long as "
                "their thread had a core. Run it again where nothing else runs, or with --even-if-slower")

    def seconds_of(self, executables: Sequence[Executable], arrays: Mapping[str, np.ndarray]) -> list[float]:
        """Return the seconds of a call of each executable: the median over turns. Turns are about equally long and
        follow each other. Otherwise, where others use the cores too, the few quiet moments would tell of one executable
        alone."""
        single = [self._turn(one, arrays, 2) for one in executables]
        calls = [max(1, math.ceil(_TURN_SECONDS / max(seconds, 1e-9))) for seconds in single]
        rounds = round(_SECONDS / max(sum(map(operator.mul, single, calls)), 1e-9))
        turns = [[self._turn(one, arrays, count) for one, count in zip(executables, calls, strict=True)]
                 for _ in range(max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, rounds)))]
        return [statistics.median(found) for found in zip(*turns, strict=True)]

    def _turn(self, executable: Executable, arrays: Mapping[str, np.ndarray], calls: int) -> float:
        wall, cpu, start = time.perf_counter(), time.thread_time(), self._clock()
        for _ in range(calls):
            executable(arrays)
        seconds = self._clock() - start
        self._busy.append((time.perf_counter() - wall) / max(time.thread_time() - cpu, 1e-9))
        return seconds / calls


def usages_of(executables: Sequence[Executable], arrays: Mapping[str, np.ndarray]) -> list[Usage]:
    """Return the usage of each executable: the median over turns for each node."""
    given = [one.checked((arrays,)) for one in executables]
    turns = [[one.usage(inputs, _PROFILED) for one, inputs in zip(executables, given, strict=True)]
             for _ in range(_TURNS)]
    return [_median(list(found)) for found in zip(*turns, strict=True)]


def _median(turns: Sequence[Usage]) -> Usage:
    origins = dict.fromkeys(origin for usage in turns for origin in usage.seconds)
    seconds = {origin: statistics.median(usage.seconds.get(origin, 0.0) for usage in turns) for origin in origins}
    return Usage(seconds, turns[0].weight_bytes, turns[0].arena_bytes)
