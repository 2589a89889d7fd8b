"""What is trained: the models by name, their batches and optimizers. No framework is imported here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from peers.spec import SpecError

from training_peers.idioms import IDIOMS

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
    target: tuple[int, ...] = ()
    """The shape of what a batch's results should be, by squares; (): they are scores of classes."""

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
        if self.target:
            return data.astype(np.float32), rng.random((BATCHES, *self.target), np.float32)
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


def _numbers(data: tuple[int, ...], target: tuple[int, ...], words: int = 0) -> Training:
    return Training(data, 0, "adam", 1e-4, words=words, target=target)


def _classes(data: tuple[int, ...], classes: int, words: int = 0, labelled: int = 1) -> Training:
    return Training(data, classes, "adam", 1e-4, words=words, labelled=labelled)


NETS = {
    "unet": _numbers((4, 3, 128, 128), (4, 3, 128, 128)),
    "generator_64": _numbers((16, 64, 1, 1), (16, 3, 32, 32)),
    "generator_100": _numbers((32, 100, 1, 1), (32, 3, 32, 32)),
    "discriminator": _classes((32, 3, 32, 32), 2),
    "textcnn": _classes((50, 60), 2, words=5000),
    "deepar": _numbers((60, 32, 8), (60, 32, 2)),
    "gru": _classes((40, 32, 32), 10, labelled=2),
    "lstm_words": _classes((35, 16), 2000, words=2000, labelled=2),
    "bilstm_tagger": _classes((30, 16), 9, words=3000, labelled=2),
    "transformer": _classes((8, 64), 10, words=1000),
    "vit": _classes((8, 3, 64, 64), 10),
    "conv3d": _classes((2, 3, 8, 56, 56), 10),
    "vnet": _numbers((2, 1, 16, 32, 32), (2, 2, 16, 32, 32)),
    "ssd_heads": _numbers((8, 3, 96, 96), (8, 76500)),
    "face": _classes((16, 3, 56, 56), 512),
    "autoencoder": _numbers((64, 784), (64, 784)),
    "factorisation": _numbers((256, 20), (256, 1), words=5000),
    "wide_and_deep": _classes((128, 16), 2, words=5000),
    "resnet_cifar": _classes((32, 3, 32, 32), 10),
    "resnext": _classes((16, 3, 64, 64), 10),
    "squeeze_excite": _classes((16, 3, 64, 64), 10),
    "lenet": _classes((64, 1, 28, 28), 10),
    "tcn": _numbers((16, 8, 256), (16, 1, 256)),
    "style": _numbers((4, 3, 64, 64), (4, 3, 64, 64)),
    "mobilenetv2_0.5": _classes((8, 3, 96, 96), 1000),
}
"""Small nets (`blocks.py`), which MXNet's peers alone have."""


def parts_of(name: str) -> tuple[str, str]:
    """The model's or net's own name, and the idiom of the script: `mlp:mean` is `mlp` and `mean`."""
    model, _, idiom = name.partition(":")
    return model, idiom or "plain"


def training_of(name: str) -> Training:
    """Of a model or net, with an idiom or without."""
    model, _ = parts_of(name)
    return TRAININGS[model] if model in TRAININGS else NETS[model]


def parse_models(text: str) -> list[str]:
    """Read a comma-separated list of models, each once. `all` stands for all models, `nets` for all small nets, and
    `mlp:idioms` for the rows of one net, the plain one first.

    Raises:
        SpecError: there is no model or idiom of that name, or none at all.
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    groups: dict[str, Iterable[str]] = {"all": TRAININGS, "nets": NETS}
    found: dict[str, None] = {}
    for name in names:
        model, idiom = parts_of(name)
        if (model not in groups or ":" in name) and model not in TRAININGS and model not in NETS:
            raise SpecError(f"found model {name!r}, expected all, nets, or any of {', '.join((*TRAININGS, *NETS))}")
        if idiom != "idioms" and idiom not in IDIOMS:
            raise SpecError(f"found idiom {idiom!r} in {name!r}, expected idioms or any of {', '.join(IDIOMS)}")
        rows = [f"{model}:{each}" for each in IDIOMS] if idiom == "idioms" else groups.get(name, (name,))
        found.update(dict.fromkeys(rows))
    if not found:
        raise SpecError("found no model, expected at least one")
    return list(found)
