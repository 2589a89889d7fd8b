"""Teams of threads, `csrc/core/team.cc`, by themselves: compiled here, also with the sanitizer of threads."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "csrc"
COMPILER = shutil.which("g++")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


def built(folder: Path, *options: str, name: str = "team") -> Path:
    program = folder / name
    parts = {"team": ("team", "lock_order"), "lock_order": ("lock_order",)}.get(name, ())
    sources = [Path(__file__).with_name(f"{name}_main.cc"), *(SOURCES / "core" / f"{part}.cc" for part in parts)]
    subprocess.run([str(COMPILER), "-std=c++17", "-O1", "-g", f"-I{SOURCES}", *options, *sources, "-o", program,
                    "-pthread"], check=True)
    return program


def output_of(program: Path, *arguments: str, **variables: str) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, **variables})
    return done.stdout + done.stderr


def test_nobody_waits_for_a_thread_that_has_not_come(tmp_path):
    """The workers are held up in a signal handler: calls end without them, and the workers help again afterwards."""
    program = built(tmp_path)
    assert output_of(program, "1", "300", "4", "held") == "same\n"


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no shared memory")
def test_processes_share_the_cores(tmp_path):
    """On eight cores a call gets all, then what one neighbour leaves, then a third, then all again."""
    program = built(tmp_path)
    for _ in range(2):
        assert output_of(program, "1", "10", "4", "shared", NGRAPH_SHARE_CORES="1") == "same\n"


def test_no_thread_reads_what_another_writes(tmp_path):
    program = built(tmp_path, "-fsanitize=thread")
    for callers, calls, threads in ((1, 2000, 2), (1, 300, 8), (4, 300, 4), (3, 300, 2)):
        assert output_of(program, str(callers), str(calls), str(threads)) == "same\n"


@pytest.mark.parametrize(("alone", "team", "odd_alone", "odd_team", "least", "most"), [
    (10, 9, 10, 9, 0, 0.02),  # several cores for a little less time are left to others
    (100, 60, 100, 60, 0.98, 1),
    (10, 9, 4000, 4000, 0, 0.15),  # the system gives the core to another process now and again
    (10, 7, 10, 3000, 0, 0.1),  # the team waits for a thread without a core now and again
    (100, 60, 4000, 4000, 0.95, 1),
    (5000, 4900, 5000, 4900, 1, 1),  # what is long is for the team
])
def test_the_share_of_runs_that_go_to_the_team(alone, team, odd_alone, odd_team, least, most, tmp_path):
    program = built(tmp_path, name="team_choice")
    share, told = output_of(program, *map(str, (alone, team, odd_alone, odd_team, 200_000, team))).split()
    assert least <= float(share) <= most
    assert told == ("team" if least else "alone")


def test_a_team_that_was_disturbed_at_first_is_soon_tried_again(tmp_path):
    """What ran beside the first runs may be gone."""
    program = built(tmp_path, name="team_choice")
    share, told = output_of(program, *map(str, (160, 90, 160, 90, 600, 700))).split()
    assert told == "team" and float(share) > 0.5
