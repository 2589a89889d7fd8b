"""What is trained: the models by name, their batches and optimizers. No framework is imported here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from peers.spec import SpecError

BATCHES = 8
"""As many different batches come in turn."""


@dataclass(frozen=True)
class Training:
    """One row of the table: `inputs` the shape of one batch's data, `classes` of each label, of which there is one for
    each of the first `labelled` axes."""

    inputs: tuple[int, ...]
    classes: int
    optimizer: str
    rate: float
    labelled: int = 1
    words: int = 0
    """Data are numbers of so many words; 0: they are real numbers."""

    @property
    def samples(self) -> int:
        """In a batch; its axis is the last of the labels'."""
        return self.inputs[self.labelled - 1]

    @property
    def momentum(self) -> float:
        """Of SGD."""
        return 0.9

    def batches(self, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Data and labels of all batches, stacked, float32."""
        rng = np.random.default_rng(seed)
        shape = (BATCHES, *self.inputs)
        data = rng.integers(0, self.words, shape) if self.words else rng.standard_normal(shape, np.float32)
        labels = rng.integers(0, self.classes, shape[:1 + self.labelled])
        return data.astype(np.float32), labels.astype(np.float32)


TRAININGS = {
    "resnet50_v2": Training((16, 3, 224, 224), 1000, "sgd", 1e-3),
    "mobilenetv2_1.0": Training((16, 3, 224, 224), 1000, "sgd", 1e-3),
    "lstm_lm": Training((35, 32), 10_000, "sgd", 0.1, labelled=2, words=10_000),
    "mlp": Training((64, 784), 10, "sgd", 0.01),
    "bert12_128": Training((8, 128), 2, "adam", 1e-5, words=30_522),
    "vgg16": Training((8, 3, 224, 224), 1000, "sgd", 1e-4),
}


def parse_models(text: str) -> list[str]:
    """Read a comma-separated list of models, each once; `all` stands for all.

    Raises:
        SpecError: there is no model of that name, or none at all.
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name != "all" and name not in TRAININGS:
            raise SpecError(f"found model {name!r}, expected all, or any of {', '.join(TRAININGS)}")
    if not names:
        raise SpecError("found no model, expected at least one")
    chosen: Iterable[str] = TRAININGS if "all" in names else names
    return list(dict.fromkeys(chosen))
