"""Optimizers' updates, compiled, unless NGRAPH_TRAINING=0, where the environment names our backend.

One program updates all parameters of a call of MXNet's `Updater`, in which `Trainer.step` and `update` and
`Module.update` end, but for those with sparse gradients; states and counts stay where MXNet has them. What a kvstore
updates comes key by key, and is MXNet's, as is all that there is no compiled update for; the log says why.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import is_
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from mxnet import autograd
from mxnet.ndarray import NDArray
from mxnet.optimizer import Optimizer, Updater

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.plugin.arrays import brief
from ngraph_mxnet.plugin.binding import environment, fallbacks
from ngraph_mxnet.plugin.binding.fallbacks import Refusal, reason_of
from ngraph_mxnet.plugin.binding.gluon_blocks import DENSE
from ngraph_mxnet.plugin.training.updates import Rule, bound_update, flags_of, number, numbers_of, rates, rule_of

stock_call = Updater.__call__
stock_states = Updater.sync_state_context

MOST_PROGRAMS = 4
"""The most programs of one updater, for sets of parameters that take turns."""
MOST_CHANGES = 32
"""More sets than that are not compiled for: each would take longer than it saves."""

_ran = 0


def ran() -> int:
    """How many updates of this process were compiled ones."""
    return _ran


def install() -> None:
    Updater.__call__ = _call


@functools.wraps(stock_call)
def _call(self: Updater, index: Any, grad: Any, weight: Any) -> Any:
    if not config.get("NGRAPH_TRAINING") or not environment.requested():
        return stock_call(self, index, grad, weight)
    updates = _updates_of(self)
    for part in _by_storage(self.optimizer, index, grad, weight):
        if not updates.run(self, *part):
            stock_call(self, *part)
    return None


def _by_storage(optimizer: Optimizer, index: Any, gradients: Any, weights: Any) -> list[tuple[Any, Any, Any]]:
    """The parameters with dense gradients and those with sparse ones, where there are both. Only where all have had
    equally many updates: else what a schedule gives for a rate depends on the order in which they are counted."""
    together = [(index, gradients, weights)]
    if not isinstance(index, (list, tuple)) or len({*map(type, gradients)}) < 2:
        return together
    counts = optimizer._index_update_count
    if not len(index) == len(gradients) == len(weights) or len({counts.get(each) for each in index}) > 1:
        return together
    parts = ([number for number, each in enumerate(gradients) if (type(each) in DENSE) == dense]
             for dense in (True, False))
    return [([index[i] for i in part], [gradients[i] for i in part], [weights[i] for i in part])
            for part in parts if part]


_all: WeakKeyDictionary[Updater, Updates] = WeakKeyDictionary()


def _updates_of(updater: Updater) -> Updates:
    found = _all.get(updater)
    if found is None:
        found = _all.setdefault(updater, Updates())
    return found


class _Bound:
    """A program on arrays, all of which it holds; None: these can't be updated compiled."""

    def __init__(self, indices: Sequence[Any], gradients: Sequence[NDArray], weights: Sequence[NDArray],
                 states: Sequence[Any], flags: tuple[str, ...]) -> None:
        self.indices, self.flags = list(indices), flags
        self.arrays = [*gradients, *weights]
        self.handles = [array.handle for array in self.arrays]
        self.states = list(states)
        self.program: Any = None

    def fits(self, indices: Sequence[Any], arrays: list[NDArray], states: list[Any], flags: tuple[str, ...]) -> bool:
        return (flags == self.flags and indices == self.indices and all(map(is_, arrays, self.arrays))
                and all(map(is_, states, self.states))
                and all(map(is_, [array.handle for array in arrays], self.handles)))


class Updates:
    """Belongs to one `Updater`."""

    def __init__(self) -> None:
        self._bound: list[_Bound] = []
        self._made = 0
        self._refused: set[str] = set()

    def run(self, updater: Updater, index: Any, gradients: Any, weights: Any) -> bool:
        """False: nothing was done but that states exist, as MXNet makes them."""
        optimizer = updater.optimizer
        try:
            rule = _rule(updater, index, gradients, weights)
            flags = flags_of(rule, optimizer)
            indices, arrays = list(index), [*gradients, *weights]
            optimizer._set_current_context(weights[0].ctx.device_id)
            states = _states(updater, indices, weights)
            bound = self._bound[0] if self._bound else None
            if bound is None or not bound.fits(indices, arrays, states, flags):
                bound = self._find(rule, optimizer, flags, indices, gradients, weights, states)
        except UnsupportedError as error:
            self._refuse(optimizer, brief(error))
            return False
        if bound.program is None or autograd.is_recording():
            return False
        return _run(bound, rule, optimizer, flags)

    def _find(self, rule: Rule, optimizer: Optimizer, flags: tuple[str, ...], indices: list[Any],
              gradients: Sequence[NDArray], weights: Sequence[NDArray], states: list[Any]) -> _Bound:
        arrays = [*gradients, *weights]
        bound = next((each for each in self._bound if each.fits(indices, arrays, states, flags)), None)
        if bound is not None:
            self._bound.remove(bound)
            self._bound.insert(0, bound)
            return bound
        if self._made >= MOST_CHANGES:
            raise UnsupportedError(f"the parameters, or their arrays, have changed {self._made} times")
        self._made += 1
        bound = _Bound(indices, gradients, weights, states, flags)
        self._bound.insert(0, bound)
        del self._bound[MOST_PROGRAMS:]
        rows = [[weight, gradient, *_leaves(state)]
                for weight, gradient, state in zip(weights, gradients, states, strict=True)]
        for index, row in zip(indices, rows, strict=True):
            _check(index, row, rule.states(flags))
        for weight, _, *made in rows:
            for array in (weight, *made):
                array.wait_to_read()  # the first write to an array gives it its memory, which a program must find
        try:
            bound.program = bound_update(type(optimizer).__name__, rule, flags, rows)
        except UnsupportedError:
            raise
        except Exception as error:
            raise UnsupportedError(reason_of(error)) from error
        return bound

    def _refuse(self, optimizer: Optimizer, reason: str) -> None:
        if reason not in self._refused:
            self._refused.add(reason)
            fallbacks.log.add(Refusal(f"the update of {type(optimizer).__name__}", reason))


