"""The backend NNP: devices by name, options, verdicts, and weights that change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngraph_mxnet.base.errors import ConfigError, PackageError
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.backend import get_backend, load
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.program.package import Package
from ngraph_mxnet.targets.nnp.device import load_device
from ngraph_mxnet.targets.nnp.executable import rebatched
from ngraph_mxnet.targets.nnp.quantize import quantized_reference


def dense() -> Graph:
    b = Builder(name="dense")
    x = b.parameter("x", (8, 64))
    w, s = (b.weight(name, shape) for name, shape in (("w", (48, 64)), ("s", ())))
    return b.results(b.relu(b.matmul(x, b.multiply(w, b.exp(s)), transpose_b=True)))


def arrays_of(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(p.shape) / 4).astype(np.float32) for p in graph.parameters]


@pytest.mark.parametrize(("name", "error"), [("NNP", 1e-3), ("nnp:NNP-I-1300:50w", 1e-3), ("NNP:nnp-t-1400", 6e-3)])
def test_a_product_by_the_backends_name(name: str, error: float):
    graph = dense()
    arrays = arrays_of(graph)
    (found,), (expected,) = compile(graph, name)(*arrays), compile(graph, "INTERPRETER")(*arrays)
    assert 0 < np.linalg.norm(found - expected) <= error * np.linalg.norm(expected)


def test_a_product_by_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NGRAPH_BACKEND", "nnp:nnp-t-1300")
    assert compile(dense()).program.device.startswith("nnp-t-1300")


@pytest.mark.parametrize(("options", "text"), [
    ({"backend": "NNP:tpu"}, "no device 'tpu'; known: nnp-i-1100"),
    ({"backend": "NNP:nnp-i-1100:9W"}, "has no power mode '9w'; it has 12W, 10W"),
    ({"precision": "bf16"}, "option precision: found 'bf16', expected f16 or int8 on nnp-i-1100:12W"),
    ({"mode": "fast"}, "option mode: found 'fast', expected throughput or latency"),
    ({"instances": 13}, "option instances: found 13, expected 1 to 12"),
    ({"instances": "many"}, "option instances: found 'many'"),
])
def test_wrong_options_are_named(options: dict, text: str):
    with pytest.raises(ConfigError, match=text):
        compile(dense(), **{"backend": "NNP", **options})


@pytest.mark.parametrize("options", [{"mode": "latency"}, {"mode": "throughput"}, {"instances": 4}])
def test_options_do_not_change_results(options: dict):
    graph = dense()
    arrays = arrays_of(graph)
    np.testing.assert_array_equal(compile(graph, "NNP", **options)(*arrays)[0], compile(graph, "NNP")(*arrays)[0])


def test_weights_are_prepared_once_for_each_content():
    graph = dense()
    run = compile(graph, "NNP")
    x, w, s = arrays_of(graph)
    first = run(x, w, s)[0]
    device = next(iter(run._loaded.values()))
    assert (run(x, w.copy(), s)[0] == first).all()
    assert list(run._loaded.values()) == [device]
    assert (run(x, -w, s)[0] != first).any()
    assert (run(x, w, s)[0] == first).all()
    assert len(run._loaded.values()) == 2


def reasons() -> dict[str, Graph]:
    b = Builder(name="refused")
    x, doubles = b.parameter("x", (4, 4)), b.parameter("d", (4,), "f64")
    wide, narrow = b.parameter("l", (4, 4), "i64"), b.parameter("i", (4, 4), "i32")
    huge, whole = b.parameter("h", (1 << 18, 1 << 16)), b.parameter("n", (2, 1 << 21))
    return {
        "no float64": b.add(doubles, doubles),
        "integers of at most 32 bits": b.multiply(wide, wide),
        "multiplies real numbers only": b.matmul(narrow, narrow),
        "stored in f16, whose bits are others": b.bitcast(x, element="i32"),
        "tensors take 68719476736 bytes, more than the": b.tanh(huge),
        "less than 8388608 bytes, more than the 3774873 that an engine holds": b.softmax(whole),
    }


@pytest.mark.parametrize("reason", reasons())
def test_refusals_have_reasons(reason: str):
    assert reason in (get_backend("NNP").supports(reasons()[reason].node) or "")


def test_what_is_fused_is_judged_by_its_parts():
    b = Builder(name="taken")
    x, v = b.parameter("x", (2, 4, 4, 4)), b.parameter("v", (4,))
    w = b.parameter("w", (4, 4, 1, 1))
    node = b.node("convolution", [x, w, v, x, v, v], {"lower": 0.0})
    assert get_backend("NNP").supports(node) is None
    graph = b.results(*node.outputs)
    arrays = arrays_of(graph)
    for one, other in zip(compile(graph, "NNP")(*arrays), compile(graph, "INTERPRETER")(*arrays), strict=True):
        np.testing.assert_allclose(one, other, atol=4e-3)


def image_net() -> Graph:
    b = Builder(name="images")
    x = b.parameter("x", (4, 3, 10, 10))
    w0, w1 = (b.weight(f"w{i}", shape) for i, shape in enumerate(((32, 3, 3, 3), (32, 32, 3, 3))))
    bias = b.weight("bias", (32,))
    pads = {"pads_begin": (1, 1), "pads_end": (1, 1)}
    first = b.max_pool(b.convolution(x, w0, bias, lower=0.0, **pads), kernel=(2, 2), strides=(2, 2))
    second = b.convolution(first, w1, bias, first, lower=0.0, **pads)
    flat = b.reshape(b.concat(first, second, axis=1), shape=(4, 64 * 25))
    return b.results(b.softmax(b.matmul(flat, b.weight("w2", (10, 64 * 25)), transpose_b=True)))


@pytest.mark.parametrize("options", [{}, {"precision": "int8"}, {"precision": "int8", "devices": 2}, {"devices": 2},
                                     {"device": "nnp-i-1300:50W", "mode": "latency"}])
def test_packages_hold_the_versions(options: dict):
    """Also what was calibrated on the first call's data: whoever loads it calls it with others."""
    graph = image_net()
    made, arrays = compile(graph, "NNP", **options), arrays_of(graph)
    before = Package.from_bytes(made.package().to_bytes())
    first = made(*arrays)
    after = load(Package.from_bytes(made.package().to_bytes()))
    other = [arrays[0] * np.float32(0.5), *arrays[1:]]
    np.testing.assert_array_equal(after(*other)[0], made(*other)[0])
    assert after.listing() == made.listing()
    np.testing.assert_array_equal(load(before)(*arrays)[0], first[0])
    np.testing.assert_array_equal(load(Package.from_bytes(after.package().to_bytes()))(*arrays)[0], first[0])


