"""The log of fallbacks: what MXNet runs although it was to be compiled. Each fallback is logged once, counted, and
listed by `ngraph_mxnet.report()`."""

from __future__ import annotations

import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.error_texts import brief
from ngraph_mxnet.errors import CalibrationError, ConfigError, ModelError, PackageError, UnsupportedError
from ngraph_mxnet.forks import ForkSafeLock

logger = config.logger("ngraph_mxnet")

Made = TypeVar("Made")

_NUMBER = re.compile(r"\d+")
_OURS = {kind.__name__: kind for kind in (UnsupportedError, ConfigError, CalibrationError, ModelError, PackageError)}
"""Errors whose texts tell of the model or its settings. Those of other types are defects."""


@dataclass(frozen=True)
class Refusal:
    """Why MXNet runs `what`: a block's name, or a symbol's outputs.

    `quiet`: nothing is amiss, or it was logged elsewhere. `failed`: an error kept it from being compiled, which says
    nothing of other inputs.
    """

    what: str
    reason: str
    quiet: bool = False
    failed: bool = False


class FallbackLog:
    """The fallbacks of this process, for all threads; those seen longest ago are forgotten.

    Reasons that differ in numbers only, such as shapes, count as one: the first of them is logged and shown.
    """

    def __init__(self, size: int = 256, warnings: int = 8) -> None:
        self._size, self._warnings, self._lock = size, warnings, ForkSafeLock()
        self._counts: OrderedDict[tuple[str, str, bool], tuple[Refusal, int]] = OrderedDict()

    def add(self, refusal: Refusal, *, exc_info: bool = False) -> None:
        """Count it, and log it where it is new: as a warning, unless it is quiet or `what` gave many already."""
        kind = refusal.what, _NUMBER.sub("0", refusal.reason), refusal.quiet
        with self._lock:
            first, count = self._counts.pop(kind, (refusal, 0))
            self._counts[kind] = first, count + 1
            if count:
                return
            loud = Counter(known.what for known, _ in self._counts.values() if not known.quiet)
            if len(self._counts) > self._size:
                self._counts.popitem(last=False)
        level = logging.INFO if refusal.quiet or loud[refusal.what] > self._warnings else logging.WARNING
        logger.log(level, "MXNet runs %s: %s", refusal.what, refusal.reason, exc_info=exc_info)

    def counts(self) -> dict[Refusal, int]:
        """How often each was met: at a bind, or at a call of a hybridized block."""
        with self._lock:
            return dict(self._counts.values())


log = FallbackLog()


def made_or_refused(what: str, make: Callable[[], Made], *, quiet: bool = False) -> Made | Refusal:
    """Return the result of `make`, or a Refusal with the reason why `make` failed. `quiet`: an unsupported model is
    nothing amiss."""
    try:
        return make()
    except UnsupportedError as error:
        return Refusal(what, brief(error), quiet)
    except Exception as error:
        return Refusal(what, reason_of(error))


def reason_of(error: BaseException, doing: str = "compiling it") -> str:
    """Why MXNet runs what was being compiled: in the error's own words, unless it is a defect of ours.

    An error that came through libmxnet is known by the name at the beginning of its text.
    """
    text = brief(error)
    name, colon, rest = text.partition(": ")
    if colon and name in _OURS:
        return rest
    return text if isinstance(error, tuple(_OURS.values())) else f"{doing} failed: {text}"
