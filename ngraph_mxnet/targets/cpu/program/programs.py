"""What `_core.Executable` is made of, as plain data: a package of the CPU.

It names kernels of the kernel library; nothing in it is code. Importing this module imports no compiler.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet import config
from ngraph_mxnet.cache import Store, open_store, package_identity
from ngraph_mxnet.errors import NGraphError, PackageError
from ngraph_mxnet.ir.module import Flow, Shared, Step, made_value
from ngraph_mxnet.ir.types import Role, TensorType, u8
from ngraph_mxnet.package import Package
from ngraph_mxnet.package.pack import text
from ngraph_mxnet.runtime.executable import NativeExecutable, ports_of
from ngraph_mxnet.targets.cpu.machine.openmp import warn_of_ignored
from ngraph_mxnet.targets.cpu.program.program_code import ProgramCode
from ngraph_mxnet.targets.cpu.program.trace import trace_executor
from ngraph_mxnet.targets.cpu.program.validate import Validator, count

_MAIN, _PREPARE, _PREPARED = "main", "prepare", "prepared"
MOST_THREADS = 1 << 16
_HEADER_BYTES = 4096
"""What a file of prepared weights takes beside them."""
_SEAL_KEY_BYTES = 64


@dataclass(frozen=True)
class Programs:
    """The main Program, which a call runs, and the one that prepares weights, if any.

    In both, the number of an input is its place among those of `flow`. Its step `prepare` makes one value, the prepared
    buffer, of the weights; its step `main` reads that and all inputs.
    """

    name: str
    flow: Flow
    main: ProgramCode
    prepare: ProgramCode | None
    threads: int
    notice: str | None = None
    """What was asked for and this CPU lacks, or a recipe: every process that uses the program warns of it."""
    precision: str = "f32"
    """In what its convolutions and matrix products compute."""
    quantised: str | None = None
    """How many of them are in 8 bits by a recipe, if there was one, as a phrase."""

    @property
    def prepared_bytes(self) -> int:
        return self.flow.step(_PREPARE).outputs[0].type.bytes if self.prepare is not None else 0

    def bind(self, address: Callable[[str], int], owner: Any = None, *, generated: bool = False) -> Any:
        """The `_core.Executable`, which keeps `owner`, the owner of the kernels' code.

        What `generated` kernels prepare is not kept on disk, for their names do not tell what they do.

        Raises:
            KeyError: there is no such kernel.
        """
        from ngraph_mxnet import _core

        inputs, outputs = ([(value.type.element.name, value.type.shape) for value in values]
                           for values in (self.flow.inputs, self.flow.results))
        weights = [index for index, value in enumerate(self.flow.inputs) if value.role is Role.WEIGHT]
        return _core.Executable(
            self.main.bind(address, owner), self.prepare.bind(address, owner) if self.prepare else None,
            self.prepared_bytes, weights, inputs, outputs, self.threads, self.name,
            None if generated else self._cached_weights(),
        )

    def check(self) -> None:
        """Raises ValueError, which names the instruction, for one that is not such as its kernel declares."""
        inputs, outputs = ([count(value.type.bytes) for value in values]
                           for values in (self.flow.inputs, self.flow.results))
        validator = Validator(inputs, outputs, count(self.prepared_bytes))
        for program in (self.main, self.prepare):
            if program is not None:
                validator.check(program)
        if not 1 <= count(self.threads) <= MOST_THREADS:
            raise ValueError(f"{self.threads} threads")

    def listing(self) -> str:
        """As text, for people."""
        from ngraph_mxnet.targets.cpu.report.facts import listing  # imports the lowering

        return listing(self.flow, self.main, self.prepare, self.prepared_bytes)

    def package(self, target: str) -> Package:
        """
        Raises:
            PackageError: whoever loads it would refuse it.
        """
        try:
            self.check()
        except ValueError as error:
            raise PackageError(f"graph {self.name} can't be kept: {error}") from error
        code = {name: vars(program) for name, program in ((_MAIN, self.main), (_PREPARE, self.prepare)) if program}
        return Package(target, self.name, self.flow, code, {
            "threads": self.threads, "notice": self.notice, "precision": self.precision,
            "quantised": self.quantised})

    @staticmethod
    def of(package: Package) -> Programs:
        """What gave the package, checked.

        Raises:
            PackageError: it is damaged, or an instruction is not such as its kernel declares.
        """
        try:
            code = {name: program_of(**package.code[name]) for name in package.code}
            found = Programs(package.name, package.flow, code[_MAIN], code.get(_PREPARE), **package.settings)
            prepared = found.flow.step(_PREPARE).outputs[0] if found.prepare is not None else None
            wanted = program_flow(found.flow.inputs, found.flow.results, found.flow.names, prepared)
            if found.flow != wanted:
                raise ValueError("its steps are not those of a Program")
            for said in (found.notice, found.precision, found.quantised):
                if said is not None:
                    text(said)
            found.check()
        except (ArithmeticError, AttributeError, LookupError, NGraphError, TypeError, ValueError) as error:
            raise PackageError(f"graph {package.name}: what is packed does not run here: {error}") from error
        return found

    def _cached_weights(self) -> CachedWeights | None:
        """Where `_core.Executable` keeps prepared weights."""
        store = open_store() if config.get("NGRAPH_CACHE_WEIGHTS") and self.prepare else None
        if store is None or not store.fits("weights", self.prepared_bytes + _HEADER_BYTES):
            return None
        assert self.prepare is not None
        program = json.dumps([package_identity(), self.prepare.levels, self.prepared_bytes])
        hasher = hashlib.sha256(program.encode())
        for array in self.prepare.constants:
            hasher.update(array.nbytes.to_bytes(8, "little") + array.tobytes())
        return cached_weights(store, hasher.hexdigest())


def program_of(levels: Any, arena_bytes: Any, constants: Any) -> ProgramCode:
    """A package's program, its constants checked; `Programs.check` looks at the levels."""
    if type(constants) is not list or not {np.ndarray}.issuperset(map(type, constants)):
        raise ValueError("the constants are no list of arrays")
    return ProgramCode(levels, arena_bytes, constants)


