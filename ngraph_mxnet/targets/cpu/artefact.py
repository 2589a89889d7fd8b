"""Programs for a file: with all weights as constants, as they are prepared, for any instruction set.

What prepares weights runs here, and each piece of the prepared buffer becomes a constant. A CPU that lacks the
instruction set runs the same kernels of its own: what they compute they compute alike, and mostly they only move
elements. Nothing else of the Program runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext

import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError, PackageError, listed
from ngraph_mxnet.base.files import ALIGNMENT
from ngraph_mxnet.ir.module import Module
from ngraph_mxnet.ir.ranges import Guards, assuming, because
from ngraph_mxnet.ir.sizes import IN_FORCE, Atom, is_symbolic
from ngraph_mxnet.ir.types import Role, TensorType, u8
from ngraph_mxnet.passes.clusters import MAIN
from ngraph_mxnet.program.artefact import AFTER, DEFAULT_ISAS
from ngraph_mxnet.program.program import IsaProgram, Program
from ngraph_mxnet.targets.cpu.lower import Settings
from ngraph_mxnet.targets.cpu.lower.module import lower_module
from ngraph_mxnet.targets.cpu.machine.isa import NEEDS, InstructionSet, halves_avx512, kernels_of, supported
from ngraph_mxnet.targets.cpu.microkernels.tables import TableRecipe
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa
from ngraph_mxnet.targets.cpu.program.builder import ProgramBuilder
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Space

Operand = tuple[int, int, int]
"""Space, index, offset."""


def chosen_isas(wanted: Sequence[str]) -> list[InstructionSet]:
    """The instruction sets of these names, best first; all but amx and avx_vnni if there are none.

    Raises:
        ConfigError: there is no such instruction set.
    """
    unknown = [name for name in wanted if name not in NEEDS]
    if unknown:
        raise ConfigError(f"no instruction set {listed(unknown)}; there are {', '.join(NEEDS)}")
    return [isa for isa in NEEDS if isa in (wanted or DEFAULT_ISAS)]


ModuleFor = Callable[[InstructionSet], Module]
"""The optimised graphs for an instruction set."""


def artefact_programs(module_for: ModuleFor, symbols: Sequence[Atom], isas: Sequence[str],
                      weights: Mapping[str, np.ndarray], *, threads: int, bf16: bool = False) -> Iterator[IsaProgram]:
    """The Programs of a model for these instruction sets (`chosen_isas`). `weights`, by the names of inputs, become
    constants. Algorithms are chosen for so many `threads`, and for this CPU.

    With `symbols` in the inputs' sizes, guards are in force, and a Program is for all sizes for which these hold, and
    the ones that were assumed for its instruction set.

    `bf16` is for amx and avx512. Beside others, baseline does without Winograd's algorithm: few CPUs have nothing
    better, and transformed weights would more than double the file, while without them it shares those of avx2.

    Raises:
        ConfigError: there is no such instruction set.
        PackageError: there are weights that no constants are, or a kernel is not in the library.
    """
    before = IN_FORCE.get()
    for settings in _settings(isas, threads, bf16, every_algorithm=bool(symbols)):
        guards = Guards(before.hint, dict(before.found)) if before is not None else Guards({})
        with assuming(guards) if symbols else nullcontext():
            made = [_program(module_for(settings.instruction_set), symbols, guards, settings, weights)]
        # Whoever gets the Program has it alone: its weights go before the next one is made.
        yield IsaProgram(settings.instruction_set, list(guards.found.values()), made.pop())


def _settings(isas: Sequence[str], threads: int, bf16: bool, every_algorithm: bool = False) -> Iterator[Settings]:
    from ngraph_mxnet import _core

    chosen = chosen_isas(isas)
    for isa in chosen:
        winograd = config.get("NGRAPH_CPU_WINOGRAD") and (isa != "baseline" or len(chosen) == 1)
        # The runtime's team may have any number of threads, which changes no result. But which algorithm is the fastest
        # depends on it, and on the CPU; what is compiled in a process takes the same.
        yield Settings(kernels_of(isa), threads, winograd=winograd, bf16=bf16 and isa in ("amx", "avx512"),
                       vnni=isa in ("amx", "avx512", "avx_vnni"), halves=halves_avx512(_core.cpu_features()),
                       amx=isa == "amx", every_algorithm=every_algorithm)


def _program(module: Module, symbols: Sequence[Atom], guards: Guards, settings: Settings,
             weights: Mapping[str, np.ndarray]) -> Program:
    """The main Program with all weights as constants; each instruction is such as its kernel declares."""
    from ngraph_mxnet import _core

    with because("the packing of weights"):
        builder = _lowered(module, settings, weights)
    inputs = [value.type for value in module.flow.inputs if value.name not in weights]
    outputs = [value.type for value in module.flow.step(MAIN).outputs]
    program = builder.program(inputs, outputs, symbols, guards.found.values())
    here, results = ([type_.at(guards.hint or {}) for type_ in types] for types in (inputs, outputs))
    try:
        bound = program.native(_core.kernel_address).bind([type_.shape for type_ in here], of_file=True)
        bound.check([type_.bytes for type_ in here], [type_.bytes for type_ in results], 0)
    except ValueError as error:
        raise PackageError(f"graph {module.name} can't be kept: {error}") from error
    return program


def _lowered(module: Module, settings: Settings, weights: Mapping[str, np.ndarray]) -> ProgramBuilder:
    """The main Program in the making, which prepares nothing."""
    flow = module.flow
    missing = [value.name for value in flow.inputs if value.role is Role.WEIGHT and value.name not in weights]
    if missing:
        raise PackageError(f"graph {module.name}: {listed(missing)} are weights without content: compile it with "
                           "weights=, which makes them constants")
    main, prepare = lower_module(module, settings)
    _require_kernels(module.name, main.builder, prepare.builder)
    arrays = {place: weights[value.name] for place, value in enumerate(flow.inputs) if value.name in weights}
    _Constants(main.builder, arrays, prepare.builder.pieces,
               _prepared(module.name, prepare.builder, arrays)).replace_operands()
    main.builder.constants = list(map(_made, main.builder.constants))
    return main.builder


def _made(constant: np.ndarray | TableRecipe) -> np.ndarray | TableRecipe:
    """A table whose numbers are known as an array: it is in the file, and processes share its memory."""
    if isinstance(constant, np.ndarray) or any(map(is_symbolic, constant.numbers)):
        return constant
    return constant.table().view(np.uint8)


def _require_kernels(name: str, *builders: ProgramBuilder) -> None:
    from ngraph_mxnet import _core

    missing = []
    for kernel, own in {each.kernel: each.name for builder in builders for each in builder.instructions}.items():
        try:
            _core.kernel_address(kernel)
        except KeyError:
            missing.append(own)
    if missing:
        raise PackageError(f"graph {name}: the kernels {listed(missing)} are not in the kernel library, so that no "
                           "runtime has them")


def _prepared(name: str, builder: ProgramBuilder, weights: Mapping[int, np.ndarray]) -> np.ndarray:
    """The prepared buffer, in bytes; the weights by their places among the inputs."""
    from ngraph_mxnet import _core

    size = builder.prepared_bytes
    if not builder.instructions:
        return np.zeros(size, np.uint8)
    own = supported(_core.cpu_features())
    numbers = {place: number for number, place in enumerate(weights)}
    sizes = [weights[place].nbytes if place in weights else 0 for place in range(1 + max(weights, default=-1))]
    program = builder.program([TensorType(u8, (size,)) for size in sizes])
    levels, arena_bytes, constants = program.native(_core.kernel_address).bind().listed()
    here = {kernel: _here(name, kernel, own) for level in levels for kernel, *_ in level}
    bound = _core.BoundProgram(
        [[(here[kernel], _core.kernel_address(here[kernel]), _moved(operands, numbers), *rest)
          for kernel, operands, *rest in level] for level in levels], arena_bytes, constants)
    room = np.zeros(size + AFTER + ALIGNMENT, np.uint8)
    first = -room.ctypes.data % ALIGNMENT
    whole = room[first:first + size + AFTER]
    memory = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in weights.values()]
    specs = [("u8", array.shape) for array in memory]
    _core.Executable(bound, None, 0, [], specs, [("u8", whole.shape)], config.threads()).run(memory, [whole])
    return whole[:size]


def _here(name: str, kernel: str, own: Sequence[Isa]) -> str:
    """The kernel that this CPU runs in place of `kernel`."""
    from ngraph_mxnet import _core

    what, _, isa = kernel.rpartition("__")
    if isa in own:
        return kernel
    twin = f"{what}__{own[0]}"
    try:
        _core.kernel_address(twin)
    except KeyError:
        raise PackageError(f"graph {name}: weights are prepared by {kernel}, which this CPU does not run, and there is "
                           f"no {twin}: compile it on a CPU that has {isa}, or for other instruction sets") from None
    return twin


def _moved(operands: Iterable[Operand], numbers: Mapping[int, int]) -> list[Operand]:
    """The prepared buffer as the only output, and inputs by these numbers."""
    return [(int(Space.OUTPUT), 0, offset) if space == Space.PREPARED else
            (space, numbers[index] if space == Space.INPUT else index, offset) for space, index, offset in operands]


class _Constants:
    """Lets the instructions of a Program in the making read each weight, and each piece of the prepared buffer, as a
    constant; inputs that are no weights are counted anew. `weights`: by their places among the inputs."""

    def __init__(self, builder: ProgramBuilder, weights: Mapping[int, np.ndarray], pieces: Sequence[Buffer],
                 prepared: np.ndarray) -> None:
        self._builder = builder
        self._weights, self._pieces, self._prepared = weights, pieces, prepared
        self._starts = [piece.offset for piece in pieces]
        self._inputs, self._constants = dict[int, Buffer](), dict[int, Buffer]()

    def replace_operands(self) -> None:
        for each in self._builder.instructions:
            each.operands = [self._operand(*operand) for operand in each.operands]

    def _operand(self, buffer: Buffer, offset: int) -> tuple[Buffer, int]:
        if buffer.space is Space.INPUT:
            return self._input(buffer), offset
        if buffer.space is not Space.PREPARED:
            return buffer, offset
        if is_symbolic(offset):
            raise PackageError(f"a place among the prepared weights depends on sizes: {offset}")
        number = bisect_right(self._starts, buffer.offset + offset) - 1
        piece = self._pieces[number]
        if number not in self._constants:
            content = self._prepared[piece.offset:piece.offset + piece.bytes]
            self._constants[number] = self._builder.constant(content)
        return self._constants[number], buffer.offset + offset - piece.offset

    def _input(self, buffer: Buffer) -> Buffer:
        index = buffer.index
        if index not in self._inputs:
            self._inputs[index] = (
                self._builder.constant(np.ascontiguousarray(self._weights[index])) if index in self._weights else
                Buffer(Space.INPUT, buffer.bytes, index=index - sum(place < index for place in self._weights)))
        return self._inputs[index]
