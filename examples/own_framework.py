"""A small framework of layers, and the bridge by which its nets run compiled, are saved, loaded and exported.

    python examples/own_framework.py [--backend CPU|INTERPRETER]

The framework knows layers and weights; the bridge is a table of rules, one for each kind of layer. docs/own-bridge.md
goes through it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import ngraph_mxnet as ng
from ngraph_mxnet.ir import Value

# ---- the framework: it knows nothing of a compiler ---------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """One layer: its kind, a name of its own, its settings, and the shape of each weight."""

    kind: str
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def conv(name: str, channels: int, filters: int, size: int = 3, stride: int = 1) -> Layer:
    shapes = {"kernel": (filters, channels, size, size), "bias": (filters,)}
    return Layer("conv", name, {"stride": stride, "pad": size // 2}, shapes)


def dense(name: str, features: int, units: int) -> Layer:
    return Layer("dense", name, {}, {"kernel": (units, features), "bias": (units,)})


def relu(name: str) -> Layer:
    return Layer("relu", name)


def mean_pool(name: str) -> Layer:
    return Layer("mean_pool", name)


def random_weights(layers: Sequence[Layer], seed: int) -> dict[str, np.ndarray]:
    """What training would find: arrays by `layer.weight`."""
    rng = np.random.default_rng(seed)
    return {f"{layer.name}.{weight}": rng.normal(0, 0.2, shape).astype(np.float32)
            for layer in layers for weight, shape in layer.weights.items()}


# ---- the bridge: a rule for each kind of layer --------------------------------------------------------------

Rule = Callable[[ng.Builder, Value, Layer, Mapping[str, Value]], Value]
RULES: dict[str, Rule] = {}


def rule(kind: str) -> Callable[[Rule], Rule]:
    """Registers how a kind of layer becomes ops of the IR."""

    def register(function: Rule) -> Rule:
        if kind in RULES:
            raise ValueError(f"there is a rule for {kind!r} already")
        RULES[kind] = function
        return function

    return register


@rule("conv")
def _(b: ng.Builder, x: Value, layer: Layer, weights: Mapping[str, Value]) -> Value:
    pad, stride = layer.settings["pad"], layer.settings["stride"]
    y = b.convolution(x, weights["kernel"], strides=(stride, stride), pads_begin=(pad, pad), pads_end=(pad, pad))
    return b.add(y, b.reshape(weights["bias"], shape=(*layer.weights["bias"], 1, 1)))


@rule("dense")
def _(b: ng.Builder, x: Value, layer: Layer, weights: Mapping[str, Value]) -> Value:
    return b.add(b.matmul(x, weights["kernel"], transpose_b=True), weights["bias"])


@rule("relu")
def _(b: ng.Builder, x: Value, layer: Layer, weights: Mapping[str, Value]) -> Value:
    return b.relu(x)


@rule("mean_pool")
def _(b: ng.Builder, x: Value, layer: Layer, weights: Mapping[str, Value]) -> Value:
    return b.reduce_mean(x, axes=(2, 3))


def to_graph(layers: Sequence[Layer], shape: Sequence[int]) -> ng.Graph:
    """The layers as a graph for inputs of one shape, its weights as parameters by `layer.weight`.

    Raises:
        NGraphError: no rule for a layer, or it does not fit its input; the text names the layer.
    """
    b = ng.Builder(name="net")
    x = b.parameter("x", shape)
    for layer in layers:
        if layer.kind not in RULES:
            raise ng.NGraphError(f"{layer.name}: no rule for a layer {layer.kind!r}; there are {', '.join(RULES)}")
        b.origin = f"own:{layer.name} {layer.kind}"
        weights = {name: b.weight(f"{layer.name}.{name}", size) for name, size in layer.weights.items()}
        x = RULES[layer.kind](b, x, layer, weights)
    return b.results(x)


# ---- what users call ----------------------------------------------------------------------------------------


class Net:
    """A graph with its weights; compiled when it is made, for a backend by name."""

    def __init__(self, graph: ng.Graph, weights: Mapping[str, np.ndarray], backend: str | None = None) -> None:
        self.graph, self.weights = graph, dict(weights)
        self._run = ng.compile(graph, backend, weights=self.weights)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """x: float32, of the graph's shape; the result of the last layer."""
        (result,) = self._run(x)
        return result

    def save(self, folder: Path) -> None:
        """The graph as text and the weights as arrays: whoever reads them needs no layer and no rule."""
        (folder / "net.ngraph").write_text(ng.print_graph(self.graph), encoding="utf-8")
        np.savez(folder / "weights.npz", **self.weights)

    @classmethod
    def load(cls, folder: Path, backend: str | None = None) -> Net:
        with np.load(folder / "weights.npz") as arrays:
            return cls(ng.parse_graph((folder / "net.ngraph").read_text(encoding="utf-8")), dict(arrays), backend)

    def export(self, path: Path) -> None:
        """One file for the runtime, which needs neither this package nor the framework."""
        ng.export(self.graph, path, weights=self.weights, isas=["avx2"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", default="CPU", help=f"one of {', '.join(ng.backends())}; default CPU")
    backend = parser.parse_args().backend

    layers = [conv("stem", 3, 16, stride=2), relu("stem_relu"), conv("body", 16, 32), relu("body_relu"),
              mean_pool("pool"), dense("head", 32, 10)]
    net = Net(to_graph(layers, (1, 3, 32, 32)), random_weights(layers, seed=0), backend)
    print(ng.print_graph(net.graph))
    image = np.random.default_rng(1).random((1, 3, 32, 32), np.float32)
    scores = net(image)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        net.save(folder)
        same = Net.load(folder, backend)(image).tobytes() == scores.tobytes()
        net.export(folder / "net.compiled")
        size = (folder / "net.compiled").stat().st_size
    difference = float(np.abs(scores - Net(net.graph, net.weights, "INTERPRETER")(image)).max())
    if not same or not difference < 1e-5:
        raise SystemExit(f"loaded the same: {same}; {backend} differs from the interpreter by {difference:.2g}")
    print(f"{backend}: loaded, the net gives the same bits; the interpreter differs by {difference:.2g}; "
          f"the exported file has {size} bytes")


if __name__ == "__main__":
    main()
