"""NGRAPH_PACKAGE: MXNet's graphs that start from a compiled file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from mxnet_helpers import needs_library
from native_runs import mx

import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.base import config
from ngraph_mxnet.plugin import regions
from ngraph_mxnet.program.artefact import DATA_ALIGNMENT
from ngraph_mxnet.targets.cpu.machine.isa import choose_isa

pytestmark = needs_library
SHAPE = (2, 5, 8, 8)
FROM_FILE, COMPILED = "runs what is in", "is compiled, for"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level("INFO", "ngraph_mxnet")
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("NGRAPH_PACKAGE", raising=False)
    _core.clear_compile_cache()
    yield
    _core.clear_compile_cache()
    regions.open_files.cache_clear()


def network(classes: int = 7) -> mx.sym.Symbol:
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=20, pad=(1, 1), name="conv")
    net = mx.sym.BatchNorm(net, name="bn", fix_gamma=False)
    net = mx.sym.Activation(net, act_type="relu")
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    return mx.sym.softmax(mx.sym.FullyConnected(net, num_hidden=classes, name="fc"))


def weights_of(net: mx.sym.Symbol, seed: int = 0) -> dict[str, mx.nd.NDArray]:
    arguments, _, states = net.infer_shape(data=SHAPE)
    shapes = dict(zip([*net.list_arguments(), *net.list_auxiliary_states()], [*arguments, *states], strict=True))
    random = np.random.default_rng(seed)
    return {name: mx.nd.array(random.uniform(0.1, 1, shape)) for name, shape in shapes.items() if name != "data"}


def exported(path: Path, net: mx.sym.Symbol, weights: dict[str, mx.nd.NDArray], shape: object = SHAPE,
             **options: object) -> str:
    ngraph_mxnet.export(net, path, weights=weights, data=shape, **options)
    return str(path)


def bound(net: mx.sym.Symbol, weights: dict[str, mx.nd.NDArray],
          shape: tuple[int, ...] = SHAPE) -> mx.executor.Executor:
    executor = net.simple_bind(mx.cpu(), grad_req="null", data=shape)
    fill(executor, weights)
    return executor


def fill(executor: mx.executor.Executor, weights: dict[str, mx.nd.NDArray]) -> None:
    for name, array in {**executor.arg_dict, **executor.aux_dict}.items():
        if name in weights:
            array[:] = weights[name]


def data(shape: tuple[int, ...] = SHAPE, seed: int = 1) -> mx.nd.NDArray:
    return mx.nd.array(np.random.default_rng(seed).standard_normal(shape))


def forward(executor: mx.executor.Executor, x: mx.nd.NDArray) -> np.ndarray:
    return executor.forward(is_train=False, data=x)[0].asnumpy()


def expected(net: mx.sym.Symbol, weights: dict[str, mx.nd.NDArray], x: mx.nd.NDArray) -> np.ndarray:
    """What is compiled in this process gives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NGRAPH_PACKAGE", raising=False)
        _core.clear_compile_cache()
        found = forward(bound(net, weights, x.shape), x)
    _core.clear_compile_cache()
    return found


def use(monkeypatch: pytest.MonkeyPatch, *paths: str) -> None:
    monkeypatch.setenv("NGRAPH_PACKAGE", ":".join(paths))


@pytest.fixture
def nothing_more(heard: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """From its call on nothing may be compiled, nor taken from the folder."""
    compiled, before = heard("compiled graph "), []

    def begin() -> None:
        before.append(len(compiled))
        monkeypatch.setenv("NGRAPH_CACHE_DIR", "off")

    yield begin
    assert before == [len(compiled)]


def test_an_executor_starts_from_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                          nothing_more: Callable[[], None],
                                          caplog: pytest.LogCaptureFixture) -> None:
    net, x = network(), data()
    weights = weights_of(net)
    wanted = expected(net, weights, x)
    use(monkeypatch, exported(tmp_path / "model.ngraph", net, weights))
    nothing_more()
    executor = bound(net, weights)
    np.testing.assert_array_equal(forward(executor, x), wanted)
    other = data(seed=2)
    assert not np.array_equal(forward(executor, other), wanted)
    assert "NGraphSubgraphOp" in executor.debug_str() and FROM_FILE in caplog.text


