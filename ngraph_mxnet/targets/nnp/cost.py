"""Predicted time of one IR node that runs alone on a device.

The node's tensors are in DRAM, and its work is split over all engines.

The formulas are those of the timing simulator (`work.py`); there is no program, so tiles are as even as they can be,
loads and stores overlap with computing, and each node begins when the one before has ended. All times are simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod

from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.module import Changes, Derivation
from ngraph_mxnet.ir.types import Shape, TensorType
from ngraph_mxnet.runtime.costs import DeviceCosts
from ngraph_mxnet.targets.nnp.device import Device
from ngraph_mxnet.targets.nnp.isa.program import ELEMENT_BYTES
from ngraph_mxnet.targets.nnp.quantization import on_grid
from ngraph_mxnet.targets.nnp.simulate.work import (
    GridCycles,
    convolution_grid,
    matmul_grid,
    matmul_shape,
    vector_seconds,
)


@dataclass(frozen=True)
class _Share:
    """The work of the busiest engine: its seconds, and the bytes that go to and from it."""

    seconds: float
    bytes: float


def device_costs(device: Device, precision: str) -> DeviceCosts:
    """The costs of a device that stores real numbers as `precision`.

    A launch is a write to the device and the answer that it is done, each a trip over the link.
    """
    derivation = Derivation()
    return DeviceCosts(lambda node: node_seconds(node, device, precision, derivation), 2 * device.host_link.latency,
                       lambda type_: transfer_seconds(_bytes(type_, precision), device), "simulated",
                       device.shares_memory)


def node_seconds(node: Node, device: Device, precision: str, derivation: Derivation | None = None) -> float:
    """Simulated seconds of `node` alone. `precision` is the element of its real tensors: i8, f16 or bf16.

    With i8, products of two activations are computed in f16; `derivation` remembers what is none.

    Raises:
        ConfigError: the device's grid has no such element.
    """
    if precision not in device.grids:
        raise ConfigError(f"{device.name} has no precision {precision!r}; it has {', '.join(device.grids)}")
    in_place = node.op.same_bytes and node.op.name != "identity"  # which converts to another element of the device
    if in_place or node.op.kind == "constant" or not any(value.type.size for value in node.outputs):
        return 0.0
    if on_grid(node):
        changes = (derivation or Derivation()).of(node.inputs[1])
        share = _grid_share(node, device, precision, is_known=changes is not Changes.WITH_CALLS)
    else:
        share = _vector_share(node, device, precision)
    moved = sum(_bytes(value.type, precision) for value in (*dict.fromkeys(node.inputs), *node.outputs))
    dram, near = device.memories["dram"], device.memories[device.local[0]]
    latency = 2 * (device.dma_startup + dram.latency + near.latency)  # of the first load and the last store
    busy = max(share.seconds, moved / dram.bandwidth, share.bytes / device.port,
               share.bytes * device.engines / device.network.bandwidth)
    return latency + busy


def transfer_seconds(size: int, device: Device) -> float:
    """Simulated seconds to bring `size` bytes from the host's memory to the device's, or back."""
    latency = device.dma_startup + sum(device.memories[level].latency for level in ("host", "dram"))
    slowest = min(device.host_link.bandwidth, device.memories["dram"].bandwidth, device.network.bandwidth)
    return latency + device.host_link.latency + size / slowest


def _bytes(type_: TensorType, precision: str) -> int:
    return type_.size * (ELEMENT_BYTES[precision] if type_.element.is_float else type_.element.size)


def _vector_share(node: Node, device: Device, precision: str) -> _Share:
    shapes = [value.shape for value in node.inputs], [value.shape for value in node.outputs]
    counts: Mapping[str, float] = node.op.operations(*shapes, node.attrs)
    if node.op.name == "transpose" and device.native_transpose:
        counts = {"move": counts["gather"]}
    values = (*dict.fromkeys(node.inputs), *node.outputs)
    widest = max(_bytes(value.type, precision) // max(value.type.size, 1) for value in values)
    moved = sum(_bytes(value.type, precision) for value in values) / device.engines
    seconds = vector_seconds(device, {name: count / device.engines for name, count in counts.items()}, widest)
    return _Share(device.vector.startup + max(seconds, moved / device.memories[device.local[0]].bandwidth), moved)


def _grid_share(node: Node, device: Device, precision: str, *, is_known: bool) -> _Share:
    """`is_known`: its second operand depends on weights only."""
    element = precision
    if precision == "i8" and not is_known and "f16" in device.grids:
        element = "f16"
    splits = _convolution_splits if node.op.kind == "convolution" else _matmul_splits
    size, written = ELEMENT_BYTES[element], _bytes(node.output.type, precision)
    near = device.memories[device.local[0]].bandwidth
    shares = []
    for engines, done, loaded in splits(node, device, element):
        stored = written / engines
        read = (done.data + done.weights) * size + stored
        seconds = device.grid_startup + max(done.cycles / device.clock, read / near)
        shares.append(_Share(seconds, loaded * size + stored))
    return min(shares, key=lambda share: max(share.seconds, share.bytes / device.port))


def _split_engines(device: Device) -> Iterator[tuple[int, int]]:
    """Ways to cut the output channels in so many parts and the positions in so many, with an engine for each pair."""
    for channels in range(1, device.engines + 1):
        yield channels, device.engines // channels


def _convolution_splits(node: Node, device: Device, element: str) -> Iterator[tuple[int, GridCycles, float]]:
    """By the ways to cut: engines in use, the grid's work on the busiest one, and the elements it loads."""
    data, weights, result = node.inputs[0].shape, node.inputs[1].shape, node.output.shape
    groups = node.attrs["groups"]
    for by_channels, by_places in _split_engines(device):
        if groups > 1:
            some = ceil(groups / by_channels)
            own, parts = some * (weights[0] // groups), ceil(groups / some)
        else:
            some, own = 1, ceil(weights[0] / by_channels)
            parts = ceil(weights[0] / own)
        cut = _cut_places((result[0], *result[2:]), by_places)
        kernel: Shape = (own, *weights[1:])
        part = data[0] * prod(data[2:]) * prod(cut) / (result[0] * prod(result[2:]))
        done = convolution_grid(device, element, data, kernel, (cut[0], own, *cut[1:]), some)
        places = ceil(result[0] / cut[0]) * prod(ceil(a / b) for a, b in zip(result[2:], cut[1:], strict=True))
        yield parts * places, done, part * weights[1] * some + prod(kernel)


def _cut_places(shape: Shape, parts: int) -> Shape:
    """The largest of `parts` even boxes of [images, *places], the images cut first."""
    images = ceil(shape[0] / parts)
    rows = ceil(shape[1] / max(parts // shape[0], 1))
    return (images, rows, *shape[2:])


def _matmul_splits(node: Node, device: Device, element: str) -> Iterator[tuple[int, GridCycles, float]]:
    a, b = node.inputs[0].shape, node.inputs[1].shape
    rows, inner, columns, products = matmul_shape(a, b, node.output.shape, node.attrs["transpose_a"])
    for by_columns, by_rows in _split_engines(device):
        own = ceil(columns / by_columns)
        some = ceil(products / by_rows)
        few = ceil(rows / max(by_rows // products, 1))
        engines = ceil(columns / own) * ceil(products / some) * ceil(rows / few)
        done = matmul_grid(device, element, few, inner, own, some)
        yield engines, done, some * inner * (few + own)
