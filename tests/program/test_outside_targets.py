"""Targets that other distributions bring: found by their entry points, placed on by HYBRID, and told when broken."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import ngraph_mxnet

TOY = """
    from ngraph_mxnet.targets.interpreter import InterpreterBackend
    from ngraph_mxnet.program.backend import DeviceCosts

    class Toy(InterpreterBackend):
        '''Runs products in no time, and nothing else but sums.'''

        options = {"speed": "a number"}

        def __init__(self, variant=""):
            self.name = f"TOY:{variant}" if variant else "TOY"

        def supports(self, node):
            return None if node.op.name in ("matmul", "add", "constant") else "it is too hard"

        def costs(self, graph, options):
            return DeviceCosts(lambda node: 1e-9, 1e-9, lambda type_: 1e-9, f"made up at {options.get('speed')}")
"""
START = """
    import numpy as np
    import ngraph_mxnet
    from ngraph_mxnet.base.errors import ConfigError
    from ngraph_mxnet.ir import Builder
    from ngraph_mxnet.program.backend import backends, get_backend

    b = Builder(name="net")
    x, w = b.parameter("x", (64, 256)), b.weight("w", (256, 256))
    graph = b.results(b.softmax(b.tanh(b.matmul(b.exp(x), w)), axis=-1))
    arrays = [np.random.default_rng(0).uniform(-1, 1, shape).astype("f") for shape in ((64, 256), (256, 256))]
    expected = ngraph_mxnet.compile(graph, "INTERPRETER")(*arrays)

    def error(name):
        try:
            get_backend(name)
        except ConfigError as found:
            return str(found)
"""


def install(folder: Path, name: str, points: str, code: str = "") -> None:
    """A distribution as an installer leaves it."""
    info = folder / f"{name}-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[ngraph_mxnet.targets]\n{points}\n")
    (folder / f"{name}.py").write_text(textwrap.dedent(code))


def run(folder: Path, script: str, **variables: str) -> str:
    """What a process prints to which the distributions in `folder` are installed."""
    path = os.pathsep.join([str(folder), str(Path(ngraph_mxnet.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(START) + textwrap.dedent(script)], cwd=folder,
                          env={**os.environ, **variables, "PYTHONPATH": path}, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


PLACED = """
    found = ngraph_mxnet.compile(graph, {backend!r}, **{options!r})
    where = {{node.op: node.device for node in found.plan.nodes}}
    assert where == {{"exp": "CPU", "matmul": {toy!r}, "tanh": "CPU", "softmax": "CPU"}}, where
    assert found.plan.kinds[1] == "made up at {speed}"
    for one, other in zip(found(*arrays), expected):
        np.testing.assert_allclose(one, other, 1e-4, 1e-4)
"""


@pytest.mark.parametrize(("backend", "options", "toy", "variables"), [
    ("HYBRID", {"devices": "CPU,TOY"}, "TOY", {}),
    ("HYBRID", {"devices": "CPU,toy:fast", "toy_speed": 9}, "TOY:fast", {}),
    ("hybrid:cpu,toy", {}, "TOY", {}),
    (None, {"toy_speed": 9}, "TOY", {"NGRAPH_BACKEND": "HYBRID:cpu,toy"}),
])  # fmt: skip
def test_hybrid_places_on_it(tmp_path: Path, backend: str | None, options: dict[str, object], toy: str,
                             variables: dict[str, str]) -> None:
    install(tmp_path, "toys", "toy = toys:Toy", TOY)
    script = PLACED.format(backend=backend, options=options, toy=toy, speed=options.get("toy_speed"))
    run(tmp_path, script, **variables)


def test_it_is_a_backend_like_others(tmp_path: Path) -> None:
    """It runs what it supports, and refuses what it does not; nothing is imported before somebody asks for it."""
    install(tmp_path, "toys", "toy = toys:Toy", TOY)
    run(tmp_path, """
        import sys
        assert "TOY" in backends() and "toys" not in sys.modules
        b = Builder(name="sum")
        sum_ = b.results(b.add(b.parameter("x", (2,)), b.parameter("y", (2,))))
        found = ngraph_mxnet.compile(sum_, speed=3)
        assert found(np.ones(2, "f"), np.ones(2, "f"))[0].tolist() == [2, 2]
        for call, message in ((lambda: ngraph_mxnet.compile(graph), "backend TOY does not run exp: it is too hard"),
                              (lambda: ngraph_mxnet.compile(sum_, fast=1), "backend TOY has no option fast")):
            try:
                call()
            except ngraph_mxnet.NGraphError as found:
                assert message in str(found), found
            else:
                raise AssertionError(message)
    """, NGRAPH_BACKEND="toy")


@pytest.mark.parametrize(("code", "message"), [
    ("import nothing_of_that_name", "ModuleNotFoundError"),
    ("1 / 0", "ZeroDivisionError"),
    ("", "has no attribute 'Toy'"),
    ("class Toy: pass", "makes a Toy, expected a runtime.backend.Backend"),
    ("class Toy:\n    def __init__(self): raise OSError('no driver')", "no driver"),
])  # fmt: skip
def test_a_broken_one_is_told_and_stops_no_other(tmp_path: Path, code: str, message: str) -> None:
    install(tmp_path, "broken", "toy = broken:Toy", code)
    install(tmp_path, "toys", "second = toys:Toy", TOY)
    told = run(tmp_path, """
        assert {"CPU", "SECOND", "TOY"} <= set(backends())
        print(error("toy"))
        found = ngraph_mxnet.compile(graph, "HYBRID", devices="CPU,SECOND")
        assert np.allclose(found(*arrays)[0], expected[0], 1e-4, 1e-4)
    """)
    assert "backend TOY can't be loaded: the entry point broken:Toy of the distribution broken 1.5 fails" in told
    assert message in told
    assert "Update or uninstall broken 1.5, or use one of CPU, HYBRID, INTERPRETER, NNP" in told


def test_names_that_are_taken(tmp_path: Path) -> None:
    install(tmp_path, "toys", "toy = toys:Toy\ncpu = toys:Toy", TOY)
    install(tmp_path, "others", "TOY = others:Toy", TOY)
    told = run(tmp_path, """
        assert type(get_backend("CPU")).__module__ == "ngraph_mxnet.targets.cpu.backend"
        print(error("toy"))
    """)
    assert "the backend cpu of the distribution toys 1.5 is not used: this package has one of that name" in told
    (line,) = (line for line in told.splitlines() if line.startswith("backend TOY comes with"))
    assert "toys 1.5" in line and "others 1.5" in line and "uninstall all of these distributions but one" in line


def test_damaged_metadata_stop_no_other(tmp_path: Path) -> None:
    install(tmp_path, "damaged", "no entry point\n[[", TOY)
    (tmp_path / "damaged-1.5.dist-info" / "METADATA").write_bytes(b"\xff\xfe")
    install(tmp_path, "toys", "toy = toys:Toy", TOY)
    run(tmp_path, "assert get_backend('toy').name == 'TOY'")


def test_nothing_that_is_kept_on_disk_is_shared_between_processes(tmp_path: Path) -> None:
    """Nobody sees a change to its files."""
    install(tmp_path, "toys", "toy = toys:Toy", TOY)
    script = """
        from ngraph_mxnet.base.registry import build_of
        assert build_of("CPU") == build_of("HYBRID") == build_of("NNP:nnp-t-1400") == ""
        assert build_of("TOY:fast") == build_of("hybrid:cpu,toy")
        print("build", build_of("toy"))
    """
    first, second = (run(tmp_path, script).split("build ")[1].split()[0] for _ in range(2))
    assert first != second
