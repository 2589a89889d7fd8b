"""`ngraph_mxnet.quantize`: what it costs in accuracy, what it decides and why, and every kind of model and samples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from digit_net import accuracy, digits, needs_digits, trained
from mxnet.gluon import nn
from onnx_models import network

import ngraph_mxnet
from ngraph_mxnet.base.errors import ConfigError, ModelError, UnsupportedError
from ngraph_mxnet.program.artefact import load
from ngraph_mxnet.program.executable import InputError, Usage
from ngraph_mxnet.quantisation.apply import Recipe
from ngraph_mxnet.quantisation.session import quantized as session
from ngraph_mxnet.quantisation.session.quantized import Quantized
from ngraph_mxnet.quantisation.session.samples import Stopwatch, measure_of

CONVS = tuple(f"mx:conv{number}_fwd Convolution" for number in range(3))
DENSE = "mx:dense0_fwd FullyConnected"
RNG = np.random.default_rng(5)
IMAGES = RNG.standard_normal((12, 3, 10, 10)).astype(np.float32)
LABELS = RNG.integers(0, 5, 12)


@pytest.fixture(scope="module")
def net() -> nn.HybridSequential:
    return small_net()


def small_net() -> nn.HybridSequential:
    mx.random.seed(1)
    np.random.seed(1)
    found = nn.HybridSequential(prefix="")
    found.add(nn.Conv2D(16, 3, padding=1, prefix="conv0_"), nn.BatchNorm(prefix="norm0_"),
              nn.Activation("relu", prefix="relu0_"), nn.Conv2D(16, 3, padding=1, prefix="conv1_"),
              nn.Activation("relu", prefix="relu1_"), nn.GlobalAvgPool2D(), nn.Dense(5, prefix="dense0_"))
    found.initialize(mx.init.Xavier())
    found(mx.nd.array(IMAGES[:1]))
    return found


def quantized(model: Any, inputs: Any, **options: Any) -> Quantized:
    """With all that can be in 8 bits, whatever is faster here."""
    return ngraph_mxnet.quantize(model, inputs, **{"only_faster": False, "threads": 2, **options})


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


class TestOnDigits:
    pytestmark = needs_digits

    def test_the_accuracy_drops_by_less_than_three_in_a_thousand(self) -> None:
        """On digits that it was neither trained nor calibrated on."""
        (images, labels), (test, test_labels) = digits()
        found = quantized(trained(), (images[:300], labels[:300]), shapes={"data": (60, 1, 8, 8)}, max_drop=0.003)
        assert set(found.recipe.scales) >= {DENSE} and len(found.recipe.scales) >= 3
        in_float = trained()(mx.nd.array(test)).asnumpy()
        in_int8 = np.concatenate([found(rows)[0] for rows in np.split(test[:540], 9)])
        assert accuracy(in_float, test_labels) > 0.95
        assert accuracy(in_int8, test_labels[:540]) >= accuracy(in_float[:540], test_labels[:540]) - 0.003
        assert 0 < error(in_int8, in_float[:540]) < 0.05

    def test_no_drop_is_no_drop(self) -> None:
        _, (images, labels) = digits()
        found = quantized(trained(), (images, labels), shapes={"data": (199, 1, 8, 8)}, max_drop=0)
        outputs = np.concatenate([found(rows)[0] for rows in np.split(images, 3)])
        assert accuracy(outputs, labels) == found.report.quantised_metric >= found.report.float_metric
        assert found.report.float_metric == accuracy(trained()(mx.nd.array(images)).asnumpy(), labels)
        assert found.report.trace and found.recipe.scales


def distance(wanted: list[np.ndarray]) -> Callable[[Any, Any], float]:
    return lambda outputs, labels: -float(np.abs(outputs[0] - wanted[0]).max())


def test_a_bound_that_can_not_be_met_leaves_the_model_in_float(net: nn.HybridSequential) -> None:
    wanted = ngraph_mxnet.compile(*in_graph(net))(IMAGES)
    found = quantized(net, IMAGES, shapes={"data": IMAGES.shape}, metric=distance(wanted), max_drop=0)
    assert not found.recipe.scales and set(found.recipe.kept) == {*CONVS[:2], DENSE}
    assert set(found.recipe.kept.values()) == {"accuracy: nothing was within the bound"}
    assert re.match(r"all 3 layers stay in float: of \d evaluations none reached", found.report.decision)
    assert found.report.quantised_metric == found.report.float_metric == 0
    assert all(not trial.holds and trial.metric < 0 for trial in found.report.trace)
    np.testing.assert_array_equal(found(IMAGES)[0], wanted[0])


def in_graph(net: nn.HybridSequential) -> tuple[Any, ...]:
    from ngraph_mxnet.frontends.model import model_of
    from ngraph_mxnet.program.compile import bind_weights

    return bind_weights(*model_of(net).graph({"data": IMAGES.shape}, "CPU")()), "CPU"


def test_a_layer_of_much_damage_stays_in_float(net: nn.HybridSequential) -> None:
    """Where the bound lets all others be in 8 bits."""
    every = quantized(net, IMAGES)
    damages = {row.name: row.damage for row in every.report.layers}
    assert all(0 < (damage or 0) < 0.01 for damage in damages.values())
    worst = max(damages, key=lambda name: damages[name] or 0)
    wanted = ngraph_mxnet.compile(*in_graph(net))(IMAGES)
    alone = quantized(net, IMAGES, metric=distance(wanted), keep=[worst])
    found = quantized(net, IMAGES, metric=distance(wanted), max_drop=-alone.report.quantised_metric)
    assert worst in found.recipe.kept and found.recipe.scales
    assert found.recipe.kept[worst] == "accuracy"
    assert alone.recipe.kept == {worst: "asked for"} and alone.report.layers[0].name in (CONVS[0], DENSE)


ORIGINS = {CONVS[0]: f"{CONVS[0]} + mx:norm0_fwd BatchNorm + mx:relu0_fwd Activation",
           CONVS[1]: f"{CONVS[1]} + mx:relu1_fwd Activation", DENSE: DENSE}
"""What kernels of the layers say of where they come from."""


def times(seconds: Mapping[str, tuple[float, float]], monkeypatch: pytest.MonkeyPatch, *wholes: list[float]) -> None:
    """Let layers take these seconds, in float and in int8, and models that are compared, one comparison after the
    other."""
    left = list(wholes)

    def usages_of(executables: Any, arrays: Any) -> list[Usage]:
        return [Usage({ORIGINS[name]: pair[at] for name, pair in seconds.items()}, 4 - at, 1)
                for at in range(len(executables))]

    monkeypatch.setattr(session, "usages_of", usages_of)
    monkeypatch.setattr(Stopwatch, "seconds_of", lambda self, executables, arrays: left.pop(0))


def test_layers_that_are_not_faster_stay_in_float(net: nn.HybridSequential, monkeypatch: pytest.MonkeyPatch) -> None:
    times({CONVS[0]: (1e-3, 2e-3), CONVS[1]: (3e-3, 1e-3), DENSE: (1e-3, 0.5e-3)}, monkeypatch, [4e-3, 3e-3],
          [5e-3, 3e-3])
    found = quantized(net, IMAGES, only_faster=True)
    assert found.recipe.kept == {CONVS[0]: "not faster: 2 ms beside 1"}
    rows = {row.name: row for row in found.report.layers}
    assert rows[CONVS[0]].damage is None and rows[CONVS[0]].scale is not None
    assert (rows[CONVS[1]].float_ms, rows[CONVS[1]].int8_ms, rows[CONVS[1]].kept) == (3.0, 1.0, None)
    assert found.report.decision == "2 of 3 layers are in 8 bits: 3 ms beside 5 in float"


@pytest.mark.parametrize(("wholes", "kept"), [
    ([3e-3, 4e-3, 5e-3, 5e-3], 0), ([4e-3, 3e-3, 5e-3, 5e-3], 1), ([4e-3, 4e-3, 3e-3, 4e-3], 2),
    ([4e-3, 4e-3, 4e-3, 3e-3], 3),
])
def test_what_stays_in_float_is_what_makes_the_model_faster(
        wholes: list[float], kept: int, net: nn.HybridSequential, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that lose the ones that lose most, for each costs its neighbours."""
    times({CONVS[0]: (1e-3, 1e-3), CONVS[1]: (1e-3, 4e-3), DENSE: (1e-3, 2e-3)}, monkeypatch, wholes, [5e-3, 3e-3])
    found = quantized(net, IMAGES, only_faster=True)
    assert set(found.recipe.kept) == set((CONVS[1], DENSE, CONVS[0])[:kept])
    assert all(why.startswith("not faster: ") for why in found.recipe.kept.values())


