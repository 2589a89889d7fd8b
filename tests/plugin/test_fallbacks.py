"""What MXNet runs instead is told once, counted, and listed by `report`; options that nobody knows are errors."""

from __future__ import annotations

import logging
import string
import sys
from dataclasses import replace

import numpy as np
import pytest
from mxnet_helpers import backend, bound, close, conv_net, mx, needs_library, run_script

from ngraph_mxnet.plugin.arrays import OWN_ERROR, brief

from mxnet.gluon import Block, HybridBlock, nn  # isort: skip  # the helpers make it importable
import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.base.errors import ConfigError, UnsupportedError
from ngraph_mxnet.plugin.binding import fallbacks
from ngraph_mxnet.plugin.binding.fallbacks import FallbackLog, Refusal, reason_of
from ngraph_mxnet.plugin.report import Report
from ngraph_mxnet.targets.cpu.backend import CPUBackend

pytestmark = needs_library


@pytest.fixture(autouse=True)
def log(monkeypatch):
    fresh = FallbackLog()
    monkeypatch.setattr(fallbacks, "log", fresh)
    return fresh


@pytest.fixture
def without_avx512(on_cpu, monkeypatch):
    """A CPU that lacks what NGRAPH_CPU_ISA asks for."""
    on_cpu({name: not name.startswith("avx512") for name in _core.cpu_features()})
    monkeypatch.setenv("NGRAPH_CPU_ISA", "avx512")


def make_net(units: int = 5) -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu"), nn.BatchNorm(), nn.Dense(units))
    net.initialize()
    return net


def batch(n: int = 2) -> mx.nd.NDArray:
    return mx.nd.array(np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32))


