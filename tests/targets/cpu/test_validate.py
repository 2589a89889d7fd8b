"""Programs from disk: what is not as the kernels declare is refused before anything runs."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "scripts"))

from fuzzing import entries
from fuzzing.programs import GRAPHS, HELD, kept

from ngraph_mxnet.base.errors import PackageError
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.backend import load
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.program.package import Package, seal
from ngraph_mxnet.targets.cpu.params import KERNELS
from ngraph_mxnet.targets.cpu.program.instruction import Space


def network() -> Graph:
    """Contractions of both kinds of input, a depthwise one, layouts, elementwise ops, a reduction, a softmax."""
    b = Builder()
    x = b.parameter("x", (2, 3, 9, 9))
    for channels, groups in ((20, 1), (20, 20), (32, 1)):
        shape = (channels, x.type.shape[1] // groups, 3, 3)
        weights = np.random.default_rng(channels).uniform(-1, 1, shape).astype(np.float32)
        x = b.relu(b.convolution(x, b.constant(weights), pads_begin=[1, 1], pads_end=[1, 1], groups=groups))
    x = b.reshape(b.reduce_mean(x, axes=[2, 3]), shape=[2, 32])
    return b.results(b.softmax(b.exp(x), axis=1))


@pytest.fixture(scope="module")
def content() -> bytes:
    return compile(network(), "CPU", threads=1).package().to_bytes()


PROGRAMS = {make.__name__: make for make in GRAPHS}
every_program = pytest.mark.parametrize("name", PROGRAMS)


def fields(content: bytes) -> dict[str, Any]:
    """What a package says, with numbers in place of their slots: (kernel, operands, ints, floats, tasks, origin,
    operations, bytes, waits, carried, loop, node)."""
    package = Package.from_bytes(content, HELD)
    header: dict[str, Any] = entries.fields(content)[1]
    for name, program in header["code"].items():
        numbers = package.code[name]["steps"][:, 1].tolist()
        assert not program["symbols"] and not any(package.code[name]["steps"][:, 0])
        program["instructions"] = [
            [kernel, [[space, index, numbers[offset]] for space, index, offset in operands],
             [numbers[slot] for slot in ints], floats, numbers[tasks], origin, numbers[operations], numbers[touched],
             waits, carried, loop, node]
            for kernel, operands, ints, floats, tasks, waits, carried, loop, node, origin, operations, touched
            in program["instructions"]]
        program["numbers"] = numbers
    return header


def changed(content: bytes, header: dict[str, Any]) -> bytes:
    """The package of what `fields` gave. What is no number stands in the place of a slot."""
    table, arrays = entries.fields(content)[0], entries.arrays(content)
    code = {}
    for name, program in header["code"].items():
        if not (isinstance(program, dict) and "numbers" in program):
            code[name] = program
            continue
        numbers = list(program["numbers"])

        def slot(value: Any, numbers: list[int] = numbers) -> Any:
            if type(value) is not int or abs(value) >= 1 << 63:
                return value
            numbers.append(value)
            return len(numbers) - 1

        def slots(values: Any) -> Any:
            return list(map(slot, values)) if isinstance(values, list) else values

        made = []
        for kernel, operands, ints, floats, tasks, origin, operations, touched, *rest in program["instructions"]:
            places = [[*place[:2], *map(slot, place[2:])] for place in operands]
            made.append([kernel, places if isinstance(operands, list) else operands, slots(ints), floats, slot(tasks),
                         *rest[:4], origin, slot(operations), slot(touched), *rest[4:]])
        code[name] = {**{key: value for key, value in program.items() if key != "numbers"}, "instructions": made}
        steps = np.zeros((len(numbers), 5), np.int64)
        steps[:, 1] = numbers
        arrays[program["steps"]["$array"]] = steps.tobytes()
        table[program["steps"]["$array"]]["shape"] = list(steps.shape)
    tail = b"".join(array + b"\0" * (-len(array) % 16) for array in arrays)
    return entries.changed(content, [table, {**header, "code": code}], tail)


def checked(content: bytes) -> Any:
    return load(Package.from_bytes(content, HELD))


def loaded(content: bytes) -> Any:
    return load(Package.from_bytes(content)).native


def instructions(header: dict[str, Any]) -> Iterator[list[Any]]:
    for program in header["code"].values():
        yield from program["instructions"]


def test_what_was_kept_is_as_declared(content: bytes):
    kinds = {instruction[0].split("__")[0] for instruction in instructions(fields(content))}
    assert len(kinds) >= 6 and any("contraction" in kind for kind in kinds), kinds
    native = loaded(content)
    x = np.ones((2, 3, 9, 9), np.float32)
    out = np.empty((2, 32), np.float32)
    native.run([x], [out])
    np.testing.assert_allclose(out.sum(1), 1, rtol=1e-5)


def _set(at: int, value: Any) -> Callable[[list[Any]], None]:
    return lambda instruction: instruction.__setitem__(at, value)


@pytest.mark.parametrize("change", [
    _set(0, "system"), _set(0, "ng_system__avx2"), _set(0, "ng_exp__sse9"), _set(0, 7), _set(0, "ng_exp"),
    lambda i: i[1].pop(), lambda i: i[1].append([0, 0, 0]), lambda i: i[1].clear(),
    lambda i: i[2].pop(), lambda i: i[2].clear(), lambda i: i[2].__setitem__(0, 0),
    lambda i: i[2].__setitem__(0, -1), lambda i: i[2].__setitem__(2, 1.5), lambda i: i[2].__setitem__(1, 1 << 62),
    lambda i: i[2].__setitem__(2, None),
    lambda i: _set(4, i[4] + 1)(i), _set(4, -1), _set(4, float("nan")),
    lambda i: i[1][-1].__setitem__(2, -(1 << 40)), lambda i: i[1][-1].__setitem__(2, 1 << 40),
    lambda i: i[1][-1].__setitem__(0, 9), lambda i: i[1][-1].__setitem__(2, None),
    lambda i: i[1][-1].__setitem__(1, 1 << 70), lambda i: i[1][-1].__setitem__(1, -1), lambda i: i[3].append("1"),
    _set(1, {}), _set(2, {}), _set(3, {}), _set(3, ""), _set(5, None), _set(6, 1 << 70), _set(6, "1"), _set(7, 1 << 70),
    _set(7, 0.5), lambda i: i.append(0),
])
def test_one_wrong_thing_in_any_instruction(content: bytes, change: Callable[[list[Any]], None]):
    count = sum(1 for _ in instructions(fields(content)))
    for number in range(count):
        header = fields(content)
        instruction = list(instructions(header))[number]
        before = copy.deepcopy(instruction)
        change(instruction)
        assert json.dumps(instruction) != json.dumps(before)
        if any(space == Space.PREPARED for space, *_ in before[1]) and len(instruction[1]) < len(before[1]):
            continue  # it may prepare nothing any more, and is left out
        with pytest.raises(PackageError):
            loaded(changed(content, header))


NAN_SIZES = [["x", "f32", [float("nan")], "input"]]


@pytest.mark.parametrize(("name", "value"), [
    ("values", NAN_SIZES), ("values", [["x", "f32", [-2, 3, 9, 9], "input"]]), ("inputs", 0), ("inputs", -1),
    ("inputs", 2), ("values", [["x", "f33", [2], "input"]]), ("values", [["x", "f32", [2], "weigh"]]), ("results", []),
    ("results", [["y", 0]]), ("results", [["y", 99]]), ("steps", []), ("steps", [["main", [0], [0]]]),
    ("steps", [["other", [0], [1]]]), ("settings", {"threads": 0, "notice": None}), ("settings", {}),
    ("settings", {"threads": 1 << 30, "notice": None}), ("settings", {"threads": None, "notice": None}),
    ("settings", {"threads": 1, "notice": 7}), ("settings", {"threads": 1, "notice": None, "more": 1}), ("code", {}),
    ("code", {"main": None}), ("target", None), ("name", 7), ("version", "0.0.1"), ("symbols", None), ("guards", [1]),
    ("symbols", [["N", 1, 2]]), ("guards", [["N is 1", ""]]),
])
def test_wrong_frames(content: bytes, name: str, value: Any):
    assert fields(content)[name] != value
    with pytest.raises(PackageError):
        loaded(changed(content, fields(content) | {name: value}))


@pytest.mark.parametrize(("name", "value"), [
    ("symbols", 1), ("symbols", -1), ("steps", None), ("steps", {"$array": 99}), ("bounds", [[0, 1]]),
    ("loops", [[0, 0]]),
    ("guards", [[0, 1 << 40]]), ("instructions", {}), ("instructions", [{}]), ("instructions", [[]]), ("buffers", []),
    ("constants", [1]), ("constants", [["pixels", [0]]]), ("constants", []), ("inputs", []), ("outputs", []),
    ("inputs", [["f32", [1 << 40]]]), ("branches", "1"), ("wave_bytes", None), ("more", 1),
    ("instructions", [["ng_relu_f32__baseline", [], [], [], 0, [0], [], -1, 0, "", 0, 0]]),
])
def test_wrong_programs(content: bytes, name: str, value: Any):
    for part in ("main",) if name in ("inputs", "outputs", "buffers") else ("main", "prepare"):
        header = entries.fields(content)[1]
        header["code"][part][name] = value
        with pytest.raises(PackageError):
            loaded(entries.changed(content, [entries.fields(content)[0], header]))


@pytest.mark.parametrize("body", [b"", b"\n", b"[]\n", b"[]\n[]\n", b"[]\n{}\n", b"7\n7\n", b"[" * 100000 + b"\n\n",
                                  b"null\nnull\n"])
def test_no_package(body: bytes):
    for content in (body, seal(body)):
        with pytest.raises(PackageError):
            loaded(content)


@every_program
def test_strides_beyond_the_memory(name: str):
    """Each instruction with one of its numbers larger: nothing outside an operand's memory."""
    content = kept(PROGRAMS[name])
    header, refused, tried = fields(content), 0, 0
    for instruction in instructions(header):
        record = KERNELS[instruction[0].removeprefix("ng_").rpartition("__")[0]]
        ints = instruction[2]
        for at in (at for at, number in enumerate(record.ints) if at >= record.sizes and ints[at]
                   and ("_" in number or "." in number)):
            tried, before = tried + 1, ints[at]
            for ints[at] in (before + (1 << 30), -(1 << 30)):
                try:
                    checked(changed(content, header))
                except PackageError:
                    refused += 1
            ints[at] = before
    assert tried > 9 or name == "chains"  # whose kernel has no strides
    assert refused >= tried  # half of all: a stride along an axis of one does not matter


