"""A few mutants of models of all kinds and of cache entries; `scripts/fuzz_files.py` tries as many as one likes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import onnx.parser
import pytest
from fuzzing import artefacts, entries, mutants, params, program_sections, symbols, texts
from fuzzing.targets import (
    TARGETS,
    WrongError,
    bounded,
    try_model,
    try_params,
    try_store,
    try_symbol,
    try_text,
)
from fuzzing.values import test_helpers  # noqa: F401  (before what it makes importable)

# isort: split
from families import RECORDS

from ngraph_mxnet.frontends.onnx import model
from ngraph_mxnet.frontends.onnx.rules.registry import all_rules
from ngraph_mxnet.program.artefact import FORMAT, HEADER, ISAS, Kind
from ngraph_mxnet.program.cache import open_store
from ngraph_mxnet.program.program import read_programs, section_bytes

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fuzz_files.py"
MODELS = (
    """g (float[n, 3, 8, 8] x) => (float[n, 4] y) <float[4, 3, 1, 1] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> {
        c = Conv<pads = [1, 1, 1, 1]>(x, w)
        r = Relu(c)
        p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
        m = GlobalAveragePool(p)
        y = Flatten(m)
    }""",
    """g (float[2, 6] x) => (z) <int64[1] one = {1}, int64[1] zero = {0}, int64[2] to = {3, -1}, int64[1] k = {2}> {
        r = Reshape(x, to)
        s = Slice(r, zero, k, one)
        v, i = TopK<axis = 1>(s, k)
        a = Softmax(v)
        z = Concat<axis = 0>(a, v)
    }""",
    """g (float[n, 4] x, bool b) => (y) <int64 trips = {3}> {
        t = Loop(trips, "", x) <body = body (int64 i, bool go, s) => (bool on, u) {
            on = Identity(go)
            u = Mul(s, s)
        }>
        y = If(b) <then_branch = yes () => (p) { p = Relu(t) }, else_branch = no () => (q) { q = Neg(t) }>
    }""",
    """g (float[2, 3, 4] x) => (y, h) <float[4] s = {1, 2, 3, 4}> {
        n = LayerNormalization(x, s)
        y = ReduceMean<keepdims = 0>(n)
        h = Einsum<equation = "ijk,ijk->ik">(n, n)
    }""",
)


@pytest.fixture(scope="module")
def models() -> list[bytes]:
    head = '<ir_version: 8, opset_import: ["" : 18]> '
    return [onnx.parser.parse_model(head + text).SerializeToString() for text in MODELS]


@pytest.mark.timeout(300)
def test_mutants_of_models(models: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each compiles, or ends in an error of ours."""
    monkeypatch.setattr(model, "MOST_NODES", 1 << 10)  # to come to the bound takes seconds
    taken = 0
    for seed in range(250):
        random = Random(seed)
        mutant = mutants.mutate(random.choice(models), models, random)
        taken += try_model(mutant)
    assert 25 < taken < 225  # else the changes were none, or no model survived them


def test_mutants_of_params() -> None:
    """Each is read within its memory, or ends in an error of ours."""
    seeds, taken = params.seeds(), 0
    for seed in range(3000):
        random = Random(seed)
        taken += try_params(params.mutate(random.choice(seeds), seeds, random))
    assert 100 < taken < 2000


@pytest.mark.timeout(300)
def test_mutants_of_symbols() -> None:
    """Each compiles, or ends in an error of ours."""
    seeds, taken = [text for record in RECORDS[::20] for text in symbols.of_operator(record)], 0
    assert sum(map(try_symbol, seeds)) > 0.8 * len(seeds)
    for seed in range(400):
        random = Random(seed)
        taken += try_symbol(symbols.mutate(random.choice(seeds), seeds, random))
    assert 50 < taken < 300


def test_mutants_of_texts() -> None:
    """Each parses, and is the same graph when it is printed and parsed again, or ends in an error of ours."""
    seeds, taken = texts.seeds(), 0
    assert all(map(try_text, seeds))
    for seed in range(400):
        random = Random(seed)
        taken += try_text(texts.mutate(random.choice(seeds), seeds, random))
    assert 4 < taken < 200


def test_fields_of_params_are_those_that_were_written() -> None:
    for seed in params.seeds():
        fields = params.fields_of(seed)
        assert params.packed(fields) == seed
        assert all(code != "s" or len(value) < 50 for code, value in fields)  # nothing is left over
        for end in range(len(seed)):
            assert params.packed(params.fields_of(seed[:end])) == seed[:end]


def test_memory_beyond_the_bound_is_a_finding() -> None:
    with pytest.raises(WrongError, match="bytes of memory to read 10"), bounded(b"x" * 10, 2, 1 << 10):
        bytearray(1 << 20)


