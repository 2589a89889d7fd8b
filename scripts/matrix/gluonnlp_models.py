"""GluonNLP's encoders and language models."""

from __future__ import annotations

from typing import Any

import numpy as np

from matrix.model import Inputs, Model, integers

_WORDS = 2000
"""Vocabulary: small, for embeddings and decoders are all alike."""

_BERTS = {"bert_12_768_12": 1, "bert_12_768_12 (batch 8)": 8, "bert_24_1024_16": 1, "distilbert_6_768_12": 1,
          "roberta_12_768_12": 1, "ernie_12_768_12": 1}
_LANGUAGE = ("standard_lstm_lm_200", "standard_lstm_lm_650", "standard_lstm_lm_1500", "awd_lstm_lm_600",
             "awd_lstm_lm_1150")
_LENGTH = 128


def genres() -> dict[str, str]:
    """The genre of each model."""
    found = dict.fromkeys((*_BERTS, "transformer_en_de_512 (encoder)"), "transformer")
    return {**found, **dict.fromkeys(_LANGUAGE, "language model"),
            "elmo_2x1024_128_2048cnn_1xhighway": "language model"}


def build(name: str) -> Model:
    if name in _BERTS:
        return _bert(name.split()[0], _BERTS[name])
    if name in _LANGUAGE:
        return _language_model(name)
    return _elmo(name) if name.startswith("elmo") else _transformer()


def _vocabulary() -> Any:
    import gluonnlp as nlp

    counter = nlp.data.count_tokens([f"w{number}" for number in range(_WORDS)])
    return nlp.Vocab(counter)


def _bert_vocabulary() -> Any:
    import gluonnlp as nlp

    return nlp.vocab.BERTVocab(nlp.data.count_tokens([f"w{number}" for number in range(_WORDS)]))


def _bert(name: str, batch: int) -> Model:
    import gluonnlp as nlp

    arguments: dict[str, Any] = {"pretrained": False, "use_decoder": False, "vocab": _bert_vocabulary()}
    if not name.startswith(("roberta", "distilbert")):
        arguments["use_classifier"] = False
    net = getattr(nlp.model, name)(dataset_name=None, **arguments)
    net = net[0] if isinstance(net, tuple) else net
    lengths = np.array([_LENGTH - 9 * item for item in range(batch)], np.float32)
    inputs: Inputs = {"tokens": integers(_WORDS, batch, _LENGTH)}
    if not name.startswith(("roberta", "distilbert")):
        inputs["segments"] = integers(2, batch, _LENGTH, seed=1)
    return Model(net, {**inputs, "valid_length": lengths})


def _language_model(name: str) -> Model:
    import gluonnlp as nlp

    net, _ = getattr(nlp.model, name)(dataset_name=None, vocab=_vocabulary(), pretrained=False)
    if name.startswith("standard"):
        net._dropout = 0  # it calls nd.Dropout, which refuses symbols and does nothing at inference
    length, batch = 35, 8
    states = net.begin_state(batch_size=batch, func=lambda shape, **_: np.zeros(shape, np.float32))
    flat = [state for layer in states for state in (layer if isinstance(layer, list) else [layer])]
    names = [f"state{number}" for number in range(len(flat))]
    inputs = {"tokens": integers(_WORDS, length, batch), **dict(zip(names, flat, strict=True))}
    nested = isinstance(states[0], list)

    def call(tokens: Any, *given: Any) -> Any:
        rest = list(given)
        return net(tokens, [[rest.pop(0) for _ in layer] for layer in states] if nested else rest)

    return Model(net, inputs, call=call)


def _elmo(name: str) -> Model:
    import gluonnlp as nlp

    net, _ = getattr(nlp.model, name)(dataset_name="gbw", pretrained=False)
    length, batch, characters = 20, 2, 50
    states = net.begin_state(func=lambda shape, **_: np.zeros(shape, np.float32), batch_size=batch)
    flat = [state for direction in states for layer in direction for state in layer]
    inputs = {
        "characters": integers(261, batch, length, characters),
        **{f"state{number}": state for number, state in enumerate(flat)},
    }

    def call(tokens: Any, *given: Any) -> Any:  # with a mask it multiplies unlike shapes, which symbols refuse
        rest = list(given)
        nested = [[[rest.pop(0) for _ in layer] for layer in direction] for direction in states]
        return net(tokens, nested, None)

    return Model(net, inputs, call=call)


def _transformer() -> Model:
    import gluonnlp as nlp

    encoder, _, _ = nlp.model.transformer.get_transformer_encoder_decoder(
        num_layers=6, units=512, hidden_size=2048, num_heads=8, max_src_length=_LENGTH, max_tgt_length=_LENGTH)
    lengths = np.array([_LENGTH, 100.0], np.float32)
    source = np.random.default_rng(0).standard_normal((2, _LENGTH, 512)).astype(np.float32)
    return Model(encoder, {"source": source, "valid_length": lengths},
                 call=lambda source, length: encoder(source, None, length))
