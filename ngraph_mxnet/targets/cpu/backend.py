"""The CPU backend.

By default it is in direct execution (DEX): it binds shape-generic kernels that were compiled at package build, and
compiles nothing itself. With `codegen` it also fuses elementwise ops into kernels generated for the graph's shapes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError, PackageError, UnsupportedError
from ngraph_mxnet.ir.graph import Graph, Node
from ngraph_mxnet.ir.module import Module
from ngraph_mxnet.ir.opdef import OpDef
from ngraph_mxnet.ir.ranges import because
from ngraph_mxnet.ir.sizes import IN_FORCE
from ngraph_mxnet.ir.types import Role, TensorType, u8
from ngraph_mxnet.ops.bodies import has_bodies, nodes_within
from ngraph_mxnet.passes.base import FixedPoint, Pass, PassManager, PassRecord
from ngraph_mxnet.passes.clusters import MAIN, split_prepare
from ngraph_mxnet.program.backend import Backend, DeviceCosts
from ngraph_mxnet.program.executable import Executable, Lowered, NativeExecutable, Usage, input_ports, output_ports
from ngraph_mxnet.program.package import Package
from ngraph_mxnet.program.program import IsaProgram
from ngraph_mxnet.program.ranges import Template
from ngraph_mxnet.program.trace import Event, recorder, span
from ngraph_mxnet.quantisation.apply import Fit
from ngraph_mxnet.targets.cpu.artefact import ModuleFor, artefact_programs, chosen_isas
from ngraph_mxnet.targets.cpu.codegen.clusters import cluster_pass
from ngraph_mxnet.targets.cpu.codegen.generator import Code, Generator, added_code
from ngraph_mxnet.targets.cpu.lower import RULES, Lowering, Settings
from ngraph_mxnet.targets.cpu.lower.module import lower_module, stored_values
from ngraph_mxnet.targets.cpu.machine.isa import (
    InstructionSet,
    amx_refused,
    available,
    choose_instruction_set,
    choose_isa,
    halves_avx512,
    has_vnni,
    kernels_of,
)
from ngraph_mxnet.targets.cpu.machine.openmp import ignored, warn_of_ignored
from ngraph_mxnet.targets.cpu.machine.tuning import tune
from ngraph_mxnet.targets.cpu.options import NO_RECIPE, OPTIONS, Options, check_options, read_options, tell_once
from ngraph_mxnet.targets.cpu.pipeline import chained, pipeline, quantizing
from ngraph_mxnet.targets.cpu.planning.precision import bf16_missing, precision_notice
from ngraph_mxnet.targets.cpu.planning.view import BLOCK
from ngraph_mxnet.targets.cpu.planning.widening import runs_widened, unlowered
from ngraph_mxnet.targets.cpu.program.builder import MemoryUse, ProgramBuilder
from ngraph_mxnet.targets.cpu.program.instruction import in_the_way
from ngraph_mxnet.targets.cpu.program.programs import CPURange, Programs, load, prepared_buffer, program_flow
from ngraph_mxnet.targets.cpu.program.stored import StoredValues
from ngraph_mxnet.targets.cpu.program.trace import trace_executor

if TYPE_CHECKING:
    from ngraph_mxnet.targets.cpu.report import Explained, Profile


class CPUExecutable(NativeExecutable):
    """Runs a native Program. `graph` is the optimised main graph; `native` is `_core.Executable`.

    `main` and `prepare` are the builders, kept for `explain` and tests: asked for, they are planned. `generated`: the
    Program calls kernels that were made for it, so that no other process could run it. `settings`: what it was lowered
    for. `fit`: what of a recipe was applied; None without one.
    """

    def __init__(self, graph: Graph, module: Module, native: Any, main: Lowering, prepare: ProgramBuilder,
                 programs: Programs, generated: bool, settings: Settings, precision: str,
                 fit: Fit | None = None) -> None:
        super().__init__(input_ports(graph), output_ports(graph), native)
        self.module = module
        self._lowering, self._prepare = main, prepare
        self.programs = programs
        self._generated, self.settings = generated, settings
        self.precision, self.quantised = precision, programs.quantised
        self.fit = fit

    @cached_property
    def main(self) -> ProgramBuilder:
        self._lowering.builder.planned(self.programs.main.plan())
        return self._lowering.builder

    @cached_property
    def prepare(self) -> ProgramBuilder:
        if self.programs.prepare is not None:
            self._prepare.planned(self.programs.prepare.plan())
        return self._prepare

    @cached_property
    def values(self) -> StoredValues:  # type: ignore[override]  # made for audits, which few programs are for
        assert self.main.steps or not self.main.instructions
        return stored_values(self._lowering, [port.type for port in self.outputs])

    @property
    def prepared(self) -> tuple[int, int]:
        return len(self._prepare.pieces), self._prepare.prepared_bytes

    @property
    def memory(self) -> MemoryUse:
        """The memory that the plan takes, beside others that it is compared with."""
        main = self.module.graphs[MAIN]
        intermediates = sum(value.type.bytes for node in main.nodes for value in node.outputs
                            if node.op.name != "constant" and value not in main.results)
        return self.main.memory._replace(intermediates=intermediates, prepared=self._prepare.prepared_bytes)

    def in_the_way(self, over: Mapping[int, int]) -> str | None:
        """Why some results can't be written over inputs; None if they can.

        Args:
            over: for each of these results the number of its input.
        """
        return in_the_way(self.main.instructions, over)

    def package(self) -> Package:
        if self._generated and self.settings.generator is None:
            raise PackageError("kernels that other distributions added are no part of a package")
        if self._generated:
            raise PackageError("kernels that were generated for a graph are no part of a package: compile without "
                               "NGRAPH_CODEGEN and the option codegen")
        try:  # else each process would find what it can't load
            self.programs.check(self.native.prepare_program, self.native.program)
        except ValueError as error:
            raise PackageError(f"graph {self.programs.name} can't be kept: {error}") from error
        return self.programs.package(CPUBackend.name)

    def artefact_programs(self, isas: Sequence[str] = ()) -> Iterator[IsaProgram]:
        if self._generated or self.settings.generator is not None:
            raise PackageError("kernels that were generated or added are not in the runtime's library: compile without "
                               "NGRAPH_CODEGEN and the option codegen, and what other distributions add")
        own = self.settings.instruction_set
        if self.precision == "int8" and list(isas) != [own]:
            raise PackageError(f"its weights were quantised for {own}: save it for this instruction set alone, or "
                               "write the file with ngraph_mxnet.export and its recipe")
        yield from artefact_programs(lambda isa: self.module, (), isas, {}, threads=self.settings.threads,
                                     bf16=self.settings.bf16)

    def listing(self) -> str:
        from ngraph_mxnet.targets.cpu.report import listing

        return listing(self.programs.flow, self.native.program, self.native.prepare_program,
                       self.programs.prepared_bytes)

    def lowered(self) -> Lowered:
        from ngraph_mxnet.targets.cpu.report import lowered

        return lowered(self._lowering, self.main)

    def traced(self, arrays: list[np.ndarray]) -> list[Event]:
        from ngraph_mxnet.targets.cpu.report import traced

        return traced(lambda: self.run(arrays))

    def measured(self, arrays: list[np.ndarray], rounds: int) -> Profile:
        from ngraph_mxnet.targets.cpu.report import profiled

        return profiled(lambda: self.run(arrays), rounds, self.settings.isa, self.settings.threads, (self.memory,))

    def usage(self, arrays: list[np.ndarray], rounds: int) -> Usage:
        from ngraph_mxnet.targets.cpu.report import seconds_by_origin

        seconds = seconds_by_origin(lambda: self.run(arrays), self.settings.threads, rounds)
        constants = sum(array.nbytes for array in self.main.constants)
        return Usage(seconds, constants + self._prepare.prepared_bytes, self.memory.planned)


class CPUBackend(Backend):
    """See `Backend`. Computes in float32, but for contractions if bf16 is asked for; elementwise ops and reductions of
    float64 and integers in these, comparisons and logic in bool, positions in i64."""

    name = "CPU"
    options = OPTIONS
    channel_block = BLOCK
    in_place: Mapping[str, Any] = {"chains": 1, "codegen": 0, "autotune": 0, "precision": "f32"}

    def supports(self, node: Node) -> str | None:
        if has_bodies(node.op.name):
            return next(filter(None, map(self.supports, nodes_within(node))), None)
        with because(node):
            reason = unlowered(node)
            return None if reason is None or runs_widened(node) else reason

    def machine(self) -> Mapping[str, Any]:
        from ngraph_mxnet import _core

        features = _core.cpu_features()
        isa = choose_isa(features)
        return {"features": sorted(name for name, there in features.items() if there),
                "instruction sets": available(features), "kernels": isa,
                "int8 by AVX512_VNNI": isa == "avx512" and bool(features.get("avx512vnni")),
                "bf16 by AVX512_BF16": bf16_missing(isa, features) is None,
                "bf16 and int8 by AMX": choose_instruction_set(features) == "amx"}

    def notices(self) -> list[str]:
        from ngraph_mxnet import _core

        features = _core.cpu_features()
        notice = precision_notice(config.get("NGRAPH_PRECISION"), choose_isa(features), features,
                                  bool(config.get("NGRAPH_CALIBRATION") or config.get("NGRAPH_PACKAGE")))
        return [*filter(None, [notice, amx_refused(features)]), *ignored(os.environ).values()]

    def check_options(self, options: Mapping[str, Any]) -> None:
        check_options(options)

    def precision(self, options: Mapping[str, Any]) -> str:
        return read_options(options).computed

    def precision_of(self, graph: Graph, options: Mapping[str, Any]) -> str:
        wanted = read_options(options)
        settings = self._settings(wanted)[0]
        if wanted.recipe is None:
            return _precision(settings, None)
        PassManager(self.pipeline()).run(graph)
        fit = Fit.of(wanted.recipe, graph)
        return f"{fit.precision}, {fit}"

    def implements(self, op: OpDef) -> bool:
        return op.name in RULES

    def pipeline(self) -> Sequence[Pass | FixedPoint]:
        return pipeline()

    def costs(self, graph: Graph, options: Mapping[str, Any]) -> DeviceCosts:
        from ngraph_mxnet.targets.cpu import costs

        wanted = read_options(options)
        if wanted.costs == "measured":
            return costs.measured(graph, options, wanted.threads)
        return costs.modelled(wanted.threads)

    def explain(self, graphs: Sequence[Graph]) -> Explained:
        from ngraph_mxnet.program.compile import compile
        from ngraph_mxnet.targets.cpu.report import Explained

        return Explained.of([compile(graph, self.name) for graph in graphs])

    def profile(self, call: Callable[[], Any], rounds: int, explained: Explained | None = None) -> Profile:
        from ngraph_mxnet import _core
        from ngraph_mxnet.targets.cpu.report import profiled

        return profiled(call, rounds, choose_isa(_core.cpu_features()), config.threads(),
                        tuple(explained.memory) if explained is not None else ())

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        wanted = read_options(options)
        from ngraph_mxnet import _core

        settings, notice = self._settings(wanted)
        fit = self._optimised(graph, wanted, settings)
        notice = notice or (fit.shortfall if fit is not None else None)
        module, main, prepare = self._lowered(graph, wanted, settings)
        if wanted.autotune:
            with span("autotune", "compile"):
                tune(main.builder, settings.threads)
        with span("generate code", "compile"):
            code = settings.generator.code() if settings.generator is not None else Code(None, {})
        with span("plan and bind", "compile"):
            programs = _programs(graph, module, main.builder, prepare.builder, settings, notice, fit)
            code = _with_added(code, main.builder, prepare.builder, settings)
            try:
                native = programs.bind(lambda name: code.addresses.get(name) or _core.kernel_address(name), code.owner,
                                       generated=bool(code.addresses))
            except ValueError as error:  # a size that no memory has, of a value within the graph
                raise UnsupportedError(f"the CPU can't run graph {graph.name}: {error}") from None
        return CPUExecutable(graph, module, native, main, prepare.builder, programs, bool(code.addresses), settings,
                             programs.precision, fit)

    def template(self, graph: Graph, options: Mapping[str, Any]) -> Template | None:
        wanted = read_options(options)
        if wanted.codegen or wanted.autotune:
            return None  # both are for the sizes at hand
        from ngraph_mxnet import _core

        settings, notice = self._settings(wanted)
        fit = self._optimised(graph, wanted, settings)
        notice = notice or (fit.shortfall if fit is not None else None)
        module, main, prepare = self._lowered(graph, wanted, settings)
        with span("plan and bind", "compile"), because("the packing of weights"):
            programs = _programs(graph, module, main.builder, prepare.builder, settings, notice, fit)
            return CPURange(programs, programs.binder(_core.kernel_address), is_kept=True)

    def _settings(self, wanted: Options) -> tuple[Settings, str | None]:
        """Return the settings that a graph is compiled for, and a notice of what was asked for and this CPU lacks. Also
        issue the notice."""
        from ngraph_mxnet import _core

        features = _core.cpu_features()
        instruction_set = choose_instruction_set(features, wanted.isa)
        isa = kernels_of(instruction_set)
        notice = precision_notice(wanted.precision, isa, features, wanted.recipe is not None)
        tell_once(notice)
        trace_executor()
        warn_of_ignored(os.environ)
        return Settings(isa, wanted.threads, Generator(isa) if wanted.codegen else None,
                        config.get("NGRAPH_CPU_WINOGRAD"), bf16=wanted.precision == "bf16" and not notice,
                        vnni=has_vnni(instruction_set, features), halves=halves_avx512(features),
                        amx=instruction_set == "amx"), notice

    def _optimised(self, graph: Graph, wanted: Options, settings: Settings) -> Fit | None:
        """Rewrite the graph by the passes; what of the recipe was applied, if there is one. What it does not say of
        the graph is told.

        Raises:
            CalibrationError: it is one of the options, and fits none of the graph's layers.
        """
        self.require_support(graph)
        observer, fit = _record_pass if recorder() else None, None
        with span("passes", "compile"):
            PassManager(self.pipeline(), observer=observer).run(graph)
            if wanted.recipe is not None:
                fit = Fit.of(wanted.recipe, graph)
                if wanted.given_recipe and fit.layers:
                    fit.require()
                PassManager(quantizing(fit.recipe, settings.instruction_set), observer=observer).run(graph)
                tell_once(fit.shortfall)
        self.require_support(graph)  # a pass may have made a node that has no kernel: never run it wrong
        return fit

    def _lowered(self, graph: Graph, wanted: Options, settings: Settings) -> tuple[Module, Lowering, Lowering]:
        """Return the module of a graph after the passes, and its graphs MAIN and PREPARE lowered."""
        if settings.generator is None:
            module = chained(graph, wanted)
        else:
            module = split_prepare(graph)
            with span("cluster", "compile"):
                cluster_pass().run(module.graphs[MAIN])
        with span("lower", "compile"):
            return module, *lower_module(module, settings)

    def artefact_programs(self, graph: Graph, options: Mapping[str, Any], isas: Sequence[str],
                          weights: Mapping[str, np.ndarray]) -> Iterator[IsaProgram]:
        wanted = read_options(options)
        chosen_isas(isas)  # refuses before there is work
        module_for = self._modules_for_file(graph, wanted)
        yield from artefact_programs(module_for, graph.symbols(), isas, weights, threads=wanted.threads,
                                     bf16=wanted.precision == "bf16")

    def _modules_for_file(self, graph: Graph, wanted: Options) -> ModuleFor:
        """Return a function that gives the module for an instruction set. With a recipe the modules differ between
        instruction sets (`quantizing`).

        Raises:
            ConfigError: int8 is asked for without a recipe.
            CalibrationError: the recipe fits none of the graph's layers: a file says in which precision it computes.
        """
        if wanted.precision == "int8" and wanted.recipe is None:
            raise ConfigError(NO_RECIPE)
        self.require_support(graph)
        PassManager(self.pipeline()).run(graph)
        self.require_support(graph)
        if wanted.recipe is None:
            module = chained(graph, wanted)
            return lambda isa: module
        fit = Fit.of(wanted.recipe, graph)
        fit.require()
        tell_once(fit.shortfall)

        def module_for(instruction_set: InstructionSet) -> Module:
            copy = graph.clone()
            PassManager(quantizing(fit.recipe, instruction_set)).run(copy)
            self.require_support(copy)
            return chained(copy, wanted)

        return module_for

    def load(self, package: Package) -> Executable | Template:
        return load(package)


def _programs(graph: Graph, module: Module, main: ProgramBuilder, prepare: ProgramBuilder, settings: Settings,
              notice: str | None, fit: Fit | None) -> Programs:
    """Build the Programs of a graph. If the graph has symbols, the Programs are for sizes for which the guards in force
    hold."""
    whole, symbols = module.flow, graph.symbols()
    results, prepared, first = whole.step(MAIN).outputs, None, None
    if prepare.instructions:
        prepared = prepared_buffer(whole.inputs, int(prepare.prepared_bytes))
        first = prepare.program([value.type if value.role is Role.WEIGHT else TensorType(u8, (0,))
                                 for value in whole.inputs])  # which reads weights alone, and has no symbols
    guards = IN_FORCE.get() if symbols else None
    held = [] if guards is None else list(guards.found.values())
    second = main.program([value.type for value in whole.inputs], [value.type for value in results], symbols, held)
    return Programs(
        graph.name, program_flow(whole.inputs, results, whole.names, prepared), second, first, settings.threads,
        notice, _precision(settings, fit), None if fit is None else str(fit), symbols, held)


def _with_added(code: Code, main: ProgramBuilder, prepare: ProgramBuilder, settings: Settings) -> Code:
    """The generated kernels, and those that other distributions added: the kernel library has none of these."""
    from ngraph_mxnet import _core

    names = {each.kernel: each.name for builder in (main, prepare) for each in builder.instructions}
    missing = []
    for symbol in names.keys() - code.addresses.keys():
        try:
            _core.kernel_address(symbol)
        except KeyError:
            missing.append(names[symbol])
    if not missing:
        return code
    added = added_code(missing, settings.isa)
    return Code((code.owner, added.owner), {**code.addresses, **added.addresses})


def _precision(settings: Settings, fit: Fit | None) -> str:
    """In what a program's convolutions and matrix products compute."""
    return fit.precision if fit is not None else "bf16" if settings.bf16 else "f32"


def _record_pass(record: PassRecord, graph: Graph) -> None:
    active = recorder()
    if active is not None:
        active.add(record.name, "pass", time.perf_counter() - record.ms / 1e3, record.ms / 1e3,
                   {"changed": record.changed, "ops": sum(record.after.values())})
