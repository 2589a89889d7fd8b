"""The backend NNP-IA: the general cores of a simulated NNP-I, which address the memory of its engines.

HYBRID places nodes on them that the engines don't run, as in `HYBRID:cpu,nnp,nnp-ia`; tensors between cores and engines
stay where they are. The numbers are those of the interpreter, in the graph's types. The time of a node is a model: that
there are two cores is published, all their rates are guesses (docs/nnp-devices.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.ir.graph import Graph, Node, node_cost, touched
from ngraph_mxnet.program.backend import Backend, DeviceCosts, get_backend
from ngraph_mxnet.program.executable import Executable
from ngraph_mxnet.targets.nnp.backend import (
    USUAL_DEVICE,
    device_costs,
    moves_nothing,
    real_element,
    stored_bytes,
)
from ngraph_mxnet.targets.nnp.device import Cores, Device, devices, load_device
from ngraph_mxnet.targets.nnp.timing import operation_counts

_LANES = 16
"""Elements of f32 in a vector."""


class CoresBackend(Backend):
    """See `Backend`. `device` is a product or product:mode whose chip has general cores; it shares its memory with the
    engines of the same product in the same mode."""

    name = "NNP-IA"
    options: Mapping[str, str] = {
        "device": "a product, or product:mode, such as nnp-i-1100:12W (default: that of the backend's name)"}

    def __init__(self, device: str = "") -> None:
        self._device = _with_cores(device or USUAL_DEVICE)[0]
        if device:
            self.name = f"NNP-IA:{device}"

    def supports(self, node: Node) -> str | None:
        return get_backend("INTERPRETER").supports(node)

    def check_options(self, options: Mapping[str, Any]) -> None:
        super().check_options(options)
        self._asked(options)

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        self.check_options(options)
        self.require_support(graph)
        return get_backend("INTERPRETER").compile(graph, {})

    def costs(self, graph: Graph, options: Mapping[str, Any]) -> DeviceCosts:
        device, cores = self._asked(options)
        element = real_element(device)
        engines = device_costs(device, element)
        return DeviceCosts(lambda node: node_seconds(node, device, cores, element), cores.startup, engines.transfer,
                           "modelled", engines.memory, engines.apart, engines.leaving)

    def _asked(self, options: Mapping[str, Any]) -> tuple[Device, Cores]:
        return _with_cores(str(options["device"])) if options.get("device") else _with_cores(self._device.name)


def _with_cores(name: str) -> tuple[Device, Cores]:
    device = load_device(name)
    if device.cores is None:
        known = [product for product in devices() if load_device(product).cores is not None]
        raise ConfigError(f"{device.product} has no cores of its own; such as have: {', '.join(known)}")
    return device, device.cores


def node_seconds(node: Node, device: Device, cores: Cores, element: str) -> float:
    """Modelled seconds of `node` on all cores: the longer of computing, and of moving tensors that store real numbers
    as `element`. A vector takes the cycles of its class of operation on an engine's vector unit."""
    if moves_nothing(node):
        return 0.0
    computing = node_cost(node).macs / cores.macs
    if not node.op.contraction:
        shapes = [value.shape for value in node.inputs], [value.shape for value in node.outputs]
        counts = operation_counts(node.op, shapes, node.attrs, device)
        cycles = sum(count / _LANES * device.vector.cycles[name] for name, count in counts.items())
        computing = max(computing, cycles / cores.vectors)
    moved = sum(stored_bytes(value.type.with_shape((elements,)), element) for value, elements in touched(node).items())
    return max(computing, moved / min(cores.bytes, device.memories["llc"].bandwidth))
