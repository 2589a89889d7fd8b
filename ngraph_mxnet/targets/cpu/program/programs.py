"""The Programs that run a graph, as plain data: a package of the CPU.

It names kernels of the kernel library; nothing in it is code. Importing this module imports no compiler.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import NGraphError, PackageError
from ngraph_mxnet.ir.module import Flow, Shared, Step, made_value
from ngraph_mxnet.ir.ranges import Guard
from ngraph_mxnet.ir.sizes import Atom
from ngraph_mxnet.ir.types import Role, TensorType, u8
from ngraph_mxnet.program.cache import Store, open_store, package_identity
from ngraph_mxnet.program.executable import NativeExecutable, Port, ports_of
from ngraph_mxnet.program.package import Package, count, pack, text
from ngraph_mxnet.program.program import Program
from ngraph_mxnet.program.ranges import Shapes, Template
from ngraph_mxnet.targets.cpu.machine.openmp import warn_of_ignored
from ngraph_mxnet.targets.cpu.program.trace import trace_executor

_MAIN, _PREPARE, _PREPARED = "main", "prepare", "prepared"
_MOST_THREADS = 1 << 16
_HEADER_BYTES = 4096
"""Bytes that a file of prepared weights takes beside the weights."""
_SEAL_KEY_BYTES = 64
_DAMAGES = (ArithmeticError, AttributeError, LookupError, NGraphError, RuntimeError, TypeError, ValueError)
"""The exceptions that damaged content raises; a C++ cast raises RuntimeError."""

Address = Callable[[str], int]


@dataclass(frozen=True)
class Programs:
    """The main Program, which a call runs, and the one that prepares weights, if any.

    In both, the number of an input is its place among those of `flow`. Its step `prepare` makes one value, the prepared
    buffer, of the weights; its step `main` reads that and all inputs. The sizes of what is no weight may depend on
    `symbols`; the Programs are then for those sizes for which the guards hold.
    """

    name: str
    flow: Flow
    main: Program
    prepare: Program | None
    threads: int
    notice: str | None = None
    """A notice of what was asked for but is missing, on this CPU or for want of a recipe. Every process that uses the
    program warns of it."""
    precision: str = "f32"
    """In what its convolutions and matrix products compute."""
    quantised: str | None = None
    """How many of them are in 8 bits by a recipe, if there was one, as a phrase."""
    symbols: Sequence[Atom] = ()
    guards: Sequence[Guard] = ()

    @property
    def prepared_bytes(self) -> int:
        return self.flow.step(_PREPARE).outputs[0].type.bytes if self.prepare is not None else 0

    @property
    def _weights(self) -> list[int]:
        return [place for place, value in enumerate(self.flow.inputs) if value.role is Role.WEIGHT]

    def bind(self, address: Address, owner: Any = None, *, generated: bool = False, of_file: bool = False) -> Any:
        """The `_core.Executable` of Programs without symbols, which keeps `owner`, the owner of the kernels' code.

        What `generated` kernels prepare is not kept on disk, for their names do not tell what they do. What is
        `of_file` may ask for anything, and binding it ends.

        Raises:
            KeyError: there is no such kernel.
            ValueError: the file's refers to what does not exist, or asks for too much.
        """
        from ngraph_mxnet import _core

        inputs, outputs = ([(value.type.element.name, value.type.shape) for value in values]
                           for values in (self.flow.inputs, self.flow.results))
        return _core.Executable(
            self.main.native(address, owner).bind(of_file=of_file), self._bound_prepare(address, owner, of_file),
            self.prepared_bytes, self._weights, inputs, outputs, self.threads, self.name,
            None if generated else self._cached_weights())

    def check(self, prepare: Any, main: Any = None) -> None:
        """Raises ValueError for an instruction of the bound Programs that is not such as its kernel declares. `main` is
        None if its sizes are symbols."""
        inputs = [0 if value.type.is_symbolic else value.type.bytes for value in self.flow.inputs]
        if main is not None:
            main.check(inputs, [value.type.bytes for value in self.flow.results], self.prepared_bytes)
        if prepare is not None:
            prepare.check(inputs, [], self.prepared_bytes)

    def binder(self, address: Address, *, of_file: bool = False) -> Any:
        """The `_core.Binder` of Programs with symbols. Of what is `of_file`, all instructions are checked.

        Raises:
            KeyError: there is no such kernel.
            ValueError: what prepares weights is not such as its kernels declare.
        """
        from ngraph_mxnet import _core

        prepare, weights = self._bound_prepare(address, None, of_file), self._weights
        if of_file:
            self.check(prepare)
        return _core.Binder(
            self.main.native(address, None), prepare, self.prepared_bytes, weights,
            [self.flow.inputs[place].type.bytes for place in weights], self.threads, self.name, self._cached_weights(),
            of_file)

    def _bound_prepare(self, address: Address, owner: Any, of_file: bool) -> Any:
        return self.prepare.native(address, owner).bind(of_file=of_file) if self.prepare is not None else None

    def package(self, target: str) -> Package:
        code = {name: vars(program) for name, program in ((_MAIN, self.main), (_PREPARE, self.prepare)) if program}
        return Package(target, self.name, self.flow, code, {
            "threads": self.threads, "notice": self.notice, "precision": self.precision,
            "quantised": self.quantised}, self.symbols, self.guards)

    @staticmethod
    def of(package: Package) -> Programs:
        """Return the Programs that gave the package. What the package's numbers refer to is checked when the Programs
        are bound.

        Raises:
            PackageError: it is damaged, or this CPU does not run it.
        """
        from ngraph_mxnet import _core

        try:
            code = {name: Program.of(package.code[name]) for name in package.code}
            found = Programs(package.name, package.flow, code[_MAIN], code.get(_PREPARE), **package.settings,
                             symbols=package.symbols, guards=package.guards)
            prepared = found.flow.step(_PREPARE).outputs[0] if found.prepare is not None else None
            wanted = program_flow(found.flow.inputs, found.flow.results, found.flow.names, prepared)
            if found.flow != wanted:
                raise ValueError("its steps are not those of a Program")
            if any(found.flow.inputs[place].type.is_symbolic for place in found._weights):
                raise ValueError("the size of a weight is a range")
            for said in (found.notice, found.precision, found.quantised):
                if said is not None:
                    text(said)
            if not 1 <= count(found.threads) <= _MOST_THREADS:
                raise ValueError(f"{found.threads} threads")
            for program in code.values():
                for kernel in sorted(program.kernels()):
                    if not _core.kernel_runs(kernel):
                        raise ValueError(f"there is no kernel {kernel!r} that this CPU runs")
        except _DAMAGES as error:
            raise _refused(package, error) from error
        return found

    def _cached_weights(self) -> CachedWeights | None:
        """Return where `_core.Executable` keeps prepared weights, or None if it keeps none."""
        store = open_store() if config.get("NGRAPH_CACHE_WEIGHTS") and self.prepare else None
        if store is None or not store.fits("weights", self.prepared_bytes + _HEADER_BYTES):
            return None
        hasher = hashlib.sha256(f"{package_identity()} {self.prepared_bytes}\n".encode())
        for part in pack(vars(self.prepare)):
            hasher.update(part)
        return cached_weights(store, hasher.hexdigest())


def _refused(package: Package, error: Exception) -> PackageError:
    return PackageError(f"graph {package.name}: what is packed does not run here: {error}")


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
    """The data that `_core.Executable` needs to keep prepared weights; csrc/core/cached_weights.h says what each is
    for."""

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


class CPURange(Template):
    """The Programs of a graph with symbols. `native` is the `_core.Binder`. `programs` is None after loading a package,
    to save memory."""

    def __init__(self, programs: Programs, native: Any, *, is_kept: bool) -> None:
        self.inputs, self._outputs = ports_of(programs.flow)
        self.native, self.guards = native, programs.guards
        self.precision, self.quantised = programs.precision, programs.quantised
        self.programs = programs if is_kept else None

    def bind(self, shapes: Shapes) -> NativeExecutable | None:
        native = self.native.bind(shapes)
        if native is None:
            return None
        found = NativeExecutable(_bound(self.inputs, native.inputs), _bound(self._outputs, native.outputs), native)
        found.precision, found.quantised = self.precision, self.quantised
        return found

    def package(self) -> Package:
        if self.programs is None:
            raise PackageError("what was loaded from a package holds none, to save memory: keep the package itself")
        return self.programs.package("CPU")


def _bound(ports: Sequence[Port], specs: Sequence[tuple[str, Sequence[int]]]) -> list[Port]:
    return [Port(port.name, port.type.with_shape(tuple(shape))) for port, (_, shape) in zip(ports, specs, strict=True)]


def load(package: Package) -> NativeExecutable | CPURange:
    """Load the package of a graph that the CPU compiled, and return what runs it. If the graph has symbols, this serves
    a range of sizes.

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
    try:
        if programs.symbols:
            return CPURange(programs, programs.binder(_core.kernel_address, of_file=True), is_kept=False)
        native = programs.bind(_core.kernel_address, of_file=True)
        programs.check(native.prepare_program, native.program)
    except _DAMAGES as error:
        raise _refused(package, error) from error
    found = NativeExecutable(*ports_of(package.flow), native)
    found.precision, found.quantised = programs.precision, programs.quantised
    return found
