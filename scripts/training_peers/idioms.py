"""What ordinary scripts do between a net and the update, as rows of their own: `MODEL:IDIOM`, which MXNet's peers have.

Each idiom is a function of a `Gluon` peer and a batch. It records a step and goes back. It returns the losses of the
labels and the number that the Trainer divides the gradients by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

DECAY = 1e-4
"""The weight of the L2 term."""


class Peer(Protocol):
    """What an idiom needs of `mxnet_peer.Gluon`."""

    mx: Any
    net: Any
    loss: Any
    second_loss: Any
    metric: Any

    def scores_and_labels(self, batch: Any) -> tuple[Any, Any]:
        """Run the net: a row of scores or numbers and a label each."""

    def halves(self, batch: Any) -> Iterator[Any]:
        """Two batches of half the samples."""


Idiom = Callable[[Peer, Any], tuple[Any, float]]


def plain(peer: Peer, batch: Any) -> tuple[Any, float]:
    with peer.mx.autograd.record():
        losses = peer.loss(*peer.scores_and_labels(batch))
    losses.backward()
    return losses, losses.size


def mean(peer: Peer, batch: Any) -> tuple[Any, float]:
    with peer.mx.autograd.record():
        value = peer.loss(*peer.scores_and_labels(batch)).mean()
    value.backward()
    return value, 1


def total(peer: Peer, batch: Any) -> tuple[Any, float]:
    with peer.mx.autograd.record():
        losses = peer.loss(*peer.scores_and_labels(batch))
        value = losses.sum()
    value.backward()
    return losses, losses.size


def scaled(peer: Peer, batch: Any) -> tuple[Any, float]:
    with peer.mx.autograd.record():
        losses = peer.loss(*peer.scores_and_labels(batch))
        value = losses * 128
    value.backward()
    return losses, losses.size * 128


def own_function(peer: Peer, batch: Any) -> tuple[Any, float]:
    nd = peer.mx.nd
    with peer.mx.autograd.record():
        scores, labels = peer.scores_and_labels(batch)
        value = -nd.pick(nd.log_softmax(scores), labels).mean()
    value.backward()
    return value, 1


def l2_term(peer: Peer, batch: Any) -> tuple[Any, float]:
    with peer.mx.autograd.record():
        value = peer.loss(*peer.scores_and_labels(batch)).mean()
        for parameter in peer.net.collect_params().values():
            if parameter.grad_req != "null":
                value = value + DECAY * (parameter.data() ** 2).sum()
    value.backward()
    return value, 1


def two_losses(peer: Peer, batch: Any) -> tuple[Any, float]:
    with peer.mx.autograd.record():
        scores, labels = peer.scores_and_labels(batch)
        losses = peer.loss(scores, labels) + peer.second_loss(scores, peer.mx.nd.zeros_like(scores))
    losses.backward()
    return losses, losses.size


def list_of_heads(peer: Peer, batch: Any) -> tuple[Any, float]:
    with peer.mx.autograd.record():
        scores, labels = peer.scores_and_labels(batch)
        losses = peer.loss(scores, labels), peer.second_loss(scores, peer.mx.nd.zeros_like(scores))
    peer.mx.autograd.backward(list(losses))
    return losses[0], losses[0].size


def micro_batches(peer: Peer, batch: Any) -> tuple[Any, float]:
    """Two halves, whose gradients are added."""
    found = []
    for part in peer.halves(batch):
        with peer.mx.autograd.record():
            losses = peer.loss(*peer.scores_and_labels(part))
        losses.backward()
        found.append(losses)
    return found[0], sum(losses.size for losses in found)


def clipped(peer: Peer, batch: Any) -> tuple[Any, float]:
    losses, count = plain(peer, batch)
    gradients = [parameter.grad() for parameter in peer.net.collect_params().values() if parameter.grad_req != "null"]
    peer.mx.gluon.utils.clip_global_norm(gradients, 1.0 * count)
    return losses, count


def metrics(peer: Peer, batch: Any) -> tuple[Any, float]:
    """The loss and the accuracy are read in each step."""
    with peer.mx.autograd.record():
        scores, labels = peer.scores_and_labels(batch)
        losses = peer.loss(scores, labels)
    losses.backward()
    peer.metric.update([labels], [scores])
    float(losses.mean().asscalar())
    return losses, losses.size


IDIOMS: dict[str, Idiom] = {
    "plain": plain,
    "mean": mean,
    "sum": total,
    "scale": scaled,
    "own_block": plain,
    "own_function": own_function,
    "l2_term": l2_term,
    "two_losses": two_losses,
    "heads": list_of_heads,
    "micro_batches": micro_batches,
    "clip_global_norm": clipped,
    "metrics": metrics,
    "dynamic": plain,
}
"""`own_block`: the loss is a block of the script's own. `dynamic`: the net is hybridized without `static_alloc`."""


def own_loss(gluon: Any) -> Any:
    """A cross entropy of a script's own."""

    class OwnLoss(gluon.HybridBlock):  # type: ignore[misc, name-defined]
        def hybrid_forward(self, f: Any, scores: Any, labels: Any) -> Any:
            return 0 - f.pick(f.log_softmax(scores), labels)

    return OwnLoss()

