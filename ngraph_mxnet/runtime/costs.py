"""The costs that a target states, so that a placement can compare the target with others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import TensorType


@dataclass(frozen=True)
class DeviceCosts:
    """The costs of one device.

    `seconds` of a node; `launch`: seconds to start a region; `transfer`: seconds to bring a tensor from the
    host's memory to the device's or back, None where it computes in the host's. `kind` says what they are, for people:
    `modelled`, `measured` or `simulated`. `shares_memory`: with the host, although it could have a memory of its own.
    """

    seconds: Callable[[Node], float]
    launch: float
    transfer: Callable[[TensorType], float] | None
    kind: str
    shares_memory: bool = False
