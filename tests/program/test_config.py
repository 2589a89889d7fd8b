"""The environment variables."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

import ngraph_mxnet
from ngraph_mxnet.base import config
from ngraph_mxnet.base.config import usable_cores
from ngraph_mxnet.program.backend import backends


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    for name in config.VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_defaults():
    assert config.get("NGRAPH_BACKEND") == "CPU"
    assert config.get("NGRAPH_CPU_ISA") == "auto"
    assert config.get("NGRAPH_LOG_LEVEL") == "warning"
    assert config.threads() == usable_cores() >= 1


def test_thread_precedence(monkeypatch):
    monkeypatch.setenv("NGRAPH_INTRA_OP_PARALLELISM", "3")
    assert config.threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "5,2")
    assert config.threads() == 5
    monkeypatch.setenv("OMP_NUM_THREADS", " ")
    assert config.threads() == 3


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("NGRAPH_BACKEND", "interpreter", "INTERPRETER"),
        ("NGRAPH_CPU_ISA", " AVX2 ", "avx2"),
        ("NGRAPH_LOG_LEVEL", "", "warning"),
    ],
)
def test_words_in_any_case(monkeypatch, name, text, value):
    monkeypatch.setenv(name, text)
    assert config.get(name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("NGRAPH_BACKEND", "TPU_of_this_test"),
        ("NGRAPH_BACKEND", "CPU:of_this_test"),
        ("NGRAPH_CPU_ISA", "sse_of_this_test"),
        ("OMP_NUM_THREADS", "-000"),
        ("OMP_NUM_THREADS", "4,of_this_test"),
        ("NGRAPH_INTRA_OP_PARALLELISM", "many_of_this_test"),
        ("NGRAPH_LOG_LEVEL", "loud_of_this_test"),
    ],
)
def test_wrong_values_are_told_once_and_count_as_unset(monkeypatch, caplog, name, text):
    """Texts that no other test has, of which this process has told already."""
    monkeypatch.setenv(name, text)
    with caplog.at_level(logging.WARNING, "ngraph_mxnet"):
        assert config.get(name) == config.get(name) == config.VARIABLES[name].default
    assert len(caplog.records) == 1
    assert f"{name}={text!r} is not allowed: expected {config.VARIABLES[name].allowed}; " in caplog.text


def test_misspelt_names_are_told_once(monkeypatch, caplog):
    monkeypatch.setenv("NGRAPH_BAKKEND", "CPU")  # no other test has it
    monkeypatch.setenv("NGRAPH_BACKEND", "CPU")
    monkeypatch.setenv("NGRAPH_DOCS_OF_SOMEBODY", "on")
    monkeypatch.setenv("NGRAPH_RUNTIME_LIBRARY", "libngraph_runtime.so")
    with caplog.at_level(logging.WARNING, "ngraph_mxnet"):
        config.warn_of_misspelt()
        config.warn_of_misspelt()
    first, = caplog.messages
    assert first == "NGRAPH_BAKKEND is set, but there is no such variable: did you mean NGRAPH_BACKEND?"


def test_the_table_has_every_variable_and_the_code_no_other():
    table = config.docs_table()
    assert all(f"`{name}`" in table and variable.help for name, variable in config.VARIABLES.items())
    package = Path(ngraph_mxnet.__file__).parent
    read = re.compile(r"""(?:environ(?:\.get)?|getenv)\s*[\[(]\s*["'](NGRAPH_\w+)""")
    found = {name for path in package.rglob("*.py") for name in read.findall(path.read_text())}
    assert found <= set(config.VARIABLES)


def test_the_variable_allows_every_backend():
    assert config.VARIABLES["NGRAPH_BACKEND"].allowed == ", ".join(backends())