def warnings_of(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# ---- told once -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("flags", [{}, {"static_alloc": True, "static_shape": True}])
def test_a_net_that_does_not_compile_is_told_once_with_the_reason(explicit, flags, without_avx512, caplog, log):
    net = make_net()
    expected = net(batch())
    with backend(None if explicit else "NGRAPH"):
        net.hybridize(backend="NGRAPH" if explicit else None, **flags)
        for n in (2, 2, 3, 5):
            net(batch(n))
        close(net(batch()), expected)
    told = warnings_of(caplog)
    assert len(told) == 1
    assert net.name in told[0]
    assert "NGRAPH_CPU_ISA=avx512: this CPU does not have it" in told[0]
    assert "\n" not in told[0]
    assert [count for refusal, count in log.counts().items() if not refusal.quiet] == [5]


def test_a_bind_that_does_not_compile_is_told_once(without_avx512, caplog):
    for _ in range(2):
        bound(conv_net(), "NGRAPH", data=(2, 3, 6, 6)).forward()
    told = warnings_of(caplog)
    assert len(told) == 1
    assert told[0].startswith("MXNet runs dense_output: NGRAPH_CPU_ISA=avx512")


def test_a_net_without_a_region_is_told_with_its_operators(caplog):
    net = nn.HybridLambda("linalg_det")
    net.hybridize(backend="NGRAPH")
    for _ in range(2):
        net(batch(3))
    told = warnings_of(caplog)
    assert len(told) == 1
    assert "1 x _linalg_det: " in told[0]


def test_what_computes_nothing_and_partly_unsupported_nets_give_no_warning(caplog):
    class Partly(HybridBlock):
        def hybrid_forward(self, F, x):  # noqa: N803 - MXNet's name
            return F.linalg.det(F.exp(F.tanh(F.broadcast_to(F.expand_dims(x, 0), shape=(1000, 3, 3)))))

    for net in (nn.Flatten(), Partly()):
        net.hybridize(backend="NGRAPH")
        net(batch(3))
    assert not warnings_of(caplog)


@pytest.mark.parametrize("error", [AssertionError("odd"), KeyError("odd"), AttributeError("odd"), MemoryError("odd")])
def test_any_exception_of_ours_falls_back_with_a_message(error, own_backend, monkeypatch, caplog):
    net, other = make_net(), make_net()
    expected, expected_of_other = net(batch()), other(batch())

    def fail(*args, **kwargs):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(mx.symbol.Symbol, "optimize_for", fail)
        net.hybridize(backend="NGRAPH")
        close(net(batch()), expected)
    own_backend(CPUBackend, compile=fail)
    monkeypatch.setenv("NGRAPH_BACKEND", "OWN")
    other.hybridize(backend="NGRAPH")
    close(other(batch()), expected_of_other)
    told = warnings_of(caplog)
    assert len(told) == 2
    assert all("odd" in text for text in told)


@pytest.mark.parametrize("error", [AssertionError("odd"), ZeroDivisionError("odd")])
def test_any_exception_of_ours_falls_back_in_a_bind(error, own_backend, monkeypatch, caplog):
    def fail(*args, **kwargs):
        raise error

    own_backend(CPUBackend, compile=fail)
    monkeypatch.setenv("NGRAPH_BACKEND", "OWN")
    bound(conv_net(), "NGRAPH", data=(2, 3, 6, 6)).forward()
    assert ["odd" in text for text in warnings_of(caplog)] == [True]


def test_a_mistake_of_the_caller_is_mxnets_error_and_no_warning(caplog):
    net = make_net()
    net.hybridize(backend="NGRAPH")
    net(batch())
    with pytest.raises(mx.MXNetError, match="Shape inconsistent"):
        net(mx.nd.ones((2, 7))).wait_to_read()
    with backend("NGRAPH"), pytest.raises(ValueError, match="Length of args does not match"):
        conv_net().bind(mx.cpu(), [mx.nd.ones((2, 3))], grad_req="null")
    assert not warnings_of(caplog)


def test_the_log_is_bounded_and_many_reasons_of_one_net_grow_quiet(caplog):
    log, letters = FallbackLog(size=20, warnings=3), string.ascii_letters
    with caplog.at_level(logging.INFO, "ngraph_mxnet"):
        for number in range(30):
            for _ in range(2):
                log.add(Refusal("net0", f"reason {letters[number]}"))
    assert len(caplog.records) == 30
    assert len(warnings_of(caplog)) == 3
    assert log.counts() == {Refusal("net0", f"reason {letters[number]}"): 2 for number in range(10, 30)}


def test_reasons_that_differ_in_shapes_are_told_once(caplog):
    log = FallbackLog()
    for size in range(20):
        log.add(Refusal("net0", f"a window of (3, {size}) does not fit [1,8,{size},7]"))
    log.add(Refusal("net1", "a window of (3, 3) does not fit [1,8,3,7]"))
    assert len(warnings_of(caplog)) == 2
    assert list(log.counts().values()) == [20, 1]


@pytest.mark.parametrize(("error", "said"), [
    (UnsupportedError("no such mode"), "no such mode"), (ConfigError("NGRAPH_X=3: no"), "NGRAPH_X=3: no"),
    (RuntimeError(f"{OWN_ERROR}ConfigError: NGRAPH_X=3: no\nAt:\n  a.py(3): f"), "NGRAPH_X=3: no"),
    (KeyError("odd"), "compiling it failed: 'odd'"),
    (RuntimeError("KeyError: 'odd'"), "compiling it failed: KeyError: 'odd'"),
])
def test_only_defects_of_ours_are_called_failures(error, said):
    assert reason_of(error) == said


@pytest.mark.parametrize(("text", "said"), [
    ("simple_bind error. Arguments:\ndata: (2, 3)\nNGraphSubgraphOp: ConfigError: no\nAt:\n  a.py(3): f",
     "ConfigError: no"),
    ("Traceback (most recent call last):\n  [bt] (8) libmxnet.so\n  File \"a.cc\", line 3\nMXNetError: Check failed: x",
     "Check failed: x"),
    ("[11:00:35] ../include/dmlc/./any.h:319: Check failed: type_", "Check failed: type_"),
])
def test_what_an_error_says(text, said):
    assert brief(mx.MXNetError(text)) == said
    assert brief(AssertionError()) == "AssertionError()"


# ---- models that `Block.load` made ---------------------------------------------------------------------------

@pytest.mark.parametrize("flags", [{}, {"static_alloc": True}])
def test_a_loaded_block_with_other_counters_is_compiled(flags, tmp_path, caplog):
    prefix, x = str(tmp_path / "net"), batch()
    with backend("NGRAPH"):
        first = make_net()
        first.hybridize(**flags)
        expected = first(x)
        first.save(prefix)
        nn.Dense(3)  # counts
        loaded = make_net()
        loaded.load(prefix)
        loaded.hybridize(clear=False, **flags)
        before = _core.op_calls()
        close(loaded(x), expected)
        loaded[2].weight.set_data(loaded[2].weight.data() * 2)
        loaded[2].bias.set_data(loaded[2].bias.data() * 2)
        close(loaded(x), expected * 2)
        mx.nd.waitall()
        assert _core.op_calls() == before + 2
    assert not warnings_of(caplog)


# ---- options -------------------------------------------------------------------------------------------------

BAD = [({"ngraph_foo": 1}, "no option foo.*ngraph_"), ({"ngraph_precision": "int3"}, "precision.*int3.*bf16"),
       ({"foo": 2}, "no option foo.*threads"), ({"threads": 2}, "expected ngraph_threads"),
       ({"ngraph_backend": "GPU"}, "no backend 'GPU'; known: CPU"), ({"ngraph_threads": "two"}, "threads.*two")]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_unknown_options_are_errors(options, message):
    net, x, symbol = make_net(), batch(), conv_net()
    net(x)
    with pytest.raises(ConfigError, match=message):
        net.hybridize(backend="NGRAPH", **options)
    with pytest.raises(ConfigError, match=message):
        net.optimize_for(x, backend="ngraph", **options)
    with pytest.raises(ConfigError, match=message):
        symbol.optimize_for("NGRAPH", **options)
    net.hybridize(backend="NGRAPH")
    assert net(x).shape == (2, 5)


def test_known_options_and_mxnets_own_are_taken():
    net, x = make_net(), batch()
    expected = net(x)
    for options in ({"ngraph_threads": 1, "ngraph_codegen": False}, {"ngraph_backend": "interpreter"},
                    {"dedup_subgraph": True}):
        net.hybridize(backend="NGRAPH", **options)
        mx.nd.waitall()  # for calls of tests before
        before = _core.op_calls()
        close(net(x), expected)
        mx.nd.waitall()
        assert _core.op_calls() == before + 1


def test_options_under_the_variable_are_ours_or_anyones(caplog):
    net, x = make_net(), batch()
    with backend("NGRAPH"):
        net.hybridize(foo=2)
        before = _core.op_calls()
        net(x)
        mx.nd.waitall()
        assert _core.op_calls() == before + 1
        with pytest.raises(ConfigError, match="no option foo"):
            net.hybridize(ngraph_foo=2)
    with backend(None):
        net.hybridize(ngraph_foo=2)
        net(x)
    assert not warnings_of(caplog)


def test_a_bad_variable_falls_back_with_one_message(monkeypatch, caplog):
    monkeypatch.setenv("NGRAPH_BACKEND", "GPU")
    net, x = make_net(), batch()
    expected = net(x)
    net.hybridize(backend="NGRAPH", ngraph_threads=1)
    for _ in range(2):
        close(net(x), expected)
    assert ["NGRAPH_BACKEND='GPU'" in text for text in warnings_of(caplog)] == [True]


# ---- the report ----------------------------------------------------------------------------------------------

def test_report(caplog):
    _core.clear_compile_cache()
    net, unsupported = make_net(), nn.HybridLambda("linalg_det")
    net.hybridize(backend="NGRAPH", static_alloc=True)
    unsupported.hybridize(backend="NGRAPH")
    for n in (2, 3, 3):
        net(batch(n))
        unsupported(batch(3))
    mx.nd.waitall()
    found = ngraph_mxnet.report()
    assert {(region.first_input, region.calls) for region in found.regions} == {("f32[2,3]", 1), ("f32[3,3]", 2)}
    assert all(region.ops["FullyConnected"] == 2 and region.backend == "CPU" for region in found.regions)
    assert found.calls >= 3
    assert [(fallback.what, fallback.count) for fallback in found.fallbacks] == [(unsupported.name, 3)]
    assert any(op == "_linalg_det" for op, _ in found.left)
    as_dict = found.to_dict()
    assert as_dict["regions"][0]["calls"] == 2
    assert as_dict["regions"][0]["threads"] == 1, "a microsecond of work"
    assert as_dict["fallbacks"][0]["what"] == unsupported.name
    text = str(found)
    assert "FullyConnected x2" in text
    assert "Run by MXNet" in text


def test_a_report_of_no_model_says_what_it_is_about():
    quiet = Report(0, (), {}, ())
    assert "A model of ngraph_mxnet.compile always runs compiled" in str(quiet)
    assert "always runs compiled" not in str(replace(quiet, left={("linalg_det", "no rule"): 1}))


def test_report_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "ngraph_mxnet._core", None)
    monkeypatch.delattr(ngraph_mxnet, "_core", raising=False)
    assert "does not load" in str(ngraph_mxnet.report().problem)


