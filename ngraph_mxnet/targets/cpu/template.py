"""What the CPU compiles a graph to for a range of sizes."""

from __future__ import annotations

from ngraph_mxnet.ir.dims import IN_FORCE
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.module import Module
from ngraph_mxnet.ir.sizes import Guards
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.quantise.fit import Fit
from ngraph_mxnet.runtime.executable import input_ports, output_ports
from ngraph_mxnet.targets.cpu.lower import Settings
from ngraph_mxnet.targets.cpu.program.program import ProgramBuilder
from ngraph_mxnet.targets.cpu.program.template_code import template_code
from ngraph_mxnet.targets.cpu.program.template_programs import CPUTemplate, TemplatePrograms


class CompiledTemplate(CPUTemplate):
    """One that was compiled in this process. `main` and `prepare` are the builders, kept for tests."""

    def __init__(self, programs: TemplatePrograms, main: ProgramBuilder, prepare: ProgramBuilder) -> None:
        super().__init__(programs, programs.native(), programs)
        self.main, self.prepare = main, prepare


def template_of(graph: Graph, module: Module, main: ProgramBuilder, prepare: ProgramBuilder,
                settings: Settings, notice: str | None, precision: str, fit: Fit | None) -> CompiledTemplate:
    """The guards are those in force."""
    guards = IN_FORCE.get()
    assert isinstance(guards, Guards)
    found = list(guards.found.values())
    inputs, outputs = ([value.type for value in values] for values in (module.flow.inputs, graph.results))
    programs = TemplatePrograms(
        graph.name, graph.symbols(), input_ports(graph), output_ports(graph), found,
        template_code(main, graph.symbols(), found, inputs, outputs),
        prepare.code() if prepare.instructions else None, prepare.prepared_bytes if prepare.instructions else 0,
        [place for place, value in enumerate(module.flow.inputs) if value.role is Role.WEIGHT], settings.threads,
        notice, precision, None if fit is None else str(fit))
    return CompiledTemplate(programs, main, prepare)
