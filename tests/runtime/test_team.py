"""Teams of threads, `csrc/team.cc`, by themselves: compiled here, also with the sanitizer of threads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "csrc"
COMPILER = shutil.which("g++")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


def built(folder: Path, *options: str) -> Path:
    program = folder / "team"
    sources = [Path(__file__).with_name("team_main.cc"), SOURCES / "team.cc"]
    subprocess.run([str(COMPILER), "-std=c++17", "-O1", "-g", f"-I{SOURCES}", *options, *sources, "-o", program,
                    "-pthread"], check=True)
    return program


def output_of(program: Path, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


def test_nobody_waits_for_a_thread_that_has_not_come(tmp_path):
    """The workers are held up in a signal handler: calls end without them, and the workers help again afterwards."""
    program = built(tmp_path)
    assert output_of(program, "1", "300", "4", "held") == "same\n"


def test_no_thread_reads_what_another_writes(tmp_path):
    program = built(tmp_path, "-fsanitize=thread")
    for callers, calls, threads in ((1, 2000, 2), (1, 300, 8), (4, 300, 4), (3, 300, 2)):
        assert output_of(program, str(callers), str(calls), str(threads)) == "same\n"
