"""What `_core.ProgramTemplate` is made of, as plain data: a package of the CPU for a range of sizes.

It names kernels of the kernel library; nothing in it is code. Importing this module imports no compiler.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ngraph_mxnet.errors import NGraphError, PackageError
from ngraph_mxnet.ir.dims import Atom
from ngraph_mxnet.ir.sizes import Guard
from ngraph_mxnet.package.template_package import TemplatePackage
from ngraph_mxnet.runtime.executable import NativeExecutable, Port
from ngraph_mxnet.runtime.ranges import Shapes, Template
from ngraph_mxnet.targets.cpu.machine.openmp import warn_of_ignored
from ngraph_mxnet.targets.cpu.program.program_code import ProgramCode
from ngraph_mxnet.targets.cpu.program.programs import MOST_THREADS, program_of
from ngraph_mxnet.targets.cpu.program.template_code import TemplateCode
from ngraph_mxnet.targets.cpu.program.trace import trace_executor
from ngraph_mxnet.targets.cpu.program.validate import Validator, count

_MAIN, _PREPARE = "main", "prepare"


@dataclass(frozen=True)
class TemplatePrograms:
    """The main Program for a range of sizes, and the one that prepares weights, if any, whose sizes are numbers.

    In both, the number of an input is its place among `inputs`; `weights` are the places of those that are prepared.
    """

    name: str
    symbols: Sequence[Atom]
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    guards: Sequence[Guard]
    main: TemplateCode
    prepare: ProgramCode | None
    prepared_bytes: int
    weights: Sequence[int]
    threads: int
    notice: str | None = None
    precision: str = "f32"
    quantised: str | None = None
    """All three as of `Programs`."""

    def native(self, *, checked: bool = False) -> Any:
        """The `_core.ProgramTemplate`. One that is `checked` looks at the instructions whenever it is bound, as is done
        for Programs from disk.

        Raises:
            KeyError: there is no such kernel.
        """
        from ngraph_mxnet import _core

        prepare = self.prepare.bind(_core.kernel_address, None) if self.prepare is not None else None
        return _core.ProgramTemplate(
            self.main.addressed(_core.kernel_address), prepare, self.prepared_bytes, list(self.weights),
            [self.inputs[place].type.bytes for place in self.weights], self.threads, self.name, checked=checked)

    def package(self, target: str) -> TemplatePackage:
        code = {_MAIN: {field.name: getattr(self.main, field.name) for field in fields(self.main)}}
        if self.prepare is not None:
            code[_PREPARE] = vars(self.prepare)
        settings = {"prepared_bytes": self.prepared_bytes, "weights": list(self.weights), "threads": self.threads,
                    "notice": self.notice, "precision": self.precision, "quantised": self.quantised}
        inputs, outputs = ([(port.name, port.type) for port in ports] for ports in (self.inputs, self.outputs))
        return TemplatePackage(target, self.name, self.symbols, inputs, outputs, self.guards, code, settings)

    @staticmethod
    def of(package: TemplatePackage) -> TemplatePrograms:
        """What gave the package. What its numbers refer to is checked when it becomes native, and its instructions when
        it is bound.

        Raises:
            PackageError: it is damaged, or this CPU does not run it.
        """
        try:
            main = TemplateCode(**{**package.code[_MAIN], "steps": _steps(package.code[_MAIN]["steps"])})
            prepare = program_of(**package.code[_PREPARE]) if _PREPARE in package.code else None
            inputs, outputs = ([Port(*named) for named in ports] for ports in (package.inputs, package.outputs))
            found = TemplatePrograms(package.name, package.symbols, inputs, outputs, package.guards, main, prepare,
                                     **package.settings)
            found.check()
        except (ArithmeticError, AttributeError, LookupError, NGraphError, TypeError, ValueError) as error:
            raise PackageError(f"graph {package.name}: what is packed does not run here: {error}") from error
        return found

    def check(self) -> None:
        """Raises ValueError for what this CPU does not run, and what prepares weights in another way than its kernels
        declare."""
        sizes = [0 if port.type.is_symbolic else port.type.bytes for port in self.inputs]
        if any(self.inputs[count(place)].type.is_symbolic for place in self.weights):
            raise ValueError("the size of a weight is a range")
        validator = Validator(sizes, [], count(self.prepared_bytes))
        validator.check_kernels(each[0] for each in (*self.main.instructions, *self.main.zeroing))
        if self.prepare is not None:
            validator.check(self.prepare)
        if not 1 <= count(self.threads) <= MOST_THREADS:
            raise ValueError(f"{self.threads} threads")


def _steps(given: Any) -> np.ndarray:
    if not isinstance(given, np.ndarray):
        raise TypeError("the steps of the sizes are no array")
    return given


class CPUTemplate(Template):
    """`native` is `_core.ProgramTemplate`. `programs`: None of one that was loaded."""

    def __init__(self, of: TemplatePrograms, native: Any, programs: TemplatePrograms | None) -> None:
        self.inputs, self._outputs = of.inputs, of.outputs
        self.native, self.guards = native, of.guards
        self.precision, self.quantised = of.precision, of.quantised
        self._programs = programs

    def bind(self, shapes: Shapes) -> NativeExecutable | None:
        native = self.native.bind(shapes)
        if native is None:
            return None
        found = NativeExecutable(_bound(self.inputs, native.inputs), _bound(self._outputs, native.outputs), native)
        found.precision, found.quantised = self.precision, self.quantised
        return found

    def package(self) -> TemplatePackage:
        if self._programs is None:
            raise PackageError("what was loaded from a package holds none, to save memory: keep the package itself")
        return self._programs.package("CPU")


def _bound(ports: Sequence[Port], specs: Sequence[tuple[str, Sequence[int]]]) -> list[Port]:
    return [Port(port.name, port.type.with_shape(tuple(shape))) for port, (_, shape) in zip(ports, specs, strict=True)]


def load_template(package: TemplatePackage) -> CPUTemplate:
    """What runs the package of a graph that the CPU compiled for a range of sizes.

    Raises:
        PackageError: it is damaged, or this CPU does not run it.
    """
    programs = TemplatePrograms.of(package)
    trace_executor()
    warn_of_ignored(os.environ)
    if programs.notice is not None:
        from ngraph_mxnet.targets.cpu.options import tell_once

        tell_once(programs.notice)
    try:
        native = programs.native(checked=True)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:  # a C++ cast raises RuntimeError
        raise PackageError(f"graph {package.name}: what is packed does not run here: {error}") from error
    return CPUTemplate(programs, native, None)
