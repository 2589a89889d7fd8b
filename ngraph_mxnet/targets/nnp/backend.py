"""The backend NNP: a simulated Intel Nervana NNP. What it runs, and how long one IR node takes that runs alone.

The formulas of the costs are those of the timing simulator (`timing.py`): a node's tensors are in DRAM, and its work is
split over all engines. There is no program, so tiles are as even as they can be, loads and stores overlap with
computing, and each node begins when the one before has ended. All times are simulated.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.ir.graph import Graph, Node, Value, make_node, touched
from ngraph_mxnet.ir.module import Changes, Derivation, Module, Shared, joined
from ngraph_mxnet.ir.types import Role, Shape, TensorType
from ngraph_mxnet.ops.bodies import has_bodies, nodes_within
from ngraph_mxnet.passes.base import FixedPoint, Pass, PassManager
from ngraph_mxnet.passes.clusters import InlineBodies, main_nodes, split_prepare
from ngraph_mxnet.passes.pipelines import shared_passes
from ngraph_mxnet.program.backend import HOST_MEMORY, Backend, DeviceCosts, read_count, read_samples, require_nodes
from ngraph_mxnet.program.package import Package
from ngraph_mxnet.targets.nnp.access import full, read, ways
from ngraph_mxnet.targets.nnp.device import Device, load_device
from ngraph_mxnet.targets.nnp.executable import PART, NNPExecutable, NNPParts, NNPReplicas
from ngraph_mxnet.targets.nnp.lowering import Settings
from ngraph_mxnet.targets.nnp.places import VIEWS, Resources, resources_of
from ngraph_mxnet.targets.nnp.program import ELEMENT_BYTES
from ngraph_mxnet.targets.nnp.quantization import on_grid
from ngraph_mxnet.targets.nnp.quantize import overflowing
from ngraph_mxnet.targets.nnp.support import only_published, unpublished
from ngraph_mxnet.targets.nnp.timing import (
    GridCycles,
    Sides,
    convolution_grid,
    fetches_rows,
    matmul_grid,
    matmul_shape,
    operation_counts,
    vector_seconds,
)

OPTIONS = {
    "device": "a product, or product:mode, such as nnp-i-1100:12W (default: that of the backend's name)",
    "precision": "f16 or int8 on NNP-I, bf16 on NNP-T (default: NGRAPH_PRECISION, else f16 or bf16)",
    "calibration": "for int8: arrays for all inputs, in order, or a list of such (default: those of the first call)",
    "mode": "throughput: parts of the batch on engines of their own; latency: few such parts, each on many engines "
            "(default: throughput if the batch is larger than 1 and computes for longer than its transfers start)",
    "devices": "how many devices share the batch, each with its own memory (default: 1)",
    "instances": "into how many parts the batch is cut, each on engines of its own (default: by mode)",
    "support": "published: what Intel's software ran on the NNP-I; all: what the simulator runs (default: published "
               "for an NNP-I beside other devices, else all)",
}
USUAL_DEVICE = "nnp-i-1100"
_MOST_DEVICES = 1024
_MODES = ("throughput", "latency")
_LATENCY_INSTANCES = 2
"""NNP-I's latency mode is "1x2": two instances of batch 1 (Hot Chips 31)."""


