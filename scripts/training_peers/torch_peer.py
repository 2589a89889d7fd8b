"""PyTorch as a peer: `torch.compile` of the forward pass and loss, its optimizer as it comes. In bf16 by autocast, with
images and filters in channels-last memory, as its documentation advises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from training_peers.nets import scores
from training_peers.spec import Training

#: The weights of an LSTM's layer: to the gates from inputs and states, then both biases; the same in MXNet.
_OF_A_LAYER = 4


class TorchOps:
    """Layers on weights that are handed out in turn; moving statistics are `states`, made in the first pass."""

    def __init__(self, weights: list[torch.Tensor]) -> None:
        self.weights, self.states = weights, list[torch.Tensor]()
        self.lstms: list[torch.nn.LSTM] = []

    def begin(self) -> TorchOps:
        self.turn: Iterator[torch.Tensor] = iter(self.weights)
        self.place = 0
        return self

    def weight(self) -> torch.Tensor:
        return next(self.turn)

    def image(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def conv(self, x: torch.Tensor, stride: int = 1, pad: int = 0, groups: int = 1, bias: bool = False) -> torch.Tensor:
        return functional.conv2d(x, self.weight(), self.weight() if bias else None, stride, pad, groups=groups)

    def batch_norm(self, x: torch.Tensor, affine: bool = True) -> torch.Tensor:
        if self.place == len(self.states):
            self.states += [torch.zeros(x.shape[1]), torch.ones(x.shape[1])]
        mean, variance = self.states[self.place:self.place + 2]
        self.place += 2
        gamma, beta = (self.weight(), self.weight()) if affine else (None, None)
        return functional.batch_norm(x, mean, variance, gamma, beta, training=True, momentum=0.1, eps=1e-5)

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(x)

    def relu6(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu6(x)

    def max_pool(self, x: torch.Tensor, size: int, stride: int, pad: int = 0) -> torch.Tensor:
        return functional.max_pool2d(x, size, stride, pad)

    def mean_pool(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3), keepdim=True)

    def flat(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)

    def dense(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x.flatten(1) if x.dim() == 4 else x, self.weight(), self.weight())

    def embedding(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return functional.embedding(x.long(), table)

    def lstm(self, x: torch.Tensor, layers: int) -> torch.Tensor:
        weights = [self.weight() for _ in range(_OF_A_LAYER * layers)]
        zeros = x.new_zeros(layers, x.shape[1], weights[1].shape[1])
        return torch.lstm(x, (zeros, zeros), weights, True, layers, 0.0, True, False, False)[0]

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x)

    def layer_norm(self, x: torch.Tensor, epsilon: float) -> torch.Tensor:
        return functional.layer_norm(x, x.shape[-1:], self.weight(), self.weight(), epsilon)

    def attention(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        batch, length, _ = x.shape
        query, key, value = x.view(batch, length, heads, 3, -1).permute(3, 0, 2, 1, 4)
        return functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(batch, length, -1)


class Torch:
    """See `training_peers.worker`."""

    def __init__(self, threads: int, *, bf16: bool = False) -> None:
        torch.set_num_threads(threads)
        self.bf16 = bf16

    def load(self, name: str, training: Training, weights: list[np.ndarray]) -> None:
        self.name, self.training = name, training
        self.weights = [self.arranged(torch.from_numpy(weight.copy())).requires_grad_() for weight in weights]
        self.ops = TorchOps(self.weights)

    def arranged(self, array: torch.Tensor) -> torch.Tensor:
        return array.to(memory_format=torch.channels_last) if self.bf16 and array.dim() == 4 else array

    def native(self, data: np.ndarray, labels: np.ndarray) -> Any:
        return self.arranged(torch.from_numpy(data)), torch.from_numpy(labels).long()

    def compile(self) -> None:
        def loss(data: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
                found = scores(self.name, self.ops.begin(), data).float()
            return functional.cross_entropy(found.reshape(-1, self.training.classes), labels.reshape(-1))

        self.loss = torch.compile(loss)
        with torch.no_grad():  # makes the moving statistics
            shape = (1, *self.training.inputs[1:])
            scores(self.name, self.ops.begin(), torch.zeros(shape))
        if self.training.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(self.weights, self.training.rate, self.training.momentum)
        else:
            self.optimizer = torch.optim.Adam(self.weights, self.training.rate)

    def step(self, batch: Any) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss(*batch)
        loss.backward()
        self.optimizer.step()
        return loss

    def loss_of(self, result: Any) -> float:
        return float(result)

    def gradients(self, batch: Any) -> list[np.ndarray]:
        self.optimizer.zero_grad()
        self.loss(*batch).backward()
        return [weight.grad.numpy() for weight in self.weights]

    def detail(self) -> str:
        return "torch.compile" + ", autocast" * self.bf16
