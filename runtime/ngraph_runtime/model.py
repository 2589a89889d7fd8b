"""Models: loading, and calls."""

from __future__ import annotations

import ctypes
import json
import operator
import os
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Sequence, Union

import numpy as np

from ngraph_runtime.arrays import address, as_input, check_outputs
from ngraph_runtime.errors import InputError, ModelError
from ngraph_runtime.library import Library, library
from ngraph_runtime.ports import Port, Range, ShapeSet, joined, shown

if TYPE_CHECKING:
    from concurrent.futures import Future

Array = np.ndarray
Values = Union["Mapping[str, Any]", Sequence[Any], Any]
_MOST_THREADS = 2**31 - 1  # the C interface has an int
_MOST_SEED = 2**64 - 1

_MOST_BOUND = 64
"""Shapes of ranges for which what runs them is kept; the one bound longest ago goes first."""


class _Prepared(NamedTuple):
    """What a call needs to know of its inputs' shapes. `run` takes the inputs, the outputs and the number of threads;
    `owner` is what lives as long as that may be called."""

    run: Callable[[Any, Any, int], int]
    outputs: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    owner: Any = None


class _Bound:
    """What the library bound, until nobody needs it."""

    def __init__(self, functions: Library, handle: int) -> None:
        self.handle = handle
        weakref.finalize(self, functions.unbind, handle).atexit = False


