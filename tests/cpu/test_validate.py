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

from ngraph_mxnet.cpu import recipe as recipes
from ngraph_mxnet.cpu.microkernels.params import CONTRACTIONS
from ngraph_mxnet.cpu.params import KERNELS
from ngraph_mxnet.cpu.recipe import Recipe
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.runtime.compile import compile

KNOWN = {*CONTRACTIONS, *(name for name, record in KERNELS.items() if record.reach)}
"""Of these all that is touched is checked."""


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
    kept = compile(network(), "CPU", threads=1).kept()
    assert kept is not None
    return kept


def fields(content: bytes) -> dict[str, Any]:
    return json.loads(content[:content.index(b"\n")])


def changed(content: bytes, header: dict[str, Any]) -> bytes:
    return json.dumps(header).encode() + content[content.index(b"\n"):]


def instructions(header: dict[str, Any]) -> Iterator[list[Any]]:
    for program in (header["main"], header["prepare"]):
        for level in program["levels"] if program else ():
            yield from level


def test_what_was_kept_is_as_declared(content: bytes):
    kinds = {instruction[0].split("__")[0] for instruction in instructions(fields(content))}
    assert len(kinds) >= 6 and any("contraction" in kind for kind in kinds), kinds
    Recipe.from_bytes(content).check()
    native = recipes.load(content)
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
    lambda i: i[2].__setitem__(0, -1), lambda i: i[2].__setitem__(2, 1.0), lambda i: i[2].__setitem__(1, 1 << 62),
    lambda i: i[2].__setitem__(2, None),
    lambda i: _set(4, i[4] + 1)(i), _set(4, -1), _set(4, float("nan")), _set(4, True),
    lambda i: i[1][-1].__setitem__(2, -64), lambda i: i[1][-1].__setitem__(2, 1 << 40),
    lambda i: i[1][-1].__setitem__(0, 9), lambda i: i[1][-1].__setitem__(2, None),
    lambda i: i[1][-1].__setitem__(1, 1 << 70), lambda i: i[1][-1].__setitem__(1, -1), lambda i: i[3].append(1 << 70),
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
        with pytest.raises((ValueError, KeyError, TypeError)):
            recipes.load(changed(content, header))


@pytest.mark.parametrize(("name", "value"), [
    ("inputs", [["f32", [float("nan")]]]), ("inputs", [["f32", [-2, 3, 9, 9]]]), ("inputs", []),
    ("inputs", [["f33", [2]]]),
    ("outputs", [["f32", [2, 31]]]), ("threads", 0), ("threads", 1 << 30), ("threads", None), ("prepared_bytes", -1),
    ("main", None), ("main", {"levels": {}, "arena_bytes": 0, "constants": []}),
    ("main", {"levels": [{}], "arena_bytes": 0, "constants": []}),
])
def test_wrong_frames(content: bytes, name: str, value: Any):
    with pytest.raises((ValueError, KeyError, TypeError)):
        recipes.load(changed(content, fields(content) | {name: value}))


@pytest.mark.parametrize("header", [b"", b"\n", b"[]\n", b"{}\n", b"7\n", b"[" * 100000 + b"\n", b"null\n"])
def test_no_recipe(header: bytes):
    with pytest.raises((ValueError, KeyError, TypeError)):
        recipes.load(header)


def test_strides_beyond_the_memory(content: bytes):
    """Each instruction whose reach is known, with one of its numbers larger: nothing outside an operand's memory."""
    header, refused, tried = fields(content), 0, 0
    for instruction in instructions(header):
        name = instruction[0].removeprefix("ng_").rpartition("__")[0]
        if name not in KNOWN:
            continue
        ints = instruction[2]
        for at in range(KERNELS[name].sizes, len(ints)):
            if ints[at] == 0:
                continue
            tried, kept = tried + 1, ints[at]
            for ints[at] in (kept + (1 << 30), -(1 << 30)):
                try:
                    Recipe.from_bytes(changed(content, header)).check()
                except ValueError:
                    refused += 1
            ints[at] = kept
    assert tried > 30
    assert refused >= 1.2 * tried  # a stride along an axis of one does not matter


def mutants(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    """The recipe with a few numbers of its instructions changed, as a damaged or a chosen one might be."""
    rng = random.Random(seed)
    for _ in range(count):
        header = fields(content)
        known = [i for i in instructions(header)
                 if i[0].removeprefix("ng_").rpartition("__")[0] in KNOWN]
        for instruction in rng.choices(known, k=rng.choice((1, 1, 2))):
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
from {__name__} import mutants, recipes
ran = 0
for mutant in mutants(Path({str(tmp_path / "content")!r}).read_bytes(), 1, 1500):
    try:
        native = recipes.load(mutant)
    except (ValueError, KeyError, TypeError):
        continue
    ran += 1
    native.run([np.ones((2, 3, 9, 9), np.float32)], [np.empty((2, 32), np.float32)])
print(ran)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 10  # not all are refused for a trifle


def test_tensors_without_elements_are_not_kept():
    """Where sizes must be 1 at least, none of theirs is."""
    b = Builder()
    x = b.parameter("x", (1, 0), "f32")
    program = compile(b.results(b.softmax(x, axis=1)), "CPU")
    assert program(np.ones((1, 0), np.float32))[0].shape == (1, 0)
    assert program.kept() is None