def test_names_do_not_matter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nothing_more: Callable[[], None]) -> None:
    net, x = network(), data()
    weights = weights_of(net)
    wanted = expected(net, weights, x)
    use(monkeypatch, exported(tmp_path / "model.ngraph", net, weights))
    nothing_more()
    text = net.tojson()
    for name in ("conv", "bn", "fc"):
        text = text.replace(f'"{name}', f'"my_{name}')
    renamed = mx.sym.load_json(text)
    executor = bound(renamed, {f"my_{name}": array for name, array in weights.items()})
    np.testing.assert_array_equal(forward(executor, x), wanted)


def test_other_weights_are_never_taken_for_the_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                    caplog: pytest.LogCaptureFixture) -> None:
    net, x = network(), data()
    first, second = weights_of(net), weights_of(net, seed=5)
    wanted, others = expected(net, first, x), expected(net, second, x)
    use(monkeypatch, exported(tmp_path / "model.ngraph", net, first))
    executor = bound(net, second)
    np.testing.assert_array_equal(forward(executor, x), others)
    assert "is compiled, for its weights are not those that" in caplog.text and "conv_weight differs" in caplog.text
    for _ in range(3):
        fill(executor, first)
        np.testing.assert_array_equal(forward(executor, x), wanted)
        fill(executor, second)
        np.testing.assert_array_equal(forward(executor, x), others)
    fill(executor, first)
    executor.arg_dict["fc_bias"][3] += 1  # one element
    changed = {**first, "fc_bias": executor.arg_dict["fc_bias"].copy()}
    np.testing.assert_array_equal(forward(executor, x), expected(net, changed, x))
    assert caplog.text.count("its weights are not those") == 1


def test_another_shape_and_another_graph_are_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                      caplog: pytest.LogCaptureFixture) -> None:
    net = network()
    weights = weights_of(net)
    path = exported(tmp_path / "model.ngraph", net, weights)
    x, smaller = data((3, *SHAPE[1:])), network(6)
    wanted, wanted_smaller = expected(net, weights, x), expected(smaller, weights_of(smaller), data())
    use(monkeypatch, path)
    np.testing.assert_array_equal(forward(bound(net, weights, x.shape), x), wanted)
    assert "for data f32[3, 5, 8, 8], is compiled, for no file has it" in caplog.text
    assert f"{path}: it has another graph, for data f32[2, 5, 8, 8]" in caplog.text
    np.testing.assert_array_equal(forward(bound(smaller, weights_of(smaller)), data()), wanted_smaller)
    assert FROM_FILE not in caplog.text


def test_several_sets_of_shapes_and_several_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                  nothing_more: Callable[[], None]) -> None:
    net, smaller = network(), network(6)
    weights, others = weights_of(net), weights_of(smaller)
    both = [SHAPE, (1, *SHAPE[1:])]
    cases = [(net, weights, data(shape)) for shape in both] + [(smaller, others, data())]
    wanted = [expected(*case) for case in cases]
    use(monkeypatch, exported(tmp_path / "first.ngraph", smaller, others),
        exported(tmp_path / "second.ngraph", net, weights, both))
    nothing_more()
    for (symbol, arrays, x), result in zip(cases, wanted, strict=True):
        np.testing.assert_array_equal(forward(bound(symbol, arrays, x.shape), x), result)


@pytest.mark.parametrize("static", [False, True])
def test_a_gluon_block(static: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                       caplog: pytest.LogCaptureFixture) -> None:
    def block() -> mx.gluon.HybridBlock:
        net = mx.gluon.nn.HybridSequential()
        net.add(mx.gluon.nn.Conv2D(8, 3), mx.gluon.nn.BatchNorm(), mx.gluon.nn.Activation("relu"),
                mx.gluon.nn.GlobalAvgPool2D(), mx.gluon.nn.Dense(4))
        return net

    net, x = block(), data()
    net.initialize(mx.init.Xavier())
    net(x)
    net.save_parameters(str(tmp_path / "weights"))
    ngraph_mxnet.export(net, tmp_path / "model.ngraph", data=SHAPE)
    net.hybridize(static_alloc=static, static_shape=static)
    wanted = net(x).asnumpy()
    use(monkeypatch, str(tmp_path / "model.ngraph"))
    _core.clear_compile_cache()
    again = block()
    again.load_parameters(str(tmp_path / "weights"))
    again.hybridize(static_alloc=static, static_shape=static)
    for _ in range(3):
        np.testing.assert_array_equal(again(x).asnumpy(), wanted)
    assert FROM_FILE in caplog.text and COMPILED not in caplog.text
    again[4].bias.set_data(mx.nd.ones(4))
    assert not np.array_equal(again(x).asnumpy(), wanted)
    assert "differs" in caplog.text


