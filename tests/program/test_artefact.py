"""The file of a compiled model: what is written comes back and runs, and what is damaged is refused."""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artefact_runs import bound, isas_here, kernels, made, of, program_of, random_inputs, run
from hypothesis import example, given
from hypothesis import strategies as st

from ngraph_mxnet import _core
from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError, PackageError
from ngraph_mxnet.base.version import __version__
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.passes.clusters import split_prepare
from ngraph_mxnet.program.artefact import (
    AFTER,
    ALIGNMENT,
    DEFAULT_ISAS,
    HEADER,
    MAGIC,
    REQUIRED,
    SECTION,
    Artefact,
    Kind,
    Meta,
    check,
    check_key,
    is_artefact,
    load,
    read,
    to_bytes,
    write_artefact,
)
from ngraph_mxnet.program.artefact import (
    checks as checks_of,
)
from ngraph_mxnet.program.compile import bind_weights
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.program.program import ProgramSet
from ngraph_mxnet.targets.cpu import artefact as cpu_artefact


def conv_net(batch: int) -> tuple[Graph, dict[str, np.ndarray]]:
    """Convolutions by the direct sum and by Winograd, depthwise, and a classifier."""
    random = np.random.default_rng(1)
    shapes = {"w0": (32, 3, 3, 3), "w1": (64, 32, 3, 3), "w2": (64, 1, 3, 3), "w3": (32, 64, 1, 1), "d": (10, 32)}
    b = Builder(name="net")
    value = b.parameter("x", (batch, 3, 16, 16))
    weights = {name: random.standard_normal(shape).astype(np.float32) / 8 for name, shape in shapes.items()}
    read_weights = {name: b.weight(name, shape) for name, shape in shapes.items()}
    for name, pad, groups in (("w0", 1, 1), ("w1", 1, 1), ("w2", 1, 64), ("w3", 0, 1)):
        value = b.relu(b.convolution(value, read_weights[name], pads_begin=[pad] * 2, pads_end=[pad] * 2,
                                     groups=groups))
    value = b.matmul(b.reduce_mean(value, axes=[2, 3]), read_weights["d"], transpose_b=True)
    return b.results(value), weights


def small() -> bytes:
    b = Builder(name="small")
    graph = b.results(b.matmul(b.parameter("x", (2, 3)), b.weight("w", (3, 4))))
    return made(lambda: (graph, {"w": np.ones((3, 4), np.float32)}), metadata={"key": "välue"}, with_references=True)


SMALL = small()


def rows_of(content: bytes) -> list[tuple[Any, ...]]:
    """The section table."""
    return [SECTION.unpack_from(content, HEADER.size + number * SECTION.size)
            for number in range(struct.unpack_from("<I", content, 20)[0])]


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "net.ngraph"
    path.write_bytes(SMALL)
    assert is_artefact(path)
    found = load(path)
    assert (found.meta.name, dict(found.meta.metadata), found.meta.precision) == ("net", {"key": "välue"}, "f32")
    assert found.meta.made_by == f"ngraph_mxnet {__version__}"
    assert [(one.isa, one.number) for one in found.sets] == [(isa, 0) for isa in reversed(DEFAULT_ISAS)]
    graph, weights = conv_net(1)
    module = split_prepare(bind_weights(graph, weights))
    ports = [("x", graph.parameters[0].type)], [("y", graph.results[0].type)]
    for made_for in cpu_artefact.artefact_programs(lambda isa: module, (), ["baseline"], {}, threads=2):
        written = ProgramSet.of(made_for, 0, *ports)
        (one,) = read(to_bytes(Artefact(found.meta, [written]))).sets
        assert (one.isa, one.inputs, one.outputs) == (written.isa, *ports)
        assert plain(one) == plain(written) and one.summary() == written.summary()
        assert written.summary().programs[0].constant_bytes > 100_000
    (reference,) = found.references
    np.testing.assert_array_equal(reference.outputs[0], run(of(found, isas_here()[0]), reference.inputs)[0])
    assert to_bytes(found) == SMALL


