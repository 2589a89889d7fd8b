#!/usr/bin/env python3
"""Fine-tune a net for 8 bits: scikit-learn's digits, with scales so coarse that quantisation costs accuracy.

A small net is trained in float32 and quantised, with scales of data that are many times coarser than its ranges need,
so that each value has two or three levels left. Then it is fine-tuned fake-quantised, and quantised again with the same
recipe. With MXNET_SUBGRAPH_BACKEND=NGRAPH both trainings are compiled.
"""

from __future__ import annotations

import argparse
from typing import Any

import ngraph_mxnet  # isort: skip  # MXNet 1.9.1 then imports on current NumPy, too
import mxnet as mx
import numpy as np
from mxnet.gluon import nn
from train_digits import accuracy, digits, network, train

from ngraph_mxnet.quantisation.apply import Recipe, Scale

Array = np.ndarray[Any, Any]
BATCH = 32


def coarse(net: nn.HybridSequential, samples: Array, coarser: int) -> Recipe:
    """All layers in 8 bits, with the scales of their data on these samples times `coarser`."""
    found = ngraph_mxnet.quantize(net, samples, method="minmax", corrections=[], only_faster=False,
                                  progress=False).recipe
    return Recipe({name: Scale(scale.scale * coarser, round(scale.zero_point / coarser))
                   for name, scale in found.scales.items()})


def classes_in_int8(net: nn.HybridSequential, recipe: Recipe, images: Array) -> Array:
    """What the net with its weights of now tells, compiled in 8 bits."""
    symbol = net(mx.sym.var("data"))
    weights = {name: parameter.data() for name, parameter in net.collect_params().items()}
    compiled = ngraph_mxnet.compile(symbol, "CPU", weights=weights, shapes={"data": images.shape}, precision="int8",
                                    recipe=recipe)
    return np.asarray(compiled(images)[0].argmax(axis=1))


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tune a small net for 8 bits on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=10, help="in float32")
    parser.add_argument("--tuning", type=int, default=6, help="epochs fake-quantised")
    parser.add_argument("--coarser", type=int, default=128, help="what scales are multiplied by (1: as calibrated)")
    parser.add_argument("--short-sums", action="store_true", help="for a CPU with AVX2 and without AVX-512")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the order of the digits")
    options = parser.parse_args()

    mx.random.seed(options.seed)
    np.random.seed(options.seed)  # MXNet's initialisers draw from both
    (images, labels), (test, wanted) = digits(options.seed)
    net = network()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    train(net, images, labels, options.epochs, BATCH, 0.02, options.seed)
    train(net, images, labels, options.tuning, BATCH, 0.002, options.seed)
    print(f"accuracy in float32: {accuracy(net, test, wanted):.4f}")
    recipe = coarse(net, images[:64], options.coarser)
    print(f"accuracy in int8: {(classes_in_int8(net, recipe, test) == wanted).mean():.4f}")

    with ngraph_mxnet.fake_quantize(net, recipe, short_sums=options.short_sums):
        train(net, images, labels, options.tuning, BATCH, 0.002, options.seed)
        found = net(mx.nd.array(test)).asnumpy().argmax(axis=1)
    tuned = classes_in_int8(net, recipe, test)
    print(f"accuracy in int8, fine-tuned: {(tuned == wanted).mean():.4f}")
    print(f"same class as fake-quantised: {(tuned == found).mean():.4f}")


if __name__ == "__main__":
    main()
