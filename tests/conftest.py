"""Settings and fixtures that all tests share.

The default profile is small and repeatable. `HYPOTHESIS_PROFILE=thorough` searches with fresh seeds.

With TESTS_REQUIRE_LIBRARY=1, which scripts/test.sh sets, a skip is a failure unless `LEGITIMATE_SKIPS` has its
reason: a library that was not built, or does not load, must not look like success.

Goldens are texts in tests/golden: IR after passes, the help of commands. `--update-goldens` rewrites them; review the
diff.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

REQUIRED = "TESTS_REQUIRE_LIBRARY"
GOLDEN = Path(__file__).parent / "golden"
SITE_PACKAGES = Path(sysconfig.get_paths()["purelib"])
LEGITIMATE_SKIPS = {
    # What the CPU or the system has, which no installation changes.
    "the CPU has no AVX2": "kernels of AVX2, and what is chosen where there is more than the baseline",
    "the CPU has no AVX512_BF16": "kernels of bf16 as they are, and AMX's by emulated tiles",
    "the CPU has no AVX-VNNI": "which program of a file such a CPU takes",
    "the CPU has AVX-512": "the message where there is none",
    "the CPU has no VNNI": "int8 to the bit: sums of MXNet's saturate without it",
    "only AVX2 has half blocks": "blocks of 8 channels",
    "no namespaces of the network": "hosts that are this machine's, which need root and iproute2",
    "Python 3.14 itself leaves locks taken": "exceptions of signal handlers right at `with` (docs/limits.md)",
    "one CPU": "binding of threads to CPUs needs two",
    "needs glibc 2.33": "mallinfo2, which tells what malloc has handed out",
    "root writes everywhere": "folders without write permission",
    "only root gives files away": "folders of another user",
    "mxnet alone needs distutils, gone from Python 3.12": "MXNet without us",
    # What takes an extra that scripts/test.sh does not install: no wheels everywhere, or large ones.
    "no emulator: install the extra `emulate`": "AVX-512 on CPUs without it; the slow lane installs the emulator",
    "onnxruntime of the extra bench is not installed": "trained ONNX models, operators of com.microsoft",
    "matplotlib of the extra bench is not installed": "plots of quantisation",
    "could not import 'matplotlib'": "charts of the benchmarks",
    "needs pip install '.[fuzz]'": "a short run of the fuzzers",
    "no models: ": "trained ONNX models, which a package registry has",
    "no Python 3.": "ngraph-runtime in fresh environments of other Pythons",
    "pip can't install": "models behind MLServer, multi-model-server and TorchServe, which need many other packages",
    "Java is not installed": "multi-model-server and TorchServe",
    # What another distribution's build makes.
    "NGRAPH_RUNTIME_LIBRARY names no built library": "ngraph-runtime on its real library",
    "no CMake, or the library lies in no folder of a build": "the installed libraries, for programs in C",
    "smpirun of SimGrid is not installed": "the simulated network beside SimGrid's; closed forms judge it everywhere",
    "Chromium is not installed": "the page of `report` in a browser; its structure is tested without",
    "pkg-config is not installed": "programs that find the libraries by it",
    "NGRAPH_RUNTIME_MODEL names no model": "a compiled model on the real library",
}
"""Beginning of the reason: what is not tested then."""

# What a test breaks on purpose must not be found again by the next run, nor by the user.
os.environ.setdefault("NGRAPH_CACHE_DIR", "off")
os.environ.setdefault("NGRAPH_CHECK_LOCKS", "1")
os.environ.setdefault("NGRAPH_SHARE_CORES", "0")  # tests that run side by side would change each other's teams
os.environ.setdefault("GOMP_SPINCOUNT", "0")  # nor do MXNet's idle threads keep the others' cores

# Processes that tests start import MXNet sooner, and share what they compile.
sys.path.append(str(Path(__file__).parent / "quick_start"))  # also for those that get this list of folders
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[-1], os.environ.get("PYTHONPATH")]))
_COMPILED = None if "TESTS_COMPILED" in os.environ else tempfile.mkdtemp()
os.environ.setdefault("TESTS_COMPILED", str(_COMPILED))

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile(
    "default",
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=_QUIET,
)
settings.register_profile("thorough", max_examples=300, deadline=None, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="rewrite tests/golden")


@pytest.fixture
def register() -> Iterator[Callable[..., None]]:
    """Adds a backend, by name and `module:class`, until the test ends."""
    from own_backends import registered

    with ExitStack() as stack:
        yield lambda name, where, **more: stack.enter_context(registered(name, where, **more))


@pytest.fixture
def own_backend() -> Iterator[Callable[..., None]]:
    """Adds a backend, by the class that it is like and its own members of the class, until the test ends."""
    from own_backends import own_backend

    with ExitStack() as stack:
        yield lambda *args, **members: stack.enter_context(own_backend(*args, **members))


@pytest.fixture
def heard() -> Iterator[Callable[[str], list[str]]]:
    """Gives a list that gets each message of the package's log that begins so, of any level, until the test ends."""
    log = logging.getLogger("ngraph_mxnet")
    lists: dict[str, list[str]] = {}

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            for beginning, found in lists.items():
                if message.startswith(beginning):
                    found.append(message)

    listener, level = Listener(), log.level
    log.addHandler(listener)
    log.setLevel(logging.DEBUG)
    yield lambda beginning: lists.setdefault(beginning, [])
    log.removeHandler(listener)
    log.setLevel(level)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, bool]], None]:
    """Lets the CPU have these features, by name, and no others."""
    from ngraph_mxnet import _core

    return lambda features: monkeypatch.setattr(_core, "cpu_features", lambda: dict(features))


