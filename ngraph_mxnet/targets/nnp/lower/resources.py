"""What lowering asks of a device."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ngraph_mxnet.targets.nnp.device import SHARED, Device
from ngraph_mxnet.targets.nnp.lower.guesses import Guesses


@dataclass(frozen=True)
class Resources:
    """`engines` are prefixes of units and memories, such as `ice0`; each has `local_bytes` in `<engine>.<local>`.

    `shared` are the memories that all engines reach, the nearest first, with their bytes. `element` stores what the
    IR has in f32. Rates are an engine's, a second, when all run: elements of the vector unit, bytes of its DMA. What
    the matrix grid does depends on the element of its operands: ask `device`.
    """

    device: Device
    engines: tuple[str, ...]
    local: str
    local_bytes: int
    shared: tuple[tuple[str, int], ...]
    element: str
    queues: int
    host_queues: int
    native_transpose: bool
    elements: float
    bytes: float
    guesses: Guesses = field(default_factory=Guesses)

    def local_memory(self, engine: str) -> str:
        return f"{engine}.{self.local}"

    def load_unit(self, engine: str) -> str:
        return f"{engine}.dma0"

    def store_unit(self, engine: str) -> str:
        """Another queue than loads, where there are two: a store waits for what computes, a load should not."""
        return f"{engine}.dma{self.queues - 1}"

    def with_engines(self, count: int) -> Resources:
        """Only the first `count` engines."""
        return replace(self, engines=self.engines[:count])


def resources_of(device: Device, element: str) -> Resources:
    """The device, with real numbers in `element`: f16 or bf16."""
    shared = sorted((device.memories[level] for level in SHARED if level in device.memories and level != "host"),
                    key=lambda memory: memory.size)
    nearest = shared[0]
    return Resources(
        device=device,
        engines=tuple(f"{device.engine}{number}" for number in range(device.engines)),
        local=device.local[0],
        local_bytes=device.memories[device.local[0]].size,
        shared=tuple((memory.level, memory.size) for memory in shared),
        element=element,
        queues=device.queues,
        host_queues=device.host_queues,
        native_transpose=device.native_transpose,
        elements=device.vector.bytes / device.vector.lane_bytes * device.clock,
        bytes=min(device.port, nearest.bandwidth / device.engines),
    )
