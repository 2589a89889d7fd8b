"""Stand-ins for the C library (cmake/old_glibc.py): what they offer, and that a link or its check fails by name."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "cmake" / "old_glibc.py"
SHIMS = ROOT / "csrc" / "core" / "old_glibc.c"
PROGRAM = """
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
int Py_Main(void);
double use(double x) { struct stat found; return fstat(0, &found) + Py_Main() + exp(x) + pow(x, x); }
int wait_for(pthread_cond_t* c, pthread_mutex_t* m, const struct timespec* t) {
  return pthread_cond_clockwait(c, m, CLOCK_MONOTONIC, t);
}
"""


def done(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None or shutil.which("readelf") is None:
        pytest.fail("the tests need gcc and binutils, as the build does")
    folder = tmp_path_factory.mktemp("glibc")
    made = done(sys.executable, SCRIPT, "2.28", folder, "gcc", "readelf")
    assert made.returncode == 0, made.stderr
    return folder


def link(stand_ins: Path, library: Path, *sources: Path) -> None:
    source = library.with_suffix(".c")
    source.write_text(PROGRAM)
    made = done("gcc", "-O1", "-fPIC", "-shared", f"-L{stand_ins}", "-o", library, source, *sources, "-lm")
    assert made.returncode == 0, made.stderr


def test_a_library_has_the_versions_of_the_older_glibc(stand_ins: Path, tmp_path: Path) -> None:
    library = tmp_path / "made.so"
    link(stand_ins, library, SHIMS)
    listing = done("readelf", "--wide", "--dyn-syms", library).stdout
    needed = dict(re.findall(r" UND (\w+)@GLIBC_([\d.]+)", listing))
    assert needed["exp"] == needed["pow"] == "2.2.5" and needed["__fxstat"] == "2.2.5"
    assert all(tuple(map(int, version.split("."))) <= (2, 28) for version in needed.values()), needed
    assert done(sys.executable, SCRIPT, "--check", library, "nm").returncode == 0  # Python's functions may be missing


def test_what_the_older_glibc_lacks_is_named(stand_ins: Path, tmp_path: Path) -> None:
    library = tmp_path / "made.so"
    link(stand_ins, library)
    checked = done(sys.executable, SCRIPT, "--check", library, "nm")
    assert checked.returncode == 1
    assert "calls what the older glibc lacks: fstat, pthread_cond_clockwait; csrc/core/old_glibc.c" in checked.stderr


def test_old_functions_only_are_no_part_of_it(stand_ins: Path) -> None:
    """A function that new programs can't call any more stays so: `pthread_atfork` of the shared library, which knows no
    library that it is called for."""
    names = done("nm", "-D", "--defined-only", stand_ins / "libc.so.6").stdout
    assert " pthread_create@@GLIBC_2.2.5" in names and " pthread_atfork@" not in names and "2.29" not in names


def test_waits_end_when_the_other_clock_says_so(tmp_path: Path) -> None:
    program = tmp_path / "waits.c"
    program.write_text(r"""
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
int main(void) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  for (int i = 0; i < 4; ++i) {
    struct timespec start, until, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    until = start;
    until.tv_nsec += 300000000L + i * 1000L;
    if (until.tv_nsec >= 1000000000L) { until.tv_nsec -= 1000000000L; ++until.tv_sec; }
    pthread_mutex_lock(&mutex);
    const int waited = i % 2 ? pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until)
                             : pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&mutex);
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double seconds = (end.tv_sec - start.tv_sec) + 1e-9 * (end.tv_nsec - start.tv_nsec);
    if (waited != ETIMEDOUT || seconds < 0.25) { printf("%d after %g s\n", waited, seconds); return 1; }
  }
  return 0;
}
""")
    made = done("gcc", "-pthread", "-o", tmp_path / "waits", program, SHIMS)
    assert made.returncode == 0, made.stderr
    ran = done("timeout", "60", tmp_path / "waits")
    assert ran.returncode == 0, ran.stdout
