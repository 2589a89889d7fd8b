"""`gluon.utils.clip_global_norm`, compiled, unless NGRAPH_TRAINING=0, where the environment names our backend.

One program computes the norm and scales all arrays in place, where MXNet calls three operators for each array.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from operator import is_
from typing import Any

import numpy as np
from mxnet import autograd, gluon, nd
from mxnet.gluon import utils
from mxnet.ndarray import NDArray

from ngraph_mxnet.base import config
from ngraph_mxnet.base.forks import ForkSafeLock
from ngraph_mxnet.plugin.binding import environment, fallbacks
from ngraph_mxnet.plugin.binding.fallbacks import Refusal, made_or_refused

stock_clip = utils.clip_global_norm

MOST_PROGRAMS = 4
"""The most lists of arrays that are clipped compiled at a time. Further lists take the place of the oldest."""


class _Clipping:
    """A compiled clip of these arrays, which it holds; or the memory that they can't be clipped compiled."""

    def __init__(self, arrays: Sequence[NDArray]) -> None:
        from ngraph_mxnet.plugin.training.updates import bound_clip

        self._arrays, self._handles = list(arrays), [array.handle for array in arrays]
        self._norm = nd.empty((1,))
        self._bound: Any = made_or_refused("clip_global_norm", lambda: bound_clip(arrays, self._norm))
        if isinstance(self._bound, Refusal):
            fallbacks.log.add(self._bound)

    def fits(self, arrays: Sequence[NDArray]) -> bool:
        return (len(arrays) == len(self._arrays) and all(map(is_, arrays, self._arrays))
                and all(map(is_, [array.handle for array in arrays], self._handles)))

    def run(self, most: float) -> NDArray | None:
        """The norm, in an array of the caller's; None: nothing was done."""
        if isinstance(self._bound, Refusal) or not self._bound.run(np.array([most, 1], np.float32).tobytes(), True):
            return None
        return self._norm.copy()


_clippings: list[_Clipping] = []
_lock = ForkSafeLock()


def install() -> None:
    utils.clip_global_norm = clip_global_norm
    gluon.utils.clip_global_norm = clip_global_norm


@functools.wraps(stock_clip)
def clip_global_norm(arrays: Any, max_norm: Any, check_isfinite: bool = True) -> Any:
    norm = _clipped(arrays, max_norm)
    if norm is None:
        return stock_clip(arrays, max_norm, check_isfinite)
    if not check_isfinite:
        return norm
    found = norm.asscalar()
    if not np.isfinite(found):
        warnings.warn(UserWarning("nan or inf is detected. Clipping results will be undefined."), stacklevel=2)
    return found


def _clipped(arrays: Any, most: Any) -> NDArray | None:
    """Scale the arrays and return their norm before; None: nothing was done."""
    if not (config.get("NGRAPH_TRAINING") and environment.requested() and environment.problem() is None
            and isinstance(arrays, (list, tuple)) and arrays and isinstance(most, (int, float))
            and all(type(array) is NDArray for array in arrays) and not autograd.is_recording()):
        return None
    with _lock:
        clipping = next((each for each in _clippings if each.fits(arrays)), None)
        if clipping is None:
            clipping = _Clipping(arrays)
            _clippings.append(clipping)
            del _clippings[:-MOST_PROGRAMS]
        return clipping.run(most)
