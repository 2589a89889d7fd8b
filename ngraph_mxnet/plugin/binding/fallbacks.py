"""The logs of what MXNet runs although it was to be compiled, and of partitionings.

Each fallback is logged once, counted, and listed by `ngraph_mxnet.report()`. The logger `ngraph_mxnet` has the
partitionings at level INFO.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import (
    CalibrationError,
    ConfigError,
    ModelError,
    NGraphError,
    PackageError,
    UnsupportedError,
)
from ngraph_mxnet.base.forks import ForkSafeLock
from ngraph_mxnet.frontends.verdicts import Partition, PartitionLog, Region, count_kinds
from ngraph_mxnet.plugin.arrays import brief

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


partition_log = PartitionLog()


def partitions() -> list[Partition]:
    """The last partitionings of this process, the oldest first."""
    return partition_log.last()


def add_partition(partition: Partition) -> None:
    """Enter a partitioning, and log what it came to."""
    partition_log.add(partition)
    if not logger.isEnabledFor(logging.INFO):
        return
    for (op, reason), count in count_kinds(partition.verdicts).items():
        logger.info("left to MXNet: %d x %s: %s", count, op, reason)
    for number, region in enumerate(partition.reviewed, 1):
        if region.rejected is None:
            logger.info("region %d on %s: %s", number, partition.backend, describe(region))
        else:
            logger.info("region %d left to MXNet: %s: %s", number, describe(region), region.rejected)


def add_failure(what: str, error: Exception) -> None:
    """Enter that MXNet runs `what`, because of the error."""
    log.add(Refusal(what, str(error) or repr(error)), exc_info=not isinstance(error, NGraphError))


def left_by_kind(partitions: Sequence[Partition], most: int = 8) -> str:
    """Which operators are not supported, and why, in one line; empty if all are."""
    verdicts = [verdict for partition in partitions for verdict in partition.verdicts]
    kinds = [f"{count} x {op}: {reason}" for (op, reason), count in count_kinds(verdicts).items()]
    more = [f"and {len(kinds) - most} more kinds"] if len(kinds) > most else []
    return "; ".join([*kinds[:most], *more])


def describe(region: Region) -> str:
    """One line: how many nodes of which operators, and their work."""
    ops = ", ".join(f"{op} x{count}" for op, count in region.ops.items())
    return f"{len(region.nodes)} nodes ({ops}), {region.cost.macs / 1e6:.1f} million multiply-adds"
