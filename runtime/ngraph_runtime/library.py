"""Finds the C library and binds its functions: include/ngraph_runtime.h."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, NamedTuple, Sequence

from ngraph_runtime.errors import InputError, LibraryError, ModelError

NAME = "libngraph_runtime.so"
VARIABLE = "NGRAPH_RUNTIME_LIBRARY"

ABI = 1
"""NGRAPH_RUNTIME_ABI of the header that this module follows."""

_ARGUMENT, _MEMORY = 4, 5


class _CommonStruct(ctypes.Structure):
    """What `ngraph_port` and `ngraph_range_port` begin with."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("element", ctypes.c_char_p),
        ("element_bytes", ctypes.c_size_t),
        ("rank", ctypes.c_size_t),
    ]


class PortStruct(_CommonStruct):
    """`ngraph_port`."""

    _fields_ = [("shape", ctypes.POINTER(ctypes.c_int64)), ("bytes", ctypes.c_size_t)]


class RangePortStruct(_CommonStruct):
    """`ngraph_range_port`."""

    _fields_ = [("sizes", ctypes.POINTER(ctypes.c_char_p))]


class SymbolStruct(ctypes.Structure):
    """`ngraph_symbol`."""

    _fields_ = [("name", ctypes.c_char_p), ("low", ctypes.c_int64), ("high", ctypes.c_int64)]


class RawPort(NamedTuple):
    """What `ngraph_port` says."""

    name: str
    element: str
    element_bytes: int
    shape: tuple[int | str, ...]
    """Of a range, sizes that are no numbers are texts."""


_MODEL = ctypes.c_void_p
_SIZE = ctypes.c_size_t
_ARRAYS = ctypes.POINTER(ctypes.c_void_p)
_PORT = ctypes.POINTER(PortStruct)
_RANGE_PORT = ctypes.POINTER(RangePortStruct)
_FUNCTIONS = {
    "ngraph_runtime_version": (ctypes.c_char_p,),
    "ngraph_runtime_abi": (ctypes.c_int,),
    "ngraph_last_error": (ctypes.c_char_p,),
    "ngraph_load": (ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_MODEL)),
    "ngraph_free": (None, _MODEL),
    "ngraph_metadata": (ctypes.c_char_p, _MODEL),
    "ngraph_instruction_set": (ctypes.c_char_p, _MODEL),
    "ngraph_shape_sets": (_SIZE, _MODEL),
    "ngraph_inputs": (_SIZE, _MODEL),
    "ngraph_outputs": (_SIZE, _MODEL),
    "ngraph_input": (_PORT, _MODEL, _SIZE, _SIZE),
    "ngraph_output": (_PORT, _MODEL, _SIZE, _SIZE),
    "ngraph_run": (ctypes.c_int, _MODEL, _SIZE, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int),
    "ngraph_seed": (ctypes.c_int, _MODEL, ctypes.c_uint64),
    "ngraph_reference": (ctypes.c_int, _MODEL, _SIZE, ctypes.POINTER(_ARRAYS), ctypes.POINTER(_ARRAYS)),
    "ngraph_ranges": (_SIZE, _MODEL),
    "ngraph_range_input": (_RANGE_PORT, _MODEL, _SIZE, _SIZE),
    "ngraph_range_output": (_RANGE_PORT, _MODEL, _SIZE, _SIZE),
    "ngraph_range_symbol": (ctypes.POINTER(SymbolStruct), _MODEL, _SIZE, _SIZE),
    "ngraph_range_guards": (ctypes.c_char_p, _MODEL, _SIZE),
    "ngraph_bind": (ctypes.c_int, _MODEL, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(_MODEL)),
    "ngraph_unbind": (None, _MODEL),
    "ngraph_bound_output": (_PORT, _MODEL, _SIZE),
    "ngraph_run_bound": (ctypes.c_int, _MODEL, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int),
}
"""What each function returns, then what it takes."""