def plain(one: ProgramSet) -> Any:
    """What its Program holds, as lists."""
    def lists(of: Any) -> Any:
        if isinstance(of, np.ndarray):
            return of.tobytes()
        return [lists(each) for each in of] if isinstance(of, (list, tuple)) else of

    return lists(list(vars(program_of(one)).values()))


def test_a_file_is_written_while_its_programs_are_made(tmp_path: Path) -> None:
    """None of them is kept, and a file that is not finished is none."""
    alive: list[weakref.ref[ProgramSet]] = []
    path, (first, *_) = tmp_path / "net.ngraph", read(SMALL).sets
    program = program_of(first)

    def programs(count: int) -> Iterator[ProgramSet]:
        for number in range(count):
            assert all(each() is None for each in alive) and not path.exists()
            array = np.full(3 << 20, number, np.uint8)
            held = replace(program, constants=[array, array], instructions=[])
            one = replace(first, number=number, programs=[(held, ())])
            del held
            alive.append(weakref.ref(one))
            yield one
            del one

    write_artefact(path, Meta("net"), programs(5), 5)
    found = load(path)  # with checks of pieces that arrays share
    assert [one.programs[0].constant_bytes for one in found.summary().sets] == [6 << 20] * 5 and len(alive) == 5
    assert [int(program_of(one).constants[1][-1]) for one in found.sets] == list(range(5))
    assert path.stat().st_size < 16 << 20
    with pytest.raises(PackageError, match="4099 sections, at most 4096"):
        write_artefact(path, Meta("net"), programs(0), 4096)
    broken = replace(first, programs=[(replace(program, branches=-1), ())])
    with pytest.raises(PackageError, match="model other can't be written"):
        write_artefact(tmp_path / "other", Meta("other"), iter([broken]), 1)
    assert [each.name for each in tmp_path.iterdir()] == ["net.ngraph"]


def test_bytes_are_as_documented() -> None:
    rows = rows_of(SMALL)
    assert [row[0] for row in rows] == [Kind.META, *[Kind.PROGRAM] * 3, Kind.REFERENCE, Kind.CHECKS, Kind.DATA]
    assert [row[5] for row in rows] == [0, 3, 2, 1, 0, 0, 0]
    assert all(row[1] == (0 if row[0] in (Kind.REFERENCE, Kind.CHECKS) else REQUIRED) for row in rows)
    checks, data = rows[-2:]
    assert SMALL[checks[2]:checks[2] + checks[3]] == checks_of(SMALL[data[2]:data[2] + data[3]])
    assert data[2] == 4096 and not data[3] % ALIGNMENT and checks[2] + checks[3] == len(SMALL)
    for one in read(SMALL).sets:
        for array in program_of(one).constants:
            assert any(SMALL.startswith(array.tobytes(), data[2] + at)
                       for at in range(0, data[3] - array.nbytes - AFTER + 1, ALIGNMENT))
    # The first outputs of splitmix64 from state 0 are known.
    key = struct.pack("<2Q", 0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4)
    assert check_key()[:16] == key and len(check_key()) == _core.hash_key_bytes


def same(one: ProgramSet, graph: Graph, weights: dict[str, np.ndarray]) -> None:
    """On a team of any size it gives what the executable gives, bit for bit."""
    inputs = random_inputs(one)
    expected = compile_graph(graph, "CPU", weights, isa=one.isa, threads=config.threads())(*inputs)
    for threads in (1, 2, 4, 7):
        for found, wanted in zip(run(one, inputs, threads), expected, strict=True):
            np.testing.assert_array_equal(found, wanted, strict=True)


def test_a_net_gives_the_same_bits() -> None:
    graph, weights = conv_net(2)
    for isa in isas_here():
        artefact = read(made(lambda: (graph, weights), isas=[isa]))
        same(of(artefact, isa), graph, weights)