def test_packages_of_other_numbers_are_refused():
    graph = image_net()
    made = compile(graph, "NNP")
    device = load_device("nnp-i-1100", {"memories.dram.size": 1 << 30})
    made.settings = replace(made.settings, resources=replace(made.settings.resources, device=device))
    with pytest.raises(PackageError, match="not with other numbers"):
        made.package()


@pytest.mark.parametrize("change", [
    lambda s: s.update(device="nnp-i-9999"), lambda s: s.update(device=None), lambda s: s.update(engines=99),
    lambda s: s.update(element="i8"), lambda s: s.update(samples=[[]]), lambda s: s.pop("versions"),
    lambda s: s["versions"][0][1].pop("program"), lambda s: s["versions"][0][1].update(program="program"),
    lambda s: s["versions"][0][1]["weights"].pop(), lambda s: s["versions"][0][1]["weights"].append(99999),
    lambda s: s["versions"][0][1]["elements"].pop(), lambda s: s["versions"][0][1].update(scales=[[0, "x"]]),
    lambda s: s["versions"][0][1]["graph"]["parameters"].pop(), lambda s: s["versions"][0][1].update(graph=None),
    lambda s: s["versions"][0].pop(), lambda s: s["versions"][0][1].update(channel_scales=[[0, 1.0]]),
])
def test_damaged_packages_are_refused(change: Callable[[dict], None]):
    package = Package.from_bytes(compile(image_net(), "NNP").package().to_bytes())
    load(package)
    change(package.settings)  # type: ignore[arg-type]
    with pytest.raises(PackageError):
        load(package)