def test_a_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net, x = network(), data()
    weights = weights_of(net)
    wanted = expected(net, weights, x)
    use(monkeypatch, exported(tmp_path / "model.ngraph", net, weights))
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", SHAPE)], for_training=False)
    states = set(net.list_auxiliary_states())
    module.set_params({name: array for name, array in weights.items() if name not in states},
                      {name: weights[name] for name in states})
    module.forward(mx.io.DataBatch([x]), is_train=False)
    np.testing.assert_array_equal(module.get_outputs()[0].asnumpy(), wanted)
    assert FROM_FILE in caplog.text and COMPILED not in caplog.text


@pytest.mark.parametrize(("setting", "value", "reason"), [
    ("NGRAPH_BACKEND", "INTERPRETER", "INTERPRETER makes no such files"),
    ("NGRAPH_CODEGEN", "1", "kernels are to be generated"),
    ("NGRAPH_PRECISION", "bf16", "it computes in f32, and bf16 is asked for"),
])
def test_a_file_that_is_not_what_is_asked_for(setting: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch,
                                              tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net, x = network(), data()
    weights = weights_of(net)
    path = exported(tmp_path / "model.ngraph", net, weights)
    monkeypatch.setenv(setting, value)
    wanted = expected(net, weights, x)
    use(monkeypatch, path)
    np.testing.assert_array_equal(forward(bound(net, weights), x), wanted)
    assert reason in caplog.text


def test_a_file_for_another_instruction_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                            caplog: pytest.LogCaptureFixture) -> None:
    best = choose_isa(_core.cpu_features())
    if best == "baseline":
        pytest.skip("the CPU has no AVX2")
    net = network()
    weights = weights_of(net)
    use(monkeypatch, exported(tmp_path / "model.ngraph", net, weights, isas=["baseline"]))
    forward(bound(net, weights), data())
    assert f"it has no instructions for {best}, only for baseline" in caplog.text


def test_options_of_the_graph(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                              caplog: pytest.LogCaptureFixture) -> None:
    net = network()
    weights = weights_of(net)
    use(monkeypatch, exported(tmp_path / "model.ngraph", net, weights))
    monkeypatch.delenv("MXNET_SUBGRAPH_BACKEND")
    states = {name: weights[name] for name in net.list_auxiliary_states()}
    arguments = {name: weights.get(name, data()) for name in net.list_arguments()}
    partitioned = net.optimize_for("NGRAPH", arguments, states, ngraph_codegen=True)
    executor = partitioned.simple_bind(mx.cpu(), grad_req="null", data=SHAPE)
    fill(executor, weights)
    forward(executor, data())
    assert "kernels are to be generated (NGRAPH_CODEGEN, or the option codegen)" in caplog.text


@pytest.mark.parametrize("damage", ["missing", "cut", "changed", "other"])
def test_a_file_that_is_none(damage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                             caplog: pytest.LogCaptureFixture) -> None:
    net, x = network(), data()
    weights = weights_of(net)
    wanted = expected(net, weights, x)
    path = Path(exported(tmp_path / "model.ngraph", net, weights))
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:-100])
    elif damage == "other":
        path.write_text("nonsense")
    else:
        for at in range(DATA_ALIGNMENT, len(content), 64):  # DATA comes first
            content[at] ^= 1
        path.write_bytes(content)
    use(monkeypatch, str(path))
    np.testing.assert_array_equal(forward(bound(net, weights), x), wanted)
    assert f"NGRAPH_PACKAGE: {path} is not used, graphs are compiled" in caplog.text


def test_the_environment_has_the_variable() -> None:
    assert config.get("NGRAPH_PACKAGE") is None and not regions.is_wanted()
