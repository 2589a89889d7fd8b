"""Gluon's own vision zoo."""

from __future__ import annotations

from peers.spec import ZOO

from matrix.model import Model, noise


def genres() -> dict[str, str]:
    """The genre of each model."""
    return dict.fromkeys(ZOO, "Gluon zoo")


def build(name: str) -> Model:
    import mxnet as mx

    size = 299 if name.startswith("inception") else 224
    return Model(mx.gluon.model_zoo.vision.get_model(name), {"data": noise(1, 3, size, size)})