def test_a_model_that_is_not_faster_stays_in_float(net: nn.HybridSequential, monkeypatch: pytest.MonkeyPatch) -> None:
    times(dict.fromkeys((*CONVS[:2], DENSE), (2e-3, 1e-3)), monkeypatch, [5e-3, 6e-3])
    found = quantized(net, IMAGES, only_faster=True)
    why = "the model is not faster: 6 ms beside 5 in float"
    assert found.recipe.kept == dict.fromkeys((*CONVS[:2], DENSE), why) and not found.recipe.scales
    assert found.report.decision == f"all stays in float: {why}"
    assert found.report.quantised_metric == found.report.float_metric == 1


def test_what_is_measured(net: nn.HybridSequential) -> None:
    report = quantized(net, IMAGES).report
    assert set(report.errors) == set(session.TRIED) and all(0 < value < 0.01 for value in report.errors.values())
    assert report.layers[0].method == min(report.errors, key=lambda method: report.errors[method])
    assert all(row.float_ms > 0 and row.int8_ms > 0 for row in report.layers)
    assert report.samples == 12 and report.metric == "agreement with float" and report.float_metric == 1
    assert report.quantised_totals.weight_bytes < report.float_totals.weight_bytes
    assert min(report.float_totals.ms, report.quantised_totals.ms) > 0
    for text in ("not faster", "evaluation"):
        assert text not in str(report)
    assert all(text in str(report) for text in (CONVS[0], "agreement with float", "3 of 3 layers are in 8 bits"))
    assert report.to_dict()["layers"][0]["name"] == CONVS[0]


