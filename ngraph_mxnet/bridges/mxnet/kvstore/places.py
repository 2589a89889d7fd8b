"""This process's share of its host's cores, for our kernels and for MXNet's operators."""

from __future__ import annotations

import functools
import logging

from mxnet.base import _LIB

from ngraph_mxnet import config
from ngraph_mxnet.distributed.placement import Placement, place

logger = logging.getLogger("ngraph_mxnet")


@functools.cache
def place_once() -> Placement:
    """Before the first graph is compiled, if possible."""
    placement = place()
    if placement.pinned:
        _LIB.MXSetNumOMPThreads(config.threads())
    logger.info("%s; a graph has %d threads", placement.text, config.threads())
    return placement