class NNPBackend(Backend):
    """See `Backend`. Real numbers are stored as f16 (NNP-I) or bf16 (NNP-T), and computed on in float32; with precision
    int8 products are in i8.

    `device` is a product or product:mode of `devices()`.
    """

    name = "NNP"
    options = OPTIONS

    def __init__(self, device: str = "") -> None:
        self._device = load_device(device or USUAL_DEVICE)
        if device:
            self.name = f"NNP:{device}"

    def supports(self, node: Node) -> str | None:
        if has_bodies(node.op.name):
            return next(filter(None, map(self.supports, nodes_within(node))), None)
        if "scale" in node.epilogue:
            return next(filter(None, (self.supports(part) for part in _parts(node))), None)
        return unsupported(node, _resources(self._device))

    def check_options(self, options: Mapping[str, Any]) -> None:
        super().check_options(options)
        device, _ = self.asked(options)
        if (options.get("mode") or _MODES[0]) not in _MODES:
            raise ConfigError(f"option mode: found {options['mode']!r}, expected {' or '.join(_MODES)}")
        read_count(options, "devices", _MOST_DEVICES)
        read_count(options, "instances", len(_resources(device).engines))
        read_samples(options)
        only_published(device, options, "all")

    def pipeline(self) -> Sequence[Pass | FixedPoint]:
        """The shared groups, before which ops that the engines compute in two steps become two."""
        return [InlineBodies(), _SplitSums(), *shared_passes()]

    def precision(self, options: Mapping[str, Any]) -> str:
        element = self.asked(options)[1]
        return "int8" if element == "i8" else element

    def costs(self, graph: Graph, options: Mapping[str, Any]) -> DeviceCosts:
        return device_costs(*self.asked(options))

    def unfit(self, graph: Graph, options: Mapping[str, Any],
              samples: Sequence[Sequence[np.ndarray]]) -> Mapping[Node, str]:
        device, element = self.asked(options)
        found = dict(overflowing(graph, samples, element))
        if only_published(device, options, "published"):
            found |= {node: reason for node in graph.nodes if (reason := unpublished(node)) is not None}
        return found

    def beside(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return `options`, with the precision f32 added if the device lacks the precision of NGRAPH_PRECISION.

        f32 stands for the device's own element. A precision in `options` is left as it is.
        """
        if "precision" not in options:
            try:
                self.asked(options)
            except ConfigError:
                return {**options, "precision": "f32"}
        return options

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> NNPExecutable | NNPReplicas:
        self._optimise(graph, options)
        return self._compiled(graph, options)

    def compile_parts(self, module: Module, options: Mapping[str, Any],
                      near: Collection[str] = ()) -> NNPParts | None:
        if (read_count(options, "devices", _MOST_DEVICES) or 1) > 1:
            return None
        for graph in module.graphs.values():
            self._optimise(graph, options)
        first: dict[Shared, int] = {}
        for part, step in enumerate(module.flow.steps):
            for value in step.inputs:
                first.setdefault(value, 0 if value.role is Role.WEIGHT else part)
        graph, behind, begins = joined(module), 0, []
        place = {node: number for number, node in enumerate(graph.nodes)}
        main = [place[node] for node in main_nodes(graph)]
        for step in module.flow.steps[:-1]:
            behind += len(module.graphs[step.graph].nodes)
            begins.append(bisect_left(main, behind))
        arrivals = tuple(first[value] for value in module.flow.inputs)
        shared = tuple(tuple(number for number, value in enumerate(values) if value.name in near)
                       for values in (module.flow.inputs, module.flow.results))
        found = self._compiled(graph, options, arrivals=arrivals, begins=tuple(begins), near=shared)
        assert isinstance(found, NNPExecutable)
        return NNPParts(found, module)

    def load_parts(self, package: Package, module: Module) -> NNPParts:
        return NNPParts(NNPExecutable.of(self.name, package), module)

    def _optimise(self, graph: Graph, options: Mapping[str, Any]) -> None:
        self.check_options(options)
        self.require_support(graph)
        PassManager(self.pipeline()).run(graph)
        self.require_support(graph)
        if only_published(self.asked(options)[0], options, "all"):
            require_nodes(graph, _refused, f"{self.name} with support=published")

    def _compiled(self, graph: Graph, options: Mapping[str, Any], **parts: Any) -> NNPExecutable | NNPReplicas:
        """`parts`: the settings of the parts of a call."""
        device, element = self.asked(options)
        samples = read_samples(options)
        for sample in samples:
            if len(sample) != len(graph.parameters):
                raise ConfigError(f"option calibration: found a sample of {len(sample)} arrays, expected "
                                  f"{len(graph.parameters)}, one for each input, weights too")
        devices = read_count(options, "devices", _MOST_DEVICES) or 1
        resources, instances = _divided(_resources(device), graph, options)
        settings = Settings(resources, instances, element == "i8", samples, devices, **parts)
        if devices > 1:
            return NNPReplicas.compiled(self.name, graph, settings)
        return NNPExecutable(self.name, split_prepare(graph), settings)

    def load(self, package: Package) -> NNPExecutable | NNPReplicas:
        return (NNPReplicas if PART in package.code else NNPExecutable).of(self.name, package)

    def asked(self, options: Mapping[str, Any]) -> tuple[Device, str]:
        """The device, and what its products are of (`i8`, `f16` or `bf16`), that options and environment ask for.
        Raises ConfigError: there is no such device, or it has no such precision."""
        device = load_device(str(options["device"])) if options.get("device") else self._device
        narrow = _is_int8(str(options.get("precision") or config.get("NGRAPH_PRECISION")), device)
        return device, "i8" if narrow else real_element(device)


def _refused(node: Node) -> str | None:
    reason = unpublished(node)
    return reason and f"{reason}. Leave it to the CPU with the backend HYBRID, or simulate it with support=all"


def real_element(device: Device) -> str:
    """Return the element that real numbers are stored in: f16 if the device's grid has it, else bf16."""
    return "f16" if "f16" in device.grids else "bf16"


def _resources(device: Device) -> Resources:
    return resources_of(device, real_element(device))


def _is_int8(wanted: str, device: Device) -> bool:
    """True if products are to be in i8. `f32`, NGRAPH_PRECISION's default, and `auto` stand for the device's own
    element."""
    known = [real_element(device), *(["int8"] if "i8" in device.grids else [])]
    if wanted not in ("f32", "auto", *known):
        raise ConfigError(f"option precision: found {wanted!r}, expected {' or '.join(known)} on {device.name}")
    return wanted == "int8"


def _divided(resources: Resources, graph: Graph, options: Mapping[str, Any]) -> tuple[Resources, int]:
    """The engines that are used, and into how many parts the batch is cut: there is no more than one instance for each
    image, so a small batch leaves the other instances' engines idle."""
    batch = next((p.shape[0] for p in graph.parameters if p.shape and p.role is not Role.WEIGHT), 1)
    engines = len(resources.engines)
    mode = options.get("mode") or ("throughput" if batch > 1 and _worth_cutting(graph, resources) else "")
    usual = {"throughput": engines, "latency": _LATENCY_INSTANCES, "": 1}
    instances = read_count(options, "instances", engines) or usual[mode]
    used = max(min(instances, batch), 1)
    return resources.with_engines(used * (engines // instances)), used


def _worth_cutting(graph: Graph, resources: Resources) -> bool:
    """False if the host's link would take longer to start transfers for every engine than all nodes compute."""
    device, derivation = resources.device, Derivation()
    most, seconds = len(resources.engines) * transfer_seconds(0, device), 0.0
    for node in graph.nodes:
        seconds += node_seconds(node, device, resources.element, derivation)
        if seconds >= most:
            return True
    return False


class _SplitSums:
    """A pass: convolution and scale_shift of a convolution with both, which no pass of the NNP makes."""

    name = "split_sums"

    def run(self, graph: Graph) -> bool:
        nodes: list[Node] = []
        replaced: dict[Value, Value] = {}
        for node in graph.nodes:
            if "scale" in node.epilogue:
                total, scaled = _parts(node)
                replaced |= {node.outputs[0]: total.output, node.outputs[1]: scaled.output}
                nodes += [total, scaled]
            else:
                nodes.append(node)
        graph.nodes = nodes
        graph.replace(replaced)
        return bool(replaced)


def _parts(node: Node) -> tuple[Node, Node]:
    names = [name for name in node.attrs if name not in ("lower2", "upper2")]
    total = make_node(node.op.name, node.inputs[:-2], {name: node.attrs[name] for name in names}, node.origin)
    bounds = {"lower": node.attrs["lower2"], "upper": node.attrs["upper2"]}
    return total, make_node("scale_shift", [total.output, *node.inputs[-2:]], bounds, node.origin)


_WIDE = ("i64", "u64")
_TAKES_WIDE = ("constant", "copy", "movement", "indexing", "position", "comparison", "choice")
"""Kinds of op that take 64-bit integers: they compute nothing, or compare."""
_SHARE = 0.9
"""The part of an engine's memory that one instruction's tiles may take."""


def unsupported(node: Node, resources: Resources) -> str | None:
    """The reason, as a phrase for people; None if the device runs the node."""
    if not node.op.has_reference and node.op.name != "constant":
        return f"op {node.op.name} has no reference"
    values = [*node.inputs, *node.outputs]
    if any(value.type.element.name == "f64" for value in values):
        return "the device has no float64"
    takes_wide = node.op.kind in _TAKES_WIDE and node.op.name != "bitcast"
    if not takes_wide and any(value.type.element.name in _WIDE for value in values):
        return "the device computes with integers of at most 32 bits; those of 64 are positions"
    if node.op.contraction and not node.inputs[0].type.element.is_float:
        return "the matrix grid multiplies real numbers only"
    if node.op.name == "bitcast" and any(value.type.element.is_float for value in values):
        return f"real numbers are stored in {resources.element}, whose bits are others"
    if node.op.name == "constant":
        return None
    return _too_large(node, resources)


def _too_large(node: Node, resources: Resources) -> str | None:
    memory, size = resources.shared[-1]
    values = dict.fromkeys([*node.inputs, *node.outputs])
    together = sum(stored_bytes(value.type, resources.element) for value in values)
    if together > size:
        return f"its tensors take {together} bytes, more than the {size} of {memory}"
    needed, most = least_bytes(node, resources), int(_SHARE * resources.local_bytes)
    if needed > most:
        return f"it can't be cut into parts of less than {needed} bytes, more than the {most} that an engine holds"
    return None


def moves_nothing(node: Node) -> bool:
    """True if the node's result is a constant, or the bytes of its operand, under another type at most."""
    in_place = node.op.same_bytes and node.op.name != "identity"  # which converts to another element of the device
    return in_place or node.op.kind == "constant"


def stored_bytes(type_: TensorType, element: str) -> int:
    """Return the bytes that a tensor takes on a device that stores real numbers as `element`."""
    return type_.size * _element_bytes(type_, element)


def least_bytes(node: Node, resources: Resources) -> int:
    """Operands and results of the smallest instruction that is part of the node; nothing for what only moves."""
    if node.op.name in VIEWS and node.op.name != "convert":
        return 0
    box = full(node.outputs[0].shape)
    if not box.size:
        return 0
    for axis in ways(node):
        box = box.along(axis, 0, 1)
    found = read(node, box)
    pairs = [*zip(node.inputs, found.inputs, strict=True), *zip(node.outputs, found.outputs, strict=True)]
    if node.inputs and fetches_rows(node.op, found.shapes, found.attrs,
                                    _element_bytes(node.inputs[0].type, resources.element), resources.device):
        pairs[0] = (node.inputs[0], found.outputs[0])
    return sum(stored_bytes(value.type.with_shape(part.shape), resources.element) for value, part in pairs)


def _element_bytes(type_: TensorType, element: str) -> int:
    return ELEMENT_BYTES[element] if type_.element.is_float else type_.element.size


@dataclass(frozen=True)
class _Share:
    """The work of the busiest engine: its seconds, and the bytes that go to and from it."""

    seconds: float
    bytes: float


def device_costs(device: Device, precision: str) -> DeviceCosts:
    """The costs of a device that stores real numbers as `precision`.

    A launch is a write to the device and the answer that it is done, each a trip over the link. Results leave the
    device in the graph's types. In i8 the time of what is compiled is not known before the first call.
    """
    derivation = Derivation()
    return DeviceCosts(lambda node: node_seconds(node, device, precision, derivation), 2 * device.host_link.latency,
                       lambda type_: transfer_seconds(stored_bytes(type_, precision), device), "simulated",
                       HOST_MEMORY if device.shares_memory else device.name,
                       "" if device.shares_memory else device.numbers["host_link.shared"].source,
                       lambda type_: transfer_seconds(type_.bytes, device),
                       None if precision == "i8" else lambda _, executable: executable.simulated_seconds())


def node_seconds(node: Node, device: Device, precision: str, derivation: Derivation | None = None) -> float:
    """Simulated seconds of `node` alone. `precision` is the element of its real tensors: i8, f16 or bf16.

    With i8, products of two activations are computed in f16; `derivation` remembers what is none.

    Raises:
        ConfigError: the device's grid has no such element.
    """
    if precision not in device.grids:
        raise ConfigError(f"{device.name} has no precision {precision!r}; it has {', '.join(device.grids)}")
    if moves_nothing(node) or not any(value.type.size for value in node.outputs):
        return 0.0
    moved, steps = _touched_bytes(node, precision), 2
    if on_grid(node):
        changes = (derivation or Derivation()).of(node.inputs[1])
        share = _grid_share(node, device, precision, is_known=changes is not Changes.WITH_CALLS)
    elif fetches_rows(node.op, _shapes(node), node.attrs, _element_bytes(node.inputs[0].type, precision), device):
        share, steps = _Share(0.0, moved / device.engines), 3  # the rows are loaded behind the indices
    else:
        share = _vector_share(node, device, precision, moved / device.engines)
    dram, near = device.memories["dram"], device.memories[device.local[0]]
    latency = steps * (device.dma_startup + dram.latency + near.latency)  # of the first loads and the last store
    busy = max(share.seconds, moved / dram.bandwidth, share.bytes / device.port,
               share.bytes * device.engines / device.network.bandwidth)
    return latency + busy


def transfer_seconds(size: int, device: Device) -> float:
    """Simulated seconds to bring `size` bytes from the host's memory to the device's, or back."""
    latency = device.dma_startup + sum(device.memories[level].latency for level in ("host", "dram"))
    slowest = min(device.host_link.bandwidth, device.memories["dram"].bandwidth, device.network.bandwidth)
    return latency + device.host_link.latency + size / slowest


def _touched_bytes(node: Node, precision: str) -> int:
    """Bytes that the node reads and writes."""
    return sum(elements * _element_bytes(value.type, precision) for value, elements in touched(node).items())


def _shapes(node: Node) -> Sides:
    return [value.shape for value in node.inputs], [value.shape for value in node.outputs]


def _vector_share(node: Node, device: Device, precision: str, moved: float) -> _Share:
    """`moved`: bytes to and from each engine."""
    counts = operation_counts(node.op, _shapes(node), node.attrs, device)
    widest = max(_element_bytes(value.type, precision) for value in (*node.inputs, *node.outputs))
    seconds = vector_seconds(device, {name: count / device.engines for name, count in counts.items()}, widest)
    return _Share(device.vector.startup + max(seconds, moved / device.memories[device.local[0]].bandwidth), moved)


def _grid_share(node: Node, device: Device, precision: str, *, is_known: bool) -> _Share:
    """`is_known`: its second operand depends on weights only."""
    element = precision
    if precision == "i8" and not is_known and "f16" in device.grids:
        element = "f16"
    splits = _convolution_splits if node.op.kind == "convolution" else _matmul_splits
    size, written = ELEMENT_BYTES[element], stored_bytes(node.output.type, precision)
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
