"""Files for ranges of sizes: written, read back, bound by C++, and what is wrong with them refused."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from range_weights import weights

import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.base.errors import ConfigError, PackageError, UnsupportedError
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.ir.ranges import because
from ngraph_mxnet.ir.sizes import symbol
from ngraph_mxnet.program.artefact import Artefact, Kind, load, read, to_bytes

N, H, T = symbol("N", 1, 32), symbol("H", 2, 90), symbol("T", 1)
rng = np.random.default_rng(0)


def convolved(*shape: Any) -> Graph:
    """Of weights that are prepared, Winograd's and packed ones, halos and tables."""
    b = Builder(name="convolved")
    x = b.parameter("data", shape)
    y = b.relu(b.convolution(x, weights(b, 32, 3, 1, 1)))
    y = b.add(y, b.convolution(y, weights(b, 32, 32, 3, 3), pads_begin=(1, 1), pads_end=(1, 1)))
    y = b.convolution(y, weights(b, 16, 32, 3, 3), strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1))
    return b.results(y, b.reduce_mean(y, axes=(2, 3)))


def recurrent(steps: Any, rows: Any, gates: int = 96) -> Graph:
    """A loop."""
    b = Builder(name="recurrent")
    x, states = b.parameter("x", (steps, rows, gates)), [b.parameter(name, (rows, 24)) for name in ("h", "c")]
    node = b.node("rnn", [x, weights(b, gates, 24), weights(b, gates), *states], {"cell": "lstm", "reverse": False})
    return b.results(*node.outputs)


def written(graph: Graph, path: Path, **options: Any) -> Any:
    ngraph_mxnet.export(graph, path, **options)
    return _core.Artefact(str(path))