def test_constants_and_inputs_are_not_written(content: bytes):
    """A kernel that wrote to a table of offsets would choose where the next one reads."""
    for number, space in ((number, space) for number in range(3) for space in (Space.INPUT, Space.CONSTANT)):
        header = fields(content)
        instruction = list(instructions(header))[number]
        record = KERNELS[instruction[0].removeprefix("ng_").rpartition("__")[0]]
        instruction[1][record.tensors.index(record.written[0])] = [space, 0, 0]
        with pytest.raises(PackageError, match=r"may be|bytes"):
            loaded(changed(content, header))


def test_what_was_not_prepared_is_not_read():
    b = Builder()
    content = compile(b.results(b.exp(b.parameter("x", (2, 3)))), "CPU").package().to_bytes()
    header = fields(content)
    assert [graph for graph, *_ in header["steps"]] == ["main"]
    next(instructions(header))[1][0] = [Space.PREPARED, 0, 0]
    with pytest.raises(PackageError, match="nothing was prepared"):
        loaded(changed(content, header))


def test_positions_that_a_kernel_relies_on_are_its_own():
    content = kept(PROGRAMS["positions"])
    header = fields(content)
    boxes = [each for each in instructions(header) if "_box_nms_" in each[0]]
    _, output, order, numbers = boxes[0][1]
    for instruction, at, place in ((boxes[0], 3, order), (boxes[0], 1, order), (boxes[1], 2, numbers),
                                   (boxes[0], 2, [Space.OUTPUT, 4, 0]), (boxes[1], 1, [*order[:2], order[2] - 4])):
        before = instruction[1][at]
        instruction[1][at] = place
        with pytest.raises(PackageError, match=r"relies on|of the arena"):
            checked(changed(content, header))
        instruction[1][at] = before
    boxes[1][1][1] = output
    checked(changed(content, header))  # what is wrong is not out of bounds