def test_baseline_shares_the_weights_of_avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    both = read(made(lambda: conv_net(1), isas=["avx2", "baseline"]))
    avx2, baseline = (kernels(of(both, isa)) for isa in ("avx2", "baseline"))
    assert any("winograd" in kernel for kernel in avx2) and not any("winograd" in kernel for kernel in baseline)
    monkeypatch.setenv("NGRAPH_CPU_WINOGRAD", "0")
    sizes = [len(made(lambda: conv_net(1), isas=isas))
             for isas in (["avx2"], ["avx2", "baseline"])]
    assert sizes[1] < 1.1 * sizes[0]


def test_weights_are_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those that Winograd's algorithm transforms, which it is not chosen for every batch."""
    monkeypatch.setenv("NGRAPH_CPU_WINOGRAD", "0")
    one = made(lambda: conv_net(1))
    both = made(lambda: conv_net(1), lambda: conv_net(2))
    assert len(both) < 1.2 * len(one)
    found = read(both)
    assert [one.number for one in found.sets] == [0, 0, 0, 1, 1, 1]
    for number in (0, 1):
        same(of(found, isas_here()[0], number), *conv_net(number + 1))


def test_every_operand_is_within_bounds() -> None:
    graph, weights = conv_net(1)
    for one in read(made(lambda: (graph, weights))).sets:
        levels, arena_bytes, constants = bound(one).listed()
        sizes = ([arena_bytes], [type_.bytes for _, type_ in one.inputs], [type_.bytes for _, type_ in one.outputs],
                 [array.nbytes for array in constants])
        read_from = set()
        for level in levels:
            for kernel, operands, *_ in level:
                assert kernel.endswith(f"__{one.isa}")
                for space, index, offset in operands:
                    assert 0 <= space <= 3 and offset <= sizes[space][index]
                    read_from.add((space, index))
        assert {index for space, index in read_from if space == 3} == set(range(len(constants)))