def prepared_buffer(inputs: Sequence[Shared], size: int) -> Shared:
    """The value that `prepare` makes, of so many bytes."""
    return made_value(_PREPARED, TensorType(u8, (size,)), {value.name for value in inputs})


def program_flow(inputs: tuple[Shared, ...], results: tuple[Shared, ...], names: tuple[str, ...],
                 prepared: Shared | None) -> Flow:
    """The steps of Programs; without `prepared` there is nothing to prepare."""
    if prepared is None:
        return Flow(inputs, (Step(_MAIN, inputs, results),), results, names)
    weights = tuple(value for value in inputs if value.role is Role.WEIGHT)
    steps = (Step(_PREPARE, weights, (prepared,)), Step(_MAIN, (*inputs, prepared), results))
    return Flow(inputs, steps, results, names)


@dataclass(frozen=True)
class CachedWeights:
    """What `_core.Executable` needs to keep prepared weights; csrc/core/cached_weights.h says what each is for."""

    prefix: str
    key: bytes
    seal: Callable[[bytes], bytes]
    on_save: Callable[[], None]


def cached_weights(store: Store, program: str) -> CachedWeights | None:
    """Files of `store` for the weights that `program`, a digest, prepares; None where it keeps nothing."""
    from ngraph_mxnet import _core

    prefix = store.stem("weights", program)
    secret = store.derived_key("weights", _core.hash_key_bytes + _SEAL_KEY_BYTES)
    if prefix is None or secret is None:
        return None
    seal_key = secret[:_SEAL_KEY_BYTES]

    def seal(text: bytes) -> bytes:
        return hashlib.blake2b(text, key=seal_key, digest_size=32).digest()

    return CachedWeights(prefix, secret[_SEAL_KEY_BYTES:], seal, store.tidy)


def load(package: Package) -> NativeExecutable:
    """What runs the package of a graph that the CPU compiled.

    Raises:
        PackageError: it is damaged, or an instruction is not such as its kernel declares.
    """
    from ngraph_mxnet import _core

    programs = Programs.of(package)
    trace_executor()
    warn_of_ignored(os.environ)
    if programs.notice is not None:
        from ngraph_mxnet.targets.cpu.options import tell_once

        tell_once(programs.notice)
    found = NativeExecutable(*ports_of(package.flow), programs.bind(_core.kernel_address))
    found.precision, found.quantised = programs.precision, programs.quantised
    return found
