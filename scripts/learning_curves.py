#!/usr/bin/env python3
"""Trains nets in float32 and in bf16 on data that can be learnt, from the same weights and batches.

    python scripts/learning_curves.py [--models mlp,resnet18_v1] [--steps 1000] [--json curves.json]

Prints the mean loss of each tenth of the steps, and at the end the share of held-out samples that the net gets right.
Images are patterns of ten classes, moved, scaled and covered with noise. Words follow a Markov chain, whose next word
the language model predicts; BERT tells the chains of four classes apart.
Exit status: 0; 1 when a net diverged in bf16, or ended more than a percent point below float32.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from workers import absolute_path

SIDE, CLASSES, WORDS, LENGTH = 48, 10, 200, 24
HELD_OUT = 64
"""Batches."""
WORST = 0.01
"""How much lower the share of right ones may be in bf16."""
PARTS = 10


class Net(NamedTuple):
    """Data and optimiser of a net. Few channels and short sequences: a step takes a fraction of a second."""

    data: str
    batch: int
    optimizer: str
    rate: float
    moved: int = SIDE
    """By less than so many pixels are the patterns of images moved."""


NETS = {
    "mlp": Net("flat", 64, "sgd", 0.05, moved=6),
    "lstm_lm": Net("words", 16, "adam", 2e-3),
    "mobilenetv2_0.5": Net("images", 16, "adam", 3e-3, moved=6),
    "resnet18_v1": Net("images", 16, "sgd", 0.02),
    "resnet50_v2": Net("images", 16, "sgd", 0.02),
    "vgg11": Net("images", 16, "sgd", 0.01, moved=6),
    "bert4": Net("chains", 16, "adam", 2e-4),
}


def images(random: np.random.Generator, count: int, patterns: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Patterns that are moved by less than `most` pixels, scaled and covered with noise, and their classes."""
    classes = random.integers(0, CLASSES, count)
    moves = random.integers(0, most, (count, 2))
    moved = np.stack([np.roll(patterns[c], tuple(move), (1, 2)) for c, move in zip(classes, moves, strict=True)])
    noise = random.standard_normal(moved.shape)
    return (moved * random.uniform(0.3, 1.0, (count, 1, 1, 1)) + 1.5 * noise).astype(np.float32), classes


