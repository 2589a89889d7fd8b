"""Layers of two graphs are the same ones by what they are and where they stand, whatever they are called."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from ngraph_mxnet import compile
from ngraph_mxnet.base.errors import CalibrationError
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.program.compile import bind_weights
from ngraph_mxnet.quantisation.apply import Fit, Recipe, Scale, outline_of, products
from ngraph_mxnet.quantisation.layers import Outline, matched
from ngraph_mxnet.targets.cpu.pipeline import pipeline


class Net:
    """Layers one after the other, which are called by `prefix` and their number from `first` on."""

    def __init__(self, prefix: str = "net0_", first: int = 0, batch: int = 1, size: int = 12,
                 channels: int = 8) -> None:
        self.b, self.prefix, self.number = Builder(), prefix, first
        self.x = self.b.parameter("x", (batch, channels, size, size))
        self.weights: list[Value] = []

    def weight(self, *shape: int) -> Value:
        self.weights.append(self.b.weight(f"w{len(self.weights)}", shape))
        return self.weights[-1]

    def conv(self, x: Value, channels: int, taps: int = 3) -> Value:
        self.b.origin = self.name("conv Convolution")
        pads = (taps // 2,) * 2
        found = self.b.convolution(x, self.weight(channels, x.shape[1], taps, taps), pads_begin=pads, pads_end=pads)
        return self.b.add(found, self.b.reshape(self.weight(channels), shape=(channels, 1, 1)))

    def dense(self, x: Value, units: int) -> Value:
        self.b.origin = self.name("dense FullyConnected")
        return self.b.matmul(x, self.weight(units, x.shape[-1]), transpose_b=True)

    def name(self, kind: str) -> str:
        self.number += 1
        return f"mx:{self.prefix}{self.number}{kind}"

    def block(self, x: Value) -> Value:
        """Two convolutions beside a shortcut."""
        y = self.conv(self.b.relu(self.conv(x, x.shape[1])), x.shape[1])
        return self.b.relu(self.b.add(y, x))

    def end(self, x: Value, units: int = 5) -> Graph:
        mean = self.b.reduce_mean(x, axes=(2, 3))
        return self.b.results(self.dense(mean, units))


def residual(net: Net, blocks: int = 5) -> Graph:
    x = net.b.relu(net.conv(net.x, 16))
    for _ in range(blocks):
        x = net.block(x)
    return net.end(net.b.relu(net.conv(x, 24, 1)))


def plain(net: Net) -> Graph:
    x = net.x
    for _ in range(6):
        x = net.b.relu(net.conv(x, 8))
    return net.end(x)


def branches(net: Net) -> Graph:
    """Equal ones, which only where they are read tells apart."""
    x = net.b.relu(net.conv(net.x, 16))
    y = net.b.concat(*(net.b.relu(net.conv(net.conv(x, 16, 1), 16)) for _ in range(3)), axis=1)
    return net.end(net.conv(y, 8))


def attention(net: Net) -> Graph:
    x = net.b.reshape(net.x, shape=(net.x.shape[0], net.x.shape[1] * net.x.shape[2], net.x.shape[3]))
    for _ in range(3):
        q, k, v = (net.dense(x, 12) for _ in range(3))
        mixed = net.b.matmul(net.b.softmax(net.b.matmul(q, k, transpose_b=True), axis=-1), v)
        x = net.b.add(net.dense(mixed, x.shape[-1]), x)
        x = net.b.add(net.dense(net.b.gelu(net.dense(x, 32)), x.shape[-1]), x)
    return net.b.results(net.dense(x, 4))


KINDS: Sequence[Callable[[Net], Graph]] = (residual, plain, branches, attention)


def optimised(graph: Graph, constant: bool = False, zeros: bool = False) -> Graph:
    if constant:
        rng = np.random.default_rng(0)
        graph = bind_weights(graph, {one.name: (rng.standard_normal(one.shape) * (len(one.shape) > 1 or not zeros))
                                     .astype(np.float32) for one in graph.parameters if one.is_weight})
    PassManager(pipeline()).run(graph)
    return graph


def outline(graph: Graph) -> Outline:
    return outline_of(optimised(graph))


@pytest.mark.parametrize(("kind", "other"), [
    (kind, other) for kind in KINDS for other in ({"prefix": "net1_"}, {"first": 1}, {"batch": 3}, {"size": 20})
    if kind is not attention or "size" not in other])  # its weights have other shapes then
def test_a_second_instance_is_the_same_layer_by_layer(kind: Callable[[Net], Graph], other: dict) -> None:
    """Where names are shifted they are those of other layers, which counts for nothing."""
    first, second = optimised(kind(Net())), optimised(kind(Net(**other)))
    assert matched(outline_of(second), outline_of(first)) == dict(zip(products(second), products(first), strict=True))


def test_an_outline_with_former_names_of_ops_is_of_the_same_graph() -> None:
    net = Net()
    x = net.b.convolution(net.x, net.b.weight("up", (8, net.x.shape[1], 2, 2)), net.b.weight("bias", (8,)), lower=0.0,
                          data_dilations=(3, 3), pads_begin=(1, 1), pads_end=(1, 1))
    found = outline(net.end(x))
    rows = json.loads(json.dumps(found.rows()).replace("convolution relu", "convolution_bias relu"))
    assert rows != found.rows() and Outline.of_rows(rows) == found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zeros", [False, True])
def test_weights_may_be_constants_and_biases_zeros(kind: Callable[[Net], Graph], zeros: bool) -> None:
    """As `quantize` has them, and a script has not."""
    first, second = optimised(kind(Net()), constant=True, zeros=zeros), optimised(kind(Net("net1_")))
    assert matched(outline_of(second), outline_of(first)) == dict(zip(products(second), products(first), strict=True))


def random_net(seed: int, net: Net) -> Graph:
    """Convolutions, residual blocks and joins, of few kinds, so that many are alike."""
    rng, x = random.Random(seed), net.x
    for _ in range(rng.randint(2, 9)):
        kind = rng.choice(("convolution", "block", "join"))
        if kind == "convolution":
            x = net.b.relu(net.conv(x, rng.choice((8, 16)), rng.choice((1, 3))))
        else:
            x = net.block(x) if kind == "block" else net.b.concat(x, net.conv(x, 8, 1), axis=1)
    return net.end(x)


@pytest.mark.parametrize("seed", range(12))
def test_random_nets_under_other_names(seed: int) -> None:
    first = optimised(random_net(seed, Net()), constant=seed % 2 == 0)
    second = optimised(random_net(seed, Net("other_", first=3, batch=2, size=16)))
    assert matched(outline_of(second), outline_of(first)) == dict(zip(products(second), products(first), strict=True))


def numbers(pairs: dict[str, str]) -> list[tuple[int, int]]:
    def number(name: str) -> int:
        return int("".join(filter(str.isdigit, name.partition("_")[2].split(" ")[0])))

    return [(number(own), number(other)) for own, other in pairs.items()]


def test_what_is_in_front_and_behind_may_differ() -> None:
    """The image is prepared in the graph, and there is another head: all between is the same."""
    net = Net("net1_")
    x = net.conv(net.b.sigmoid(net.x), 8, 1)  # of a kind that the other has not
    x = net.b.relu(net.conv(x, 16))
    for _ in range(5):
        x = net.block(x)
    second = net.end(net.b.relu(net.conv(x, 24, 1)), units=7)
    found = numbers(matched(outline(second), outline(residual(Net()))))
    assert sorted(found) == [(at + 1, at) for at in range(1, 13)]


@pytest.mark.parametrize(("first", "last"), [(0, 3), (3, 6), (0, 6)])
def test_a_part_is_found_from_what_is_single_in_it(first: int, last: int) -> None:
    """Of a chain cut at `first` and `last`: equal layers are told by their distance from the stem, or the head."""
    net = Net("part_", channels=8 if first == 0 else 16)
    x = net.x
    for _ in range(first, last):
        x = net.b.relu(net.conv(x, 16))
    part = net.end(x) if last == 6 else net.b.results(x)
    whole = Net()
    y = whole.x
    for _ in range(6):
        y = whole.b.relu(whole.conv(y, 16))
    found = numbers(matched(outline(part), outline(whole.end(y))))
    wanted = [(at - first + 1, at + 1) for at in range(first, last)]
    assert sorted(found) == wanted + ([(last - first + 1, 7)] if last == 6 else [])


def test_nothing_is_guessed() -> None:
    """Two of six equal layers, of whose neighbours nothing is known, might be any."""
    net = Net("part_", channels=8)
    part = net.b.results(net.b.relu(net.conv(net.b.relu(net.conv(net.x, 8)), 8)))
    assert not matched(outline(part), outline(plain(Net())))


def test_other_models_share_nothing() -> None:
    """Names neither: the first layers of both are called the same."""
    for one in KINDS:
        for other in KINDS:
            if one is not other:
                found = matched(outline(one(Net())), outline(other(Net(channels=9))))
                assert len(found) <= 2, (one, other, found)


def recipe_of(graph: Graph) -> Recipe:
    names = list(products(graph))
    return Recipe({name: Scale(0.1 + at, at) for at, name in enumerate(names[1:])}, {names[0]: "too slow"},
                  outline=outline_of(graph))


def test_a_recipe_follows_its_layers_through_a_file() -> None:
    first, second = optimised(residual(Net())), optimised(residual(Net("net1_", first=1)))
    recipe = Recipe.of_text(recipe_of(first).text())
    assert recipe == recipe_of(first)
    fit = Fit.of(recipe, second)
    assert fit.recipe.scales == dict(zip(list(products(second))[1:], recipe.scales.values(), strict=True))
    assert fit.recipe.kept == {next(iter(products(second))): "too slow"}
    assert fit.shortfall is None and str(fit) == "12 of 13 layers in 8 bits"


def test_what_a_recipe_does_not_tell_of_is_said() -> None:
    recipe = recipe_of(optimised(residual(Net())))
    some = Fit.of(recipe, optimised(residual(Net(), blocks=6)))
    assert 0 < some.known < len(some.layers) == 15
    assert f"fits {some.known} of the 15 layers of graph" in str(some.shortfall)
    assert "run in float32" in str(some.shortfall)
    none = Fit.of(recipe, optimised(attention(Net())))
    assert "of 13 layers, fits none of the 19 layers" in str(none.shortfall)
    with pytest.raises(CalibrationError, match=r"fits none of the 19 layers.*another model"):
        none.require()


def test_the_option_is_an_error_where_nothing_fits() -> None:
    recipe = recipe_of(optimised(residual(Net())))
    with pytest.raises(CalibrationError, match="fits none of the 19 layers"):
        compile(attention(Net()), "CPU", precision="int8", recipe=recipe)
    b = Builder()
    with pytest.raises(CalibrationError, match="has no layer"):
        compile(b.results(b.relu(b.parameter("x", (3,)))), "CPU", recipe=recipe)
