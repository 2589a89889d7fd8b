"""What `_core.Executable` is made of, as plain data that can be kept on disk.

A recipe names kernels of the kernel library; nothing in it is code. Importing this module imports no compiler.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ngraph_mxnet import config
from ngraph_mxnet.cache import Store, open_store, package_identity
from ngraph_mxnet.cpu.program_recipe import ProgramRecipe
from ngraph_mxnet.cpu.trace import trace_executor
from ngraph_mxnet.cpu.validate import Validator, count
from ngraph_mxnet.ir.types import element_type

_LARGE = 1 << 12
"""Bytes of a constant that is worth naming instead of keeping."""

_MOST_THREADS = 1 << 16
_HEADER_BYTES = 4096
"""What a file of prepared weights takes beside them."""
_SEAL_KEY_BYTES = 64

Spec = tuple[str, tuple[int, ...]]
"""Element name and shape."""


@dataclass(frozen=True)
class Recipe:
    """The arguments of `_core.Executable`."""

    main: ProgramRecipe
    prepare: ProgramRecipe | None
    prepared_bytes: int
    cacheable: list[int]
    inputs: list[Spec]
    outputs: list[Spec]
    threads: int
    name: str
    notice: str | None = None
    """What was asked for and this CPU lacks: every process that uses the program warns of it."""

    def bind(self, address: Callable[[str], int], owner: Any = None, *, generated: bool = False) -> Any:
        """The `_core.Executable`, which keeps `owner`, the owner of the kernels' code.

        What `generated` kernels prepare is not kept on disk, for their names do not tell what they do.

        Raises:
            KeyError: there is no such kernel.
        """
        from ngraph_mxnet import _core

        return _core.Executable(
            self.main.bind(address, owner), self.prepare.bind(address, owner) if self.prepare else None,
            self.prepared_bytes, self.cacheable, self.inputs, self.outputs, self.threads, self.name,
            None if generated else self._kept_weights(),
        )

    def check(self) -> None:
        """Raises ValueError, which names the instruction, for one that is not such as its kernel declares."""
        inputs, outputs = ([element_type(element).size * prod(map(count, shape)) for element, shape in specs]
                           for specs in (self.inputs, self.outputs))
        validator = Validator(inputs, outputs, count(self.prepared_bytes))
        for program in (self.main, self.prepare):
            if program is not None:
                validator.check(program)
        if not 1 <= count(self.threads) <= _MOST_THREADS:
            raise ValueError(f"{self.threads} threads")

    def _kept_weights(self) -> KeptWeights | None:
        """Where `_core.Executable` keeps prepared weights."""
        store = open_store() if config.get("NGRAPH_CACHE_WEIGHTS") and self.prepare else None
        if store is None or not store.fits("weights", self.prepared_bytes + _HEADER_BYTES):
            return None
        assert self.prepare is not None
        program = json.dumps([package_identity(), self.prepare.levels, self.prepared_bytes])
        hasher = hashlib.sha256(program.encode())
        for array in self.prepare.constants:
            hasher.update(array.nbytes.to_bytes(8, "little") + array.tobytes())
        return kept_weights(store, hasher.hexdigest())

    def to_bytes(self, held: Mapping[str, np.ndarray] | None = None) -> bytes:
        """A line of JSON, then the content of all constants but large ones that are among `held`, arrays by name."""
        arrays: list[np.ndarray] = []
        large = {name: array for name, array in (held or {}).items() if array.nbytes >= _LARGE}
        # Most are the very arrays; to compare what is in them takes long for big models.
        names: dict[Any, str] = {_memory(array): name for name, array in large.items()}
        sizes = {(array.dtype.str, array.nbytes) for array in large.values()}

        def text(value: Any) -> Any:
            if not isinstance(value, np.ndarray):
                raise TypeError(type(value))
            name = names.get(_memory(value))
            if name is None and (value.dtype.str, value.nbytes) in sizes:
                names.update({content_key(array): one for one, array in large.items() if array.nbytes == value.nbytes})
                name = names.get(content_key(value))
            if name is not None:
                return {"dtype": value.dtype.str, "shape": value.shape, "held": name}
            arrays.append(value)
            return {"dtype": value.dtype.str, "shape": value.shape}

        header = json.dumps(_fields(self), default=text)
        return header.encode() + b"\n" + b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)

    @staticmethod
    def from_bytes(content: bytes, held: Mapping[str, np.ndarray] | None = None) -> Recipe:
        """What `to_bytes` gave, with the same `held`; anything else is a ValueError, KeyError or TypeError."""
        try:
            return Recipe._decode(content, held)
        except (AttributeError, RecursionError) as error:
            raise ValueError(f"no recipe: {error}") from error

    @staticmethod
    def _decode(content: bytes, held: Mapping[str, np.ndarray] | None) -> Recipe:
        end = content.index(b"\n")
        header = json.loads(content[:end])
        position = end + 1

        def program(fields: dict[str, Any] | None) -> ProgramRecipe | None:
            nonlocal position
            if fields is None:
                return None
            constants = []
            for array in fields["constants"]:
                dtype, shape = np.dtype(array["dtype"]), tuple(map(count, array["shape"]))
                if "held" in array:
                    constants.append(np.ascontiguousarray((held or {})[array["held"]], dtype).reshape(shape))
                    continue
                elements = prod(shape)
                constants.append(np.frombuffer(content, dtype, elements, position).reshape(shape))
                position += elements * dtype.itemsize
            return ProgramRecipe(fields["levels"], fields["arena_bytes"], constants)

        main, prepare = program(header.pop("main")), program(header.pop("prepare"))
        if main is None:
            raise ValueError("no main program")
        return Recipe(main, prepare, **header)


@dataclass(frozen=True)
class KeptWeights:
    """What `_core.Executable` needs to keep prepared weights; csrc/kept_weights.h says what each is for."""

    prefix: str
    key: bytes
    seal: Callable[[bytes], bytes]
    on_save: Callable[[], None]


def kept_weights(store: Store, program: str) -> KeptWeights | None:
    """Files of `store` for the weights that `program`, a digest, prepares; None where it keeps nothing."""
    from ngraph_mxnet import _core

    prefix = store.stem("weights", program)
    secret = store.derived_key("weights", _core.hash_key_bytes + _SEAL_KEY_BYTES)
    if prefix is None or secret is None:
        return None
    seal_key = secret[:_SEAL_KEY_BYTES]

    def seal(text: bytes) -> bytes:
        return hashlib.blake2b(text, key=seal_key, digest_size=32).digest()

    return KeptWeights(prefix, secret[_SEAL_KEY_BYTES:], seal, store.tidy)


def load(content: bytes, held: Mapping[str, np.ndarray] | None = None) -> Any:
    """The `_core.Executable` of a kept recipe.

    Raises:
        ValueError, KeyError, TypeError: it is damaged, or an instruction is not such as its kernel declares.
    """
    from ngraph_mxnet import _core
    from ngraph_mxnet.cpu.openmp import warn_of_ignored

    trace_executor()
    warn_of_ignored(os.environ)
    recipe = Recipe.from_bytes(content, held)
    recipe.check()
    if recipe.notice:
        from ngraph_mxnet.cpu.precision import warn_once

        warn_once(recipe.notice)
    return recipe.bind(_core.kernel_address)


def _memory(array: np.ndarray) -> tuple[int, str, tuple[int, ...], tuple[int, ...]]:
    """Where the array's elements lie, and how."""
    return array.__array_interface__["data"][0], array.dtype.str, array.shape, array.strides


def content_key(array: np.ndarray) -> tuple[str, bytes]:
    """Arrays of equal dtype and elements have the same, whatever their shapes."""
    return array.dtype.str, hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()


def _fields(recipe: Recipe) -> dict[str, Any]:
    """In the order of `from_bytes`."""
    fields = dict(vars(recipe))
    fields["main"] = vars(recipe.main)
    fields["prepare"] = vars(recipe.prepare) if recipe.prepare else None
    return fields