def test_what_is_hardly_a_symbol_has_mutants_too() -> None:
    seeds = list(symbols.of_operator(RECORDS[0]))
    for number in range(200):
        mutant = (b"{", b"[]", b'{"nodes": [5]}', b'{"nodes": [{}], "heads": 5}')[number % 4]
        for _ in range(4):
            mutant = symbols.mutate(mutant, seeds, Random(number))
            mutant = params.mutate(mutant, params.seeds(), Random(number)) if number % 8 == 7 else mutant


def test_a_mutant_is_repeatable_and_readable(models: list[bytes]) -> None:
    for seed in range(20):
        first, second = (mutants.mutate(models[seed % len(models)], models, Random(seed)) for _ in range(2))
        assert first == second
        assert onnx.load_model_from_string(first).graph.node


def test_what_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*given: object) -> None:
        raise AssertionError("a bug")

    text = """<ir_version: 8, opset_import: ["" : 18, "toy" : 1]>
    g (float[2] x) => (float[2] y) { y = toy.Damaged(x) }"""
    monkeypatch.setitem(all_rules(), ("toy", "Damaged"), damaged)
    with pytest.raises(AssertionError, match="a bug"):
        try_model(onnx.parser.parse_model(text).SerializeToString())


def test_mutants_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that somebody changed is absent."""
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path))
    (seed,) = TARGETS["store"].seeds()
    for number in range(50):
        mutant = entries.mutate_bytes(seed, [], Random(number))
        assert try_store(mutant) == (mutant == seed)
    store = open_store()
    assert store is not None
    store.clear()
    store.put("program", "fuzzed", b"other")
    (path,) = (tmp_path / "program").iterdir()
    with pytest.raises(WrongError):
        try_store(path.read_bytes())


@pytest.mark.timeout(300)
def test_mutants_of_compiled_models() -> None:
    """In a process of their own, as one that reads or writes where it may not ends it."""
    if not os.environ.get("NGRAPH_RUNTIME_LIBRARY"):
        pytest.skip("NGRAPH_RUNTIME_LIBRARY names no built library")
    program = f"""
import sys; sys.path.insert(0, {str(SCRIPT.parent)!r})
from random import Random
from fuzzing import artefacts, guarded_runs, targets
seeds = artefacts.seeds()
short, is_short = [], guarded_runs.is_short
guarded_runs.is_short = lambda bound: short.append(is_short(bound)) or short[-1]
assert all(targets.try_artefact(seed) for seed in seeds) and len(short) > len(seeds) and all(short)
print(sum(targets.try_artefact(artefacts.mutate(seeds[i % len(seeds)], seeds, Random(i))) for i in range(500)))"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 50 < int(done.stdout) < 450


def test_a_compiled_model_is_put_together_as_it_was() -> None:
    for seed in artefacts.seeds()[::5]:
        sections = artefacts.sections(seed)
        version = HEADER.unpack_from(seed)[1]
        assert artefacts.assembled(sections, version=version) == seed
        (data,) = (section.content for section in sections if section.kind == Kind.DATA)
        for section in sections:
            if section.kind == Kind.PROGRAM and version == FORMAT:
                found = read_programs(ISAS[section.isa - 1], 0, memoryview(section.content), memoryview(data))
                assert section_bytes(found, program_sections.places(data)) == section.content


def test_what_is_hardly_a_compiled_model_has_mutants_too() -> None:
    seeds = artefacts.seeds()[::6]
    for number in range(100):
        mutant = b"ngraph artefact\n" * number
        for _ in range(4):
            mutant = artefacts.mutate(mutant, seeds, Random(number))


@pytest.mark.parametrize("target", ["params", "store"])
def test_the_script_without_atheris(target: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), target, str(tmp_path), "--blind", "--runs", "200"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 mutants" in done.stdout and "1 processes, 0 findings" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs pip install '.[fuzz]'")
@pytest.mark.parametrize("target", ["params", "symbol", "model", "package", "store"])
def test_the_script(target: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), target, str(tmp_path), "--runs", "300"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "300 mutants" in done.stdout and "1 processes, 0 findings" in done.stdout


@pytest.mark.parametrize("lines", [b"", b'""', b'""\n429496', b"{}\n{}", b"[]\n{}\n", b'[]\n["x", 3]\narrays'])
def test_what_is_hardly_a_package_has_mutants_too(lines: bytes) -> None:
    """A mutator that raises ends the fuzzer's process, which counts as a finding."""
    content = entries.package.seal(lines)
    for number in range(200):
        entries.mutate(content, [content], Random(number))
