"""What the CPU compiles a graph to for a range of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngraph_mxnet.ir.answers import IN_FORCE
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.guards import Guard, Guards
from ngraph_mxnet.ir.module import Module
from ngraph_mxnet.ir.roles import Role
from ngraph_mxnet.runtime.executable import NativeExecutable, Port, input_ports, output_ports
from ngraph_mxnet.runtime.ranges import Shapes, Template
from ngraph_mxnet.targets.cpu.lower import Settings
from ngraph_mxnet.targets.cpu.program.program import ProgramBuilder
from ngraph_mxnet.targets.cpu.program.template_code import template_code


class CPUTemplate(Template):
    """`native` is `_core.ProgramTemplate`. `main` and `prepare` are the builders, kept for tests."""

    def __init__(self, graph: Graph, native: Any, guards: Sequence[Guard], main: ProgramBuilder,
                 prepare: ProgramBuilder) -> None:
        self.inputs, self._outputs = input_ports(graph), output_ports(graph)
        self.native, self.guards = native, guards
        self.main, self.prepare = main, prepare

    @staticmethod
    def of(graph: Graph, module: Module, main: ProgramBuilder, prepare: ProgramBuilder,
           settings: Settings) -> CPUTemplate:
        """The guards are those in force."""
        from ngraph_mxnet import _core

        guards = IN_FORCE.get()
        assert isinstance(guards, Guards)
        found = list(guards.found.values())
        inputs, outputs = ([value.type for value in values] for values in (module.flow.inputs, graph.results))
        code = template_code(main, graph.symbols(), found, inputs, outputs)
        weights = [place for place, value in enumerate(module.flow.inputs) if value.role is Role.WEIGHT]
        prepared = prepare.code().bind(_core.kernel_address, None) if prepare.instructions else None
        native = _core.ProgramTemplate(
            code.addressed(_core.kernel_address), prepared, prepare.prepared_bytes if prepared else 0, weights,
            [inputs[place].bytes for place in weights], settings.threads, graph.name)
        return CPUTemplate(graph, native, found, main, prepare)

    def bind(self, shapes: Shapes) -> NativeExecutable | None:
        native = self.native.bind(shapes)
        if native is None:
            return None
        return NativeExecutable(_bound(self.inputs, native.inputs), _bound(self._outputs, native.outputs), native)


def _bound(ports: Sequence[Port], specs: Sequence[tuple[str, Sequence[int]]]) -> list[Port]:
    return [Port(port.name, port.type.with_shape(tuple(shape))) for port, (_, shape) in zip(ports, specs, strict=True)]
