"""Locks out of order end the process where NGRAPH_CHECK_LOCKS asks for it, as it does in all of these tests."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from test_team import COMPILER, built

from ngraph_mxnet.base import config

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


@pytest.mark.parametrize(("order", "wanted"), [("forward", None), ("backward", "rank 13"), ("alike", "rank 18")])
def test_ranks(tmp_path, order, wanted):
    program = built(tmp_path, name="lock_order")

    def run(checked: str) -> subprocess.CompletedProcess:
        return subprocess.run([program, order], capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "NGRAPH_CHECK_LOCKS": checked})

    assert run("0").returncode == 0
    found = run("1")
    assert found.returncode == (0 if wanted is None else -signal.SIGABRT)
    assert (wanted or "") in found.stderr and bool(found.stderr) == bool(wanted)


def test_these_tests_check_them():
    assert config.get("NGRAPH_CHECK_LOCKS")