_watched: dict[str, list[str]] = {}
"""The lists of the test that runs, by the audit event of the interpreter that they get."""


def _note_event(event: str, args: tuple[Any, ...]) -> None:
    if event in _watched:
        _watched[event].append(str(args[0]) if args else "")


@pytest.fixture(scope="session")
def _hooked() -> None:
    sys.addaudithook(_note_event)  # for ever


@pytest.fixture
def audited(_hooked: None) -> Iterator[Callable[[str], list[str]]]:
    """Gives a list that gets the first argument, as text, of each audit event of this name, such as `open`, until the
    test ends."""
    yield lambda event: _watched.setdefault(event, [])
    _watched.clear()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares text with tests/golden/<name>."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-goldens"):
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no {path.name}: run pytest --update-goldens"
        assert text == path.read_text(encoding="utf-8"), f"{name} differs; if rightly so, --update-goldens"

    return compare


def pytest_sessionstart() -> None:
    """Nothing is worth running where the installation to be tested is not whole."""
    if not os.environ.get(REQUIRED):
        return
    from ngraph_mxnet.base.installation import missing_part

    problem = missing_part()
    pth = SITE_PACKAGES / "ngraph_mxnet_autoload.pth"
    if problem is None and not pth.exists():
        problem = f"there is no {pth}: the package is not installed, so nothing activates it"
    if problem is not None:
        pytest.exit(f"{REQUIRED} is set, and {problem}", returncode=1)


def pytest_unconfigure() -> None:
    if _COMPILED is not None:
        shutil.rmtree(_COMPILED, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """The same for a whole module, as `importorskip` skips it."""
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: Any) -> None:
    if not os.environ.get(REQUIRED) or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = re.sub(r"^Skipped: ", "", report.longrepr[2])
    if not reason.startswith(tuple(LEGITIMATE_SKIPS)):
        report.outcome = "failed"
        report.longrepr = (f"skipped, though {REQUIRED} is set: {reason}\nIf nothing that can be installed would help, "
                           "list the reason in LEGITIMATE_SKIPS of tests/conftest.py.")