def test_the_method_that_is_asked_for(net: nn.HybridSequential) -> None:
    wide, narrow = (quantized(net, IMAGES, method=method) for method in ("minmax", "entropy"))
    assert (wide.recipe.method, narrow.recipe.method) == ("minmax", "entropy") and not wide.report.errors
    assert wide.recipe.scales[CONVS[0]].scale > narrow.recipe.scales[CONVS[0]].scale


class TestModels:
    def test_a_symbol_and_its_files(self, net: nn.HybridSequential, tmp_path: Path) -> None:
        net.hybridize()
        net(mx.nd.array(IMAGES[:1]))
        net.export(str(tmp_path / "net"), 0)
        files = quantized(str(tmp_path / "net-symbol.json"), {"data": IMAGES},
                          params=str(tmp_path / "net-0000.params"))
        symbol, arguments, states = mx.model.load_checkpoint(str(tmp_path / "net"), 0)
        objects = quantized(symbol, IMAGES, params={**arguments, **states})
        block = quantized(net, IMAGES)
        assert files.recipe.scales == objects.recipe.scales == block.recipe.scales
        for found in (files, objects, block):
            np.testing.assert_array_equal(found(IMAGES[:1])[0], block({"data": IMAGES[:1]})[0])

    def test_an_onnx_model(self, tmp_path: Path) -> None:
        """Of which the batch is fixed."""
        model = network(3, channels=16)
        shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
        data = RNG.standard_normal((2 * shape[0], *shape[1:])).astype(np.float32)
        (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
        found = quantized(tmp_path / "net.onnx", data)
        assert found.recipe.scales and found.report.samples == len(data)
        wanted = ngraph_mxnet.compile(model)(data[:shape[0]])[0]
        assert 0 < error(found(data[:shape[0]])[0], wanted) < 0.1
        with pytest.raises(ModelError, match="shapes: found dat, expected the inputs: "):
            quantized(model, data, shapes={"dat": shape})

    def test_a_graph(self) -> None:
        graph = ngraph_mxnet.parse_graph("""
            graph @g(%x: f32[4,32], %w: f32[32,8] weight) -> (f32[4,8]) {
              %0: f32[4,8] = matmul(%x, %w)
              return %0
            }""")
        weights = {"w": RNG.standard_normal((32, 8)).astype(np.float32)}
        data = RNG.standard_normal((8, 32)).astype(np.float32)
        found = quantized(graph, [data[:4], data[4:]], params=weights)
        assert len(found.recipe.scales) == 1
        assert 0 < error(found(data[:4])[0], data[:4] @ weights["w"]) < 0.05

    def test_nothing_to_quantise(self) -> None:
        graph = ngraph_mxnet.parse_graph("graph @g(%x: f32[4]) -> (f32[4]) {\n  %0: f32[4] = relu(%x)\n  return %0\n}")
        with pytest.raises(UnsupportedError, match="graph g: no convolution or matrix product"):
            quantized(graph, [np.zeros(4, np.float32)])


def batches(size: int) -> Iterator[np.ndarray]:
    """All in one array, which each overwrites."""
    room = np.empty((size, *IMAGES.shape[1:]), np.float32)
    for first in range(0, 12, size):
        room[...] = IMAGES[first:first + size]
        yield room


SAMPLES: dict[str, Callable[[], Any]] = {
    "one array": lambda: IMAGES, "a tuple": lambda: (IMAGES, LABELS), "a dict": lambda: {"data": IMAGES},
    "a generator": lambda: batches(3), "single samples": lambda: list(IMAGES),
    "pairs": lambda: [(IMAGES[:5], LABELS[:5]), (IMAGES[5:], LABELS[5:])],
    "dicts": lambda: [{"data": IMAGES[:6], "label": LABELS[:6]}, {"data": IMAGES[6:], "label": LABELS[6:]}],
    "a DataLoader": lambda: mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(IMAGES, LABELS), 5),
    "a DataIter": lambda: mx.io.NDArrayIter(IMAGES, LABELS, 5, last_batch_handle="pad"),
    "float64": lambda: IMAGES.astype(np.float64),
}


