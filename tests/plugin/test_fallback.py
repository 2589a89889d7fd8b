"""What can't be ours stays with MXNet, says so, and gives the right results."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest
from mxnet_helpers import backend, fill, mx, needs_library

from ngraph_mxnet import _core

pytestmark = needs_library


def dense(data: mx.sym.Symbol, name: str) -> mx.sym.Symbol:
    return mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=4, name=name), act_type="relu")


def ops_and_output(symbol: mx.sym.Symbol, value: str) -> tuple[list[str], np.ndarray]:
    with backend(value):
        executor = fill(symbol.simple_bind(mx.cpu(), grad_req="null", data=(2, 3)))
        output = executor.forward(is_train=False)[0].asnumpy()
        return re.findall(r"^Op:(\w+)", executor.debug_str(), re.MULTILINE), output


def test_an_operator_that_we_lack_in_the_middle_makes_two_regions() -> None:
    symbol = dense(mx.sym.cast_storage(dense(mx.sym.Variable("data"), "first"), stype="default"), "second")
    ops, output = ops_and_output(symbol, "NGRAPH")
    assert ops == ["NGraphSubgraphOp", "cast_storage", "NGraphSubgraphOp"]
    np.testing.assert_allclose(output, ops_and_output(symbol, "NONE")[1], rtol=1e-5)


SETTINGS = [
    ("NGRAPH_BACKEND", "NNP:toaster", "toaster"),
    pytest.param(
        "NGRAPH_CPU_ISA", "avx512", "this CPU does not have it",
        marks=pytest.mark.skipif(_core.cpu_features()["avx512f"], reason="the CPU has AVX-512"),
    ),
]


@pytest.mark.parametrize(("variable", "value", "message"), SETTINGS)
def test_a_setting_that_this_machine_lacks_warns_and_mxnet_runs(
    variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    symbol = dense(mx.sym.Variable("data"), "only")
    expected = ops_and_output(symbol, "NONE")[1]
    monkeypatch.setenv(variable, value)
    with caplog.at_level(logging.WARNING, "ngraph_mxnet"):
        ops, output = ops_and_output(symbol, "NGRAPH")
    assert "NGraphSubgraphOp" not in ops
    assert message in caplog.text
    np.testing.assert_allclose(output, expected, rtol=1e-5)


def test_settings_changed_in_the_process_compile_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    symbol = dense(mx.sym.Variable("data"), "again")
    _core.clear_compile_cache()
    misses = []
    for isa in ("baseline", "auto", "baseline"):
        monkeypatch.setenv("NGRAPH_CPU_ISA", isa)
        ops_and_output(symbol, "NGRAPH")
        misses.append(_core.compile_cache_info()["misses"])
    assert misses[1] == misses[2] == misses[0] + 1
