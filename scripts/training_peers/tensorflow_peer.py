"""TensorFlow as a peer: one `tf.function` of the whole step, with Keras' optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from training_peers.nets import scores
from training_peers.spec import Training

_KERNEL, _DEPTHWISE = (2, 3, 1, 0), (2, 3, 0, 1)
"""From MXNet's axes of a convolution's weights to TensorFlow's."""


class Variable:
    """A weight in TensorFlow's layout, with the way from MXNet's and back."""

    def __init__(self, value: np.ndarray) -> None:
        self.value, self.variable = value, None
        self.axes: tuple[int, ...] = ()

    def __call__(self, axes: tuple[int, ...] | None = None) -> Any:
        if self.variable is None:
            self.axes = axes or tuple(range(self.value.ndim))
            self.variable = tf.Variable(self.value.transpose(self.axes))
        return self.variable

    def back(self, gradient: Any) -> np.ndarray:
        found = tf.convert_to_tensor(gradient).numpy()  # of an embedding it is sparse
        return found.transpose(np.argsort(self.axes))


class TensorFlowOps:
    """Layers on weights that are handed out in turn; images are NHWC inside."""

    def __init__(self, weights: list[np.ndarray]) -> None:
        self.weights = [Variable(weight) for weight in weights]
        self.states: list[tf.Variable] = []

    def begin(self) -> TensorFlowOps:
        self.turn: Iterator[Variable] = iter(self.weights)
        self.place = 0
        return self

    def weight(self, axes: tuple[int, ...] | None = None) -> Any:
        return next(self.turn)(axes)

    def image(self, x: Any) -> Any:
        return tf.transpose(x, (0, 2, 3, 1))

    def conv(self, x: Any, stride: int = 1, pad: int = 0, groups: int = 1, bias: bool = False) -> Any:
        padding = [[0, 0], [pad, pad], [pad, pad], [0, 0]]
        if groups > 1:  # each channel alone
            x = tf.pad(x, padding)
            return tf.nn.depthwise_conv2d(x, self.weight(_DEPTHWISE), (1, stride, stride, 1), "VALID")
        y = tf.nn.conv2d(x, self.weight(_KERNEL), stride, padding)
        return tf.nn.bias_add(y, self.weight()) if bias else y

    def batch_norm(self, x: Any, affine: bool = True) -> Any:
        channels = x.shape[-1]
        if self.place == len(self.states):
            with tf.init_scope():
                self.states += [tf.Variable(tf.zeros(channels)), tf.Variable(tf.ones(channels))]
        moving = self.states[self.place:self.place + 2]
        self.place += 2
        gamma, beta = (self.weight(), self.weight()) if affine else (tf.ones(channels), tf.zeros(channels))
        y, *batch = tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, epsilon=1e-5)
        for state, now in zip(moving, batch, strict=True):
            state.assign(0.9 * state + 0.1 * now)
        return y

    def relu(self, x: Any) -> Any:
        return tf.nn.relu(x)

    def relu6(self, x: Any) -> Any:
        return tf.nn.relu6(x)

    def max_pool(self, x: Any, size: int, stride: int, pad: int = 0) -> Any:
        x = tf.pad(x, [[0, 0], [pad, pad], [pad, pad], [0, 0]])  # of zeros, after relu
        return tf.nn.max_pool2d(x, size, stride, "VALID")

    def mean_pool(self, x: Any) -> Any:
        return tf.reduce_mean(x, (1, 2), keepdims=True)

    def flat(self, x: Any) -> Any:
        return tf.reshape(tf.transpose(x, (0, 3, 1, 2)), (x.shape[0], -1))

    def dense(self, x: Any) -> Any:
        x = self.flat(x) if len(x.shape) == 4 else x
        weight = self.weight((1, 0))
        y = tf.matmul(tf.reshape(x, (-1, x.shape[-1])), weight)
        return tf.reshape(tf.nn.bias_add(y, self.weight()), (*x.shape[:-1], weight.shape[1]))

    def embedding(self, x: Any, table: Any) -> Any:
        return tf.gather(table, tf.cast(x, tf.int32))

    def lstm(self, x: Any, layers: int) -> Any:
        """Unrolled, which is faster than Keras' loop."""
        for _ in range(layers):
            to_gates, from_state = self.weight((1, 0)), self.weight((1, 0))
            bias = self.weight() + self.weight()
            h = c = tf.zeros((x.shape[1], from_state.shape[0]))
            steps = []
            for given in tf.unstack(tf.tensordot(x, to_gates, 1) + bias):
                i, f, g, o = tf.split(given + tf.matmul(h, from_state), 4, axis=-1)
                c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
                h = tf.sigmoid(o) * tf.tanh(c)
                steps.append(h)
            x = tf.stack(steps)
        return x

    def gelu(self, x: Any) -> Any:
        return tf.nn.gelu(x)

    def layer_norm(self, x: Any, epsilon: float) -> Any:
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        gamma, beta = self.weight(), self.weight()
        return tf.nn.batch_normalization(x, mean, variance, beta, gamma, epsilon)

    def attention(self, x: Any, heads: int) -> Any:
        batch, length, width = x.shape
        size = width // (3 * heads)
        query, key, value = tf.unstack(tf.reshape(x, (batch, length, heads, 3, size)), axis=3)
        weights = tf.nn.softmax(tf.einsum("bihd,bjhd->bhij", query, key) / size ** 0.5)
        return tf.reshape(tf.einsum("bhij,bjhd->bihd", weights, value), (batch, length, heads * size))


class TensorFlow:
    """See `training_peers.worker`."""

    def __init__(self, threads: int) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)

    def load(self, name: str, training: Training, weights: list[np.ndarray]) -> None:
        self.name, self.training = name, training
        self.ops = TensorFlowOps(weights)

    def native(self, data: np.ndarray, labels: np.ndarray) -> Any:
        return tf.constant(data), tf.constant(labels, tf.int32)

    def compile(self) -> None:
        training = self.training
        scores(self.name, self.ops.begin(), tf.zeros((1, *training.inputs[1:])))  # makes the variables
        variables = [weight() for weight in self.ops.weights]
        if training.optimizer == "sgd":
            optimizer: Any = tf.keras.optimizers.SGD(training.rate, training.momentum)
        else:
            optimizer = tf.keras.optimizers.Adam(training.rate, epsilon=1e-8)
        optimizer.build(variables)

        def backward(data: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                found = tf.reshape(scores(self.name, self.ops.begin(), data), (-1, training.classes))
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.reshape(labels, (-1,)), found)
                loss = tf.reduce_mean(losses)
            return loss, tape.gradient(loss, variables)

        def step(data: Any, labels: Any) -> Any:
            loss, gradients = backward(data, labels)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return loss

        self.graph: Callable[..., Any] = tf.function(step)
        self.backward: Callable[..., Any] = tf.function(backward)

    def step(self, batch: Any) -> Any:
        return self.graph(*batch)

    def loss_of(self, result: Any) -> float:
        return float(result)

    def gradients(self, batch: Any) -> list[np.ndarray]:
        _, gradients = self.backward(*batch)
        return [weight.back(gradient) for weight, gradient in zip(self.ops.weights, gradients, strict=True)]

    def detail(self) -> str:
        return "tf.function"