IN_FOURS = {"shapes": {"data": (4, 3, 10, 10)}, "method": "minmax"}


@pytest.fixture(scope="module")
def scales(net: nn.HybridSequential) -> Any:
    return quantized(net, IMAGES, **IN_FOURS).recipe.scales


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(name: str, net: nn.HybridSequential, scales: Any) -> None:
    found = quantized(net, SAMPLES[name](), **IN_FOURS)
    assert found.report.samples == 12
    assert found.recipe.scales == scales
    labelled = name in ("a tuple", "pairs", "dicts", "a DataLoader", "a DataIter")
    assert found.report.metric == ("top1" if labelled else "agreement with float")
    if labelled:
        assert found.report.float_metric == accuracy(net(mx.nd.array(IMAGES)).asnumpy(), LABELS)


def test_a_last_batch_that_is_not_full(net: nn.HybridSequential) -> None:
    """Rows that no sample has count for nothing."""
    found = quantized(net, (IMAGES, LABELS), shapes={"data": (5, 3, 10, 10)}, method="minmax")
    assert found.report.samples == 12
    assert found.report.float_metric == accuracy(net(mx.nd.array(IMAGES)).asnumpy(), LABELS)
    graph = ngraph_mxnet.parse_graph("""
        graph @g(%x: f32[4,32], %w: f32[32,8] weight) -> (f32[8]) {
          %0: f32[4,8] = matmul(%x, %w)
          %1: f32[8] = reduce_sum(%0) {axes=[0], keep_dims=false}
          return %1
        }""")
    data = np.ones((6, 32), np.float32)
    with pytest.raises(ConfigError, match=r"shape \[8\], and 2 samples in the last batch of 4"):
        quantized(graph, data, params={"w": np.ones((32, 8), np.float32)}, metric=lambda outputs, labels: 0)


