"""The command `ngraph-run`, and verification with what files hold for it."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ngraph_runtime
from ngraph_runtime import ModelError
from ngraph_runtime.reference import references, verify
from ngraph_runtime.run import main

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def reference(shape_set: int, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> bytes:
    parts = [struct.pack("<III", shape_set, len(inputs), len(outputs))]
    for array in (*inputs, *outputs):
        parts += [struct.pack("<Q", array.nbytes), array.tobytes()]
    return b"".join(parts)


def artefact(path: Path, sections: list[tuple[int, bytes]], number: int = 1) -> str:
    """A file as docs/artefact.md says, as far as a reader in Python looks at it."""
    offset = (64 + 64 * len(sections) + 63) // 64 * 64
    table, content = b"", b""
    for kind, data in sections:
        table += struct.pack("<IIQQ40x", kind, 0, offset + len(content), len(data))
        content += data + bytes(-len(data) % 64)
    header = struct.pack("<16sIIQ32x", b"ngraph artefact\n", number, len(sections), offset + len(content))
    path.write_bytes(header + table + content)
    return str(path)


def good(shape: tuple[int, ...] = (2, 3), shape_set: int = 0, error: float = 0.0) -> bytes:
    x = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    return reference(shape_set, [x], [2 * x + np.float32(error), np.array(x.sum(dtype=np.float64))])


def test_references_are_found_and_verified(fake, tmp_path):
    fake("twice")
    path = artefact(tmp_path / "m.ngraph", [(1, b"{}"), (4, good()), (9, b"other"), (4, good((4, 3), 1))])
    model = ngraph_runtime.load(path)
    first, second = references(model)
    assert (first.shape_set, second.shape_set) == (0, 1) and second.inputs[0].shape == (4, 3)
    compared = verify(model)
    assert [one.output for one in compared] == ["twice", "a/total"] * 2
    assert all(one.matches and one.difference < 1e-6 for one in compared)


@pytest.mark.parametrize(("error", "tolerance", "matches"), [
    (1e-4, None, True), (0.1, None, False), (0.1, 0.06, True), (np.nan, None, False)])
def test_differences_are_found(fake, tmp_path, error, tolerance, matches):
    fake("twice")
    model = ngraph_runtime.load(artefact(tmp_path / "m.ngraph", [(4, good(error=error))]))
    twice, total = verify(model, tolerance)
    assert twice.matches is matches and total.matches
    assert np.isnan(error) or twice.difference == pytest.approx(error / 2, rel=0.1)


@pytest.mark.parametrize(("sections", "text"), [
    ([(4, good()[:-3])], r"has 8 bytes for a/total, which do not fit"),
    ([(4, good()[:20])], r"has 24 bytes for data, which do not fit"),
    ([(4, good()[:13])], "damaged or cut off"),
    ([(4, good(shape_set=2))], "of set 2 with 1 inputs and 2 outputs does not fit"),
    ([(4, good((4, 3)))], "has 48 bytes for data"),
])
def test_references_that_do_not_fit(fake, tmp_path, sections, text):
    fake("twice")
    model = ngraph_runtime.load(artefact(tmp_path / "m.ngraph", sections))
    with pytest.raises(ModelError, match=text):
        references(model)


def test_containers_that_are_none(fake, tmp_path):
    model = ngraph_runtime.load(fake("twice"))
    with pytest.raises(ModelError, match="damaged or cut off"):
        references(model)
    model = ngraph_runtime.load(artefact(tmp_path / "m.ngraph", [], number=2))
    with pytest.raises(ModelError, match="found format 2"):
        references(model)
    path = Path(artefact(tmp_path / "m.ngraph", [(4, good())]))
    path.write_bytes(path.read_bytes()[:160])
    with pytest.raises(ModelError, match="behind the file's end"):
        references(model)


# ---- the command -------------------------------------------------------------------------------------------


def report(capsys, *arguments: object, status: int = 0) -> dict:
    assert main([*map(str, arguments), "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_list(fake, capsys):
    path = fake("twice")
    found = report(capsys, path)
    assert found["metadata"] == {"labels": "ä, b"} and found["instruction_set"] == "baseline"
    assert found["inputs"] == [{"name": "data", "element": "f32", "shapes": [[2, 3], [4, 3]]}]
    assert main([path, "--list"]) == 0
    text = capsys.readouterr().out
    assert "metadata labels: ä, b" in text and "set of shapes 1:\n  input data: f32 [4,3]\n" in text


def test_inputs_and_outputs(fake, tmp_path, capsys):
    np.save(tmp_path / "x.npy", X)
    found = report(capsys, fake("twice"), "--input", f"data={tmp_path / 'x.npy'}", "--output-dir", tmp_path / "out",
                   "--time", 3, "--threads", 1)
    assert [one["name"] for one in found["outputs_found"]] == ["twice", "a/total"]
    assert np.array_equal(np.load(tmp_path / "out" / "twice.npy"), 2 * X)
    assert np.load(found["outputs_found"][1]["file"]) == 15
    assert Path(found["outputs_found"][1]["file"]).name == "a_total.npy"
    assert found["time"]["calls"] == 3 and 0 < found["time"]["least_ms"] <= found["time"]["median_ms"]


def test_times_on_random_inputs(fake, capsys):
    assert report(capsys, fake("types"), "--time", 2)["time"]["calls"] == 2
    path = fake("twice")
    assert main([path, "--time", "2", "--shape-set", "1"]) == 0
    assert "2 calls: median" in capsys.readouterr().out
    assert main([path, "--time", "2", "--shape-set", "2"]) == 2
    assert "--shape-set: found 2, expected one below 2" in capsys.readouterr().err


def test_verify_ends_with_what_it_found(fake, tmp_path, capsys):
    fake("twice")
    path = artefact(tmp_path / "good.ngraph", [(4, good())])
    assert [one["matches"] for one in report(capsys, path, "--verify")["verify"]] == [True, True]
    path = artefact(tmp_path / "bad.ngraph", [(4, good(error=1))])
    assert main([path, "--verify"]) == 1
    assert "set 0, twice: DIFFERS, difference 0.33" in capsys.readouterr().out
    assert main([path, "--verify", "--tolerance", "0.6"]) == 0
    assert main([artefact(tmp_path / "none.ngraph", []), "--verify"]) == 1
    assert "the file holds nothing to verify with" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "text"), [
    (["--input", "x.npy"], "expected NAME=FILE.npy"),
    (["--input", "data=nowhere.npy"], "nowhere.npy"),
    (["--input", f"data={__file__}"], "is no .npy file"),
    (["--output-dir", "out", "--list"], "--output-dir needs inputs"),
])
def test_use_that_is_refused(fake, capsys, arguments, text):
    assert main([fake("twice"), *arguments]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and text in err and not out


def test_models_that_are_refused(fake, capsys):
    assert main([fake("nonsense")]) == 2
    assert "it is no compiled model" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main([fake("twice"), "--time", "0"])


def test_the_module_is_a_command(fake):
    path = fake("twice")
    done = subprocess.run([sys.executable, "-m", "ngraph_runtime", path], cwd=Path(ngraph_runtime.__file__).parents[1],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "input data: f32 [2,3]" in done.stdout