def called(artefact: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    bound = artefact.bind([array.shape for array in arrays], 2)
    outputs = [np.empty(shape, np.dtype({"f32": "float32"}[element])) for element, shape in bound.outputs]
    bound.run(list(arrays), outputs)
    return outputs


def arrays_for(graph: Graph) -> list[np.ndarray]:
    return [rng.standard_normal(parameter.shape, np.float32) for parameter in graph.parameters]


@pytest.mark.parametrize(("make", "symbols", "sizes"), [
    (lambda n, h: convolved(n, 3, h, 40), (N, H), [(1, 2), (32, 5), (2, 90), (7, 31)]),
    (recurrent, (T, N), [(1, 1), (5, 3), (40, 32)]),
])
def test_every_size_gives_what_a_file_for_it_gives(make: Callable[..., Graph], symbols: Any, sizes: Any,
                                                   tmp_path: Path) -> None:
    """The same kernels with the same tasks, too, where a program's choices are those of the size."""
    artefact = written(make(*symbols), tmp_path / "range")
    for size in sizes:
        graph = make(*size)
        arrays = arrays_for(graph)
        fixed = ngraph_mxnet.compile(graph, "CPU")(*arrays)
        for found, expected in zip(called(artefact, *arrays), fixed, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def kernels(native: Any) -> list[tuple[str, int]]:
    levels, _, _ = native.program.listed()
    return [(kernel, tasks) for level in levels for kernel, _, _, _, tasks, *_ in level]


def deep(*shape: Any) -> Graph:
    """Of which the best algorithm depends on the batch: there are few tiles, and many weights."""
    b = Builder(name="deep")
    y = b.convolution(b.parameter("data", shape), weights(b, 256, 3, 1, 1))
    for _ in range(2):
        y = b.relu(b.convolution(y, weights(b, 256, 256, 3, 3), pads_begin=(1, 1), pads_end=(1, 1)))
    return b.results(y)


@pytest.mark.parametrize(("make", "size"), [(convolved, 56), (deep, 7)])
def test_a_batch_in_a_range_runs_what_a_file_for_it_runs(make: Callable[..., Graph], size: int, tmp_path: Path) -> None:
    """So it takes as long."""
    artefact = written(make(N, 3, size, size), tmp_path / "range")
    for batch in (1, 2, 8, 31, 32):
        shape = (batch, 3, size, size)
        alone = written(make(*shape), tmp_path / "fixed")
        assert kernels(artefact.bind([shape], 2)) == kernels(alone.bind([shape], 2))


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    written(convolved(N, 3, H, 40), tmp_path / "range")
    content = (tmp_path / "range").read_bytes()
    artefact = read(content)
    assert [(one.isa, one.number) for one in artefact.sets] == [(isa, 0) for isa in ("avx512", "avx2", "baseline")]
    (data,), outputs = artefact.sets[0].inputs, artefact.sets[0].outputs
    assert (data[0], str(data[1])) == ("data", "f32[N,3,H,40]")
    assert str(outputs[0][1]) == "f32[N,16,(H + 1)//2,20]"
    summary = artefact.summary().sets[0]
    assert summary.bounds == {"N": "1..32", "H": "2..90"} and summary.programs[0].constant_bytes > 1000
    assert to_bytes(artefact) == content


def test_sizes_that_no_program_is_for_get_another_one(tmp_path: Path) -> None:
    """What is assumed of the sizes at hand does not hold for all."""
    def stretched(n: Any) -> Graph:
        b = Builder()
        x = b.parameter("x", (n, 4))
        with because("the test"):
            return b.results(b.add(x, b.constant(np.arange(8, dtype=np.float32).reshape(2, 4))) if n == 1
                             else b.relu(x))

    from ngraph_mxnet.program.compile import Ranged
    from ngraph_mxnet.program.export import compile_to_file

    compile_to_file(tmp_path / "two", [Ranged(lambda: (stretched(N), {}), list(N.symbols))], "CPU")
    summary = load(tmp_path / "two").summary().sets[0]
    assert [list(program.guards) for program in summary.programs] == [["N - 1 != 0"], ["N - 1 == 0"]]
    artefact = _core.Artefact(str(tmp_path / "two"))
    assert called(artefact, np.zeros((1, 4), np.float32))[0].shape == (2, 4)
    assert called(artefact, np.zeros((9, 4), np.float32))[0].shape == (9, 4)


def test_a_model_with_numbers_for_its_sizes(tmp_path: Path) -> None:
    def numbered(n: Any) -> Graph:
        b = Builder()
        x = b.parameter("x", (n, 4))
        with because("the test"):
            return b.results(b.add(x, b.constant(np.arange(int(n), dtype=np.float32)[:, None])))

    from ngraph_mxnet.program.compile import Ranged
    from ngraph_mxnet.program.export import compile_to_file

    few, many = symbol("N", 2, 9), symbol("N", 2, 10)
    compile_to_file(tmp_path / "few", [Ranged(lambda: (numbered(few), {}), list(few.symbols))], "CPU", isas=["avx2"])
    assert len(load(tmp_path / "few").sets[0].programs) == 8
    with pytest.raises(UnsupportedError, match="would need a program beside 8 others, which assume N - 10 == 0, "):
        compile_to_file(tmp_path / "many", [Ranged(lambda: (numbered(many), {}), list(many.symbols))], "CPU",
                        isas=["avx2"])
    assert not (tmp_path / "many").exists()


def test_sizes_that_do_not_fit(tmp_path: Path) -> None:
    artefact = written(convolved(N, 3, H, 40), tmp_path / "range")
    for shape in ((33, 3, 8, 40), (1, 3, 1, 40), (1, 3, 8, 41), (1, 3, 8)):
        with pytest.raises(ValueError, match=r"data: found shape .*, expected \[N,3,H,40\] with N 1..32, H 2..90"):
            artefact.bind([shape], 1)
    with pytest.raises(ValueError, match="found 2 shapes, expected 1"):
        artefact.bind([(1, 3, 8, 40)] * 2, 1)


def test_shapes_beside_a_range(tmp_path: Path) -> None:
    """Their numbers come first."""
    from ngraph_mxnet.program.compile import Ranged
    from ngraph_mxnet.program.export import compile_to_file

    ranged = Ranged(lambda: (convolved(N, 3, 8, 8), {}), list(N.symbols))
    compile_to_file(tmp_path / "both", [ranged, lambda: (convolved(2, 3, 8, 8), {})], "CPU", with_references=True)
    artefact = load(tmp_path / "both")
    assert [(one.number, [str(atom) for atom in one.symbols]) for one in artefact.sets] == [
        (0, [])] * 3 + [(1, ["N"])] * 3
    assert len(artefact.references) == len(artefact.origins) == 1
    native = _core.Artefact(str(tmp_path / "both"))
    assert (len(native.shape_sets), len(native.ranges)) == (1, 1)
    with pytest.raises(ConfigError, match="references are for sets of shapes"):
        compile_to_file(tmp_path / "range", [ranged], "CPU", with_references=True)


def test_other_backends_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_BACKEND", "INTERPRETER")
    with pytest.raises(ConfigError, match="makes no programs that the runtime could run; such as do: CPU"):
        ngraph_mxnet.export(convolved(N, 3, 8, 8), tmp_path / "range")


# ---- damage ----------------------------------------------------------------------------------------------------

NUMBERS = (0, 1, 2, 3, 7, 63, 64, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)


def tried(content: bytes, path: Path, shapes: list[tuple[int, ...]]) -> str:
    """What is said of a file, or "runs"; whatever is in it, it ends, and touches nothing that is not its own."""
    path.write_bytes(content)
    try:
        artefact = _core.Artefact(str(path))
        bound = artefact.bind(shapes, 1)
    except (ValueError, MemoryError) as error:
        return str(error)
    if sum(array_bytes(spec) for spec in (*bound.inputs, *bound.outputs)) < 1 << 24:
        inputs, outputs = ([np.zeros(shape, dtype(element)) for element, shape in specs]
                           for specs in (bound.inputs, bound.outputs))
        try:
            bound.run(inputs, outputs)
        except MemoryError:  # of an arena
            return "no memory"
    return "runs"


def dtype(element: str) -> np.dtype:
    from ngraph_mxnet.ir.types import ELEMENT_TYPES

    return ELEMENT_TYPES[element].numpy


def array_bytes(spec: tuple[str, tuple[int, ...]]) -> int:
    return dtype(spec[0]).itemsize * int(np.prod(spec[1], dtype=object))


SMALL: Mapping[str, tuple[Callable[[], Graph], list[tuple[int, ...]]]] = {
    "convolved": (lambda: convolved(N, 3, H, 5), [(2, 3, 6, 5)]),
    "recurrent": (lambda: recurrent(T, N), [(3, 2, 96), (2, 24), (2, 24)]),
}


@pytest.mark.parametrize("name", SMALL)
def test_numbers_that_are_others(name: str, tmp_path: Path) -> None:
    """Each word of the section becomes another; the checks fit again. It is refused, or runs within its memory."""
    make, shapes = SMALL[name]
    written(make(), tmp_path / "range", isas=["baseline"])
    content = (tmp_path / "range").read_bytes()
    assert tried(content, tmp_path / "same", shapes) == "runs"
    random, refused = Random(1), 0
    offset, size = section_of(content, Kind.PROGRAM)
    words = range(offset, offset + size - 3, 4)
    for place in random.sample(words, 400):
        (old,) = struct.unpack_from("<I", content, place)
        new = random.choice((*NUMBERS, old + 1, old - 1, old * 2)) % (1 << 32)
        changed = fitting(content[:place] + struct.pack("<I", new) + content[place + 4:])
        refused += tried(changed, tmp_path / "other", shapes) != "runs"
    assert refused > 100


def section_of(content: bytes, kind: Kind) -> tuple[int, int]:
    from ngraph_mxnet.program.artefact import HEADER, SECTION

    count = HEADER.unpack_from(content)[2]
    rows = [SECTION.unpack_from(content, HEADER.size + i * SECTION.size) for i in range(count)]
    ((offset, size),) = [(row[2], row[3]) for row in rows if row[0] == kind]
    return offset, size


def fitting(content: bytes) -> bytes:
    """With the checks of what it now is."""
    from ngraph_mxnet.program.artefact import HEADER, SECTION, check

    made, count = bytearray(content), HEADER.unpack_from(content)[2]
    for i in range(count):
        at = HEADER.size + i * SECTION.size
        row = list(SECTION.unpack_from(content, at))
        row[4] = check(content[row[2]:row[2] + row[3]])
        made[at:at + SECTION.size] = SECTION.pack(*row)
    header = list(HEADER.unpack_from(content))
    header[4] = check(bytes(made[HEADER.size:HEADER.size + count * SECTION.size]))
    made[:HEADER.size] = HEADER.pack(*header)
    return bytes(made)


def endless(one: Any) -> dict[str, Any]:
    """Changes of a Program that ask for work without end."""
    steps = one.steps.tolist()
    huge = len(steps)
    more = np.array([*steps, (0, 1 << 46, 0, 0, 0)], np.int64)
    symbols = one.loops[0][1] + 1
    return {
        "rounds": {"steps": more, "loops": [(symbols + huge, one.loops[0][1])]},
        "steps beyond bounds": {"steps": np.array(
            [*steps, (0, 1 << 62, 0, 0, 0), (2, symbols + huge, symbols + huge, 0, 0)], np.int64)},
        "a table": {"steps": more, "constants": [*one.constants, ("pixels", [symbols + huge] * 19)],
                    "instructions": [with_constant(one.instructions[0], len(one.constants)), *one.instructions[1:]]},
    }


def with_constant(instruction: Any, index: int) -> Any:
    kernel, operands, *rest = instruction
    return (kernel, [(3, index, operands[0][2]), *operands[1:]], *rest)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", ["rounds", "steps beyond bounds", "a table"])
def test_work_without_end(what: str, tmp_path: Path) -> None:
    make, shapes = SMALL["recurrent"]
    written(make(), tmp_path / "range", isas=["baseline"])
    artefact = load(tmp_path / "range")
    (one,) = artefact.sets
    ((program, guards),) = one.programs
    changed = replace(one, programs=[(replace(program, **endless(program)[what]), guards)])
    said = tried(to_bytes(replace(artefact, sets=[changed])), tmp_path / "other", shapes)
    assert "more instructions than in any model" in said or "beyond all bounds" in said or "a table of" in said


def test_sections_that_do_not_fit_together(tmp_path: Path) -> None:
    artefact, fixed = (read_of(written_content(convolved(size, 3, 8, 8), tmp_path)) for size in (N, 2))
    one, shapes = artefact.sets[0], fixed.sets[0]
    for sets, text in (
            ([one, one], "two programs are for the same instruction set and set of shapes"),
            ([replace(one, number=1)], "the sets of shapes are numbered"),
            ([one, replace(one, number=1, outputs=[("other", type_) for _, type_ in one.outputs])],
             "the sets of shapes differ"),
            ([one, replace(shapes, number=1)], "a set of shapes comes after a range"),
            ([replace(one, programs=[])], "there is no program"),
            ([replace(shapes, programs=shapes.programs * 2)], "a set of shapes has 2 programs"),
            ([], "there is no program")):
        content = to_bytes(replace(artefact, sets=sets))
        with pytest.raises(PackageError, match=text):
            read(content)
        (tmp_path / "wrong").write_bytes(content)
        with pytest.raises(ValueError):  # noqa: PT011  (the library says it in words of its own)
            _core.Artefact(str(tmp_path / "wrong"))


def read_of(content: bytes) -> Artefact:
    return read(content)


def written_content(graph: Graph, folder: Path) -> bytes:
    written(graph, folder / "content")
    return (folder / "content").read_bytes()