def test_the_usage_of_an_executable() -> None:
    graph = ngraph_mxnet.parse_graph("""
        graph @g(%x: f32[4,32], %w: f32[32,8] weight) -> (f32[4,8]) {
          %0: f32[4,8] = matmul(%x, %w) # mx:dense FullyConnected
          return %0
        }""")
    weights, data = {"w": np.ones((32, 8), np.float32)}, np.ones((4, 32), np.float32)
    usage = ngraph_mxnet.compile(graph, "CPU", weights=weights, threads=1).usage([data], 3)  # type: ignore[union-attr]
    assert usage.seconds["mx:dense FullyConnected"] > 0 and usage.weight_bytes >= 32 * 8 * 4
    with pytest.raises(ConfigError, match="of the backend CPU alone"):
        ngraph_mxnet.compile(graph, "INTERPRETER", weights=weights).usage([data], 3)  # type: ignore[union-attr]


@pytest.mark.parametrize(("inputs", "options", "kind", "message"), [
    ([], {}, ConfigError, "found no samples"),
    (7, {}, ConfigError, "found int, expected arrays or an iterator"),
    (IMAGES, {"keep": ["conv9"]}, ConfigError, "keep: found conv9, expected some of .*conv0_fwd"),
    (IMAGES, {"method": "best"}, ConfigError, "method: found 'best', expected one of"),
    (IMAGES, {"metric": "top5"}, ConfigError, "metric: found 'top5', expected top1"),
    (IMAGES, {"metric": "top1"}, ConfigError, "found top1 without labels"),
    (IMAGES, {"metric": lambda outputs, labels: None}, ConfigError, "found NoneType returned, expected a number"),
    (IMAGES, {"max_drop": -1}, ConfigError, "max_drop: found -1"),
    (IMAGES, {"max_drop": float("nan")}, ConfigError, "max_drop: found nan"),
    (IMAGES, {"evaluations": 0}, ConfigError, "evaluations: found 0"),
    (IMAGES, {"threads": 0}, ConfigError, "threads: found 0"),
    ((IMAGES, LABELS[:4]), {}, ConfigError, "labels: found 4, expected one for each of 12 samples"),
    ((IMAGES, np.zeros((12, 5))), {}, ConfigError, r"labels: found shape \[12, 5\], expected one class for each"),
    ([(IMAGES, LABELS), IMAGES], {}, ConfigError, "found 1 samples of 2 that have them"),
    ([{"data": IMAGES, "other": IMAGES}], {"shapes": {"data": (4, 3, 10, 10)}}, InputError, "unknown other"),
    ([(IMAGES, IMAGES, LABELS)], {"shapes": {"data": (4, 3, 10, 10)}}, InputError, "found 3 arrays, expected 1"),
    ([IMAGES[:2], IMAGES[:2, :, :8]], {}, InputError, r"input 'data': found shape \[2, 3, 8, 10\]"),
    (IMAGES.astype(complex), {}, InputError, "found dtype complex128, expected float32"),
    (IMAGES, {"shapes": {"data": (1, 3, 10)}}, InputError, r"of shape \[12, 3, 10, 10\], expected \[1, 3, 10\]"),
])
def test_mistakes(inputs: Any, options: dict[str, Any], kind: type, message: str, net: nn.HybridSequential) -> None:
    with pytest.raises(kind, match=message):
        quantized(net, inputs, **options)


