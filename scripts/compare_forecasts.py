#!/usr/bin/env python3
"""Compare the forecasts of GluonTS's networks that draw samples: MXNet's, a compiled model's, and ONNX Runtime's.

Needs the environment of GluonTS that scripts/model_matrix.sh makes. For each series and step the paths of two are
compared by the test of Kolmogorov and Smirnov; one distribution gives every probability as often as any other.
Exit status: 0; 1 if the least of so many probabilities comes once in a thousand times, or if a network is refused.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np
from matrix import gluonts_models
from matrix.weights import bind

import ngraph_mxnet
from ngraph_mxnet.base.errors import NGraphError

NETWORKS = ("SimpleFeedForward", "DeepAR", "Transformer", "WaveNet")
_LEAST = 1e-3


def probability(found: np.ndarray, wanted: np.ndarray) -> float:
    """The probability that samples of one distribution differ as much."""
    both = np.sort(np.concatenate([found, wanted]))
    shares = [np.searchsorted(np.sort(one), both, side="right") / len(one) for one in (found, wanted)]
    distance = np.abs(shares[0] - shares[1]).max() * np.sqrt(len(found) * len(wanted) / len(both))
    terms = np.arange(1, 101)
    series = 2 * np.sum((-1.0) ** (terms - 1) * np.exp(-2 * (terms * distance) ** 2))
    return float(series) if distance > 0.3 else 1.0  # which it is up to 1e-5


def forecasts(name: str, paths: int) -> dict[str, np.ndarray]:
    """Samples [series, path, step] of a network, by what drew them."""
    import onnxruntime

    model = gluonts_models.build(f"{name} (prediction)")
    symbol = model.trace()
    native = bind(symbol, model, "NONE")
    arrays = {key: array.asnumpy() for key, array in {**native.arg_dict, **native.aux_dict}.items()}
    inputs = {key: arrays.pop(key) for key in model.inputs if key in arrays}
    shapes = {key: array.shape for key, array in inputs.items()}
    compiled = ngraph_mxnet.compile(symbol, params=arrays, shapes=shapes)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        ngraph_mxnet.to_onnx(symbol, file, params=arrays, shapes=shapes)
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])

    def drawn(call: Any) -> np.ndarray:
        found = [call()]
        while sum(one.shape[1] for one in found) < paths:
            found.append(call())
        return np.concatenate(found, axis=1)[:, :paths]

    return {"MXNet": drawn(lambda: native.forward()[0].asnumpy()), "compiled": drawn(lambda: compiled(**inputs)[0]),
            "ONNX Runtime": drawn(lambda: session.run(None, inputs)[0])}


@click.command()
@click.option("--paths", default=2000, show_default=True, help="How many forecasts of each series.")
@click.option("--network", "names", type=click.Choice(NETWORKS), multiple=True, help="Of these alone.")
def main(paths: int, names: tuple[str, ...]) -> None:
    """Print the differences of quantiles, in MXNet's standard deviations, and the least probabilities."""
    wrong = 0
    for name in names or NETWORKS:
        try:
            found = forecasts(name, paths)
        except NGraphError as error:
            print(f"{name}: {error}")
            wrong += 1
            continue
        native = found.pop("MXNet")
        for what, ours in found.items():
            pairs = [(ours[series, :, step], native[series, :, step])
                     for series in range(ours.shape[0]) for step in range(ours.shape[2])]
            least = min(probability(*pair) for pair in pairs)
            quantiles = (max(abs(float(np.quantile(a, q) - np.quantile(b, q))) / (float(b.std()) or 1.0)
                             for a, b in pairs) for q in (0.1, 0.5, 0.9))
            told = ", ".join(f"{difference:.3f}" for difference in quantiles)
            print(f"{name}, {what}: quantiles 10, 50, 90 % differ by at most {told}; the least of {len(pairs)} "
                  f"probabilities is {least:.1e}")
            wrong += 1 - (1 - least) ** len(pairs) < _LEAST
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
