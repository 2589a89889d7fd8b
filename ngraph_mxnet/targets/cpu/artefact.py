"""Programs for a file: with all weights as constants, as they are prepared, for any instruction set.

What prepares weights runs here, and each piece of the prepared buffer becomes a constant. A CPU that lacks the
instruction set runs the same kernels of its own: what they compute they compute alike, and mostly they only move
elements. Nothing else of the Program runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ngraph_mxnet import config
from ngraph_mxnet.errors import ConfigError, PackageError, listed
from ngraph_mxnet.ir.module import Module
from ngraph_mxnet.ir.roles import Role
from ngraph_mxnet.package.artefact import AFTER, ALIGNMENT, ArtefactProgram, Instruction
from ngraph_mxnet.passes.prepare import MAIN
from ngraph_mxnet.targets.cpu.lower import Settings
from ngraph_mxnet.targets.cpu.lower.module import lower_module
from ngraph_mxnet.targets.cpu.machine.isa import NEEDS, Isa, halves_avx512, supported
from ngraph_mxnet.targets.cpu.program.instruction import Buffer, Space
from ngraph_mxnet.targets.cpu.program.program import ProgramBuilder
from ngraph_mxnet.targets.cpu.program.program_code import ProgramCode
from ngraph_mxnet.targets.cpu.program.validate import Validator

_BF16 = ("avx512bf16",)

Operand = tuple[int, int, int]
"""Space, index, offset."""


def chosen_isas(wanted: Sequence[str]) -> list[Isa]:
    """The instruction sets of these names, best first; all if there are none.

    Raises:
        ConfigError: there is no such instruction set.
    """
    unknown = [name for name in wanted if name not in NEEDS]
    if unknown:
        raise ConfigError(f"no instruction set {listed(unknown)}; there are {', '.join(NEEDS)}")
    return [isa for isa in NEEDS if isa in wanted or not wanted]


def artefact_programs(module: Module, isas: Sequence[str], weights: Mapping[str, np.ndarray], *,
                      threads: int, bf16: bool = False) -> Iterator[ArtefactProgram]:
    """The Programs of `module`, the optimised graphs, for set 0 of shapes and these instruction sets (`chosen_isas`).
    `weights`, by the names of inputs, become constants. Algorithms are chosen for so many `threads`, and for this CPU.

    `bf16` is for avx512 alone. Beside others, baseline does without Winograd's algorithm: few CPUs have nothing better,
    and transformed weights would more than double the file, while without them it shares those of avx2.

    Raises:
        ConfigError: there is no such instruction set.
        PackageError: there are weights that no constants are, or a kernel is not in the library.
    """
    from ngraph_mxnet import _core

    chosen = chosen_isas(isas)
    for isa in chosen:
        winograd = config.get("NGRAPH_CPU_WINOGRAD") and (isa != "baseline" or len(chosen) == 1)
        # The runtime's team may have any number of threads, which changes no result. But which algorithm is the fastest
        # depends on it, and on the CPU; what is compiled in a process takes the same.
        settings = Settings(isa, threads, winograd=winograd, bf16=bf16 and isa == "avx512",
                            halves=halves_avx512(_core.cpu_features()))
        yield _program(module, settings, weights)


def _program(module: Module, settings: Settings, weights: Mapping[str, np.ndarray]) -> ArtefactProgram:
    flow = module.flow
    missing = [value.name for value in flow.inputs if value.role is Role.WEIGHT and value.name not in weights]
    if missing:
        raise PackageError(f"graph {module.name}: {listed(missing)} are weights without content: compile it with "
                           "weights=, which makes them constants")
    main, prepare = lower_module(module, settings)
    _require_kernels(module.name, main.builder, prepare.builder)
    arrays = {place: weights[value.name] for place, value in enumerate(flow.inputs) if value.name in weights}
    constants = _Constants(main.builder.code(), arrays, prepare.builder.pieces,
                           _prepared(module.name, prepare.builder, arrays))
    code, levels = constants.code, constants.levels()
    program = ArtefactProgram(
        settings.isa, 0, tuple((value.name, value.type) for value in flow.inputs if value.name not in weights),
        tuple((name, value.type) for name, value in zip(flow.names, flow.step(MAIN).outputs, strict=True)),
        code.arena_bytes, constants.arrays, levels)
    _check(module.name, program)
    return program


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
    code = builder.code()
    numbers = {place: number for number, place in enumerate(weights)}
    levels = [[(_here(name, kernel, own), _moved(operands, numbers), *rest) for kernel, operands, *rest in level]
              for level in code.levels]
    program = ProgramCode(levels, code.arena_bytes, code.constants).bind(_core.kernel_address, None)
    room = np.zeros(size + AFTER + ALIGNMENT, np.uint8)
    first = -room.ctypes.data % ALIGNMENT
    whole = room[first:first + size + AFTER]
    memory = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in weights.values()]
    specs = [("u8", array.shape) for array in memory]
    _core.Executable(program, None, 0, [], specs, [("u8", whole.shape)], config.threads()).run(memory, [whole])
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
    """A Program's levels, to read each weight, and each piece of the prepared buffer, as a constant behind the others;
    inputs that are no weights are counted anew. `weights`: by their places among the inputs."""

    def __init__(self, code: ProgramCode, weights: Mapping[int, np.ndarray], pieces: Sequence[Buffer],
                 prepared: np.ndarray) -> None:
        self.code, self.arrays = code, list(code.constants)
        self._weights, self._pieces, self._prepared = weights, pieces, prepared
        self._starts = [piece.offset for piece in pieces]
        self._places = dict[tuple[Space, int], int]()

    def levels(self) -> list[list[Instruction]]:
        return [[(kernel, [self._constant(*operand) for operand in operands], *rest)
                 for kernel, operands, *rest in level] for level in self.code.levels]

    def _constant(self, space: int, index: int, offset: int) -> Operand:
        if space == Space.INPUT:
            if index not in self._weights:
                return space, index - sum(place < index for place in self._weights), offset
            return int(Space.CONSTANT), self._place(Space.INPUT, index), offset
        if space != Space.PREPARED:
            return space, index, offset
        number = bisect_right(self._starts, offset) - 1
        return int(Space.CONSTANT), self._place(Space.PREPARED, number), offset - self._pieces[number].offset

    def _place(self, space: Space, number: int) -> int:
        if (space, number) not in self._places:
            self._places[space, number] = len(self.arrays)
            self.arrays.append(self._array(space, number))
        return self._places[space, number]

    def _array(self, space: Space, number: int) -> np.ndarray:
        if space == Space.INPUT:
            return np.ascontiguousarray(self._weights[number])
        piece = self._pieces[number]
        return self._prepared[piece.offset:piece.offset + piece.bytes]


def _check(name: str, program: ArtefactProgram) -> None:
    """Refuse an instruction that is not such as its kernel declares."""
    features = dict.fromkeys((*NEEDS["avx512"], *_BF16), True)
    inputs, outputs = ([type_.bytes for _, type_ in types] for types in (program.inputs, program.outputs))
    code = ProgramCode([list(level) for level in program.levels], program.arena_bytes, list(program.constants))
    try:
        Validator(inputs, outputs, 0, features).check(code)
    except ValueError as error:
        raise PackageError(f"graph {name} can't be kept: {error}") from error