class Library:
    """The functions of one library, with Python's types; a model is the number that its pointer is."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            library = ctypes.CDLL(path)  # which gives the interpreter's lock back during each call
        except OSError as error:
            raise LibraryError(f"{path} does not load: {error}") from error
        functions: dict[str, Any] = {}
        for name, (returned, *taken) in _FUNCTIONS.items():
            function = getattr(library, name, None)
            if function is None:
                raise LibraryError(f"{path} has no function {name}: it is no {NAME}, or of another version")
            function.restype, function.argtypes = returned, taken
            functions[name] = function
        found = functions["ngraph_runtime_abi"]()
        if found != ABI:
            raise LibraryError(f"{path} has the interface {found}, this package knows {ABI}: install library and "
                               "package from one wheel")
        self._functions = functions
        self.run = functions["ngraph_run"]
        self.free = functions["ngraph_free"]
        self.run_bound = functions["ngraph_run_bound"]
        self.unbind = functions["ngraph_unbind"]

    def _text(self, name: str, *arguments: int) -> str:
        text: bytes | None = self._functions[name](*arguments)
        return (text or b"").decode("utf-8", "replace")

    def version(self) -> str:
        return self._text("ngraph_runtime_version")

    def load(self, path: str | os.PathLike[str]) -> int:
        encoded = os.fsencode(path)
        if b"\0" in encoded:
            raise ModelError(f"{path!r}: a path has no zero bytes")
        model = _MODEL()
        status = self._functions["ngraph_load"](encoded, ctypes.byref(model))
        if status or not model.value:
            text = self._text("ngraph_last_error") or f"error {status}"
            name = os.fsdecode(encoded)
            raise ModelError(text if name in text else f"{name}: {text}")
        return model.value

    def metadata(self, model: int) -> str:
        return self._text("ngraph_metadata", model)

    def instruction_set(self, model: int) -> str:
        return self._text("ngraph_instruction_set", model)

    def shape_sets(self, model: int) -> int:
        return int(self._functions["ngraph_shape_sets"](model))

    def inputs(self, model: int, shape_set: int) -> list[RawPort]:
        return self._ports(model, shape_set, "ngraph_inputs", "ngraph_input", _shape)

    def outputs(self, model: int, shape_set: int) -> list[RawPort]:
        return self._ports(model, shape_set, "ngraph_outputs", "ngraph_output", _shape)

    def seed(self, model: int, seed: int) -> None:
        self._functions["ngraph_seed"](model, seed)

    def ranges(self, model: int) -> int:
        return int(self._functions["ngraph_ranges"](model))

    def range_inputs(self, model: int, number: int) -> list[RawPort]:
        return self._ports(model, number, "ngraph_inputs", "ngraph_range_input", _sizes)

    def range_outputs(self, model: int, number: int) -> list[RawPort]:
        return self._ports(model, number, "ngraph_outputs", "ngraph_range_output", _sizes)

    def _ports(self, model: int, number: int, count: str, port: str,
               shape: Callable[[Any], tuple[int | str, ...]]) -> list[RawPort]:
        """Those of a set of shapes or of a range."""
        found = [self._functions[port](model, number, i) for i in range(self._functions[count](model))]
        if not all(found):
            raise LibraryError(f"{self.path}: {port} gives nothing for set of shapes or range {number}")
        contents = [pointer.contents for pointer in found]
        return [RawPort(p.name.decode("utf-8", "replace"), p.element.decode(), p.element_bytes, shape(p))
                for p in contents]

    def range_symbols(self, model: int, number: int) -> dict[str, tuple[int, int]]:
        """The bounds of each symbol, both included."""
        found: dict[str, tuple[int, int]] = {}
        while True:
            pointer = self._functions["ngraph_range_symbol"](model, number, len(found))
            if not pointer:
                return found
            name = pointer.contents.name.decode("utf-8", "replace")
            if name in found:
                raise LibraryError(f"{self.path}: range {number} has the symbol {name} twice")
            found[name] = pointer.contents.low, pointer.contents.high

    def range_guards(self, model: int, number: int) -> tuple[str, ...]:
        """For each program of a range what must hold of the sizes."""
        return tuple(self._text("ngraph_range_guards", model, number).split("\n"))

    def bind(self, model: int, shapes: Sequence[tuple[int, ...]]) -> int:
        """What runs inputs of these shapes, to be given back with `unbind`."""
        rows = [(ctypes.c_int64 * max(len(shape), 1))(*shape) for shape in shapes]
        pointers = (ctypes.c_void_p * max(len(rows), 1))(*map(ctypes.addressof, rows))
        ranks = (_SIZE * max(len(rows), 1))(*map(len, shapes))
        bound = _MODEL()
        status = self._functions["ngraph_bind"](model, pointers, ranks, ctypes.byref(bound))
        if status or not bound.value:
            raise self.failure(status)
        return bound.value

    def bound_outputs(self, model: int, bound: int) -> list[tuple[int, ...]]:
        """The shapes of the outputs."""
        found = [self._functions["ngraph_bound_output"](bound, i).contents
                 for i in range(self._functions["ngraph_outputs"](model))]
        return [_shape(port) for port in found]

    def reference(self, model: int, shape_set: int) -> tuple[list[bytes], list[bytes]] | None:
        """The arrays of inputs and of expected outputs that the file holds for a set of shapes."""
        inputs, outputs = _ARRAYS(), _ARRAYS()
        status = self._functions["ngraph_reference"](model, shape_set, ctypes.byref(inputs), ctypes.byref(outputs))
        if status:
            raise self.failure(status)
        if not outputs:
            return None
        return (self._contents(inputs, model, shape_set, "ngraph_inputs", "ngraph_input"),
                self._contents(outputs, model, shape_set, "ngraph_outputs", "ngraph_output"))

    def _contents(self, arrays: Any, model: int, shape_set: int, count: str, port: str) -> list[bytes]:
        of_port = self._functions[port]
        return [ctypes.string_at(arrays[i], of_port(model, shape_set, i).contents.bytes)
                for i in range(self._functions[count](model))]

    def failure(self, status: int) -> Exception:
        """What to raise in the thread whose `run` gave this status."""
        text = self._text("ngraph_last_error") or f"error {status}"
        if status == _ARGUMENT:
            return InputError(text)
        return MemoryError(text) if status == _MEMORY else ModelError(text)


def _shape(port: Any) -> tuple[int, ...]:
    return tuple(port.shape[:port.rank])


def _sizes(port: Any) -> tuple[int | str, ...]:
    return tuple(int(size) if size.isdigit() else size.decode("utf-8", "replace") for size in port.sizes[:port.rank])


def library() -> Library:
    """That of NGRAPH_RUNTIME_LIBRARY if it is set, else the one beside this module; loaded once."""
    chosen = os.environ.get(VARIABLE)
    path = chosen or str(Path(__file__).with_name(NAME))
    if not os.path.exists(path):
        raise LibraryError(f"there is no {path}: " + (f"{VARIABLE} names it" if chosen else
                           f"install the wheel of ngraph-runtime, or set {VARIABLE} to a built {NAME}"))
    return _loaded(path)


@lru_cache(maxsize=None)
def _loaded(path: str) -> Library:
    return Library(path)