def mutants(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """The package with a few numbers of its instructions changed, as a damaged or a chosen one might be."""
    rng = random.Random(seed)
    for _ in range(count):
        header = fields(content)
        for instruction in rng.choices(list(instructions(header)), k=rng.choice((1, 1, 2))):
            target = rng.choice((instruction[2], *instruction[1]))
            at = rng.randrange(len(target))
            old = target[at]
            target[at] = rng.choice((0, 1, -1, 2, 64, 1 << 20, old + 1, old * 2, old + 64, -old))
        yield changed(content, header)


def test_mutants_are_refused_or_run(content: bytes, tmp_path: Path):
    """In a process of its own, which a wild pointer would end."""
    (tmp_path / "content").write_bytes(content)
    text = f"""
import sys; sys.path.append({str(Path(__file__).parent)!r})
from pathlib import Path
import numpy as np
from {__name__} import PackageError, loaded, mutants
ran = 0
for mutant in mutants(Path({str(tmp_path / "content")!r}).read_bytes(), 1, 1500):
    try:
        native = loaded(mutant)
    except PackageError:
        continue
    ran += 1
    native.run([np.ones((2, 3, 9, 9), np.float32)], [np.empty((2, 32), np.float32)])
print(ran)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 10  # not all are refused for a trifle


def test_tensors_without_elements_are_not_packed():
    """Where sizes must be 1 at least, none of theirs is."""
    b = Builder()
    x = b.parameter("x", (1, 0), "f32")
    program = compile(b.results(b.softmax(x, axis=1)), "CPU")
    assert program(np.ones((1, 0), np.float32))[0].shape == (1, 0)
    with pytest.raises(PackageError, match=r"its int . is 0"):
        program.package()
