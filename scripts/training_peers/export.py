"""Write a model's first weights and its batches, for all peers.

    python -m training_peers.export MODEL FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import ngraph_mxnet_autoload  # noqa: F401  # mxnet imports on current NumPy
from training_peers.mxnet_peer import draw_weights
from training_peers.spec import TRAININGS


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    weights = draw_weights(name)
    np.savez(folder / f"{name}-weights.npz", *weights)
    data, labels = TRAININGS[name].batches()
    np.savez(folder / f"{name}-batches.npz", data=data, labels=labels)


if __name__ == "__main__":
    main()
