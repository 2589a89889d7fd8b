"""Checks of what is installed and of the trial: fine, and what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ngraph_mxnet import __version__
from ngraph_mxnet.tools import doctor
from ngraph_mxnet.tools.doctor import Trial, loaded_libraries, read, try_everything

RESULT = {"seconds": 0.1, "result": [[0.25, 0.75]]}
GNU, INTEL, LLVM = "/usr/lib/libgomp.so.1.0.0", "/opt/lib/libiomp5.so", "/env/x.libs/libomp-1a2b.so.5"


def a_trial(**steps: Any) -> Trial:
    """One that went well but for `steps`, by their names with `_` for a space; None leaves one out."""
    found = {"INTERPRETER": RESULT, "CPU": RESULT, "import numba": "0.60", "MXNet alone": RESULT,
             "import mxnet": {"version": "1.9.1", "library": "/x/libmxnet.so", "problem": None},
             "MXNet with NGRAPH": RESULT, "libraries": [GNU]}
    found |= {name.replace("_", " "): value for name, value in steps.items()}
    return Trial({name: value for name, value in found.items() if value is not None})


def installed(**versions: str) -> Any:
    return lambda name: versions.get(name.replace("-", "_"))


# ---- what is installed -----------------------------------------------------------------------------------------


def test_an_installation_that_is_whole(tmp_path: Path) -> None:
    (tmp_path / "ngraph_mxnet_autoload.pth").touch()
    found = doctor.installation(version=installed(ngraph_mxnet_backend=__version__), site=tmp_path)
    assert found.status == "fine" and found.facts["ngraph_mxnet"] == __version__


def test_installations_that_are_not_whole(tmp_path: Path) -> None:
    missing = doctor.installation(lambda: "rich can't be imported", installed(), tmp_path)
    assert missing.problems == ("rich can't be imported",)
    assert "ngraph_mxnet_autoload.pth: only scripts that import ngraph_mxnet" in missing.notes[0]
    (fork,) = doctor.installation(version=installed(ngraph_mxnet="1.2"), site=tmp_path).problems
    assert fork.startswith("ngraph-mxnet 1.2 is installed, which is another project")
    (other,) = doctor.installation(version=installed(ngraph_mxnet_backend="0.0.9"), site=tmp_path).problems
    assert "ngraph-mxnet-backend 0.0.9 is installed" in other


def test_a_library_that_does_not_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ngraph_mxnet._core", None)
    (problem,) = doctor.installation(lambda: None, installed(), tmp_path).problems
    assert "ngraph_mxnet._core does not load" in problem


def test_libraries() -> None:
    found = doctor.libraries()
    assert found.status == "fine" and found.facts["mxnet"] == "1.9.1" and found.facts["onnx"]
    requirements = ["numpy", "onnx>=1.16", 'mxnet==1.9.1; extra == "mxnet"', 'ruff; extra == "test"']
    found = doctor.libraries(requirements, installed(onnx="1.9", mxnet="1.8.0", torch="2.5"))
    assert found.facts == {"numpy": None, "onnx": "1.9", "mxnet": "1.8.0", "torch": "2.5"}
    assert found.problems == ("numpy: found none, expected numpy: pip install 'numpy'",
                              "onnx: found 1.9, expected onnx>=1.16: pip install 'onnx>=1.16'",
                              "mxnet: found 1.8.0, expected mxnet==1.9.1: pip install 'mxnet==1.9.1'")
    found = doctor.libraries(requirements, installed(numpy="2.1", onnx="1.16"))
    assert found.status == "fine" and "mxnet" not in found.facts


def test_numpy() -> None:
    assert doctor.numpy(a_trial()).status == "fine"
    (problem,) = doctor.numpy(Trial(failed={"import numba": "ImportError: Numba needs NumPy 2.3 or less"})).problems
    assert "Numba needs NumPy 2.3 or less" in problem


# ---- what the trial told ---------------------------------------------------------------------------------------


def test_mxnet() -> None:
    found = doctor.mxnet(a_trial())
    assert found.status == "fine" and found.facts == {"version": "1.9.1", "library": "/x/libmxnet.so"}
    other = {"version": "1.8.0", "library": "/x/libmxnet.so", "problem": "was built for mxnet 1.9.1, found mxnet 1.8.0"}
    assert doctor.mxnet(a_trial(import_mxnet=other)).problems == (other["problem"],)
    failed = doctor.mxnet(Trial(failed={"import mxnet": "ImportError: No module named 'mxnet'"}))
    assert failed.problems == ("MXNet can't be imported: ImportError: No module named 'mxnet'",)
    assert doctor.mxnet(Trial()).problems == ("the trial ended before MXNet was imported",)


def test_without_mxnet() -> None:
    alone = a_trial(MXNet_alone=None, MXNet_with_NGRAPH=None)
    alone = Trial({**alone.steps, "import mxnet": None})
    (note,) = doctor.mxnet(alone).notes
    assert note.startswith("MXNet is not installed") and "pip install 'ngraph-mxnet-backend[mxnet]'" in note
    assert doctor.self_test(alone).status == "fine" and list(doctor.self_test(alone).facts) == ["CPU"]
    assert doctor.self_test(a_trial(MXNet_alone=None)).facts["MXNet alone"] == "no result"


@pytest.mark.parametrize(("libraries", "status"), [
    (["/usr/lib/libm.so.6"], "fine"), ([GNU], "fine"), ([GNU, "/env/y.libs/libgomp-9f.so.1"], "note"),
    ([GNU, INTEL], "wrong"), ([GNU, LLVM], "wrong"), ([INTEL, LLVM], "wrong"),
])
def test_openmp(libraries: list[str], status: str) -> None:
    found = doctor.openmp(a_trial(libraries=libraries))
    assert found.status == status
    assert len(found.facts["runtimes"]) == len([path for path in libraries if "omp" in path])


def test_openmp_is_not_known() -> None:
    assert doctor.openmp(a_trial(libraries=None)).status == "wrong"


def test_libraries_of_a_process() -> None:
    maps = ("55e0-55e1 r--p 00000000 08:01 12 /usr/bin/python3\n7f00-7f01 rw-p 00000000 00:00 0 \n"
            "7f02-7f03 r-xp 00000000 08:01 13 /a folder/libb.so.1\n"
            "7f04-7f05 r--p 00000000 08:01 13 /a folder/libb.so.1\n"
            "7f06-7f07 r-xp 00000000 08:01 14 /liba.so\n7ffe-7fff r-xp 00000000 00:00 0 [vdso]\n")
    assert loaded_libraries(maps) == ["/a folder/libb.so.1", "/liba.so"]


def test_results_that_agree() -> None:
    found = doctor.self_test(a_trial(CPU={"seconds": 0.2, "result": [[0.25001, 0.74999]]}))
    assert found.status == "fine"
    assert found.facts["CPU"] == {"seconds": 0.2, "largest difference": pytest.approx(1e-5)}


@pytest.mark.parametrize("result", [[[0.26, 0.74]], [[float("nan"), 0.75]]])
def test_results_that_differ(result: list[list[float]]) -> None:
    (problem,) = doctor.self_test(a_trial(MXNet_with_NGRAPH={"seconds": 0.2, "result": result})).problems
    assert problem.startswith("MXNet with NGRAPH: the result differs by ")


def test_steps_that_fail() -> None:
    ending = "MXNet alone: the process was ended by SIGILL"
    found = doctor.self_test(Trial(a_trial(CPU=None).steps, {"CPU": "UnsupportedError: no"}, ending))
    assert found.problems == ("CPU: UnsupportedError: no", ending)
    assert found.facts["CPU"] == "no result"
    assert "no result to compare others with" in doctor.self_test(Trial()).problems[0]


# ---- the trial itself ------------------------------------------------------------------------------------------


def test_a_real_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set to choose another backend or precision does not change what is tried."""
    for name, value in (("NGRAPH_BACKEND", "INTERPRETER"), ("NGRAPH_PRECISION", "bf16"), ("NGRAPH_PROFILE", "/x/y")):
        monkeypatch.setenv(name, value)
    found = try_everything(["json"])
    assert not found.failed and found.stopped is None and found.steps["import json"]
    for check in (doctor.numpy, doctor.mxnet, doctor.self_test):
        assert check(found).status == "fine", check(found)
    assert any("libgomp" in name for name in doctor.openmp(found).facts["runtimes"])
    assert all(len(found.steps[step]["result"]) == 2 for step in ("INTERPRETER", "CPU", "MXNet with NGRAPH"))


@pytest.mark.parametrize(("code", "seconds", "ending"), [
    ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", 60, "the process was ended by SIGILL"),
    ("import sys; print('the last line', file=sys.stderr); sys.exit(3)", 60,
     "the process ended with status 3: the last line"),
    ("import time; time.sleep(60)", 3, "the process took longer than 3 s"),
])
def test_a_trial_that_stops(code: str, seconds: float, ending: str, tmp_path: Path,
                            monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stops_here.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    found = try_everything(["stops_here"], seconds)
    assert found.stopped == f"import stops_here: {ending}" and not found.steps


def test_what_libraries_print_is_no_step() -> None:
    found = read(b'[12:00:00] hello\n\n{"step": "CPU"}\n7\n{"step": "CPU", "failed": "no"}\n{"half', None)
    assert found == Trial({}, {"CPU": "no"}, None)