def test_outputs_without_classes_are_measured_by_how_near_they_are() -> None:
    graph = ngraph_mxnet.parse_graph("""
        graph @g(%x: f32[4,32], %w: f32[32,1] weight) -> (f32[4,1]) {
          %0: f32[4,1] = matmul(%x, %w)
          return %0
        }""")
    given, weights = [np.ones((4, 32), np.float32)], {"w": np.ones((32, 1), np.float32)}
    assert quantized(graph, given, params=weights).report.metric == "closeness to float"
    with pytest.raises(ConfigError, match=r"first output of shape \[4, 1\], expected scores of classes"):
        quantized(graph, [(given[0], np.zeros(4, np.int64))], params=weights)


@pytest.mark.parametrize(("outputs", "name"), [
    (["4,9,4", "4,9"], "closeness to float"),  # boxes and their scores
    (["4,9,6"], "closeness to float"),
    (["36,6"], "closeness to float"),  # a row for each box that was found
    (["4,9", "4,3"], "closeness to float"),
    (["4,9"], "agreement with float"),
])  # fmt: skip
def test_the_metric_where_nobody_says(outputs: list[str], name: str) -> None:
    """No argmax over boxes: only of a row of scores for each sample."""
    rng = np.random.default_rng(2)
    wanted = [rng.standard_normal([int(size) for size in shape.split(",")]).astype(np.float32) for shape in outputs]
    measure = measure_of(None, None, wanted, 4)
    assert measure.name == name and measure.of(wanted) == 1
    moved = [array + np.float32(0.1) * rng.standard_normal(array.shape).astype(np.float32) for array in wanted]
    if name == "closeness to float":
        assert measure.of(moved) == pytest.approx(0.9, abs=0.02)
        assert measure.of([np.full_like(array, np.inf) for array in wanted]) < -1e20


def test_a_busy_machine_is_told() -> None:
    """Calls on one thread are timed by its CPU time, so that others do not count; what is slow for another reason than
    work makes times of several threads doubtful."""
    graph = ngraph_mxnet.parse_graph("""
        graph @g(%x: f32[64,64]) -> (f32[64,64]) {
          %0: f32[64,64] = matmul(%x, %x)
          return %0
        }""")
    run, arrays = ngraph_mxnet.compile(graph, threads=1), {"x": np.ones((64, 64), np.float32)}
    class Late:
        def __call__(self, given: Any) -> Any:
            time.sleep(0.01)
            return run(given)

    alone, beside = Stopwatch(1), Stopwatch(2)
    quick, late = alone.seconds_of([run, Late()], arrays)
    assert late < 0.005 and quick < 0.005
    late = beside.seconds_of([Late()], arrays)[0]
    assert late > 0.01 and "too busy for these times to be believed" in str(beside.doubt)
    assert Stopwatch(2).doubt is None


def test_weights_that_are_missing(net: nn.HybridSequential) -> None:
    symbol = net(mx.sym.var("data"))
    with pytest.raises(ModelError, match="a symbol needs its weights: params="):
        quantized(symbol, IMAGES)
    with pytest.raises(ModelError, match="no weights for conv0_bias"):
        quantized(symbol, IMAGES, params={})
    with pytest.raises(ConfigError, match="ONNX models hold their own"):
        quantized(network(1), IMAGES, params={"w": IMAGES})


SCRIPT = """
import sys
import mxnet as mx, numpy as np
net = mx.gluon.SymbolBlock.imports(sys.argv[1], ["data"], sys.argv[2])
net.hybridize()
np.save(sys.argv[4], net(mx.nd.array(np.load(sys.argv[3]))).asnumpy())
"""


