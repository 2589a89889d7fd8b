"""ONNX operators that few models have. Those of texts are none here: the importer takes no texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from fuzzing.values.closeness import EXACT, Closeness
from fuzzing.values.drawing import chance, integer, pick
from fuzzing.values.nets import CONTRIB, Net, Value, normal, whole
from fuzzing.values.operators import SUMS, Drawn, elements, operators

_ANY = Closeness(share=1.0)
"""Types and shapes alone: the numbers are random."""
_F32 = np.dtype(np.float32)
_LEARNED = "ai.onnx.ml"


@operators("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial",
           weight=1)
def random(net: Net, op: str) -> Drawn:
    x = net.input((2, pick(net.draw, 3, 16)), elements(np.float32, low=0.1, high=0.9))
    if op.endswith("Like") or op == "Bernoulli":
        return [net.node(op, x)], _ANY
    if op == "Multinomial":
        return [net.node(op, x, sample_size=integer(net.draw, 1, 5))], _ANY
    return [net.node("Add", net.node(op, shape=list(x.shape)), x)], _ANY


@operators("TfIdfVectorizer", weight=1)
def tf_idf(net: Net, op: str) -> Drawn:
    x = net.input((2, integer(net.draw, 1, 9)), whole(0, 3, np.int64))
    return [net.node(op, x, like=[Value("", (2, 5), _F32)], min_gram_length=1, max_gram_length=2,
                     max_skip_count=integer(net.draw, 0, 3), mode=pick(net.draw, "TF", "IDF", "TFIDF"),
                     ngram_counts=[0, 3], ngram_indexes=[0, 1, 2, 4, 3], pool_int64s=[0, 1, 2, 0, 1, 2, 3],
                     weights=[1.0, 0.5, 2.0, 3.0, 0.25])], SUMS


@operators(f"{_LEARNED}:Binarizer", f"{_LEARNED}:ArrayFeatureExtractor", weight=1)
def learned(net: Net, op: str) -> Drawn:
    x, name = net.input((3, 5)), op.partition(":")[2]
    if name == "Binarizer":
        return [net.node(name, x, domain=_LEARNED, like=[x], threshold=pick(net.draw, 0.0, 0.5))], EXACT
    places = net.constant([0, pick(net.draw, 2, 4)], np.int64)
    return [net.node(name, x, places, domain=_LEARNED, like=[Value("", (3, 2), _F32)])], EXACT


@operators("Scatter", weight=1)
def scatter(net: Net, op: str) -> Drawn:
    x = net.input((4, 5))
    places = net.input((2, 5), lambda rng, shape: np.argsort(rng.random((4, 5)), axis=0)[:shape[0], :shape[1]].astype(
        np.int64))
    return [net.node(op, x, places, net.input((2, 5)), axis=0)], EXACT


@operators("BitCast", weight=1)
def bit_cast(net: Net, op: str) -> Drawn:
    x = net.input((3, 5))
    kind = pick(net.draw, np.int32, np.uint32)
    return [net.node(op, x, to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)),
                     like=[Value("", x.shape, np.dtype(kind))])], EXACT


@operators("Constant", weight=1)
def constant(net: Net, op: str) -> Drawn:
    value = pick(net.draw, {"value_float": 1.5}, {"value_floats": [1.0, 2.0]}, {"value": helper.make_tensor(
        "t", helper.np_dtype_to_tensor_dtype(_F32), [2], [3.0, 4.0])})
    return [net.node("Add", net.node(op, **value), net.input((3, 2)))], EXACT


@operators("SimplifiedLayerNormalization", weight=1)
def simplified(net: Net, op: str) -> Drawn:
    x = net.input((2, pick(net.draw, 8, 17)))
    return [net.node(op, x, net.weight(x.shape[1:], normal), like=[x], epsilon=1e-3, axis=-1)], Closeness(2e-3, 2e-3)


@operators("com.microsoft:QuantizeLinear", "com.microsoft:DequantizeLinear", weight=1)
def contrib_linear(net: Net, op: str) -> Drawn:
    shape, name = (2, pick(net.draw, 3, 16), 4), op.partition(":")[2]
    kind = pick(net.draw, np.uint8, np.int8)
    scale, zero = net.constant(np.float32(0.25)), net.constant(np.array(pick(net.draw, 0, 5), kind))
    x = net.input(shape, elements(kind, low=-99, high=99) if name.startswith("De") else normal)
    like = [Value("", shape, _F32 if name.startswith("De") else np.dtype(kind))]
    return [net.node(name, x, scale, zero, domain=CONTRIB, like=like)], Closeness(steps=1)


@operators("com.microsoft:EmbedLayerNormalization", weight=1)
def embedding(net: Net, op: str) -> Drawn:
    width, length = pick(net.draw, 8, 16), pick(net.draw, 1, 5)
    words, segments = net.input((2, length), whole(0, 9, np.int32)), net.input((2, length), whole(0, 1, np.int32))
    tables: list[Any] = [net.weight((count, width), normal) for count in (10, 8, 2)]
    vectors = [net.weight((width,), normal) for _ in range(2)]
    mask = [net.input((2, length), whole(0, 1, np.int32))] if chance(net.draw) else []
    like = [Value("", (2, length, width), _F32), Value("", (2,), np.dtype(np.int32))]
    values = net.several(op.partition(":")[2], words, segments, *tables, *vectors, *mask, outputs=2, domain=CONTRIB,
                         like=like, epsilon=1e-3)
    return values, Closeness(2e-3, 2e-3)
