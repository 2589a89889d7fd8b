"""Write a model's first weights and its batches, for all peers, and what MXNet makes of weights that are nudged.

    python -m training_peers.export MODEL FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import ngraph_mxnet_autoload  # noqa: F401  # mxnet imports on current NumPy
from training_peers.mxnet_peer import Gluon, draw_weights
from training_peers.spec import training_of
from training_peers.worker import first_results

NUDGE = 1e-6
"""Each weight is moved by so much of itself, up or down, to see what a net makes of roundings."""


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    weights = draw_weights(name)
    np.savez(folder / f"{name}-weights.npz", *weights)
    data, labels = training_of(name).batches()
    np.savez(folder / f"{name}-batches.npz", data=data, labels=labels)
    rng = np.random.default_rng(0)
    nudged = [weight * (1 + rng.choice(np.array([-NUDGE, NUDGE], np.float32), weight.shape)) for weight in weights]
    adapter = Gluon("none")
    adapter.load(name, training_of(name), nudged)
    batches = [adapter.native(*pair) for pair in zip(data, labels, strict=True)]
    adapter.compile()
    losses = [adapter.loss_of(adapter.step(batches[0]))]
    np.save(folder / f"{name}-nudged.npy", first_results(adapter, losses, batches))


if __name__ == "__main__":
    main()