@pytest.fixture(scope="module")
def files(net: nn.HybridSequential, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Quantized]:
    """The model's files, its recipe, compiled file and data, and what is expected of them."""
    folder = tmp_path_factory.mktemp("files")
    net.hybridize()
    net(mx.nd.array(IMAGES[:1]))
    net.export(str(folder / "net"), 0)
    found = quantized(str(folder / "net-symbol.json"), IMAGES, params=str(folder / "net-0000.params"), keep=[CONVS[1]])
    found.save_recipe(folder / "recipe.json")
    found.save(folder / "net.ngraph")
    np.save(folder / "data.npy", IMAGES[:1])
    return folder, found


@pytest.mark.parametrize("variables", [{"NGRAPH_CALIBRATION": "recipe.json"}, {"NGRAPH_PACKAGE": "net.ngraph"}])
def test_an_unmodified_script_gives_the_same_bits(variables: dict[str, str], files: tuple[Path, Quantized]) -> None:
    folder, found = files
    environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": "NGRAPH", "NGRAPH_PRECISION": "int8", "OMP_NUM_THREADS": "2",
                   "NGRAPH_CACHE_DIR": "off", **variables}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "net-symbol.json", "net-0000.params", "data.npy", "out.npy"],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0 and "Everything runs in float32" not in done.stderr, done.stderr
    assert "is compiled, for" not in done.stderr
    np.testing.assert_array_equal(np.load(folder / "out.npy"), found(IMAGES[:1])[0])


def test_a_recipe_that_changes_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs on the disk are of the recipe that was in the file then."""
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    model = network(3, channels=16)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    data = RNG.standard_normal(shape).astype(np.float32)
    found = quantized(model, data, shapes={model.graph.input[0].name: shape})
    results = []
    for recipe in (found.recipe, found.recipe.keeping(dict.fromkeys(found.recipe.products, "")), found.recipe):
        recipe.save(tmp_path / "recipe.json")
        run = ngraph_mxnet.compile(model, precision="int8", recipe=str(tmp_path / "recipe.json"))
        results.append(run(data)[0])
    np.testing.assert_array_equal(results[0], found(data)[0])
    np.testing.assert_array_equal(results[1], ngraph_mxnet.compile(model, precision="f32")(data)[0])
    np.testing.assert_array_equal(results[2], results[0])
    assert not np.array_equal(results[0], results[1])


def test_what_is_saved(files: tuple[Path, Quantized]) -> None:
    folder, found = files
    assert Recipe.load(folder / "recipe.json") == found.recipe
    artefact = load(folder / "net.ngraph")
    assert artefact.meta.precision == "int8" and {one.isa for one in artefact.sets} == {"avx512", "avx2"}
    kernels = {kernel for one in artefact.sets for program, _ in one.programs for kernel in program.kernels()}
    assert any("_u8" in kernel for kernel in kernels)


def test_a_file_for_a_range(net: nn.HybridSequential, tmp_path: Path) -> None:
    found = quantized(net, IMAGES, shapes={"data": ("1..4", 3, 10, 10)})
    assert found.shapes == {"data": (1, 3, 10, 10)}
    summary = found.save(tmp_path / "net.ngraph", isas=["avx2"])
    assert summary.meta.precision == "int8" and [one.bounds for one in summary.sets]


def test_plots(net: nn.HybridSequential, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = quantized(net, IMAGES, method="minmax")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"drawn with matplotlib.*pip install matplotlib"):
        found.plot(tmp_path / "net.svg")
    monkeypatch.undo()
    pytest.importorskip("matplotlib", reason="matplotlib of the extra bench is not installed")
    found.plot(tmp_path / "net.svg")
    assert CONVS[0].split()[0] in (tmp_path / "net.svg").read_text()
    with pytest.raises(ConfigError, match="what"):
        found.plot(tmp_path / "net.what")
