"""Checks of the processor, the threads, the environment's settings and the cache's folder: fine, and what is wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.base.installation import settings_in
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.tools.doctor import cache, processor, settings, threads


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in settings_in(os.environ):
        monkeypatch.delenv(name)


# ---- processor -----------------------------------------------------------------------------------------------


def test_the_processor_and_its_kernels() -> None:
    found = processor()
    assert not found.problems and found.facts["kernels"] == found.facts["instruction sets"][0]
    assert found.facts["kernels"] == get_backend("CPU").machine()["kernels"]


def test_a_processor_without_what_a_setting_asks_for(tmp_path: Path) -> None:
    def lacks() -> Mapping[str, Any]:
        raise ConfigError("NGRAPH_CPU_ISA=avx512: this CPU does not have it")

    found = processor(lacks, tmp_path)
    assert found.status == "wrong" and found.problems == ("NGRAPH_CPU_ISA=avx512: this CPU does not have it",)
    assert found.facts["model"] == "not known: No such file or directory"


def test_slow_kernels_are_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_CPU_ISA", "baseline")
    found = processor()
    assert found.status == "note" and "several times slower" in found.notes[0]


# ---- threads -------------------------------------------------------------------------------------------------


def test_threads_by_default() -> None:
    found = threads()
    assert not found.problems and found.facts["threads of a graph"] == config.threads()
    assert found.facts["set by"] == "the physical cores that this process may use"


def test_more_threads_than_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4096")
    found = threads()
    assert found.facts["set by"] == "OMP_NUM_THREADS"
    assert "4096 threads run a graph" in found.problems[0] and "set OMP_NUM_THREADS=" in found.problems[0]


def _machine(root: Path, cpu_max: str, cpus_of_a_core: int = 1) -> Path:
    group = root / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "cpu.max").write_text(cpu_max)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("0::/\n")
    for cpu in os.sched_getaffinity(0):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text("0")
        (folder / "core_id").write_text(str(cpu // cpus_of_a_core))
    return root


def test_more_threads_than_a_container_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    found = threads(_machine(tmp_path, "50000 100000"))
    assert found.facts["quota in CPUs"] == 0.5 and "may use 1 CPUs" in found.problems[0]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_threads_on_one_core_are_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    found = threads(_machine(tmp_path, "max 100000", cpus_of_a_core=4096))
    assert found.status == "note" and "2 threads run a graph on 1 physical cores" in found.notes[0]


# ---- settings ------------------------------------------------------------------------------------------------


def test_settings_have_their_effects_and_secrets_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NGRAPH_CACHE_MB", "17"), ("MXNET_SUBGRAPH_BACKEND", "ngraph"), ("OMP_WAIT_POLICY", "passive"),
                        ("TOKEN", "a secret"), ("AWS_NGRAPH_KEY", "a secret")):
        monkeypatch.setenv(name, value)
    found = settings()
    assert found.status == "fine"
    assert found.facts == {"MXNET_SUBGRAPH_BACKEND": {"value": "ngraph"},
                           "NGRAPH_CACHE_MB": {"value": "17", "effect": config.VARIABLES["NGRAPH_CACHE_MB"].help},
                           "OMP_WAIT_POLICY": {"value": "passive"}}


@pytest.mark.parametrize(("name", "value", "problem"), [
    ("NGRAPH_SHAPES", "many", "NGRAPH_SHAPES='many' is not allowed: expected a positive integer"),
    ("NGRAPH_BAKEND", "CPU", "NGRAPH_BAKEND is set, and nothing reads it: did you mean NGRAPH_BACKEND?"),
    ("OMP_NUM_THREAD", "2", "did you mean OMP_NUM_THREADS?"),
    ("MXNET_SUBGRAPH_BACKEN", "NGRAPH", "did you mean MXNET_SUBGRAPH_BACKEND?"),
    ("MXNET_SUBGRAPH_BACKEND", "NGRAP", "MXNet has no such backend, expected NGRAPH, NONE"),
])
def test_wrong_settings(monkeypatch: pytest.MonkeyPatch, name: str, value: str, problem: str) -> None:
    monkeypatch.setenv(name, value)
    (found,) = settings().problems
    assert problem in found


@pytest.mark.parametrize(("name", "value", "note"), [
    ("NGRAPH_DOCS_OF_SOMEBODY", "1", "nothing of this package reads it"),
    ("KMP_BLOCKTIME", "0", "KMP_BLOCKTIME=0 has no effect"),
    ("MXNET_SUBGRAPH_BACKEND", "MKLDNN", "MXNet runs models without NGRAPH"),
    ("MXNET_SUBGRAPH_VERBOSE", "1", "MXNET_SUBGRAPH_BACKEND is not set"),
    ("NGRAPH_PRECISION", "int8", "there is no recipe of quantisation"),
])
def test_settings_that_are_worth_a_note(monkeypatch: pytest.MonkeyPatch, name: str, value: str, note: str) -> None:
    monkeypatch.setenv(name, value)
    found = settings()
    assert found.status == "note" and any(note in text for text in found.notes), found.notes


# ---- cache ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_cache_that_works(folder: Path) -> None:
    found = cache()
    assert found.status == "fine" and found.facts["folder"] == str(folder)
    assert found.facts["trusted"] and found.facts["writable"]
    assert cache().facts["entries"] == 1


def test_a_cache_that_others_may_write(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    found = cache()
    assert found.facts["trusted"] is False and "others may write to" in found.problems[0]


def test_a_cache_that_is_no_folder(folder: Path) -> None:
    folder.touch()
    assert "is no folder" in cache().problems[0]


def test_a_cache_below_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.touch()
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(folder / "below"))
    assert "Not a directory" in cache().problems[0]


def test_a_cache_that_keeps_nothing(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "doctor").touch()  # where a folder of entries should be
    found = cache()
    assert found.facts["writable"] is False and "can't be read again" in found.problems[0]


def test_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_CACHE_DIR", "off")
    assert cache().status == "note"
    monkeypatch.setenv("NGRAPH_CACHE_DIR", "~nobody_of_that_name/cache")
    assert "nothing is kept on disk: " in cache().problems[0]
