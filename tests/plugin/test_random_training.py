"""Training steps of random models give MXNet's own results, by executors and by Gluon blocks.

The judge is MXNet operator by operator, under `autograd.record`. Where its own results move with data that are 1e-6
apart, as at kinks and where little is left of large numbers, a model shows nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st
from mxnet import autograd, gluon
from mxnet_helpers import backend, check_that_all_is_kept, mx, needs_library
from native_runs import all_shapes
from random_models import models, values_for

from ngraph_mxnet.plugin.binding import gluon_blocks

pytestmark = needs_library

Arrays = dict[str, np.ndarray]
FEW, MANY = 6, int(os.environ.get("RANDOM_MODELS", "300"))
TOLERANCE, NUDGE, STEADY = 2e-3, 1e-6, 5e-4
REQUESTS = ("write", "write", "add", "null")


def prepared(symbol: mx.sym.Symbol) -> mx.sym.Symbol:
    """Without random numbers, and every output one of an operator's."""
    text = re.sub(r'"p": "0\.3"', '"p": "0"', symbol.tojson())
    return mx.sym.Group([mx.sym.identity(output) for output in mx.sym.load_json(text)])


def one_by_one(symbol: mx.sym.Symbol, arrays: Arrays, heads: list[np.ndarray], wanted: list[str],
               rounded: Callable[[str, mx.nd.NDArray], mx.nd.NDArray] = lambda name, array: array) -> Arrays:
    """Outputs, gradients and states after a step of MXNet's, each operator called alone.

    All gradients are computed, for MXNet leaves that of a bias 0 where none of the weight is wanted. `rounded` is
    applied to the name of each operator's node and what it gives.
    """
    graph = json.loads(symbol.tojson())
    values = {name: mx.nd.array(array) for name, array in arrays.items()}
    for name in symbol.list_arguments():
        values[name].attach_grad()
    results: list[list[mx.nd.NDArray]] = []
    with autograd.record():
        for node in graph["nodes"]:
            if node["op"] == "null":
                results.append([values[node["name"]]])
                continue
            inputs = [results[source][output] for source, output, _ in node["inputs"]]
            if node["op"] == "BlockGrad":  # MXNet's backward ends the process behind some
                results.append([inputs[0].detach()])
                continue
            variables = [{"op": "null", "name": f"x{i}", "inputs": []} for i in range(len(inputs))]
            operator = {**node, "inputs": [[i, 0, 0] for i in range(len(inputs))]}
            alone = {"nodes": [*variables, operator], "arg_nodes": list(range(len(inputs))),
                     "heads": [[len(inputs), 0, 0]], "attrs": graph["attrs"]}
            outputs = list(mx.sym.load_json(json.dumps(alone)).get_internals())[len(inputs):]
            made = mx.nd.CachedOp(mx.sym.Group(outputs))(*inputs)
            made = [made] if isinstance(made, mx.nd.NDArray) else made
            results.append([rounded(node["name"], each) for each in made])
        outputs = [results[source][output] for source, output, _ in graph["heads"]]
    autograd.backward(outputs, [mx.nd.array(head) for head in heads])
    return collected(outputs, {name: values[name].grad for name in wanted},
                     {name: values[name] for name in symbol.list_auxiliary_states()})


