"""In which buckets the gradients of a step would travel, and when each is full (docs/distributed.md)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ngraph_mxnet.distributed.plan import bucket_bytes, make_plan
from ngraph_mxnet.ir.types import ELEMENT_TYPES

if TYPE_CHECKING:
    from ngraph_mxnet.bridges.mxnet.training.program import TrainingProgram


@dataclass(frozen=True)
class BucketTraining:
    """`gradients`: names, in the order in which they become final; `bytes`: of all; `ready`: the share of the backward
    pass, from 0 to 1, after which the last of them is final."""

    gradients: tuple[str, ...]
    bytes: int
    ready: float


def buckets_of(program: TrainingProgram, trained: Sequence[str]) -> tuple[tuple[BucketTraining, ...], float]:
    """The buckets in the order in which they are sent, and the seconds of the backward pass, which is run twice on
    zeros.

    Args:
        program: made for recorded calls.
        trained: names of its gradients, in the order of the backward half's results.
    """
    from ngraph_mxnet import _core

    native = program.backward.native
    inputs, outputs = ([np.zeros(shape, ELEMENT_TYPES[element].numpy) for element, shape in each]
                       for each in (native.inputs, native.outputs))
    native.run(inputs, outputs)  # memory is touched
    watch = _core.ResultWatch([(each.__array_interface__["data"][0], 0) for each in outputs])
    begin = time.monotonic()
    native.run(inputs, outputs)
    seconds = time.monotonic() - begin
    ready = {number: at - begin for number, at, _ in watch.take(0.0)}
    sizes, dtypes = [each.size for each in outputs], [each.dtype for each in outputs]
    plan = make_plan(sizes, dtypes, list(ready), bucket_bytes())
    return tuple(BucketTraining(tuple(trained[slot.gradient] for slot in bucket.slots),
                                sum(slot.bytes for slot in bucket.slots),
                                max(ready[slot.gradient] for slot in bucket.slots) / seconds)
                 for bucket in plan), seconds
