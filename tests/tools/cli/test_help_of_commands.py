"""What `--help` prints of each command, and what a shell completes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
import tomllib
from click.testing import CliRunner

import ngraph_mxnet
from ngraph_mxnet.tools.cli.commands import main

ROOT = Path(__file__).parents[3]
GOLDENS = ROOT / "tests" / "golden" / "help"
COMMANDS = main.list_commands(click.Context(main))


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_the_help(name: str, golden: Callable[[str, str], None]) -> None:
    result = CliRunner().invoke(main, [*name.split(), "--help"], prog_name="ngraph-mxnet", terminal_width=100)
    assert result.exit_code == 0
    golden(f"help/{name or 'ngraph-mxnet'}.txt", result.output)


def test_every_golden_is_of_a_command() -> None:
    assert {path.stem for path in GOLDENS.iterdir()} == {"ngraph-mxnet", *COMMANDS}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The console script as pip writes it, in a folder that is on PATH."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (name, value), = project["scripts"].items()
    point = EntryPoint(name, value, "console_scripts")
    path = tmp_path / name
    found_in = str(Path(ngraph_mxnet.__file__).parents[1])
    path.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {found_in!r})\n"
                    f"from {point.module} import {point.attr}\nsys.exit({point.attr}())\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("words", "expected"), [
    (["do"], ["doctor"]), (["show", "--stage", "lo"], ["lowered"]), (["run", "--backend", "h"], ["HYBRID"]),
    (["bench", "--ro"], ["--rounds"]), (["cache", ""], ["show", "clear"]), (["nonsense"], []),
])
def test_bash_completes(script: Path, words: list[str], expected: list[str]) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    program = ('eval "$(_NGRAPH_MXNET_COMPLETE=bash_source ngraph-mxnet)"; COMP_WORDS=(ngraph-mxnet "$@"); '
               'COMP_CWORD=$#; _ngraph_mxnet_completion ngraph-mxnet; printf "%s\\n" "${COMPREPLY[@]}"')
    environment = {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", program, "bash", *words], env=environment, capture_output=True, text=True,
                          check=False, timeout=120)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.split() == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_source_for_each_shell(script: Path, shell: str) -> None:
    environment = {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}",
                   "_NGRAPH_MXNET_COMPLETE": f"{shell}_source"}
    done = subprocess.run(["ngraph-mxnet"], env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert "_NGRAPH_MXNET_COMPLETE" in done.stdout and "ngraph-mxnet" in done.stdout