class Model:
    """A compiled model, loaded from its file. Any number of threads may call it at once.

    Attributes:
        path: the file.
        inputs, outputs: ports, each with `name`, `element`, `dtype`, `shape` and, of all sets of shapes, `shapes`.
        shape_sets: each has `inputs` and `outputs`, from names to shapes.
        ranges: each has `inputs` and `outputs`, from names to sizes, and `symbols` and `guards` of these.
        name, made_by, precision: what the compiler wrote.
        metadata: texts that its user gave it.
        instruction_set: "amx", "avx512", "avx_vnni", "avx2" or "baseline": whose instructions run.
        threads: how many a call may use if it does not say; 0: as many as there are cores.
    """

    def __init__(self, path: str | os.PathLike[str], threads: int = 0) -> None:
        self.path = os.fspath(path)
        self.threads = _thread_count(threads)
        functions = library()
        self._library = functions
        self._handle = handle = functions.load(path)
        # Not at exit: another thread may be within a call then, and the system takes everything anyway.
        weakref.finalize(self, functions.free, handle).atexit = False
        sets, ranges = range(functions.shape_sets(handle)), range(functions.ranges(handle))
        if not sets and not ranges:
            raise ModelError(f"{self.path} has no set of shapes")
        self.inputs = joined([functions.inputs(handle, number) for number in sets],
                             [functions.range_inputs(handle, number) for number in ranges])
        self.outputs = joined([functions.outputs(handle, number) for number in sets],
                              [functions.range_outputs(handle, number) for number in ranges])
        self.shape_sets = tuple(ShapeSet({port.name: port.shapes[number] for port in self.inputs},
                                         {port.name: port.shapes[number] for port in self.outputs}) for number in sets)
        self.ranges = tuple(Range({port.name: port.ranges[number] for port in self.inputs},
                                  {port.name: port.ranges[number] for port in self.outputs},
                                  functions.range_symbols(handle, number), functions.range_guards(handle, number))
                            for number in ranges)
        self.instruction_set = functions.instruction_set(handle)
        self._read_meta(functions.metadata(handle))

        self._names = tuple(port.name for port in self.inputs)
        self._dtypes = tuple(port.dtype for port in self.inputs)
        self._prepared: dict[tuple[tuple[int, ...], ...], _Prepared] = {}
        for number in sets:
            key = tuple(port.shapes[number] for port in self.inputs)
            outputs = tuple((port.shapes[number], port.dtype) for port in self.outputs)
            self._prepared.setdefault(key, _Prepared(partial(functions.run, handle, number), outputs))
        self._bound: deque[tuple[tuple[int, ...], ...]] = deque()
        # Room for the pointers of a call. Each call takes one out of the list, so a call within a call (a signal's
        # handler, a finalizer) has another, and other threads too.
        self._rooms: list[tuple[Any, Any]] = []

    def _read_meta(self, text: str) -> None:
        try:
            meta: dict[str, Any] = json.loads(text)
            self.name, self.made_by, self.precision = (str(meta.get(key, "")) for key in
                                                       ("name", "made_by", "precision"))
            self.metadata: dict[str, str] = dict(meta.get("metadata", {}))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ModelError(f"{self.path}: its metadata is no JSON object as expected: {error}") from error

    def __repr__(self) -> str:
        return f"<ngraph_runtime.Model {self.name!r} of {self.path!r}: {', '.join(port.name for port in self.inputs)}" \
               f" -> {', '.join(port.name for port in self.outputs)}>"

    def __call__(self, *arrays: Any, **named: Any) -> list[Array[Any, Any]]:
        """The outputs, in the order of `outputs`, for inputs by position or by name."""
        return self._compute(self._ordered(arrays, named) if named else arrays, self.threads, None)

    def run(self, inputs: Values = (), *, threads: int | None = None,
            out: Values | None = None) -> list[Array[Any, Any]]:
        """As a call, with options.

        Args:
            inputs: by name in a mapping, by position in a list or tuple; anything else is the only input.
            threads: how many may work on this call; 0: as many as there are cores.
            out: arrays that the outputs are written to and that are returned, given as inputs are.
        """
        return self._compute(self._positions(inputs), self.threads if threads is None else _thread_count(threads),
                             None if out is None else self._given_outputs(out))

    def run_async(self, inputs: Values = (), *, threads: int | None = None,
                  out: Values | None = None) -> Future[list[Array[Any, Any]]]:
        """As `run`, on a thread of a pool that all models share. The arrays must stay as they are until it is done.

        With `threads=1` calls share the cores without being in each other's way.
        """
        from ngraph_runtime.pool import shared_pool  # a thread pool takes longer to import than all else here

        return shared_pool().submit(self.run, inputs, threads=threads, out=out)

    def seed(self, seed: int) -> None:
        """Seed a model that draws random numbers: the same calls after the same seed give the same results.

        A loaded model has the seed 0, so processes that must differ need other seeds.

        Args:
            seed: an integer, of which the lower 64 bits count.
        """
        self._library.seed(self._handle, operator.index(seed) & _MOST_SEED)

    def reference(self, shape_set: int = 0) -> tuple[list[Array[Any, Any]], list[Array[Any, Any]]] | None:
        """Inputs for a set of shapes, and what the compiler's machine computed of them, if the file holds any.

        Raises:
            ModelError: it is damaged. Loading does not look at it, and the model runs nevertheless.
        """
        try:
            found = self._library.reference(self._handle, shape_set)
        except ModelError as error:
            raise ModelError(f"{self.path}: {error}") from None
        if found is None:
            return None
        inputs, outputs = ([np.frombuffer(content, port.dtype).reshape(port.shapes[shape_set])
                            for content, port in zip(contents, ports)]
                           for contents, ports in zip(found, (self.inputs, self.outputs)))
        return inputs, outputs

    def _compute(self, values: Sequence[Any], threads: int, out: list[Array[Any, Any]] | None) -> list[Array[Any, Any]]:
        """Each line here is part of every call's time, which `test_what_a_call_costs` measures."""
        arrays = []
        if len(values) != len(self._dtypes):
            raise self._wrong_count(len(values))
        for value, dtype, port in zip(values, self._dtypes, self.inputs):
            if type(value) is np.ndarray and value.dtype is dtype:
                flags = value.flags
                if flags.c_contiguous and flags.aligned:
                    arrays.append(value)
                    continue
            arrays.append(as_input(value, port))
        prepared = self._prepared.get(tuple([array.shape for array in arrays]))
        if prepared is None:
            prepared = self._bind(arrays)
        if out is None:
            outputs = [np.empty(shape, dtype) for shape, dtype in prepared.outputs]
        else:
            outputs = out
            check_outputs(outputs, self.outputs, [shape for shape, _ in prepared.outputs], arrays)

        try:
            room = self._rooms.pop()
        except IndexError:
            room = _pointers(len(self.inputs)), _pointers(len(self.outputs))
        to_inputs, to_outputs = room
        for i, array in enumerate(arrays):
            to_inputs[i] = address(array)
        for i, array in enumerate(outputs):
            to_outputs[i] = address(array)
        status = prepared.run(to_inputs, to_outputs, threads)
        if status:
            raise self._library.failure(status)
        self._rooms.append(room)
        return outputs

    def _bind(self, arrays: Sequence[Array[Any, Any]]) -> _Prepared:
        """For shapes that come for the first time, or for the first time in long."""
        if not self.ranges:
            raise self._no_set(arrays)
        key = tuple(array.shape for array in arrays)
        bound = _Bound(self._library, self._library.bind(self._handle, key))
        shapes = self._library.bound_outputs(self._handle, bound.handle)
        outputs = tuple((shape, port.dtype) for shape, port in zip(shapes, self.outputs))
        prepared = _Prepared(partial(self._library.run_bound, bound.handle), outputs, bound)
        if self._prepared.setdefault(key, prepared) is prepared:  # else another thread was as fast
            self._bound.append(key)
            if len(self._bound) > _MOST_BOUND:
                self._prepared.pop(self._bound.popleft(), None)
        return prepared

    # ---- arguments -----------------------------------------------------------------------------------------------

    def _positions(self, inputs: Values) -> Sequence[Any]:
        if isinstance(inputs, Mapping):
            return self._ordered((), inputs)
        return inputs if isinstance(inputs, (list, tuple)) else (inputs,)

    def _ordered(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """All inputs by position; the first ones are given so."""
        if not arrays and len(named) == len(self.inputs):
            try:
                return [named[name] for name in self._names]
            except KeyError:
                pass  # what is wrong is told below
        if len(arrays) > len(self.inputs):
            raise self._wrong_count(len(arrays) + len(named))
        first = self._names[:len(arrays)]
        for name in named:
            if name not in self._names:
                raise InputError(f"there is no input {name}: the inputs are {_names(self.inputs)}")
            if name in first:
                raise InputError(f"input {name} was given by position and by name")
        rest = self._names[len(arrays):]
        missing = [name for name in rest if name not in named]
        if missing:
            raise InputError(f"nothing was given for {', '.join(missing)}: the inputs are {_names(self.inputs)}")
        return [*arrays, *(named[name] for name in rest)]

    def _given_outputs(self, out: Values) -> list[Array[Any, Any]]:
        if isinstance(out, Mapping):
            names = [port.name for port in self.outputs]
            if set(out) != set(names):
                raise InputError(f"out has {', '.join(map(str, out)) or 'nothing'}: the outputs are "
                                 f"{_names(self.outputs)}")
            return [out[name] for name in names]
        given: list[Any] = list(out) if isinstance(out, (list, tuple)) else [out]
        if len(given) != len(self.outputs):
            raise InputError(f"out has {len(given)} arrays: the outputs are {_names(self.outputs)}")
        return given

    def _wrong_count(self, found: int) -> InputError:
        return InputError(f"found {found} inputs, expected {len(self.inputs)}: {_names(self.inputs)}")

    def _no_set(self, arrays: Sequence[Array[Any, Any]]) -> InputError:
        """No set has all these shapes; where an input's fits none, that one is at fault."""
        for array, port in zip(arrays, self.inputs):
            if array.shape not in port.shapes:
                expected = " or ".join(dict.fromkeys(map(shown, port.shapes)))
                return InputError(f"input {port.name}: found shape {shown(array.shape)}, expected {expected}")
        found = ", ".join(f"{port.name} {shown(array.shape)}" for array, port in zip(arrays, self.inputs))
        sets = "; ".join(map(str, self.shape_sets))
        return InputError(f"found {found}, expected one of the sets of shapes: {sets}")


def load(path: str | os.PathLike[str], threads: int = 0) -> Model:
    """The model of a file that `python -m ngraph_mxnet compile` has written.

    The file is mapped while the model lives: it may be renamed or removed then, but not written to.

    Args:
        path: the file.
        threads: how many threads a call may use if it does not say; 0: as many as there are cores.

    Raises:
        ModelError: it can't be read, is damaged or of a newer format, or holds nothing that this CPU runs.
        LibraryError: the C library is not there.
    """
    return Model(path, threads)


def _names(ports: Sequence[Port]) -> str:
    return ", ".join(port.name for port in ports) or "none"


def _thread_count(threads: int) -> int:
    try:
        count = operator.index(threads)
    except TypeError:
        count = -1
    if not 0 <= count <= _MOST_THREADS:
        raise InputError(f"threads: found {threads!r}, expected a number of threads, or 0 for as many as there are "
                         "cores")
    return count


def _pointers(count: int) -> Any:
    return (ctypes.c_void_p * max(count, 1))()
