"""Every row of the operator table on each backend and mode, against native MXNet.

The default run tries a few draws of each; `-m slow` tries CONFORMANCE_DRAWS, 200 when it is not set.
"""

from __future__ import annotations

import os

import pytest
from families import LEFT, RECORDS
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from records import Left, Record
from runs import arrays_for, build, compare, import_case

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import canonical

MODES = {"interpreter": ("INTERPRETER", {}), "dex": ("CPU", {}), "codegen": ("CPU", {"NGRAPH_CODEGEN": "1"})}
FEW, MANY = 3, int(os.environ.get("CONFORMANCE_DRAWS", "200"))

every_record = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)


def _check(record: Record, mode: str, draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, environment = MODES[mode]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    @seed(0)
    @settings(max_examples=draws)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        case = record.case(data.draw)
        compare(record, case, backend, seed=data.draw(st.integers(0, 2**16)))

    check()


@pytest.mark.parametrize("mode", MODES)
@every_record
def test_a_few_draws(record: Record, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _check(record, mode, FEW, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@every_record
def test_many_draws(record: Record, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _check(record, mode, MANY, monkeypatch)


@pytest.mark.parametrize("left", LEFT, ids=lambda left: f"{left.op}-{left.reason}")
def test_what_stays_with_mxnet_says_why(left: Left) -> None:
    symbol = build(left.op, left.case, numpy=left.numpy)
    arrays = arrays_for(symbol, left.case, seed=0, numpy=left.numpy)
    with pytest.raises(UnsupportedError) as raised:
        import_case(symbol, arrays)
    assert left.reason in str(raised.value)


def test_names_are_canonical_and_distinct() -> None:
    assert [record.op for record in RECORDS] == [canonical(record.op) for record in RECORDS]
    assert len({record.name for record in RECORDS}) == len(RECORDS)