def test_an_instruction_set_that_this_cpu_lacks(on_cpu: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights are prepared by kernels of another one; packing gives the same bytes."""
    if "avx2" not in isas_here():
        pytest.skip("the CPU has no AVX2")
    monkeypatch.setenv("NGRAPH_CPU_WINOGRAD", "0")
    artefacts = []
    for features in (_core.cpu_features(), {}):
        on_cpu(features)
        artefacts.append(made(lambda: conv_net(1), isas=["avx2"]))
    assert artefacts[0] == artefacts[1]


def test_what_no_other_instruction_set_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_artefact, "supported", lambda features: ["none"])
    with pytest.raises(PackageError, match=r"which this CPU does not run, and there is no ng_.*__none"):
        made(lambda: conv_net(1), isas=["avx2"])


def test_an_executable_is_saved(tmp_path: Path) -> None:
    graph, weights = conv_net(1)
    executable = compile_graph(graph, "CPU", weights, threads=4)
    executable.save(tmp_path / "net.ngraph", isas=isas_here()[:1], metadata={"a": "b"})
    found = load(tmp_path / "net.ngraph")
    inputs = random_inputs(found.sets[0])
    np.testing.assert_array_equal(run(found.sets[0], inputs)[0], executable(*inputs)[0])
    assert (found.meta.name, dict(found.meta.metadata), len(found.sets)) == ("net", {"a": "b"}, 1)


@pytest.mark.parametrize(("options", "message"), [
    ({}, "w0, w1, w2, w3, d are weights without content"),
    ({"backend": "INTERPRETER"}, "only what the backend CPU compiled"),
    ({"codegen": 1}, "option codegen"),
])
def test_what_can_not_be_saved(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    graph, weights = conv_net(1)
    backend = options.pop("backend", "CPU")
    executable = compile_graph(graph, backend, weights if options else {}, **options)
    with pytest.raises(PackageError, match=message):
        executable.save(tmp_path / "net.ngraph")
    assert not list(tmp_path.iterdir())


def test_wrong_wishes(tmp_path: Path) -> None:
    graph, weights = conv_net(1)
    with pytest.raises(ConfigError, match="no instruction set sse9; there are amx, avx512, avx_vnni, avx2, baseline"):
        made(lambda: (graph, weights), isas=["sse9"])
    with pytest.raises(ConfigError, match="INTERPRETER makes no programs that the runtime could run; such as do: CPU"):
        made(lambda: (graph, weights), backend="INTERPRETER")
    with pytest.raises(ConfigError, match="option isa: found 'sse9'"):
        compile_graph(graph, "CPU", isa="sse9")


# ---- what is damaged -----------------------------------------------------------------------------------------


def sealed(content: bytes) -> bytes:
    """With the checks that fit the content, as who means harm would write it."""
    changed = bytearray(content)
    count = min(struct.unpack_from("<I", content, 20)[0], (len(content) - HEADER.size) // SECTION.size)
    for number in range(count):
        at = HEADER.size + number * SECTION.size
        _, _, offset, size, *_ = SECTION.unpack_from(content, at)
        if offset <= len(content):
            changed[at + 24:at + 40] = check(bytes(changed[offset:offset + min(size, len(content))]))
    changed[32:48] = check(bytes(changed[HEADER.size:HEADER.size + count * SECTION.size]))
    return bytes(changed)


@given(st.integers(0, len(SMALL) - 1), st.integers(1, 255))
@example(16, 1)
@example(24, 1)
@example(50, 1)
def test_every_changed_byte_of_content_is_found(position: int, difference: int) -> None:
    content = bytearray(SMALL)
    content[position] ^= difference
    rows = rows_of(SMALL)
    checked = position < HEADER.size + len(rows) * SECTION.size or any(
        row[2] <= position < row[2] + row[3] for row in rows)
    if checked:
        with pytest.raises(PackageError):
            read(bytes(content))
    else:
        read(bytes(content))  # padding


@given(st.integers(0, len(SMALL)))
def test_what_is_cut_off(size: int) -> None:
    if size < len(SMALL):
        with pytest.raises(PackageError):
            read(SMALL[:size])


@given(st.lists(st.tuples(st.integers(16, 2600), st.integers(0, 255)), min_size=1, max_size=4))
def test_mutants_with_the_right_checks(changes: list[tuple[int, int]]) -> None:
    """They are refused or read, and nothing else happens."""
    content = bytearray(SMALL)
    for position, value in changes:
        content[position] = value
    try:
        found = read(sealed(bytes(content)))
    except PackageError:
        return
    assert found.sets


@pytest.mark.parametrize(("position", "value", "message"), [
    (0, b"x", "begins with b'xgraph"),
    (16, b"\3", "format 3, and this ngraph_mxnet reads 1 to 2: update it, or compile the model by this version"),
    (16, b"\0", "format 0.*compile the model again"),
    (HEADER.size + SECTION.size, b"\6", "section 1 .RANGE. is not known"),
    (20, struct.pack("<I", 5000), "found 5000 sections"),
    (HEADER.size, b"\1\1", "section 0 .of kind 257. is not known"),
    (HEADER.size + 8, b"\1", "section 0 .META. begins at .*not aligned"),
    (HEADER.size + SECTION.size, b"\2", "not aligned|2 sections DATA"),
    (HEADER.size + SECTION.size + 40, b"\6", "section 1 .PROGRAM.: instruction set 6 is not known"),
    (HEADER.size + SECTION.size + 40, b"\2", "two programs are for the same"),
    (HEADER.size + SECTION.size + 44, b"\2", "numbered .0, 2., expected 0 to 1"),
])
def test_what_is_wrong_is_told(position: int, value: bytes, message: str) -> None:
    with pytest.raises(PackageError, match=message):
        read(sealed(SMALL[:position] + value + SMALL[position + len(value):]))


def test_a_section_of_a_later_version_is_skipped() -> None:
    at = HEADER.size + 4 * SECTION.size
    content = SMALL[:at] + struct.pack("<II", 99, 0) + SMALL[at + 8:]
    assert not read(sealed(content)).references
    assert SMALL.startswith(MAGIC)