@pytest.mark.parametrize("options", [{}, {"instances": 2}, {"device": "nnp-i-1300:50W", "mode": "latency"}])
def test_int8_is_the_quantised_graph_bit_for_bit(options: dict):
    graph = image_net()
    run, arrays = compile(graph, "NNP", precision="int8", **options), arrays_of(graph)
    with pytest.raises(ConfigError, match="precision int8 has no scales before the first call"):
        run.program  # noqa: B018
    (found,) = run(*arrays)
    version = run.version
    assert len(version.quantization.products) == 3
    products = [i for i in run.program.instructions if i.op in ("convolution", "matmul")]
    assert products and all(i.reads[0].element == "i8" for i in products)
    known = dict(zip(version.graph.parameters, arrays, strict=True))
    (expected,) = quantized_reference(version.graph, version.quantization, [known[p] for p in version.graph.parameters])
    np.testing.assert_array_equal(found, expected)
    (exact,) = compile(graph, "INTERPRETER")(*arrays)
    assert np.linalg.norm(found - exact) <= 0.05 * np.linalg.norm(exact)


def test_int8_by_the_environment_and_given_samples(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NGRAPH_PRECISION", "int8")
    graph = image_net()
    arrays = arrays_of(graph)
    small = [arrays[0] / 16, *arrays[1:]]
    by_first_call = compile(graph, "NNP")
    given = compile(graph, "NNP", calibration=arrays)
    by_first_call(*arrays)
    np.testing.assert_array_equal(given(*small)[0], by_first_call(*small)[0])
    with pytest.raises(ConfigError, match="option calibration: found a sample of 1 arrays, expected 5"):
        compile(graph, "NNP", calibration=[arrays[:1]])
    by_first_call(arrays[0], *(array / 2 for array in arrays[1:]))  # scales of their own
    np.testing.assert_array_equal(given(*small)[0], by_first_call(*small)[0])


def test_a_report_tells_simulated_time_and_energy():
    graph = image_net()
    report = compile(graph, "NNP", mode="latency").report()
    assert report.to_dict()["simulated"]
    assert 1e-6 < report.seconds < 1e-2
    assert 0 < report.peak_part < 1
    run = compile(graph, "NNP")
    first = run.timeline
    run(*arrays_of(graph))
    assert run.timeline is first  # it does not depend on data
    with pytest.raises(ConfigError, match="precision int8 has no scales before the first call"):
        compile(graph, "NNP", precision="int8").report()


SCRIPT = """
import numpy as np
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.program.compile import compile
b = Builder(name="told")
run = compile(b.results(b.relu(b.parameter("x", (8, 8)))), "NNP")
for _ in range(3):
    run(np.ones((8, 8), np.float32))
"""


def test_a_table_at_exit():
    environment = {**os.environ, "NGRAPH_NNP_REPORT": "1"}
    run = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert "simulated, no time was measured" in run.stderr
    (row,) = [line for line in run.stderr.splitlines() if "told" in line]
    assert "nnp-i-1100:12W" in row
    assert row.split("│")[3].strip() == "3"


@pytest.mark.parametrize("options", [{}, {"precision": "int8"}, {"backend": "NNP:nnp-t-1300"}])
def test_devices_share_the_batch(options: dict):
    graph = image_net()
    arrays = arrays_of(graph)
    options = {"backend": "NNP", **options}
    (alone,), (shared,) = (compile(graph, **options, devices=count)(*arrays) for count in (1, 2))
    np.testing.assert_array_equal(shared, alone)


def test_what_devices_cannot_share_is_named():
    b = Builder(name="mixed")
    x = b.parameter("x", (4, 6))
    graph = b.results(b.softmax(x, axis=0))
    with pytest.raises(ConfigError, match="softmax mixes the images of a batch: several devices can't share it"):
        compile(graph, "NNP", devices=2)
    with pytest.raises(ConfigError, match=r"input x has shape \[4, 6\]: expected a first axis that 3 devices"):
        compile(graph, "NNP", devices=3)
    with pytest.raises(ConfigError, match="option devices: found '0', expected 1 to 1024"):
        compile(graph, "NNP", devices="0")


@st.composite
def shared_graphs(draw) -> Graph:
    """Ops over a batch of 4, some of which mix its images."""
    b = Builder(name="shared")
    values = [b.parameter("x", (4, 3, 4)), b.constant(np.ones((3, 1), np.float32))]
    for _ in range(draw(st.integers(1, 5))):
        value = draw(st.sampled_from([v for v in values if len(v.shape) > 1]))
        kind = draw(st.sampled_from("add softmax reshape reduce_sum matmul transpose slice concat".split()))
        if kind == "add":
            values.append(b.add(value, draw(st.sampled_from([v for v in values if v.shape == value.shape]))))
        elif kind == "softmax":
            values.append(b.softmax(value, axis=draw(st.integers(0, len(value.shape) - 1))))
        elif kind == "reshape":
            size, first = value.type.size, draw(st.sampled_from([2, 4, 12]))
            values.append(b.reshape(value, shape=(first, size // first) if size % first == 0 else (size, 1)))
        elif kind == "reduce_sum":
            axes = [draw(st.integers(0, len(value.shape) - 1))]
            values.append(b.reduce_sum(value, axes=axes, keep_dims=True))
        elif kind == "matmul":
            values.append(b.matmul(value, value, transpose_b=True))
        elif kind == "transpose":
            values.append(b.transpose(value, order=draw(st.permutations(range(len(value.shape))))))
        elif kind == "slice":
            values.append(b.slice(value, begin=(0,) * len(value.shape), end=(*value.shape[:-1], 1)))
        else:
            values.append(b.concat(value, value, axis=draw(st.integers(0, len(value.shape) - 1))))
    return b.results(values[-1])


@settings(max_examples=60)
@given(shared_graphs())
def test_a_graph_is_shared_rightly_or_not_at_all(graph: Graph):
    arrays = [np.random.default_rng(0).uniform(-1, 1, p.shape).astype(np.float32) for p in graph.parameters]
    try:
        part = rebatched(graph, 2)
    except ConfigError:
        return
    (whole,) = compile(graph, "INTERPRETER")(*arrays)
    slices = [compile(part, "INTERPRETER")(array)[0] for array in np.split(arrays[0], 2)]
    found = np.concatenate(slices) if slices[0].shape != whole.shape else slices[0]
    np.testing.assert_array_equal(found, whole)


@pytest.mark.parametrize(("batch", "options", "engines"), [
    (1, {}, 12), (1, {"mode": "latency"}, 6), (1, {"mode": "throughput"}, 1), (2, {"mode": "latency"}, 12),
    (4, {"instances": 6}, 8), (24, {"instances": 6}, 12), (3, {}, 3),
])
def test_instances_keep_to_their_engines(batch: int, options: dict, engines: int):
    b = Builder(name="wide")
    pads = {"pads_begin": (1, 1), "pads_end": (1, 1)}
    x = b.parameter("x", (batch, 64, 56, 56))
    graph = b.results(b.convolution(x, b.weight("w", (256, 64, 3, 3)), **pads))
    units = {i.unit.split(".")[0] for i in compile(graph, "NNP", **options).program.instructions}
    assert units == {"host", *(f"ice{number}" for number in range(engines))}