def _rule(updater: Updater, index: Any, gradients: Any, weights: Any) -> Rule:
    """Raises UnsupportedError."""
    problem = environment.problem()
    if problem is not None:
        raise UnsupportedError(problem)
    if type(updater) is not Updater or Updater.sync_state_context is not stock_states:
        raise UnsupportedError(f"its updater, {type(updater).__name__}, is not MXNet's own")
    if not isinstance(index, (list, tuple)):
        raise UnsupportedError("a kvstore, or the program itself, updates parameter by parameter")
    if not index or not len(index) == len(gradients) == len(weights):
        raise UnsupportedError(f"{len(index)} parameters have {len(weights)} weights and {len(gradients)} gradients")
    others = {*map(type, gradients), *map(type, weights)} - {*DENSE}
    if others:
        raise UnsupportedError(f"an array is a {others.pop().__name__}, only dense float32 ones are updated compiled")
    return rule_of(updater.optimizer)


def _states(updater: Updater, indices: Sequence[Any], weights: Sequence[NDArray]) -> list[Any]:
    """Return the states of all parameters. Make each missing state, and bring each other one to its device where that
    was not done."""
    states, synced = updater.states, updater.states_synced
    for index, weight in zip(indices, weights, strict=True):
        if index not in states:
            states[index] = updater.optimizer.create_state_multi_precision(index, weight)
        elif not synced[index]:
            states[index] = updater.sync_state_context(states[index], weight.ctx)
        synced[index] = True
    return [states[index] for index in indices]


def _leaves(state: Any) -> list[Any]:
    if state is None:
        return []
    return list(state) if isinstance(state, tuple) else [state]


def _check(index: Any, row: Sequence[Any], states: int) -> None:
    """Raises UnsupportedError for arrays that a program is not made for."""
    found = [np.dtype(array.dtype).name if type(array) in DENSE else type(array).__name__ for array in row]
    other = next((text for text in found if text != "float32"), None)
    if other is not None:
        raise UnsupportedError(f"parameter {index} has an array that is {other}, only dense float32 ones are updated "
                               "compiled")
    if len(row) != 2 + states or {array.shape for array in row} != {row[0].shape} or not row[0].size:
        raise UnsupportedError(f"parameter {index} has arrays of shapes {[array.shape for array in row]}, expected "
                               f"{2 + states} of one shape")


def _run(bound: _Bound, rule: Rule, optimizer: Optimizer, flags: tuple[str, ...]) -> bool:
    """Start the update. Return True if the update is on its way; otherwise no count has changed."""
    global _ran
    counts, before = optimizer._index_update_count, optimizer.num_update
    counted = [(index, counts.get(index)) for index in bound.indices]
    try:
        numbers = _numbers(bound, rule, optimizer, flags)
        done = bool(bound.program.run(numbers, True))
    except Exception:
        done = False  # MXNet, which is next, says in its own words what is wrong
    if not done:
        optimizer.num_update = before
        for index, count in counted:
            if count is None:
                counts.pop(index, None)
            else:
                counts[index] = count
    _ran += done
    return done


def _numbers(bound: _Bound, rule: Rule, optimizer: Optimizer, flags: tuple[str, ...]) -> bytes:
    learning, decays = rates(rule, optimizer, bound.indices)
    counts = optimizer._index_update_count
    shared, own = numbers_of(rule, flags)
    values = [number(name, optimizer) for name in shared]
    same: dict[tuple[float, float, int], list[float]] = {}
    for index, rate, decay in zip(bound.indices, learning, decays, strict=True):
        key = rate, decay, counts[index]
        if key not in same:
            t = counts[index]
            lr = rule.rate(optimizer, rate, t)
            same[key] = [number(name, optimizer, lr=lr, wd=decay, t=t) for name in own]
        values += same[key]
    return np.array(values, np.float32).tobytes()
