"""The record of this process's partitionings; the logger `ngraph_mxnet` has them at level INFO."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.binding import fallbacks
from ngraph_mxnet.bridges.mxnet.binding.fallbacks import Refusal
from ngraph_mxnet.errors import NGraphError
from ngraph_mxnet.placement.verdicts.report import Partition, PartitionLog, Region, count_kinds

logger = config.logger("ngraph_mxnet")
log = PartitionLog()


def partitions() -> list[Partition]:
    """The last partitionings of this process, the oldest first."""
    return log.last()


def add(partition: Partition) -> None:
    """Enter a partitioning, and log what it came to."""
    log.add(partition)
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
    fallbacks.log.add(Refusal(what, str(error) or repr(error)), exc_info=not isinstance(error, NGraphError))


def left_by_kind(partitions: Sequence[Partition], most: int = 8) -> str:
    """Which operators are not supported, and why, in one line; empty if all are."""
    verdicts = [verdict for partition in partitions for verdict in partition.verdicts]
    kinds = [f"{count} x {op}: {reason}" for (op, reason), count in count_kinds(verdicts).items()]
    more = [f"and {len(kinds) - most} more kinds"] if len(kinds) > most else []
    return "; ".join([*kinds[:most], *more])


def describe(region: Region) -> str:
    """One line: how many nodes of which operators, and their work."""
    ops = ", ".join(f"{op} x{count}" for op, count in region.ops().items())
    return f"{len(region.nodes)} nodes ({ops}), {region.cost.macs / 1e6:.1f} million multiply-adds"
