"""The encoder of BERT base out of MXNet's own operators, as GluonNLP writes it: 12 layers, 768 units, 12 heads.

Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers, 2018. Tokens and positions, no segments and no
mask; the result is the last layer's output.
"""

from __future__ import annotations

import ngraph_mxnet  # noqa: F401  # isort: skip  # mxnet 1.9.1 then imports on current NumPy
import mxnet as mx
from mxnet.gluon import HybridBlock, nn

LAYERS, UNITS, HEADS, HIDDEN, VOCABULARY = 12, 768, 12, 3072, 30522
EPSILON = 1e-12


class Layer(HybridBlock):  # type: ignore[misc]
    """[length, batch, units] -> the same: attention to all, then two dense layers; each with a residual."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.projection = nn.Dense(3 * UNITS, flatten=False, in_units=UNITS)
            self.attended = nn.Dense(UNITS, flatten=False, in_units=UNITS)
            self.first_norm = nn.LayerNorm(epsilon=EPSILON, in_channels=UNITS)
            self.hidden = nn.Dense(HIDDEN, flatten=False, in_units=UNITS)
            self.gelu = nn.GELU()
            self.output = nn.Dense(UNITS, flatten=False, in_units=HIDDEN)
            self.second_norm = nn.LayerNorm(epsilon=EPSILON, in_channels=UNITS)

    def hybrid_forward(self, F, x):  # type: ignore[no-untyped-def]  # noqa: N803
        projection = self.projection(x)
        weights = F.softmax(F.contrib.interleaved_matmul_selfatt_qk(projection, heads=HEADS), axis=-1)
        context = F.contrib.interleaved_matmul_selfatt_valatt(projection, weights, heads=HEADS)
        x = self.first_norm(x + self.attended(context))
        return self.second_norm(x + self.output(self.gelu(self.hidden(x))))


class Encoder(HybridBlock):  # type: ignore[misc]
    """Tokens [batch, length] as float32 -> [length, batch, units]."""

    def __init__(self, length: int) -> None:
        super().__init__()
        with self.name_scope():
            self.words = nn.Embedding(VOCABULARY, UNITS)
            self.positions = self.params.get("positions", shape=(1, length, UNITS))
            self.norm = nn.LayerNorm(epsilon=EPSILON, in_channels=UNITS)
            self.layers = nn.HybridSequential()
            for _ in range(LAYERS):
                self.layers.add(Layer())

    def hybrid_forward(self, F, tokens, positions):  # type: ignore[no-untyped-def]  # noqa: N803
        x = F.broadcast_add(self.words(tokens), positions)
        return self.layers(self.norm(F.transpose(x, axes=(1, 0, 2))))


def network(length: int) -> Encoder:
    """The hybridized encoder with drawn weights, those of BERT's own initialisation."""
    net = Encoder(length)
    net.initialize(mx.init.Normal(0.02))
    net.hybridize()
    return net
