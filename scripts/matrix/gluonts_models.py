"""GluonTS' forecasters: the network that is trained, here run for inference, and the one that predicts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from matrix.model import Model

_ESTIMATORS = ("SimpleFeedForward", "DeepAR", "Transformer", "MQCNN", "NBEATS", "LSTNet", "WaveNet")
_PREDICTION, _BATCH, _SERIES = 12, 8, 3


def genres() -> dict[str, str]:
    """The genre of each network."""
    return {f"{name} ({part})": "forecasting" for name in _ESTIMATORS for part in ("training", "prediction")}


def build(name: str) -> Model:
    from gluonts.mx.trainer import Trainer

    kind, part = name.split()
    estimator = _estimator(kind, Trainer(epochs=1, num_batches_per_epoch=1, hybridize=False))
    transformation = estimator.create_transformation()
    series = _series(vectors=kind == "LSTNet")
    net = estimator.create_training_network()
    batch = next(iter(estimator.create_training_data_loader(transformation.apply(series, is_train=True))))
    names = list(_names(net))
    if part == "(prediction)":
        net.initialize()
        net(*(batch[name] for name in names))  # parameters get their shapes by a first call
        batch, net, names = _prediction(estimator, transformation, net, series)
    inputs = {name: batch[name].asnumpy() for name in names}
    return Model(net, inputs, "samples" if part == "(prediction)" else "values")


def _estimator(kind: str, trainer: Any) -> Any:
    common = {"prediction_length": _PREDICTION, "trainer": trainer, "batch_size": _BATCH}
    if kind == "LSTNet":
        from gluonts.mx import LSTNetEstimator

        return LSTNetEstimator(**common, context_length=48, num_series=_SERIES, skip_size=4, ar_window=4, channels=16)
    import gluonts.mx as models

    maker = getattr(models, f"{kind}Estimator")
    return maker(**common, **({} if kind == "SimpleFeedForward" else {"freq": "H"}))


def _series(vectors: bool) -> Any:
    """Two months of hours; `vectors`: of _SERIES values each."""
    from gluonts.dataset.common import ListDataset

    hours = np.arange(24 * 60)
    if vectors:
        hours = np.stack([hours + item for item in range(_SERIES)])
    rows = [{"start": "2020-01-01 00:00:00", "target": 10 + item + np.sin(hours / 24 * 2 * np.pi + item)}
            for item in range(_BATCH)]
    return ListDataset(rows, freq="H", one_dim_target=not vectors)


def _names(net: Any) -> list[str]:
    from gluonts.mx.util import get_hybrid_forward_input_names

    return list(get_hybrid_forward_input_names(type(net)))


def _prediction(estimator: Any, transformation: Any, trained: Any, series: Any) -> tuple[Any, Any, list[str]]:
    from gluonts.dataset.loader import InferenceDataLoader
    from gluonts.mx.batchify import batchify

    predictor = estimator.create_predictor(transformation, trained)
    loader = InferenceDataLoader(series, transform=predictor.input_transform, batch_size=_BATCH,
                                 stack_fn=partial(batchify, ctx=predictor.ctx, dtype=np.float32))
    return next(iter(loader)), predictor.prediction_net, list(predictor.input_names)