def collected(outputs: list[mx.nd.NDArray], gradients: dict[str, mx.nd.NDArray],
              states: dict[str, mx.nd.NDArray]) -> Arrays:
    found = {f"output {number}": output for number, output in enumerate(outputs)}
    found |= {f"gradient of {name}": array for name, array in gradients.items()}
    found |= {f"state {name}": array for name, array in states.items()}
    return {name: array.asnumpy() for name, array in found.items()}


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference, relative to the largest element; small arrays of small numbers count less."""
    if not one.size:
        return 0.0
    return float(np.abs(one - other).max() / max(0.1, np.abs(other).max()))


class ByExecutor:
    """`simple_bind`, `forward(is_train=True)`, `backward`."""

    def __init__(self, symbol: mx.sym.Symbol, shape: tuple[int, ...], requests: dict[str, str]) -> None:
        self.symbol = symbol
        with backend("NGRAPH"):
            self.made = symbol.simple_bind(mx.cpu(), grad_req=requests, data=shape)

    def step(self, arrays: Arrays, heads: list[np.ndarray], before: Arrays) -> Arrays:
        if self.made.arg_dict["data"].shape != arrays["data"].shape:
            with backend("NGRAPH"):
                self.made = self.made.reshape(allow_up_sizing=True, data=arrays["data"].shape)
        for name, array in {**self.made.arg_dict, **self.made.aux_dict}.items():
            array[:] = arrays[name]
        for name, array in before.items():
            self.made.grad_dict[name][:] = array
        outputs = self.made.forward(is_train=True)
        self.made.backward([mx.nd.array(head) for head in heads])
        return collected(outputs, {name: self.made.grad_dict[name] for name in before}, self.made.aux_dict)

    @property
    def ran(self) -> bool:
        return self.made.training is not None and bool(self.made.training.ran)


class ByGluon:
    """A hybridized SymbolBlock under `autograd.record`."""

    def __init__(self, symbol: mx.sym.Symbol, shape: tuple[int, ...], requests: dict[str, str]) -> None:
        self.net = gluon.SymbolBlock(symbol, [mx.sym.var("data")])
        shapes = all_shapes(symbol, {"data": shape})
        for name, parameter in self.net.collect_params().items():
            parameter.shape = shapes[name]
            if name in requests:
                parameter.grad_req = requests[name]
        self.net.initialize()
        self.net.hybridize()
        self._request = requests["data"]
        self._set_shape(shape)

    def _set_shape(self, shape: tuple[int, ...]) -> None:
        self.data = mx.nd.zeros(shape)
        self.data.attach_grad(self._request)

    def step(self, arrays: Arrays, heads: list[np.ndarray], before: Arrays) -> Arrays:
        if self.data.shape != arrays["data"].shape:
            self._set_shape(arrays["data"].shape)
        values = {name: parameter.data() for name, parameter in self.net.collect_params().items()}
        values["data"] = self.data
        for name, array in values.items():
            array[:] = arrays[name]
        for name, array in before.items():
            values[name].grad[:] = array
        with backend("NGRAPH"):
            with autograd.record():
                outputs = self.net(self.data)
                outputs = [outputs] if isinstance(outputs, mx.nd.NDArray) else list(outputs)
            autograd.backward(outputs, [mx.nd.array(head) for head in heads])
        states = self.net.collect_params()
        return collected(outputs, {name: values[name].grad for name in before},
                         {name: values[name] for name in states if states[name].grad_req == "null"
                          and re.search("moving_(mean|var)$", name)})

    @property
    def ran(self) -> bool:
        return bool(getattr(gluon_blocks.of_block(self.net).training, "count", 0))


WAYS: dict[str, Callable[..., ByExecutor | ByGluon]] = {"executor": ByExecutor, "gluon": ByGluon}
seen: Counter[str] = Counter()


def check(way: str, symbol: mx.sym.Symbol, shape: tuple[int, ...], seed: int) -> None:
    """Two steps, with other weights and data."""
    if '"LRN"' in symbol.tojson():
        reject()  # MXNet's backward ends the process for one channel
    symbol = prepared(symbol)
    names = symbol.list_arguments()
    requests = {name: str(np.random.default_rng([seed, place]).choice(REQUESTS)) for place, name in enumerate(names)}
    requests["data"] = "write"
    wanted = [name for name in names if requests[name] != "null"]
    try:
        shapes = all_shapes(symbol, {"data": shape})
        with backend(None):
            symbol.simple_bind(mx.cpu(), grad_req="null", data=shape)
    except RuntimeError:  # of this MXNet itself, which can't infer some shapes, and refuses outputs given twice
        reject()
    made = WAYS[way](symbol, shape, requests)
    for number in range(2):
        rng = np.random.default_rng([seed, number])
        arrays = {name: values_for(name, size, seed + number) for name, size in shapes.items()}
        _, sizes, _ = symbol.infer_shape(data=shape)
        heads = [rng.uniform(-1, 1, size).astype(np.float32) for size in sizes]
        before = {name: rng.uniform(-1, 1, shapes[name]).astype(np.float32) for name in wanted}
        with backend(None):
            expected = one_by_one(symbol, arrays, heads, wanted)
            nudged = dict(arrays, data=arrays["data"] * (1 + NUDGE * rng.choice([-1, 1], shape).astype(np.float32)))
            moved = one_by_one(symbol, nudged, heads, wanted)
        if not all(np.isfinite(array).all() for array in expected.values()):
            reject()
        if max(distance(moved[name], array) for name, array in expected.items()) > STEADY:
            seen["not steady"] += 1
            reject()
        for name in wanted:
            if requests[name] == "add":
                expected[f"gradient of {name}"] = expected[f"gradient of {name}"] + before[name]
        found = made.step(arrays, heads, before)
        assert set(found) == set(expected)
        for name, array in expected.items():
            assert found[name].shape == array.shape and distance(found[name], array) <= TOLERANCE, (
                f"{name} is off by {distance(found[name], array):.1e}")
    seen["compiled" if made.ran else "MXNet's"] += 1


def run(way: str, draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    check_that_all_is_kept(monkeypatch)

    @settings(max_examples=draws)
    @given(models(), st.integers(0, 2**16))
    def random_models(model: tuple[mx.sym.Symbol, tuple[int, ...]], seed: int) -> None:
        note(model[0].debug_str())
        check(way, *model, seed)

    random_models()


@pytest.mark.parametrize("way", WAYS)
def test_a_few_models(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(way, FEW, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_many_models(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen.clear()
    run(way, MANY, monkeypatch)
    assert seen["compiled"] >= seen["MXNet's"], f"most models should train compiled: {dict(seen)}"
