"""One process of a job that trains; `bench_distributed.py` starts it.

Prints one line of JSON, behind a mark: the seconds of each step, the losses, and what the sums of gradients took.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
from training_peers.mxnet_peer import Gluon, draw_weights
from training_peers.spec import TRAININGS

MARK = "figures of this process: "


def main(kind: str, name: str, store: str, steps: int) -> None:
    peer = Gluon(kind)
    mx = peer.mx
    kv = mx.kv.create(store)
    peer.kvstore, peer.ranks = kv, kv.num_workers
    training = TRAININGS[name]
    peer.load(name, training, draw_weights(name))
    data, labels = training.batches(seed=kv.rank)
    peer.compile()
    seconds, losses = [], []
    for number in range(steps):
        batch = peer.native(data[number % len(data)], labels[number % len(data)])
        kv._barrier()
        begin = time.monotonic()
        result = peer.step(batch)
        seconds.append(time.monotonic() - begin)
        losses.append(peer.loss_of(result))
    weights = float(sum(np.abs(p.data().asnumpy()).sum() for p in peer.net.collect_params().values()
                        if p.grad_req != "null"))
    kv._barrier()
    print(MARK + json.dumps({"rank": kv.rank, "seconds": seconds, "losses": losses, "weights": weights, **_sums(kv)}),
          flush=True)


def _sums(kv: Any) -> dict[str, Any]:
    found = [sums.gradients for sums in getattr(kv, "_sums", {}).values()]
    if not found:
        return {}
    return {"buckets": len(found[0].buckets), "overlapped": found[0].overlapped,
            "waited": found[0].waited / max(found[0].rounds, 1)}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