def words(random: np.random.Generator, count: int, chains: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sequences `[count, LENGTH + 1]` of words, each of one of the chains, and its number."""
    classes = random.integers(0, len(chains), count)
    found = np.zeros((count, LENGTH + 1), np.int64)
    found[:, 0] = random.integers(0, WORDS, count)
    for at in range(LENGTH):
        draws = random.random((count, 1))
        found[:, at + 1] = (chains[classes, found[:, at]] < draws).sum(1).clip(max=WORDS - 1)
    return found, classes


def batches(net: Net, seed: int, count: int) -> Any:
    """Yield data and labels, as float32; what the classes look like is the same for all seeds."""
    world, random = np.random.default_rng(0), np.random.default_rng(seed)
    waves = world.standard_normal((CLASSES, 3, 6, 6))
    spectrum = np.zeros((CLASSES, 3, SIDE, SIDE), complex)
    spectrum[:, :, :6, :6] = waves * 40
    patterns = np.fft.ifft2(spectrum).real * 8
    rows = world.dirichlet(np.full(WORDS, 0.02), (4, WORDS))
    for _ in range(count):
        if net.data in ("images", "flat"):
            data, labels = images(random, net.batch, patterns, net.moved)
            if net.data == "flat":
                data = data[:, :, ::3, ::3].reshape(net.batch, -1)
        elif net.data == "words":
            text, _ = words(random, net.batch, rows[:1].cumsum(-1))
            data, labels = text[:, :-1].T, text[:, 1:].T
        else:
            # A chain of each class differs from the others' in a quarter of its rows.
            mixed = np.where(np.arange(WORDS)[None, :, None] % 4 > 0, rows[:1], rows)
            text, labels = words(random, net.batch, mixed.cumsum(-1))
            data = text[:, :-1]
        yield data.astype(np.float32), labels.astype(np.float32)


def network(name: str) -> Any:
    """Return the Gluon block, with its weights."""
    import mxnet as mx
    from mxnet.gluon import nn, rnn
    from mxnet.gluon.model_zoo import vision
    from training_peers.blocks import Function, chain, layer

    mx.random.seed(1)
    net: Any
    if name == "mlp":
        net = chain(nn.Dense(256, activation="relu"), nn.Dense(128, activation="relu"), nn.Dense(CLASSES))
    elif name == "lstm_lm":
        net = chain(nn.Embedding(WORDS, 128), rnn.LSTM(256), nn.Dense(WORDS, flatten=False))
    elif name == "bert4":
        net = chain(nn.Embedding(WORDS, 128), *(layer(128, 4) for _ in range(4)),
                    Function(lambda f, x: f.mean(x, axis=1)), nn.Dense(4))
    else:
        net = vision.get_model(name, classes=CLASSES)
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True)
    return net


def train(name: str, steps: int, seen: Callable[[float], None]) -> float:
    """Train the net and return the share of held-out samples that it gets right; `seen` gets the loss of each step."""
    import mxnet as mx
    from mxnet import autograd, gluon

    plan, net = NETS[name], network(name)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    loss.hybridize()
    options = {"learning_rate": plan.rate, **({"momentum": 0.9} if plan.optimizer == "sgd" else {})}
    trainer = gluon.Trainer(net.collect_params(), plan.optimizer, options)
    for data, labels in batches(plan, 1, steps):
        x, y = mx.nd.array(data), mx.nd.array(labels)
        with autograd.record():
            found = loss(net(x), y)
        found.backward()
        trainer.step(plan.batch)
        seen(float(found.mean().asscalar()))
    right = total = 0
    for data, labels in batches(plan, 2, HELD_OUT):
        guess = net(mx.nd.array(data)).asnumpy().argmax(-1)
        right, total = right + int((guess == labels).sum()), total + guess.size
    return right / total


def worker(name: str, steps: int) -> None:
    """Print a loss a line, then the share that is right."""
    print(train(name, steps, lambda loss: print(loss, flush=True)))


def curve(name: str, precision: str, steps: int, seen: Callable[[], None]) -> dict[str, Any]:
    """Train in a process of its own. Return the losses and the share that is right."""
    environment = {**os.environ, **absolute_path(), "NGRAPH_PRECISION": precision,
                   "MXNET_SUBGRAPH_BACKEND": "NGRAPH", "MXNET_SUBGRAPH_VERBOSE": "0"}
    command = [sys.executable, "-W", "ignore", __file__, "--worker", name, "--steps", str(steps)]
    numbers = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            numbers.append(float(line))
            seen()
    if process.returncode or len(numbers) != steps + 1:
        raise click.ClickException(f"{name} in {precision}: the process ended with {process.returncode} after "
                                   f"{len(numbers)} steps, expected {steps}")
    return {"losses": numbers[:-1], "right": numbers[-1]}


def means(losses: list[float]) -> list[float]:
    return [float(np.mean(part)) for part in np.array_split(losses, PARTS)]


def failure(found: dict[str, dict[str, Any]]) -> str:
    """Why the curve of bf16 is no good beside that of float32; empty if it is."""
    of_f32, of_bf16 = found["f32"], found["bf16"]
    if not np.isfinite(of_bf16["losses"]).all():
        return "diverged"
    lost = of_f32["right"] - of_bf16["right"]
    return f"{100 * lost:.1f} points below float32" if lost > WORST else ""


def _table(name: str, steps: int, found: dict[str, dict[str, Any]]) -> Table:
    table = Table("to step", *(str(steps * part // PARTS) for part in range(1, PARTS + 1)), "right", "", title=name)
    for precision, own in found.items():
        table.add_row(precision, *(f"{loss:.3f}" for loss in means(own["losses"])), f"{own['right']:.2%}",
                      failure(found) if precision == "bf16" else "")
    return table


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, help=__doc__)
@click.option("--models", default=",".join(NETS), show_default=True)
@click.option("--steps", type=click.IntRange(PARTS), default=1000, show_default=True)
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write all losses there.")
@click.option("--worker", "only", hidden=True)
def main(models: str, steps: int, path: Path | None, only: str | None) -> None:
    if only is not None:
        worker(only, steps)
        return
    names = models.split(",")
    unknown = [name for name in names if name not in NETS]
    if unknown:
        raise click.UsageError(f"found model {', '.join(unknown)}, expected some of {', '.join(NETS)}")
    console = Console(width=max(Console().width, 120))
    results: dict[str, dict[str, Any]] = {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for name in names:
            task = progress.add_task(name, total=2 * (steps + 1))
            results[name] = {precision: curve(name, precision, steps, lambda task=task: progress.advance(task))
                             for precision in ("f32", "bf16")}
            progress.remove_task(task)
            console.print(_table(name, steps, results[name]))
            if path is not None:
                path.write_text(json.dumps(results))
    sys.exit(any(failure(found) for found in results.values()))


if __name__ == "__main__":
    main()