def test_blocks_that_are_not_hybrid_take_their_childrens_options():
    class Outer(Block):
        def __init__(self):
            super().__init__()
            self.inner = make_net()

        def forward(self, x):
            return self.inner(x)

    net = Outer()
    with pytest.raises(ConfigError, match="no option foo"):
        net.hybridize(backend="NGRAPH", ngraph_foo=1)


@pytest.mark.parametrize("set_up", ["", "before", "after", "handler"])
def test_each_message_comes_once_whoever_logs(set_up, tmp_path):
    """A program may set up logging before it imports mxnet, afterwards, or only for us."""
    basic = "import logging; logging.basicConfig()\n"
    code = "import mxnet as mx\n"
    if set_up == "handler":
        code += "import logging; logging.getLogger('ngraph_mxnet').addHandler(logging.StreamHandler())\n"
    code = f"{basic if set_up == 'before' else ''}{code}{basic if set_up == 'after' else ''}" + """
net = mx.gluon.nn.Dense(3)
net.initialize()
net.hybridize()
for size in (2, 3, 4):
    net(mx.nd.ones((size, 5)))
net(mx.nd.ones((2, 5)))
"""
    done = run_script(code, tmp_path, "NGRAPH", NGRAPH_BACKEND="NNPP", NGRAPH_TRASE="x")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("NNPP") == 1, done.stderr
    assert done.stderr.count("NGRAPH_TRASE is set") == 1, done.stderr
