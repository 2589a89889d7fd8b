"""The executors that `reshape` has made of one another, each for shapes of its own.

MXNet makes a new one at every `reshape`, and keeps none. Where shapes take turns, as in a Module whose batches differ,
that means to bind again and again: it takes a millisecond, and of an executor with an extension's op in it MXNet
never frees all memory (docs/limits.md). So some are kept, as many as `NGRAPH_SHAPES` says, and come back. No two keep
each other:
* `executor = executor.reshape(...)`, again and again: the new one keeps the one it was made of, and what that kept;
* `base.reshape(...)`, again and again, as a Module does: that one keeps those that were made of it.
The first time nobody knows which it will be; it is taken for the first until the executor is reshaped once more.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ngraph_mxnet import config

Shapes = dict[str, tuple[int, ...]]

Executor = Any
"""An `NGraphExecutor`, whose module imports this one."""


class Siblings:
    """The siblings that one executor keeps."""

    def __init__(self) -> None:
        self._kept: list[tuple[Shapes, Executor]] = []
        """With the shapes of their arrays, the latest last."""
        self._keeper: Callable[[], Executor | None] | None = None
        """Whoever keeps the executor itself, since that was reshaped to it."""
        self._is_base = False

    def find(self, executor: Executor, given: Shapes, partial_shaping: bool,
             allow_up_sizing: bool) -> Executor | None:
        """The one of `executor`'s that its `reshape` with these arguments may return.

        It has these shapes, and shares with `executor` all arrays whose shape is the same. None if there is none, or if
        MXNet would refuse to reshape so.
        """
        for shapes, kept in reversed(self._kept):
            if any(shapes.get(name) != shape for name, shape in given.items()) or kept.monitor != executor.monitor:
                continue
            pairs = zip(kept.arg_arrays + kept.aux_arrays, executor.arg_arrays + executor.aux_arrays, strict=True)
            if all(ours is theirs or (ours.shape != theirs.shape and (partial_shaping or name in given)
                                      and (allow_up_sizing or ours.size <= theirs.size))
                   for name, (ours, theirs) in zip(shapes, pairs, strict=True)):
                return kept
        return None

    def reshaped(self, executor: Executor, to: Executor) -> None:
        """`executor`, whose siblings these are, was reshaped to another one, which is new or one of those."""
        keeper = self._keeper() if self._keeper is not None else None
        if keeper is not None:
            self._is_base, self._keeper = True, None
            keeper.siblings._drop(executor)
            self._keep(keeper)
        if self._is_base:
            self._keep(to)
            return
        self._drop(to)
        to.siblings._kept, self._kept = self._kept, []
        to.siblings._keep(executor)
        to.siblings._keeper, self._keeper = None, weakref.ref(to)

    def _keep(self, executor: Executor) -> None:
        self._drop(executor)
        shapes = {name: array.shape for name, array in {**executor.arg_dict, **executor.aux_dict}.items()}
        self._kept = [*self._kept, (shapes, executor)][-config.get("NGRAPH_SHAPES"):]

    def _drop(self, executor: Executor) -> None:
        self._kept = [entry for entry in self._kept if entry[1] is not executor]
