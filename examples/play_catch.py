#!/usr/bin/env python3
"""Learn to catch balls, by double Q-learning with a target net and replay (DQN).

A ball falls through a room and bounces off its walls; a paddle below may go left, stay or go right. The agent sees the
last two frames. It imports nothing of ngraph_mxnet: with MXNET_SUBGRAPH_BACKEND=NGRAPH its decisions and its steps of
learning are compiled. It prints the share of balls caught before and after, and how long one decision takes.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn
from timed import median_ms

ROWS, COLUMNS, ACTIONS = 10, 7, 3
DISCOUNT = 0.97

Array = np.ndarray[Any, Any]


class Games:
    """Several games at once, each of ROWS - 1 steps."""

    def __init__(self, count: int, random: np.random.Generator) -> None:
        self.ball = random.integers(0, COLUMNS, count)
        self.drift = random.integers(-1, 2, count)
        self.paddle = random.integers(0, COLUMNS, count)
        self.row = 0
        self.frames = np.zeros((count, 2, ROWS, COLUMNS), np.float32)
        self._draw()

    def _draw(self) -> None:
        self.frames[:, 0] = self.frames[:, 1]
        self.frames[:, 1] = 0
        games = np.arange(len(self.ball))
        self.frames[games, 1, self.row, self.ball] = 1
        self.frames[games, 1, ROWS - 1, self.paddle] = 1

    def step(self, actions: Array) -> Array:
        """Rewards: 1 for a ball that is caught, -1 for one that is not, 0 until it is down."""
        self.frames = self.frames.copy()
        self.paddle = np.clip(self.paddle + actions - 1, 0, COLUMNS - 1)
        beyond = (self.ball + self.drift < 0) | (self.ball + self.drift >= COLUMNS)
        self.drift = np.where(beyond, -self.drift, self.drift)
        self.ball = self.ball + self.drift
        self.row += 1
        self._draw()
        return np.where(self.ball == self.paddle, 1, -1) if self.is_over else np.zeros(len(self.ball), int)

    @property
    def is_over(self) -> bool:
        return self.row == ROWS - 1


class Replay:
    """The last transitions: frames, action, reward, frames afterwards, whether the game went on."""

    def __init__(self, size: int) -> None:
        frames = (size, 2, ROWS, COLUMNS)
        self._columns = [np.zeros(frames, np.float32), np.zeros(size), np.zeros(size), np.zeros(frames, np.float32),
                         np.zeros(size)]
        self._size, self._added = size, 0

    def add(self, *columns: Any) -> None:
        count = len(columns[0])
        places = np.arange(self._added, self._added + count) % self._size
        for column, new in zip(self._columns, columns, strict=True):
            column[places] = new
        self._added += count

    def some(self, count: int, random: np.random.Generator) -> list[mx.nd.NDArray]:
        rows = random.integers(0, min(self._added, self._size), count)
        return [mx.nd.array(column[rows]) for column in self._columns]


def network() -> nn.HybridSequential:
    """Of frames, what each action is worth."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, padding=1, activation="relu"), nn.Conv2D(16, 3, strides=2, activation="relu"),
            nn.Flatten(), nn.Dense(64, activation="relu"), nn.Dense(ACTIONS))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(mx.nd.zeros((1, 2, ROWS, COLUMNS)))
    return net


def decide(net: nn.HybridSequential, frames: Array) -> Array:
    actions: Array = net(mx.nd.array(frames)).asnumpy().argmax(axis=1)
    return actions


def caught(net: nn.HybridSequential, count: int, seed: int) -> float:
    """The share of balls."""
    games = Games(count, np.random.default_rng(seed))
    while not games.is_over:
        rewards = games.step(decide(net, games.frames))
    return float((rewards > 0).mean())


def copy(net: nn.HybridSequential, into: nn.HybridSequential) -> None:
    for ours, theirs in zip(net.collect_params().values(), into.collect_params().values(), strict=True):
        theirs.set_data(ours.data())


def learn(net: nn.HybridSequential, rounds: int, seed: int, at_once: int = 32, batch: int = 128) -> None:
    """In each round games are played to their end, with a step of learning beside each of theirs; every tenth round the
    loss is printed."""
    random, replay, target = np.random.default_rng(seed), Replay(20000), network()
    copy(net, target)
    loss, start = gluon.loss.HuberLoss(), time.perf_counter()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 2e-3})
    for number in range(rounds):
        games, losses, daring = Games(at_once, random), [], max(0.05, 1 - 2 * number / rounds)
        while not games.is_over:
            before = games.frames
            actions = np.where(random.random(at_once) < daring, random.integers(0, ACTIONS, at_once),
                               decide(net, before))
            rewards = games.step(actions)
            replay.add(before, actions, rewards, games.frames, np.full(at_once, not games.is_over))
            frames, done, gained, after, goes_on = replay.some(batch, random)
            best = net(after).argmax(axis=1)
            wanted = gained + DISCOUNT * goes_on * target(after).pick(best)
            with autograd.record():
                value = loss(net(frames).pick(done), wanted)
            value.backward()
            trainer.step(batch)
            losses.append(value.mean().asscalar())
        if number % 10 == 9:
            copy(net, target)
            print(f"round {number + 1:>3}: loss {np.mean(losses):.4f}, {time.perf_counter() - start:.2f} s", flush=True)
            start = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn to catch balls by deep Q-learning.")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--games", type=int, default=2000, help="that are played before and after")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the games")
    options = parser.parse_args()

    mx.random.seed(options.seed)
    np.random.seed(options.seed)  # MXNet's initialisers draw from both
    net = network()
    backend = os.environ.get("MXNET_SUBGRAPH_BACKEND") or "none"
    print(f"backend {backend}; caught before: {caught(net, options.games, options.seed + 1):.4f}")
    learn(net, options.rounds, options.seed)
    frames = Games(1, np.random.default_rng(options.seed)).frames
    print(f"one decision: {median_ms(lambda: decide(net, frames)):.4f} ms")
    print(f"caught: {caught(net, options.games, options.seed + 1):.4f}")


if __name__ == "__main__":
    main()
