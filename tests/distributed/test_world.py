"""What a process is prepared with for MPI."""

from __future__ import annotations

import os

import pytest

from ngraph_mxnet.distributed.world import prepare_mpi

NAMES = ("OMPI_MCA_osc", "OMPI_MCA_btl_tcp_flags")


def test_open_mpi_sends_in_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    prepare_mpi()
    assert [os.environ[name] for name in NAMES] == ["^ucx", "send,inplace"]


def test_what_somebody_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "mine")
    prepare_mpi()
    assert [os.environ[name] for name in NAMES] == ["mine", "mine"]
